//! How much CPU time nobody used.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::cgroup::{self, Level, Version};
use super::{Root, number_of, read, read_number};

/// CPU time, counted since the first look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuTotal {
    /// How many cores the server may use: the CPUs it may run on, or a quota, which may be a part of one.
    pub cores: f64,
    /// Time that was left on these cores, in microseconds: of the machine's or of a quota's, whichever had less. What the
    /// hypervisor stole was not left.
    pub left_us: u64,
}

/// Looks at the machine and at the cgroups around the server.
#[derive(Debug)]
pub struct Cpu {
    root: Root,
    /// The CPUs that the server may run on; all, if it is empty.
    allowed: Vec<RangeInclusive<u32>>,
    quotas: Vec<Quota>,
    begun: Instant,
    last: Option<Last>,
    left_us: u64,
    /// In which `/proc/stat` counts, in microseconds.
    tick_us: u64,
}

#[derive(Debug)]
struct Last {
    at_us: u64,
    idle_us: u64,
}

/// A cgroup that may have a quota.
#[derive(Debug)]
struct Quota {
    level: Level,
    usage: PathBuf,
    last_usage_us: u64,
}

impl Cpu {
    pub fn here() -> Self {
        Self::at(
            Root("/".into()),
            1_000_000 / rustix::param::clock_ticks_per_second(),
        )
    }

    fn at(root: Root, tick_us: u64) -> Self {
        let levels = cgroup::levels(&root, "cpu");
        // Version 1 counts in another controller, which may have a hierarchy of its own.
        let counts = cgroup::levels(&root, "cpuacct");
        let quota = |(number, level): (usize, Level)| {
            let usage = match level.version {
                Version::V2 => level.dir.join("cpu.stat"),
                Version::V1 => counts.get(number)?.dir.join("cpuacct.usage"),
            };
            let last_usage_us = usage_us(level.version, &usage).unwrap_or(0);
            Some(Quota {
                level,
                usage,
                last_usage_us,
            })
        };
        let quotas = levels.into_iter().enumerate().filter_map(quota).collect();
        Self {
            allowed: allowed(&root.read("/proc/self/status").unwrap_or_default()),
            root,
            quotas,
            begun: Instant::now(),
            last: None,
            left_us: 0,
            tick_us,
        }
    }

    /// Reads `/proc/stat`, and one or two small files for each cgroup around the server. `None` if the machine's own cannot be read.
    pub fn total(&mut self) -> Option<CpuTotal> {
        let now_us = u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.total_at(now_us)
    }

    fn total_at(&mut self, now_us: u64) -> Option<CpuTotal> {
        let (cpus, idle_ticks) = idle_ticks(&self.root.read("/proc/stat")?, &self.allowed)?;
        let idle_us = idle_ticks * self.tick_us;
        let last = self.last.replace(Last {
            at_us: now_us,
            idle_us,
        });
        let last = last.as_ref();
        let passed_us = last.map_or(0, |last| now_us.saturating_sub(last.at_us));
        let mut cores = cpus as f64;
        let mut left_us = last.map_or(0, |last| idle_us.saturating_sub(last.idle_us));
        for quota in &mut self.quotas {
            let Some(quota_cores) = quota_cores(&quota.level) else {
                continue;
            };
            let Some(usage_us) = usage_us(quota.level.version, &quota.usage) else {
                continue;
            };
            let used_us = usage_us.saturating_sub(quota.last_usage_us);
            quota.last_usage_us = usage_us;
            let all_us = (quota_cores * passed_us as f64) as u64;
            left_us = left_us.min(all_us.saturating_sub(used_us));
            cores = cores.min(quota_cores);
        }
        self.left_us += left_us;
        Some(CpuTotal {
            cores,
            left_us: self.left_us,
        })
    }
}

/// How many CPUs there are that the server may run on, and for how long they have been idle or waited for a disk, in
/// ticks: see stat in proc(5).
fn idle_ticks(stat: &str, allowed: &[RangeInclusive<u32>]) -> Option<(usize, u64)> {
    let is_allowed = |cpu| allowed.is_empty() || allowed.iter().any(|range| range.contains(&cpu));
    let idle = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let cpu = words.next()?.strip_prefix("cpu")?.parse().ok()?;
        let mut ticks = words.skip(3).map(str::parse::<u64>);
        let idle = ticks.next()?.ok()? + ticks.next()?.ok()?;
        is_allowed(cpu).then_some(idle)
    };
    let idle: Vec<u64> = stat.lines().filter_map(idle).collect();
    (!idle.is_empty()).then(|| (idle.len(), idle.iter().sum()))
}

/// The CPUs that the server may run on: `Cpus_allowed_list` in proc(5), such as `0-3,8`.
fn allowed(status: &str) -> Vec<RangeInclusive<u32>> {
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    list.unwrap_or_default()
        .split(',')
        .filter_map(range)
        .collect()
}

/// A cgroup's quota in cores; `None` without one.
fn quota_cores(level: &Level) -> Option<f64> {
    let (quota, period) = match level.version {
        Version::V2 => {
            let max = read(&level.dir.join("cpu.max"))?;
            let (quota, period) = max.trim().split_once(' ')?;
            (quota.parse::<u64>().ok()?, period.parse::<u64>().ok()?)
        }
        // -1 is none.
        Version::V1 => (
            read_number(&level.dir.join("cpu.cfs_quota_us"))?,
            read_number(&level.dir.join("cpu.cfs_period_us"))?,
        ),
    };
    (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
}

fn usage_us(version: Version, path: &Path) -> Option<u64> {
    match version {
        Version::V2 => number_of(&read(path)?, "usage_usec"),
        Version::V1 => Some(read_number(path)? / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Files;
    use super::*;

    const TICK_US: u64 = 10_000;

    fn stat(idle: [u64; 3]) -> String {
        let line = |(cpu, idle): (usize, u64)| format!("cpu{cpu} 500 0 70 {idle} 10 0 3 99 0 0\n");
        let cpus: String = idle.into_iter().enumerate().map(line).collect();
        format!("cpu  1500 0 210 9999 30 0 9 297 0 0\n{cpus}intr 1 2 3\nctxt 77\n")
    }

    fn v2(name: &str) -> Files {
        let files = Files::new(name);
        files
            .write("proc/stat", &stat([0, 0, 0]))
            .write("proc/self/cgroup", "0::/slice/service\n")
            .write(
                "proc/self/mountinfo",
                "35 24 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            );
        files
    }

    #[test]
    fn of_a_machine_idle_time_is_left() {
        let files = v2("cpu-machine");
        let mut cpu = Cpu::at(files.root(), TICK_US);
        let nothing = CpuTotal {
            cores: 3.0,
            left_us: 0,
        };
        assert_eq!(cpu.total_at(1_000_000), Some(nothing));
        files.write("proc/stat", &stat([50, 0, 20]));
        let left = |total: Option<CpuTotal>| total.expect("readable").left_us;
        assert_eq!(left(cpu.total_at(2_000_000)), 700_000);
        files.write(
            "proc/self/status",
            "Name:\tbaton\nCpus_allowed_list:\t0,2-7\n",
        );
        let mut cpu = Cpu::at(files.root(), TICK_US);
        assert_eq!(cpu.total_at(2_000_000).map(|total| total.cores), Some(2.0));
        files.write("proc/stat", &stat([60, 90, 20]));
        assert_eq!(left(cpu.total_at(3_000_000)), 100_000);
    }

    #[test]
    fn of_a_quota_the_rest_is_left() {
        let files = v2("cpu-quota");
        let service = "sys/fs/cgroup/slice/service";
        files
            .write(&format!("{service}/cpu.max"), "150000 100000\n")
            .write(
                &format!("{service}/cpu.stat"),
                "usage_usec 5000000\nuser_usec 1\n",
            )
            .write("sys/fs/cgroup/slice/cpu.max", "max 100000\n")
            .write("sys/fs/cgroup/slice/cpu.stat", "usage_usec 900000000\n");
        let mut cpu = Cpu::at(files.root(), TICK_US);
        assert_eq!(cpu.total_at(0).map(|total| total.cores), Some(1.5));
        files
            .write("proc/stat", &stat([100, 100, 100]))
            .write(&format!("{service}/cpu.stat"), "usage_usec 6200000\n");
        assert_eq!(
            cpu.total_at(1_000_000).map(|total| total.left_us),
            Some(300_000)
        );
        // The machine has less.
        files.write("proc/stat", &stat([110, 100, 100]));
        assert_eq!(
            cpu.total_at(2_000_000).map(|total| total.left_us),
            Some(400_000)
        );
        // Now the slice has a quota, and it is used up.
        files
            .write("sys/fs/cgroup/slice/cpu.max", "50000 100000\n")
            .write("sys/fs/cgroup/slice/cpu.stat", "usage_usec 999000000\n")
            .write("proc/stat", &stat([210, 200, 200]));
        let total = cpu.total_at(3_000_000).expect("readable");
        assert_eq!((total.cores, total.left_us), (0.5, 400_000));
    }

    #[test]
    fn version_1_counts_elsewhere() {
        let files = Files::new("cpu-v1");
        files
            .write("proc/stat", &stat([0, 0, 0]))
            .write("proc/self/cgroup", "2:cpuacct:/a\n1:cpu:/a\n0::/\n")
            .write(
                "proc/self/mountinfo",
                "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                 33 31 0:30 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n",
            )
            .write("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "200000\n")
            .write("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n")
            .write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
            .write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
            .write("sys/fs/cgroup/cpuacct/a/cpuacct.usage", "7000000000\n");
        let mut cpu = Cpu::at(files.root(), TICK_US);
        assert_eq!(cpu.total_at(0).map(|total| total.cores), Some(2.0));
        files
            .write("proc/stat", &stat([100, 100, 100]))
            .write("sys/fs/cgroup/cpuacct/a/cpuacct.usage", "7500000000\n");
        assert_eq!(
            cpu.total_at(1_000_000).map(|total| total.left_us),
            Some(1_500_000)
        );
    }

    #[test]
    fn nonsense_is_no_limit_and_no_panic() {
        let files = v2("cpu-nonsense");
        let mut cpu = Cpu::at(files.root(), TICK_US);
        for text in [
            "",
            "cpu0",
            "cpu0 1 2 3 4\n",
            "cpu0 1 2 3 x y\n",
            "cpux 1 2 3 4 5\n",
        ] {
            files.write("proc/stat", text);
            assert_eq!(cpu.total_at(0), None, "{text}");
        }
        files
            .write("proc/stat", &stat([1, 1, 1]))
            .write("proc/self/status", "Cpus_allowed_list:\tall\n")
            .write("sys/fs/cgroup/slice/cpu.max", "1 0\n")
            .write("sys/fs/cgroup/cpu.max", "\n");
        let mut cpu = Cpu::at(files.root(), TICK_US);
        assert_eq!(cpu.total_at(5).map(|total| total.cores), Some(3.0));
        // Counters that run backwards leave nothing.
        files.write("proc/stat", &stat([0, 0, 0]));
        assert_eq!(cpu.total_at(1).map(|total| total.left_us), Some(0));
    }
}
