//! What a decision is made from.

use crate::dispatcher::ThreadId;

/// How an app and its machine are, and were during the last second at most.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// Threads that are there, idle or busy.
    pub threads: u32,
    /// Of them, those that somebody added by hand.
    pub by_hand: u32,
    /// The idle ones, one of each process, in the order in which they are to be stopped.
    pub idle: Vec<IdleThread>,
    /// The fewest that were idle at once in the last [`ScaleLimits::idle_ms_max`](super::ScaleLimits::idle_ms_max).
    pub idle_least: u32,
    /// Starts under way that can be counted on.
    pub starting: u32,
    /// Of these, those that were begun within [`StartCost::pace_ms`].
    pub starting_young: u32,
    /// Starts that take much longer than starts do. They count against the limits, and for nothing else.
    pub overdue: u32,
    /// After failed starts: when the next may be tried, in milliseconds.
    pub start_not_before_ms: u64,
    /// Requests that wait.
    pub waiting: u32,
    /// How many waited in the mean, over the time for which waiting costs as much as a start.
    pub waiting_mean: f64,
    /// How long the oldest of them has waited, in milliseconds.
    pub oldest_wait_ms: u64,
    /// How much of a core a busy thread needs, 0 to 1: what it uses of the time in which it does not wait for a core.
    /// `None` if nothing is known of it.
    pub thread_use: Option<f64>,
    pub cpu: Cpu,
    /// `None` before the first start.
    pub start: Option<StartCost>,
    /// `None` if it is not known.
    pub memory: Option<Memory>,
}

/// A thread that may be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleThread {
    pub id: ThreadId,
    /// Somebody added it by hand: it is not the autoscaler's to stop.
    pub by_hand: bool,
}

/// The CPU of the machine, or of the narrowest cgroup around the server. In cores, means over a window of at least
/// [`Meter::CPU_WINDOW_MS`](super::Meter::CPU_WINDOW_MS).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cpu {
    /// All that the server may use.
    pub cores: f64,
    /// What nobody used: the least of the last window and the last second, so that neither noise nor a pause counts.
    pub left: f64,
    /// What this app used: its threads while they had requests, and its part of what the front used.
    pub ours: f64,
    /// Threads of this app that were busy.
    pub busy: f64,
}

/// CPU time, counted since some moment in the past.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuCounters {
    /// All that the server may use: a quota, or the CPUs it may run on.
    pub cores: f64,
    /// Time that nobody used, in microseconds, of the machine's or of the quota, whichever left less. Time that the
    /// hypervisor stole was used.
    pub left_us: u64,
    /// Time that this app used, in microseconds: its threads while they had requests, and its part of the front's time.
    pub ours_us: u64,
}

/// What it takes to start a thread, as measured lately, in milliseconds. Time in which it waited for a core belongs to
/// neither, or the more start at once the more would seem good.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StartCost {
    /// CPU time, that of the fork and that of the thread until it is ready.
    pub cpu_ms: f64,
    /// Time in which it waits for something else.
    pub sleep_ms: f64,
}

impl StartCost {
    /// How long a start takes that never waits for a core, in milliseconds.
    pub fn least_ms(&self) -> f64 {
        self.cpu_ms + self.sleep_ms
    }

    /// Starts that compute take the CPU from each other, and each is ready the later the more there are: within this
    /// time as many should begin as the cores can carry out in it. In milliseconds.
    pub fn pace_ms(&self) -> f64 {
        self.cpu_ms.max(400.0)
    }
}

/// The memory of the machine, or of the narrowest cgroup around the server. In bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    pub total_bytes: u64,
    /// What can be had without swapping.
    pub left_bytes: u64,
    /// What a thread that has worked for a while takes, without what it shares with others.
    pub thread_bytes: u64,
}

impl Memory {
    /// Kept free for everybody else, as a share of all memory.
    const KEPT_SHARE: u64 = 10;

    pub fn kept_bytes(&self) -> u64 {
        self.total_bytes / Self::KEPT_SHARE
    }

    /// How many more threads fit. Those that are starting have not yet taken theirs.
    pub fn room(&self, starting: u32) -> u32 {
        let free_bytes = self.left_bytes.saturating_sub(self.kept_bytes());
        let fit = free_bytes / self.thread_bytes.max(1);
        u32::try_from(fit)
            .unwrap_or(u32::MAX)
            .saturating_sub(starting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_the_memory_is_kept() {
        let memory = Memory {
            total_bytes: 1000,
            left_bytes: 400,
            thread_bytes: 30,
        };
        assert_eq!(memory.room(0), 10);
        assert_eq!(memory.room(4), 6);
        assert_eq!(memory.room(40), 0);
        let full = Memory {
            left_bytes: 99,
            thread_bytes: 0,
            ..memory
        };
        assert_eq!(full.room(0), 0);
    }
}
