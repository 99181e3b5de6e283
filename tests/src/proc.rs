//! Looking at processes from outside, through /proc.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// What `/proc/PID/stat` says of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    pub parent: u32,
    pub group: u32,
    pub name: String,
    /// `R`, `S`, `T` (stopped), `Z` (dead, not reaped yet) ...
    pub state: char,
    /// User and system time, in clock ticks.
    pub cpu_ticks: u64,
    /// Ticks from boot to start: tells two processes with the same pid apart, and orders them.
    pub started: u64,
}

pub fn process(pid: u32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may itself contain any of them.
    let open = stat.find('(')?;
    let close = stat.rfind(')')?;
    let fields: Vec<&str> = stat[close + 1..].split_whitespace().collect();
    let number = |i: usize| fields.get(i).and_then(|f| f.parse::<u64>().ok());
    Some(Process {
        pid,
        parent: number(1)? as u32,
        group: number(2)? as u32,
        name: stat[open + 1..close].to_owned(),
        state: fields.first()?.chars().next()?,
        cpu_ticks: number(11)? + number(12)?,
        started: number(19)?,
    })
}

pub fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|e| process(e.file_name().to_str()?.parse().ok()?))
        .collect()
}

/// The living children of `pid`, oldest first.
pub fn children(pid: u32) -> Vec<Process> {
    let mut children: Vec<Process> = processes()
        .into_iter()
        .filter(|p| p.parent == pid && p.state != 'Z')
        .collect();
    children.sort_by_key(|p| (p.started, p.pid));
    children
}

pub fn is_alive(pid: u32) -> bool {
    process(pid).is_some_and(|p| p.state != 'Z')
}

/// Sends a signal; a process that has gone already is no error.
pub fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid as i32).expect("a pid above zero");
    let _ = kill_process(pid, signal);
}

/// Open descriptors of a process.
pub fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |entries| entries.count())
}

/// Descriptors of a process, as what they point at.
pub fn descriptor_targets(pid: u32) -> Vec<String> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return Vec::new();
    };
    let mut targets: Vec<String> = entries
        .flatten()
        .filter_map(|e| fs::read_link(e.path()).ok())
        .map(|t| t.to_string_lossy().into_owned())
        .collect();
    targets.sort();
    targets
}

fn status_kib(pid: u32, key: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status
        .lines()
        .find(|l| l.starts_with(key))
        .unwrap_or_default();
    line.split_whitespace()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(0)
}

/// Resident memory now, in KiB.
pub fn resident_kib(pid: u32) -> u64 {
    status_kib(pid, "VmRSS:")
}

/// Resident memory that is the process's own, in KiB: shared rings and files are left out.
pub fn anonymous_kib(pid: u32) -> u64 {
    status_kib(pid, "RssAnon:")
}

/// Resident memory that others may have too, such as the segments of app processes, in KiB.
pub fn shared_kib(pid: u32) -> u64 {
    status_kib(pid, "RssShmem:")
}

/// CPU time of a process over a stretch of wall time, in clock ticks (10 ms).
pub fn ticks_during(pid: u32, stretch: Duration) -> u64 {
    let ticks = || process(pid).map_or(0, |p| p.cpu_ticks);
    let before = ticks();
    std::thread::sleep(stretch);
    ticks() - before
}
