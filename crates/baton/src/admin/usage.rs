//! What app processes use of the machine, as /proc has it: read when somebody asks, and no longer than a bound.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use crate::app::Process;

/// Processes that were looked at and may be again; all are forgotten beyond.
const REMEMBERED_MAX: usize = 16 * 1024;
/// A shorter time than this says little: the kernel counts in hundredths of a second.
const WINDOW_MIN: Duration = Duration::from_secs(1);
/// The kernel walks a process's page tables for its proportional share. After this time resident memory has to do.
const PSS_BOUND: Duration = Duration::from_millis(500);

#[derive(Default)]
pub struct Usage {
    looks: HashMap<u64, CpuLook>,
}

#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Memory {
    pub bytes: u64,
    pub kind: MemoryKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryKind {
    /// Pages that several processes have are counted in parts: proportional set size, proc_pid_smaps(5).
    Pss,
    /// They are counted for each: resident set size.
    Rss,
}

/// CPU time so far, and when.
#[derive(Clone, Copy)]
struct Sample {
    at: Instant,
    ticks: u64,
}

struct CpuLook {
    /// Over a second before `last`, if there was such a look.
    base: Option<Sample>,
    last: Sample,
    /// Since its start, at the first look.
    share: f64,
}

/// How long one answer may take.
pub struct Budget(Instant);

impl Budget {
    pub fn new() -> Self {
        Self(Instant::now() + PSS_BOUND)
    }
}

impl Usage {
    /// `None`: it has ended.
    pub fn memory(&self, process: &Process, budget: &Budget) -> Option<Memory> {
        let pid = process.pid.as_raw_nonzero().get();
        let pss = || {
            let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
            parse_pss(&rollup)
        };
        let rss = || parse_rss(&fs::read_to_string(format!("/proc/{pid}/statm")).ok()?);
        let of = |kind| move |bytes| Memory { bytes, kind };
        // Root without CAP_SYS_PTRACE may not read it of another's process.
        let is_in_time = Instant::now() < budget.0;
        let memory = is_in_time.then(pss).flatten().map(of(MemoryKind::Pss));
        let memory = memory.or_else(|| rss().map(of(MemoryKind::Rss)));
        // Its number may belong to another by now.
        memory.filter(|_| !process.is_dead())
    }

    /// Which part of a core it used since a look that was over a second ago; since its start at first. `None`: it has
    /// ended.
    pub fn cpu_share(&mut self, process: &Process) -> Option<f64> {
        let pid = process.pid.as_raw_nonzero().get();
        let stat = Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
        if process.is_dead() {
            return None;
        }
        let now = Sample {
            at: Instant::now(),
            ticks: stat.cpu_ticks,
        };
        if self.looks.len() >= REMEMBERED_MAX {
            self.looks.clear();
        }
        let look = self.looks.entry(process.number).or_insert_with(|| CpuLook {
            base: None,
            last: now,
            share: stat.share_since_start(),
        });
        Some(look.share_at(now, ticks_per_second()))
    }
}

impl CpuLook {
    fn share_at(&mut self, now: Sample, ticks_per_second: f64) -> f64 {
        if now.at.saturating_duration_since(self.last.at) >= WINDOW_MIN {
            self.base = Some(std::mem::replace(&mut self.last, now));
        }
        if let Some(base) = self.base {
            let seconds = now.at.saturating_duration_since(base.at).as_secs_f64();
            let ticks = now.ticks.saturating_sub(base.ticks);
            self.share = ticks as f64 / ticks_per_second / seconds;
        }
        self.share
    }
}

fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// From `/proc/PID/stat`, in clock ticks.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    cpu_ticks: u64,
    /// Since the machine was booted.
    started_ticks: u64,
}

impl Stat {
    fn parse(stat: &str) -> Option<Self> {
        // The name stands in parentheses, and may have blanks and parentheses in it.
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: number(11)? + number(12)?,
            started_ticks: number(19)?,
        })
    }

    fn share_since_start(&self) -> f64 {
        let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let now_s = boot.tv_sec as f64 + boot.tv_nsec as f64 / 1e9;
        let age_s = now_s - self.started_ticks as f64 / ticks_per_second();
        // Right after its start it would say little.
        self.cpu_ticks as f64 / ticks_per_second() / age_s.max(1.0)
    }
}

fn parse_pss(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

fn parse_rss(statm: &str) -> Option<u64> {
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_proc_says_is_understood() {
        let rollup = "55e0-7ffe ---p 00000000 00:00 0 [rollup]\nRss:   8000 kB\nPss:   1234 kB\nPss_Anon: 9 kB\n";
        assert_eq!(parse_pss(rollup), Some(1234 * 1024));
        assert_eq!(parse_pss("Pss_Anon: 9 kB\n"), None);
        assert_eq!(
            parse_rss("100 7 3 1 0 9 0"),
            Some(7 * rustix::param::page_size() as u64)
        );
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 30 12 0 0 20 0 1 0 5000 1000 200";
        let expected = Stat {
            cpu_ticks: 42,
            started_ticks: 5000,
        };
        assert_eq!(Stat::parse(stat), Some(expected));
        for bad in ["", "7 (a", "7 (a) S 1 2"] {
            assert_eq!(Stat::parse(bad), None);
        }
        let own = fs::read_to_string("/proc/self/stat").expect("there");
        assert!(Stat::parse(&own).is_some());
    }

    #[test]
    fn the_share_is_that_of_the_last_seconds() {
        let begun = Instant::now();
        let sample = |ms, ticks| Sample {
            at: begun + Duration::from_millis(ms),
            ticks,
        };
        let mut look = CpuLook {
            base: None,
            last: sample(0, 100),
            share: 0.125,
        };
        let mut share = |ms, ticks| look.share_at(sample(ms, ticks), 100.0);
        assert_eq!(share(0, 100), 0.125);
        assert_eq!(share(900, 500), 0.125, "too soon to say");
        assert_eq!(share(2_000, 200), 0.5);
        assert_eq!(share(2_500, 225), 0.5);
        assert_eq!(share(4_000, 200), 0.0);
    }
}
