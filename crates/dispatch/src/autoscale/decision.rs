//! What was decided, and why, in words.

use std::fmt;

use crate::dispatcher::ThreadId;

#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub action: Action,
    pub reason: Reason,
    /// When to look again, in milliseconds. Sooner, but not within [`LOOK_MS`](super::LOOK_MS) of this look, if a request
    /// has to wait and none did at this look, or if a thread was lost.
    pub look_again_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// So many threads more.
    Start(u32),
    /// So many: the processes of these, which are idle.
    Stop {
        count: u32,
        with: Vec<ThreadId>,
    },
    Hold,
}

/// CPU in cores, times in milliseconds, memory in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// Start: there are fewer than there must be.
    TooFew { threads: u32, threads_min: u32 },
    /// Start: requests wait while threads sleep, and cores are left, or the app has less than its share of them.
    ThreadsSleep {
        waiting: u32,
        oldest_wait_ms: u64,
        cpu: CpuView,
    },
    /// Stop: nobody needed them.
    Idle { idle_least: u32, idle_ms_max: u64 },
    /// Hold: no request waits.
    NothingWaits,
    /// Hold: requests have just begun to wait.
    WaitIsShort { waiting: u32, oldest_wait_ms: u64 },
    /// Hold: the CPU is full, so more threads would not do more.
    CpuFull { waiting: u32, cpu: CpuView },
    /// Hold: those that are starting are enough, or as many as should start at once.
    Starting { waiting: u32, starting: u32 },
    /// Hold: there are as many as there may be.
    AtMost { waiting: u32, threads_max: u32 },
    /// Hold: no memory for one more.
    MemoryFull {
        waiting: u32,
        left_bytes: u64,
        kept_bytes: u64,
        thread_bytes: u64,
    },
    /// Hold: the last start failed.
    StartsFail { waiting: u32, again_in_ms: u64 },
}

/// In cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuView {
    pub cores: f64,
    /// Of them, what the app uses.
    pub ours: f64,
    pub left: f64,
    /// Of one core, what a busy thread needs.
    pub thread_use: f64,
}

impl fmt::Display for CpuView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a busy thread needs {} of a core; of {} cores the app uses {:.1}, and {:.1} are left",
            Percent(self.thread_use),
            Cores(self.cores),
            self.ours,
            self.left
        )
    }
}

impl Reason {
    /// Whether it is the same reason, whatever its figures.
    pub fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TooFew {
                threads,
                threads_min,
            } => write!(
                f,
                "{} of the least of {threads_min}",
                are(threads, "thread")
            ),
            Self::ThreadsSleep {
                waiting,
                oldest_wait_ms,
                cpu,
            } => write!(
                f,
                "{}, the oldest for {oldest_wait_ms} ms; {cpu}",
                wait(waiting)
            ),
            Self::Idle {
                idle_least,
                idle_ms_max,
            } => write!(
                f,
                "{} not needed for {} s",
                if idle_least == 1 {
                    "1 thread was".into()
                } else {
                    format!("{idle_least} threads were")
                },
                idle_ms_max as f64 / 1000.0
            ),
            Self::NothingWaits => write!(f, "no request waits"),
            Self::WaitIsShort {
                waiting,
                oldest_wait_ms,
            } => write!(
                f,
                "{}, the oldest for only {oldest_wait_ms} ms: less than a start costs",
                wait(waiting)
            ),
            Self::CpuFull { waiting, cpu } => write!(
                f,
                "{}, but more threads would not do more: {cpu}",
                wait(waiting)
            ),
            Self::Starting { waiting, starting } => write!(
                f,
                "{}, and {} already starting",
                wait(waiting),
                are(starting, "thread")
            ),
            Self::AtMost {
                waiting,
                threads_max,
            } => write!(
                f,
                "{}, but there are as many threads as may be: {threads_max}",
                wait(waiting)
            ),
            Self::MemoryFull {
                waiting,
                left_bytes,
                kept_bytes,
                thread_bytes,
            } => write!(
                f,
                "{}, but memory is short: {} MB are left, {} MB of them are kept free, and a thread takes {} MB",
                wait(waiting),
                left_bytes / MB,
                kept_bytes / MB,
                thread_bytes.div_ceil(MB),
            ),
            Self::StartsFail {
                waiting,
                again_in_ms,
            } => write!(
                f,
                "{}, but threads fail to start; the next try is in {again_in_ms} ms",
                wait(waiting)
            ),
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.action {
            Action::Start(count) => write!(f, "start {count}: ")?,
            Action::Stop { count, .. } => write!(f, "stop {count}: ")?,
            Action::Hold => write!(f, "hold: ")?,
        }
        self.reason.fmt(f)
    }
}

const MB: u64 = 1_000_000;

fn wait(waiting: u32) -> String {
    match waiting {
        0 => "no request waits".into(),
        1 => "1 request waits".into(),
        _ => format!("{waiting} requests wait"),
    }
}

fn are(count: u32, thing: &str) -> String {
    match count {
        1 => format!("1 {thing} is"),
        _ => format!("{count} {thing}s are"),
    }
}

/// A share; two digits below 10 %.
struct Percent(f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = usize::from(self.0 < 0.0995);
        write!(f, "{:.digits$} %", 100.0 * self.0)
    }
}

/// A quota may be a part of a core.
struct Cores(f64);

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = usize::from(self.0.fract() != 0.0);
        write!(f, "{:.digits$}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_read_as_sentences() {
        let start = Decision {
            action: Action::Start(34),
            reason: Reason::ThreadsSleep {
                waiting: 96,
                oldest_wait_ms: 25,
                cpu: CpuView {
                    cores: 2.0,
                    ours: 0.2,
                    left: 1.8,
                    thread_use: 0.046,
                },
            },
            look_again_ms: Some(25),
        };
        assert_eq!(
            start.to_string(),
            "start 34: 96 requests wait, the oldest for 25 ms; a busy thread needs 4.6 % of a core; of 2 cores the app \
             uses 0.2, and 1.8 are left"
        );
        let hold = Decision {
            action: Action::Hold,
            reason: Reason::CpuFull {
                waiting: 1,
                cpu: CpuView {
                    cores: 1.5,
                    ours: 1.2,
                    left: 0.03,
                    thread_use: 0.97,
                },
            },
            look_again_ms: None,
        };
        assert_eq!(
            hold.to_string(),
            "hold: 1 request waits, but more threads would not do more: a busy thread needs 97 % of a core; of 1.5 cores \
             the app uses 1.2, and 0.0 are left"
        );
    }
}
