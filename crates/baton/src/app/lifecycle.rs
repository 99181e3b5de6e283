//! What has happened to a pool since the server began. Written by its supervisor, seldom.

use std::collections::BTreeMap;

use rustix::process::{Signal, WaitStatus};

/// What is kept of a reason at most, in bytes.
const REASON_BYTES_MAX: usize = 1024;

#[derive(Clone, Debug, Default)]
pub struct Lifecycle {
    /// Processes that have ended, by how they did: `done` if they were told to, or had served as many requests as they
    /// may; else `exit code`, or the signal's name.
    pub ended: BTreeMap<String, u64>,
    /// Restarts that went through.
    pub restarts: u64,
    pub restarts_failed: u64,
    /// Why it could not start, or could not be restarted, last.
    pub failure: Option<Failure>,
}

#[derive(Clone, Debug)]
pub struct Failure {
    /// By the monotonic clock.
    pub at_ms: u64,
    pub reason: String,
}

impl Lifecycle {
    pub fn count_end(&mut self, status: WaitStatus, is_clean: bool) {
        let how = match status.terminating_signal() {
            _ if is_clean => "done".to_owned(),
            None => "exit code".to_owned(),
            Some(signal) => signal_name(signal),
        };
        *self.ended.entry(how).or_default() += 1;
    }

    pub fn failed(&mut self, at_ms: u64, reason: &str) {
        let mut reason = reason.to_owned();
        let mut bytes = REASON_BYTES_MAX.min(reason.len());
        while !reason.is_char_boundary(bytes) {
            bytes -= 1;
        }
        reason.truncate(bytes);
        self.failure = Some(Failure { at_ms, reason });
    }
}

/// `SIGSEGV`; `signal 40` for one without a name.
fn signal_name(signal: i32) -> String {
    match Signal::from_named_raw(signal) {
        // Shown as `Signal::SEGV`.
        Some(named) => {
            let shown = format!("{named:?}");
            let name = shown.rsplit("::").next().unwrap_or(&shown);
            format!("SIG{}", name.trim_matches('"').to_ascii_uppercase())
        }
        None => format!("signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_their_names() {
        assert_eq!(signal_name(9), "SIGKILL");
        assert_eq!(signal_name(11), "SIGSEGV");
        assert_eq!(signal_name(40), "signal 40");
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let mut lifecycle = Lifecycle::default();
        lifecycle.failed(7, &format!("x{}", "\u{e9}".repeat(REASON_BYTES_MAX)));
        let failure = lifecycle.failure.expect("kept");
        assert_eq!(failure.reason.len(), REASON_BYTES_MAX - 1);
    }
}
