//! How long to wait before a process that keeps dying is started again.

/// Doubles from [`Backoff::FIRST_MS`] to [`Backoff::LAST_MS`] with each failure in a row; starts
/// anew after [`Backoff::FORGIVEN_AFTER_MS`] without one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    failures: u32,
    last_failure_ms: u64,
}

impl Backoff {
    pub const FIRST_MS: u64 = 100;
    pub const LAST_MS: u64 = 10_000;
    pub const FORGIVEN_AFTER_MS: u64 = 20_000;

    /// A start failed, or what was started did not serve. Returns when to try again.
    pub fn failed(&mut self, now_ms: u64) -> u64 {
        if now_ms.saturating_sub(self.last_failure_ms) > Self::FORGIVEN_AFTER_MS {
            self.failures = 0;
        }
        self.last_failure_ms = now_ms;
        let wait_ms = Self::FIRST_MS << self.failures.min(10);
        self.failures = self.failures.saturating_add(1);
        now_ms + wait_ms.min(Self::LAST_MS)
    }

    /// It serves.
    pub fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Failures in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_last() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..9).map(|_| backoff.failed(50_000) - 50_000).collect();
        assert_eq!(
            waits,
            [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]
        );
    }

    #[test]
    fn success_and_time_forgive() {
        let mut backoff = Backoff::default();
        backoff.failed(1000);
        backoff.failed(1000);
        backoff.succeeded();
        assert_eq!(backoff.failed(1000), 1100);
        backoff.failed(1000);
        let later = 1000 + Backoff::FORGIVEN_AFTER_MS + 1;
        assert_eq!(backoff.failed(later), later + 100);
    }
}
