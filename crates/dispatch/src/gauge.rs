//! What the autoscaler has to know about an app's threads and queue between two of its looks.

/// One look at a [`Dispatcher`](crate::Dispatcher).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Glance {
    pub threads: usize,
    pub idle: usize,
    /// The fewest threads that were idle at once since the look before: so many were not needed.
    pub idle_least: usize,
    pub waiting: usize,
    /// How long the oldest waiting request has waited, in milliseconds.
    pub oldest_wait_ms: u64,
    /// Since the app began, all threads together, in milliseconds.
    pub busy_ms: u64,
    /// Since the app began, all requests together, in milliseconds.
    pub waited_ms: u64,
}

/// Costs a request some additions, and no clock reading.
#[derive(Default)]
pub(crate) struct Gauge {
    idle_least: usize,
    busy_ms: u64,
    waited_ms: u64,
    counted_until_ms: Option<u64>,
}

impl Gauge {
    /// So many threads were busy, and so many requests waited, until now. Whoever read the clock a little earlier than
    /// the last caller counts as now.
    pub(crate) fn advance(&mut self, busy: usize, waiting: usize, now_ms: u64) {
        let since_ms = self.counted_until_ms.unwrap_or(now_ms);
        let passed_ms = now_ms.saturating_sub(since_ms);
        self.busy_ms += passed_ms * busy as u64;
        self.waited_ms += passed_ms * waiting as u64;
        self.counted_until_ms = Some(since_ms + passed_ms);
    }

    pub(crate) fn idle_fell_to(&mut self, idle: usize) {
        self.idle_least = self.idle_least.min(idle);
    }

    /// Fills in what was counted.
    pub(crate) fn glance(&mut self, now: Glance) -> Glance {
        Glance {
            idle_least: std::mem::replace(&mut self.idle_least, now.idle),
            busy_ms: self.busy_ms,
            waited_ms: self.waited_ms,
            ..now
        }
    }
}
