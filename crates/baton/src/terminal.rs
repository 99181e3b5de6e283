//! The terminal in which the server was started. SIGHUP means two things: somebody wants a restart, or the terminal was
//! closed and nobody is there to stop the server any more. See signal(7) and credentials(7), controlling terminal.

use std::fs::{self, File};

/// SIGHUP's bit in the masks of `/proc/self/status`, which begin with signal 1.
const HANGUP: u64 = 1 << 0;

pub struct Terminal {
    /// Started in a terminal, and not by nohup(1).
    ends_with_it: bool,
}

impl Terminal {
    /// To be called before SIGHUP gets a handler.
    pub fn find() -> Self {
        Self {
            ends_with_it: is_there() && !is_hangup_ignored(),
        }
    }

    /// Whether there was one and it is closed.
    pub fn is_gone(&self) -> bool {
        self.ends_with_it && !is_there()
    }
}

/// Opens whatever is the controlling terminal; without one there is no such device.
fn is_there() -> bool {
    File::open("/dev/tty").is_ok()
}

fn is_hangup_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & HANGUP != 0)
}
