//! How other threads reach an I/O thread: a list behind a lock, and a knock only if the thread sleeps.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

/// Wakes one I/O thread.
///
/// Ordering: a poster writes what it has to say, sets `pending`, then looks at `asleep`; the thread sets `asleep`, then
/// looks at `pending`. All four are SeqCst, so at least one of the two sees the other: either the poster knocks or the
/// thread does not sleep. `pending` is set with release and taken with acquire semantics (within SeqCst), which carries
/// what was said before.
pub(crate) struct Knock {
    pending: AtomicBool,
    asleep: AtomicBool,
    /// Registered edge-triggered and never read: each write is an edge.
    eventfd: OwnedFd,
}

impl Knock {
    pub(crate) fn new() -> std::io::Result<Knock> {
        Ok(Knock {
            pending: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            eventfd: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Any thread: have the I/O thread look around.
    pub(crate) fn notify(&self) {
        self.pending.store(true, Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::SeqCst) {
            // Fails only when the counter is full, and then the thread has been knocked already.
            let _ = rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes());
        }
    }

    /// The I/O thread, before it sleeps. False: it must not.
    pub(crate) fn announce_sleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        !self.pending.load(Ordering::SeqCst)
    }

    /// The I/O thread, when it is back. A knock that comes in between is one too many, no more.
    pub(crate) fn awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// The I/O thread: is there something to look at?
    pub(crate) fn take(&self) -> bool {
        // The load keeps the common case free of a locked instruction; what it misses, `announce_sleep` finds.
        self.pending.load(Ordering::Relaxed) && self.pending.swap(false, Ordering::SeqCst)
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}

/// Messages for one I/O thread. Emptied as a whole.
pub(crate) struct Mailbox<M>(Mutex<Vec<M>>);

impl<M> Mailbox<M> {
    pub(crate) fn new() -> Mailbox<M> {
        Mailbox(Mutex::new(Vec::new()))
    }

    pub(crate) fn put(&self, message: M) {
        // A poster that panicked between lock and push has pushed nothing; the list is sound.
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(message);
    }

    /// Swaps the messages with `empty`, whose memory is used again.
    pub(crate) fn take(&self, empty: &mut Vec<M>) {
        std::mem::swap(
            &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner),
            empty,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knocks(knock: &Knock) -> u64 {
        let mut count = [0; 8];
        match rustix::io::read(&knock.eventfd, &mut count) {
            Ok(_) => u64::from_ne_bytes(count),
            Err(_) => 0,
        }
    }

    #[test]
    fn knocks_only_a_sleeper_and_only_once() {
        let knock = Knock::new().unwrap();
        knock.notify();
        assert_eq!(knocks(&knock), 0, "awake: no system call");
        assert!(!knock.announce_sleep(), "something is pending");
        assert!(knock.take() && !knock.take());
        assert!(knock.announce_sleep());
        knock.notify();
        knock.notify();
        assert_eq!(knocks(&knock), 1);
        assert!(knock.take());
    }

    #[test]
    fn messages_keep_their_order() {
        let mailbox = Mailbox::new();
        mailbox.put(1);
        mailbox.put(2);
        let mut taken = Vec::new();
        mailbox.take(&mut taken);
        assert_eq!(taken, [1, 2]);
    }
}
