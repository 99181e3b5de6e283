//! What all I/O threads of a server share.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::listener::SocketFile;
use crate::mailbox::Knock;
use crate::setup::Setup;

/// How far the server's life has come. Only ever goes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Stage {
    Running = 0,
    Draining = 1,
    Stopped = 2,
}

pub(crate) struct Shared {
    /// `None`: the server is ending, and nothing changes any more.
    setup: Mutex<Option<Arc<Setup>>>,
    /// Of the listeners that there were last, until all I/O threads have ended.
    files: Mutex<Vec<Arc<SocketFile>>>,
    setup_count: AtomicU64,
    pub(crate) knocks: Vec<Knock>,
    pub(crate) spill: SpillBudget,
    stage: AtomicU8,
    connections: AtomicUsize,
    connections_max: AtomicUsize,
    /// Some thread has connections in its backlog that it may not accept.
    accept_waits: AtomicBool,
}

impl Shared {
    pub(crate) fn new(setup: Setup) -> std::io::Result<Shared> {
        let config = Arc::clone(&setup.config);
        let knocks = (0..config.io_threads)
            .map(|_| Knock::new())
            .collect::<std::io::Result<_>>()?;
        Ok(Shared {
            knocks,
            spill: SpillBudget {
                used: AtomicUsize::new(0),
                bytes_max: AtomicUsize::new(config.reply_spill_bytes_max),
            },
            stage: AtomicU8::new(Stage::Running as u8),
            connections: AtomicUsize::new(0),
            connections_max: AtomicUsize::new(config.connections_max),
            accept_waits: AtomicBool::new(false),
            setup: Mutex::new(Some(Arc::new(setup))),
            files: Mutex::default(),
            setup_count: AtomicU64::new(0),
        })
    }

    pub(crate) fn setup(&self) -> Option<Arc<Setup>> {
        self.lock_setup().clone()
    }

    /// Changes at every change of the setup. Read with acquire, it carries what was done before that.
    pub(crate) fn setup_count(&self) -> u64 {
        self.setup_count.load(Ordering::Acquire)
    }

    /// Nothing, if the server is ending.
    pub(crate) fn replace_setup(&self, setup: Setup) {
        let mut current = self.lock_setup();
        if current.is_none() {
            return;
        }
        let config = &setup.config;
        let (connections_max, spill_max) = (config.connections_max, config.reply_spill_bytes_max);
        self.connections_max
            .store(connections_max, Ordering::SeqCst);
        self.spill.bytes_max.store(spill_max, Ordering::Relaxed);
        *current = Some(Arc::new(setup));
        drop(current);
        self.setup_count.fetch_add(1, Ordering::Release);
        self.notify_all();
    }

    pub(crate) fn remove_files(&self) {
        let files = &self.files;
        files.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn lock_setup(&self) -> MutexGuard<'_, Option<Arc<Setup>>> {
        // It is only ever replaced as a whole.
        self.setup.lock().unwrap_or_else(PoisonError::into_inner)
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
        // The I/O threads close the sockets when they are through with them.
        if let Some(setup) = self.lock_setup().take() {
            *self.files.lock().unwrap_or_else(PoisonError::into_inner) = setup.files();
        }
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
        let max = self.connections_max.load(Ordering::Relaxed);
        let taken = self.connections.fetch_add(1, Ordering::SeqCst) < max;
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
    bytes_max: AtomicUsize,
}

impl SpillBudget {
    /// A hint: threads that ask at the same time may overshoot by what each of them then takes.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.used.load(Ordering::Relaxed).saturating_add(bytes) <= self.bytes_max()
    }

    pub(crate) fn try_take(&self, bytes: usize) -> bool {
        let max = self.bytes_max();
        let room = |used: usize| used.checked_add(bytes).filter(|used| *used <= max);
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

    fn bytes_max(&self) -> usize {
        self.bytes_max.load(Ordering::Relaxed)
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn the_place_that_is_freed_is_announced() {
        let config = Config {
            connections_max: 1,
            ..Config::default()
        };
        let shared = Shared::new(Setup::open(config, None).unwrap()).unwrap();
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
            bytes_max: AtomicUsize::new(10),
        };
        assert!(budget.try_take(10) && !budget.try_take(1) && !budget.has_room(1));
        budget.give_back(4);
        assert!(budget.try_take(4) && !budget.try_take(usize::MAX));
    }
}
