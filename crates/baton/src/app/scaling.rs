//! What the supervisor of a pool tells others of its number of threads.

use std::sync::{Mutex, MutexGuard, PoisonError};

use baton_dispatch::autoscale::{Action, Decision, DecisionLog, Logged};

/// How many threads a pool has, and between which numbers that may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Scaling {
    /// There now, idle or busy.
    pub threads: u32,
    /// How many there are to be.
    pub wanted: u32,
    /// Not there yet.
    pub starting: u32,
    /// Of those wanted: what somebody added by hand.
    pub by_hand: u32,
    /// `num_threads`.
    pub threads_min: u32,
    /// `max_threads`, or what the server's `threads_max` leaves of it. Memory may set a lower bound.
    pub threads_max: u32,
    /// They come and go in multiples of it.
    pub threads_per_process: u32,
    /// Only memory bounds them: `max_threads` is auto, and the server's `threads_max` is no lower.
    pub auto: bool,
}

/// Written by the supervisor, read by anybody: held for a copy only.
#[derive(Default)]
pub struct Board(Mutex<Content>);

#[derive(Default)]
struct Content {
    wanted: u32,
    by_hand: u32,
    log: DecisionLog,
    counts: DecisionCounts,
}

/// Decisions since the server began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecisionCounts {
    pub start: u64,
    pub stop: u64,
    pub hold: u64,
}

impl Board {
    /// How many are wanted, and how many of them were added by hand.
    pub fn counts(&self) -> (u32, u32) {
        let content = self.lock();
        (content.wanted, content.by_hand)
    }

    pub fn set_counts(&self, wanted: u32, by_hand: u32) {
        let mut content = self.lock();
        (content.wanted, content.by_hand) = (wanted, by_hand);
    }

    /// Whether it said something new.
    pub fn note(&self, decision: &Decision, now_ms: u64) -> bool {
        let mut content = self.lock();
        let counts = &mut content.counts;
        match decision.action {
            Action::Start(_) => counts.start += 1,
            Action::Stop { .. } => counts.stop += 1,
            Action::Hold => counts.hold += 1,
        }
        content.log.note(decision, now_ms)
    }

    /// The oldest first.
    pub fn decisions(&self) -> Vec<Logged> {
        self.lock().log.iter().cloned().collect()
    }

    pub fn decision_counts(&self) -> DecisionCounts {
        self.lock().counts
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        // Nothing that is done under it can stop half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
