//! What a thread had of the CPU, and how long it waited for it.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::time::{ClockId, clock_gettime};

/// In nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub cpu_ns: u64,
    /// Runnable, but not running: the machine was short of CPUs. 0 where the kernel does not tell.
    pub wait_ns: u64,
}

impl Usage {
    pub fn add(&mut self, other: &Usage) {
        self.cpu_ns += other.cpu_ns;
        self.wait_ns += other.wait_ns;
    }

    fn since(&self, before: &Usage) -> Usage {
        Usage {
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            wait_ns: self.wait_ns.saturating_sub(before.wait_ns),
        }
    }
}

/// The usage of the thread that made it, from reading to reading.
pub struct UsageMeter {
    /// proc(5): time running and time waiting to run, in nanoseconds.
    schedstat: Option<File>,
    before: Usage,
}

impl UsageMeter {
    pub fn new() -> UsageMeter {
        let mut meter = UsageMeter {
            schedstat: File::open("/proc/thread-self/schedstat").ok(),
            before: Usage::default(),
        };
        meter.read();
        meter
    }

    /// Since the last reading. Two system calls.
    pub fn read(&mut self) -> Usage {
        let now = Usage {
            cpu_ns: cpu_ns(),
            wait_ns: self.schedstat.as_ref().and_then(wait_ns).unwrap_or(0),
        };
        let usage = now.since(&self.before);
        self.before = now;
        usage
    }
}

fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn wait_ns(schedstat: &File) -> Option<u64> {
    let mut text = [0; 80];
    let length = schedstat.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(&text[..length]).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_seen() {
        let mut meter = UsageMeter::new();
        let before = meter.before.cpu_ns;
        let mut sum = 0_u64;
        // However slow the machine: until the clock has moved.
        while cpu_ns() < before + 2_000_000 {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(meter.read().cpu_ns >= 2_000_000);
    }
}
