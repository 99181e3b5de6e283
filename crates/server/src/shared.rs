//! What all I/O threads of a server share.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use crate::config::Config;
use crate::mailbox::Knock;

/// How far the server's life has come. Only ever goes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Stage {
    Running = 0,
    Draining = 1,
    Stopped = 2,
}

pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) knocks: Vec<Knock>,
    pub(crate) spill: SpillBudget,
    stage: AtomicU8,
    connections: AtomicUsize,
    /// Some thread has connections in its backlog that it may not accept.
    accept_waits: AtomicBool,
}

impl Shared {
    pub(crate) fn new(config: Config) -> std::io::Result<Shared> {
        let knocks = (0..config.io_threads)
            .map(|_| Knock::new())
            .collect::<std::io::Result<_>>()?;
        Ok(Shared {
            knocks,
            spill: SpillBudget {
                used: AtomicUsize::new(0),
                bytes_max: config.reply_spill_bytes_max,
            },
            stage: AtomicU8::new(Stage::Running as u8),
            connections: AtomicUsize::new(0),
            accept_waits: AtomicBool::new(false),
            config,
        })
    }

    pub(crate) fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Acquire) {
            0 => Stage::Running,
            1 => Stage::Draining,
            _ => Stage::Stopped,
        }
    }

    pub(crate) fn raise_stage(&self, stage: Stage) {
        self.stage.fetch_max(stage as u8, Ordering::AcqRel);
        self.notify_all();
    }

    pub(crate) fn notify_all(&self) {
        self.knocks.iter().for_each(Knock::notify);
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Takes a place for one connection. On false the caller is told by a knock when one is free.
    pub(crate) fn connection_enter(&self) -> bool {
        if self.try_enter() {
            return true;
        }
        // Told before the second look: a connection that closes in between either is seen by it or sees the flag.
        self.accept_waits.store(true, Ordering::SeqCst);
        self.try_enter()
    }

    fn try_enter(&self) -> bool {
        let taken = self.connections.fetch_add(1, Ordering::SeqCst) < self.config.connections_max;
        if !taken {
            self.connections.fetch_sub(1, Ordering::SeqCst);
        }
        taken
    }

    /// While draining the backlog is taken in even over the limit: it is bounded itself.
    pub(crate) fn connection_enter_over_limit(&self) {
        self.connections.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn connection_leave(&self) {
        self.connections.fetch_sub(1, Ordering::SeqCst);
        if self.accept_waits.load(Ordering::SeqCst)
            && self.accept_waits.swap(false, Ordering::SeqCst)
        {
            self.notify_all();
        }
    }
}

/// Bytes that wait in the server's own memory for slow readers, of all connections together.
pub(crate) struct SpillBudget {
    used: AtomicUsize,
    bytes_max: usize,
}

impl SpillBudget {
    /// A hint: threads that ask at the same time may overshoot by what each of them then takes.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.used.load(Ordering::Relaxed).saturating_add(bytes) <= self.bytes_max
    }

    pub(crate) fn try_take(&self, bytes: usize) -> bool {
        let room = |used: usize| {
            used.checked_add(bytes)
                .filter(|used| *used <= self.bytes_max)
        };
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, room)
            .is_ok()
    }

    /// For bytes that are there already.
    pub(crate) fn take(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn give_back(&self, bytes: usize) {
        if bytes > 0 {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_that_is_freed_is_announced() {
        let config = Config {
            connections_max: 1,
            ..Config::default()
        };
        let shared = Shared::new(config).unwrap();
        assert!(shared.connection_enter());
        assert!(!shared.connection_enter());
        shared.connection_leave();
        assert!(shared.knocks[0].take());
        assert!(shared.connection_enter());
        assert_eq!(shared.connections(), 1);
    }

    #[test]
    fn the_spill_budget_is_exact() {
        let budget = SpillBudget {
            used: AtomicUsize::new(0),
            bytes_max: 10,
        };
        assert!(budget.try_take(10) && !budget.try_take(1) && !budget.has_room(1));
        budget.give_back(4);
        assert!(budget.try_take(4) && !budget.try_take(usize::MAX));
    }
}
