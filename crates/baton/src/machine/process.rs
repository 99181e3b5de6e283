//! What one process takes of the CPU and of the memory.

use nix::time::ClockId;
use rustix::process::Pid;

use super::{number_of, read};

/// Threads of one process that are looked at; it may have hundreds.
const TASKS_SAMPLED_MAX: usize = 8;
/// Among so many of them: an application may start as many as it likes.
const TASKS_LISTED_MAX: usize = 1024;

/// Since the process began, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTaken {
    pub cpu_us: u64,
    /// Time in which it could have run and waited for a core. `None` if that cannot be read.
    pub delay_us: Option<u64>,
}

/// Of the process's first thread: see the kernel's `Documentation/scheduler/sched-stats.rst`. Three system calls and 5 us.
/// `None`: there is no such process.
pub fn cpu_taken(pid: Pid) -> Option<CpuTaken> {
    let text = read(format!("/proc/{pid}/schedstat").as_ref());
    text.and_then(|text| of_schedstat(&text))
        .or_else(|| cpu_clock(pid))
}

/// The same of all its threads. For how long they waited is told by an even sample, at 5 us each.
pub fn cpu_taken_by_all(pid: Pid) -> Option<CpuTaken> {
    let taken = cpu_clock(pid)?;
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok();
    let tasks = tasks.into_iter().flatten().flatten();
    let tasks: Vec<_> = tasks.take(TASKS_LISTED_MAX).collect();
    let stride = tasks.len().div_ceil(TASKS_SAMPLED_MAX).max(1);
    let sample = tasks.iter().step_by(stride);
    let delays = sample.filter_map(|task| {
        let text = read(&task.path().join("schedstat"))?;
        of_schedstat(&text)?.delay_us
    });
    let (sampled, delay_us) = delays.fold((0, 0), |(count, sum), us| (count + 1, sum + us));
    Some(CpuTaken {
        delay_us: (sampled > 0).then(|| delay_us * tasks.len() as u64 / sampled),
        ..taken
    })
}

fn of_schedstat(text: &str) -> Option<CpuTaken> {
    let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
    Some(CpuTaken {
        cpu_us: numbers.next()?.ok()? / 1_000,
        delay_us: Some(numbers.next()?.ok()? / 1_000),
    })
}

/// Where `/proc` hides the processes of others: see hidepid in proc(5).
fn cpu_clock(pid: Pid) -> Option<CpuTaken> {
    let pid = nix::unistd::Pid::from_raw(pid.as_raw_nonzero().get());
    let clock = ClockId::pid_cpu_clock_id(pid).ok()?;
    let used = std::time::Duration::from(clock.now().ok()?);
    Some(CpuTaken {
        cpu_us: used.as_micros() as u64,
        delay_us: None,
    })
}

/// All CPU time of this process, in microseconds.
pub fn own_cpu_us() -> u64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    used.tv_sec as u64 * 1_000_000 + used.tv_nsec as u64 / 1_000
}

/// Memory that would be free if the process ended, its page tables included, in bytes. Walks through the process's page
/// tables, which takes up to some milliseconds: not for every look.
pub fn own_memory_bytes(pid: Pid) -> Option<u64> {
    let status = read(format!("/proc/{pid}/status").as_ref())?;
    // Only who may trace the process may read it. What the status says instead counts pages that it shares with its zygote.
    let pages = read(format!("/proc/{pid}/smaps_rollup").as_ref());
    let private_kib = pages.map_or_else(
        || number_of(&status, "RssAnon"),
        |pages| {
            let clean = number_of(&pages, "Private_Clean")?;
            Some(clean + number_of(&pages, "Private_Dirty")?)
        },
    );
    let tables_kib = number_of(&status, "VmPTE").unwrap_or(0);
    Some((private_kib? + tables_kib) * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_can_be_looked_at() {
        let this = rustix::process::getpid();
        let taken = cpu_taken(this).expect("this process is there");
        let clock = cpu_clock(this).expect("this process is there");
        assert!(taken.cpu_us <= own_cpu_us() && clock.delay_us.is_none());
        let ready = std::sync::Barrier::new(2);
        let by_all = std::thread::scope(|scope| {
            scope.spawn(|| {
                // Work of another thread than the first.
                let used = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
                while used().tv_nsec < 20_000_000 {}
                ready.wait();
                ready.wait();
            });
            ready.wait();
            let by_all = cpu_taken_by_all(this).expect("this process is there");
            ready.wait();
            by_all
        });
        let first = cpu_taken(this).expect("this process is there");
        assert!(
            by_all.cpu_us >= first.cpu_us + 15_000,
            "{by_all:?}, {first:?}"
        );
        assert!(by_all.delay_us.is_some());
        let bytes = own_memory_bytes(this).expect("its memory");
        assert!(bytes > 100_000 && bytes < 1 << 40, "{bytes}");
    }

    #[test]
    fn who_is_not_there_took_nothing() {
        // Above the kernel's PID_MAX_LIMIT.
        let nobody = Pid::from_raw((1 << 22) + 1).expect("a pid above zero");
        assert_eq!(cpu_taken(nobody), None);
        assert_eq!(cpu_taken_by_all(nobody), None);
        assert_eq!(own_memory_bytes(nobody), None);
    }

    #[test]
    fn times_are_nanoseconds() {
        let taken = CpuTaken {
            cpu_us: 1,
            delay_us: Some(2),
        };
        assert_eq!(of_schedstat("1999 2000 7\n"), Some(taken));
        assert_eq!(of_schedstat("1999\n"), None);
        assert_eq!(of_schedstat(""), None);
    }
}
