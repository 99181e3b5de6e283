//! A second of memory: from counters that only grow to means over the last moments.

use std::collections::VecDeque;

use super::idle_least::IdleLeast;
use super::observation::{Cpu, CpuCounters, IdleThread, Memory, Observation, StartCost};
use crate::gauge::Glance;

/// What a look finds. Counters count since some moment in the past.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    pub glance: Glance,
    /// One idle thread of each process; see [`Dispatcher::idle_processes`](crate::Dispatcher::idle_processes).
    pub idle: Vec<IdleThread>,
    /// Threads that are there and were added by hand.
    pub by_hand: u32,
    /// Since when each thread that is starting does so, in milliseconds.
    pub starting_since_ms: &'a [u64],
    /// After failed starts: when the next may be tried, in milliseconds; see [`Backoff`](crate::Backoff).
    pub start_not_before_ms: u64,
    /// `None` if it is not known.
    pub work: Option<Work>,
    pub cpu: CpuCounters,
    pub start: Option<StartCost>,
    pub memory: Option<Memory>,
}

/// What the app's threads did, all of them or an even sample: see `schedstat` in proc(5) and in the kernel's
/// `Documentation/scheduler/sched-stats.rst`. It may be older than the look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Time in which they had a request, in microseconds. What passes between the front's offer and the thread's taking
    /// it had better not be in it: with very short requests it looks like sleep.
    pub busy_us: u64,
    /// CPU time, in microseconds.
    pub cpu_us: u64,
    /// Time in which they could have run and waited for a core, in microseconds.
    pub delay_us: u64,
}

/// What was seen of one app lately.
#[derive(Debug)]
pub struct Meter {
    /// The oldest first; none but the first is older than [`Meter::CPU_LONG_WINDOW_MS`].
    samples: VecDeque<Sample>,
    work: Work,
    undelayed_us: f64,
    cpu_us: f64,
    idle: IdleLeast,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at_ms: u64,
    left_us: u64,
    ours_us: u64,
    busy_ms: u64,
    waited_ms: u64,
}

impl Meter {
    /// `/proc/stat` counts hundredths of a second: shorter windows are mostly noise.
    pub const CPU_WINDOW_MS: u64 = 200;
    pub const CPU_LONG_WINDOW_MS: u64 = 1_000;
    /// Looks that follow sooner see, but leave no sample.
    const SAMPLE_MS_MIN: u64 = 10;
    /// What was done so long ago counts half.
    const WORK_HALF_MS: u64 = 1_000;
    /// Over how long waiting is averaged: as long as it costs as much as a start, but within these.
    const WAIT_MS_MIN: f64 = 20.0;
    const WAIT_MS_MAX: f64 = 500.0;
    /// A start that takes so many times as long as the last ones is not counted on any more.
    const OVERDUE_FACTOR: f64 = 4.0;
    const OVERDUE_MS_MIN: f64 = 10_000.0;

    pub fn new() -> Self {
        Self {
            samples: VecDeque::new(),
            work: Work::default(),
            undelayed_us: 0.0,
            cpu_us: 0.0,
            idle: IdleLeast::default(),
        }
    }

    /// `idle_ms_max`: see [`ScaleLimits::idle_ms_max`](super::ScaleLimits::idle_ms_max).
    pub fn observe(&mut self, seen: Seen<'_>, idle_ms_max: u64, now_ms: u64) -> Observation {
        let now = Sample {
            at_ms: now_ms,
            left_us: seen.cpu.left_us,
            ours_us: seen.cpu.ours_us,
            busy_ms: seen.glance.busy_ms,
            waited_ms: seen.glance.waited_ms,
        };
        if let Some(work) = seen.work {
            self.count_work(work, seen.glance.threads, now_ms);
        }
        let idle_least = self.idle.seen(seen.glance.idle_least, idle_ms_max, now_ms);
        let since_ms = seen.starting_since_ms;
        let (least_ms, pace_ms, cost_ms) = seen.start.map_or((0.0, 0.0, 0.0), |start| {
            (start.least_ms(), start.pace_ms(), start.cpu_ms)
        });
        let late_ms = (Self::OVERDUE_FACTOR * least_ms).max(Self::OVERDUE_MS_MIN);
        let overdue = starting(since_ms, now_ms, |age_ms| age_ms > late_ms);
        let wait_ms = cost_ms.clamp(Self::WAIT_MS_MIN, Self::WAIT_MS_MAX);
        let observation = Observation {
            threads: to_u32(seen.glance.threads),
            by_hand: seen.by_hand,
            idle: seen.idle,
            idle_least: to_u32(idle_least),
            starting: to_u32(since_ms.len()) - overdue,
            starting_young: starting(since_ms, now_ms, |age_ms| age_ms < pace_ms),
            overdue,
            start_not_before_ms: seen.start_not_before_ms,
            waiting: to_u32(seen.glance.waiting),
            waiting_mean: self.since(wait_ms as u64, now).waiting,
            oldest_wait_ms: seen.glance.oldest_wait_ms,
            thread_use: (self.undelayed_us > 0.0).then(|| self.cpu_us / self.undelayed_us),
            cpu: self.cpu(seen.cpu.cores, now),
            start: seen.start,
            memory: seen.memory,
        };
        self.keep(now);
        observation
    }

    /// So many idle threads were stopped: they are no longer among those that nobody needs.
    pub fn stopped(&mut self, count: usize) {
        self.idle.stopped(count);
    }

    fn keep(&mut self, now: Sample) {
        let last_ms = self.samples.back().map(|last| last.at_ms);
        if last_ms.is_some_and(|last_ms| now.at_ms < last_ms + Self::SAMPLE_MS_MIN) {
            return;
        }
        self.samples.push_back(now);
        let old = |sample: &Sample| sample.at_ms + Self::CPU_LONG_WINDOW_MS <= now.at_ms;
        while self.samples.get(1).is_some_and(old) {
            self.samples.pop_front();
        }
    }

    fn count_work(&mut self, work: Work, threads: usize, now_ms: u64) {
        let passed_ms = self
            .samples
            .back()
            .map_or(0, |last| now_ms.saturating_sub(last.at_ms));
        let half_ms = Self::WORK_HALF_MS as f64;
        let kept = half_ms / (half_ms + passed_ms as f64);
        let grown = |now: u64, then: u64| now.saturating_sub(then) as f64;
        let cpu_us = grown(work.cpu_us, self.work.cpu_us);
        let delay_us = grown(work.delay_us, self.work.delay_us);
        let busy_us = grown(work.busy_us, self.work.busy_us);
        self.undelayed_us = kept * self.undelayed_us + (busy_us - delay_us).max(cpu_us);
        self.cpu_us = kept * self.cpu_us + cpu_us;
        self.work = work;
        // Threads that are no more, of which there may have been many, have no say for long.
        let threads_us = 1000.0 * half_ms * threads.max(1) as f64;
        let scale = (threads_us / self.undelayed_us).min(1.0);
        self.undelayed_us *= scale;
        self.cpu_us *= scale;
    }

    fn cpu(&self, cores: f64, now: Sample) -> Cpu {
        let window = self.since(Self::CPU_WINDOW_MS, now);
        let long = self.since(Self::CPU_LONG_WINDOW_MS, now);
        let begin_ms = self.samples.front().map_or(now.at_ms, |first| first.at_ms);
        let is_known = begin_ms + Self::CPU_WINDOW_MS <= now.at_ms;
        Cpu {
            cores,
            left: match is_known {
                true => window.left.min(long.left).min(cores),
                false => 0.0,
            },
            ours: window.ours,
            busy: window.busy,
        }
    }

    /// Means since the last sample that is at least so old; nothing at all was left before the first.
    fn since(&self, window_ms: u64, now: Sample) -> Means {
        let old = |sample: &&Sample| sample.at_ms + window_ms <= now.at_ms;
        let first = self.samples.iter().rev().find(old);
        let Some(first) = first.or(self.samples.front()) else {
            return Means::default();
        };
        let passed_ms = now.at_ms.saturating_sub(first.at_ms).max(1) as f64;
        let mean = |now: u64, then: u64| now.saturating_sub(then) as f64 / passed_ms;
        Means {
            left: mean(now.left_us, first.left_us) / 1000.0,
            ours: mean(now.ours_us, first.ours_us) / 1000.0,
            busy: mean(now.busy_ms, first.busy_ms),
            waiting: mean(now.waited_ms, first.waited_ms),
        }
    }
}

impl Default for Meter {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Means {
    left: f64,
    ours: f64,
    busy: f64,
    waiting: f64,
}

/// How many have been starting for a time that is meant.
fn starting(since_ms: &[u64], now_ms: u64, is_meant: impl Fn(f64) -> bool) -> u32 {
    let age_ms = |since_ms: &u64| now_ms.saturating_sub(*since_ms) as f64;
    to_u32(
        since_ms
            .iter()
            .map(age_ms)
            .filter(|age_ms| is_meant(*age_ms))
            .count(),
    )
}

fn to_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(cpu: CpuCounters, glance: Glance) -> Seen<'static> {
        Seen {
            glance,
            idle: Vec::new(),
            by_hand: 0,
            starting_since_ms: &[],
            start_not_before_ms: 0,
            work: None,
            cpu,
            start: None,
            memory: None,
        }
    }

    fn cpu(left_us: u64) -> CpuCounters {
        CpuCounters {
            cores: 2.0,
            left_us,
            ours_us: 0,
        }
    }

    #[test]
    fn the_cpu_left_is_the_least_of_two_windows() {
        let mut meter = Meter::new();
        let glance = Glance::default();
        let at = |meter: &mut Meter, left_us, now_ms| {
            meter
                .observe(seen(cpu(left_us), glance), 1000, now_ms)
                .cpu
                .left
        };
        assert_eq!(at(&mut meter, 7_000_000, 5000), 0.0, "nothing is known");
        // One core is left for a second, then none.
        for step in 1..=40 {
            let left = at(&mut meter, 7_000_000 + step * 25_000, 5000 + step * 25);
            let is_known = step * 25 >= Meter::CPU_WINDOW_MS;
            assert_eq!(left, f64::from(u8::from(is_known)), "step {step}");
        }
        assert_eq!(at(&mut meter, 8_025_000, 6025), 1.0);
        for step in 1..=8 {
            at(&mut meter, 8_025_000, 6025 + step * 25);
        }
        assert_eq!(at(&mut meter, 8_025_000, 6250), 0.0);
        // Then two: the last second has less.
        for step in 1..=8 {
            at(&mut meter, 8_025_000 + step * 50_000, 6250 + step * 25);
        }
        let left = at(&mut meter, 8_475_000, 6475);
        assert!(left > 0.9 && left < 1.1, "{left}");
        assert!(meter.samples.len() <= 42, "{}", meter.samples.len());
    }

    #[test]
    fn looks_in_quick_succession_leave_few_samples() {
        let mut meter = Meter::new();
        for now_ms in 0..5000 {
            meter.observe(seen(cpu(0), Glance::default()), 1000, now_ms);
        }
        assert!(meter.samples.len() <= 102, "{}", meter.samples.len());
    }

    #[test]
    fn a_thread_needs_what_it_uses_while_it_does_not_wait_for_a_core() {
        let mut meter = Meter::new();
        let at = |meter: &mut Meter, busy_us, cpu_us, delay_us, now_ms| {
            let mut seen = seen(cpu(0), Glance::default());
            seen.work = Some(Work {
                busy_us,
                cpu_us,
                delay_us,
            });
            meter.observe(seen, 1000, now_ms).thread_use
        };
        assert_eq!(at(&mut meter, 0, 0, 0, 0), None);
        assert_eq!(at(&mut meter, 2_000, 500, 1_000, 100), Some(0.5));
        // No news.
        assert_eq!(at(&mut meter, 2_000, 500, 1_000, 60_000), Some(0.5));
        // What was long ago counts little.
        let thread_use = at(&mut meter, 3_000, 500, 1_000, 60_100).expect("known");
        assert!(thread_use < 0.05, "{thread_use}");
        // Counters that do not fit together, or run backwards.
        assert_eq!(
            at(&mut meter, 3_000, 1_000_500, 0, 60_200).map(f64::round),
            Some(1.0)
        );
    }

    #[test]
    fn what_waited_is_a_mean() {
        let mut meter = Meter::new();
        let at = |meter: &mut Meter, waited_ms, now_ms| {
            let glance = Glance {
                waited_ms,
                ..Glance::default()
            };
            meter
                .observe(seen(cpu(0), glance), 1000, now_ms)
                .waiting_mean
        };
        at(&mut meter, 0, 1000);
        assert_eq!(at(&mut meter, 50, 1025), 2.0);
        assert_eq!(at(&mut meter, 150, 1050), 4.0);
    }

    #[test]
    fn slow_starts_are_not_counted_on_for_ever() {
        let mut meter = Meter::new();
        let since_ms = [0, 30_000];
        let mut seen = seen(cpu(0), Glance::default());
        seen.starting_since_ms = &since_ms;
        let observation = meter.observe(seen.clone(), 1000, 31_000);
        assert_eq!((observation.starting, observation.overdue), (1, 1));
        seen.start = Some(StartCost {
            cpu_ms: 100.0,
            sleep_ms: 9_000.0,
        });
        let observation = meter.observe(seen, 1000, 31_000);
        assert_eq!((observation.starting, observation.overdue), (2, 0));
    }
}
