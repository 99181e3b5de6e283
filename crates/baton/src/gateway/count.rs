//! What is counted of requests, on the way.

use baton_server::{Body, Io, Request, Served};
use rustix::time::{ClockId, clock_gettime};

use super::Gateway;
use crate::app::{Pool, Running};
use crate::counters::{Count, IoCounters, PoolCounters, TICKS_PER_SAMPLE};

/// One release in so many reads the clock. Not a number that threads come in.
const RELEASES_PER_SAMPLE: u64 = 17;

impl Gateway {
    fn io_counters(&self) -> Option<&IoCounters> {
        self.counters.get(self.index)
    }

    #[inline]
    pub(super) fn count_request(&self, request: &Request<'_>) {
        let Some(counters) = self.io_counters() else {
            return;
        };
        counters.requests.add(1);
        match &request.body {
            Body::Empty => {}
            Body::Memory(bytes) => counters.request_body_bytes.add(bytes.len() as u64),
            Body::File(_, bytes) => counters.request_body_bytes.add(*bytes),
        }
    }

    #[inline]
    pub(super) fn count_reply(&self, served: &Served<'_>) {
        let Some(counters) = self.io_counters() else {
            return;
        };
        let class = usize::from(served.status / 100);
        counters.replies[if class < 6 { class } else { 0 }].add(1);
        if !served.complete {
            counters.cut.add(1);
        }
        counters.reply_body_bytes.add(served.body_bytes);
        counters.duration.record(served.duration_ns / 1_000);
    }

    /// A thread has the request.
    #[inline]
    pub(super) fn count_handed(&self, running: &Running) {
        if let Some(counters) = running.pool().counters_of(self.index) {
            let waited_ms = running.offered_ms.saturating_sub(running.queued_since_ms);
            counters.queue_wait.record(waited_ms * 1_000);
        }
    }

    /// The thread is free again.
    #[inline]
    pub(super) fn count_service(&self, running: &Running, now_ms: u64) {
        if let Some(counters) = running.pool().counters_of(self.index) {
            let busy_ms = now_ms.saturating_sub(running.offered_ms);
            counters.service.record(busy_ms * 1_000);
            counters.released.add(1);
            if counters.released.get().is_multiple_of(RELEASES_PER_SAMPLE) {
                // What a hostile process says of itself is no longer than the request.
                let unseen_us = running.place.asleep_us().min((busy_ms + 1) * 1_000);
                counters.unseen_us.add(unseen_us * RELEASES_PER_SAMPLE);
            }
        }
    }

    #[cold]
    pub(super) fn count_trouble(&self, pool: &Pool, which: impl Fn(&PoolCounters) -> &Count) {
        if let Some(counters) = pool.counters_of(self.index) {
            which(counters).add(1);
        }
    }

    /// At the end of a tick.
    #[inline]
    pub(super) fn count_tick(&self, io: &Io) {
        let Some(counters) = self.io_counters() else {
            return;
        };
        counters.ticks.add(1);
        if counters.ticks.get().is_multiple_of(TICKS_PER_SAMPLE) {
            let now = clock_gettime(ClockId::Monotonic);
            let now_ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
            counters
                .tick
                .record(now_ns.saturating_sub(io.now().mono_ns) / 1_000);
        }
    }
}
