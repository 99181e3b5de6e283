//! The wake handshake: both ways of waking, and several publishers.

use loom::thread;
use std::sync::Arc;

use super::{EventFd, Futex, exhaustively, within};
use crate::sync::{AtomicU32, Ordering};
use crate::wake::{ASLEEP, AWAKE, IN_EVENT_LOOP, announce, claim, look, park, retire};

struct Handshake {
    word: AtomicU32,
    news: [AtomicU32; 2],
    futex: Futex,
    event: EventFd,
}

impl Handshake {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            word: AtomicU32::new(AWAKE),
            news: [AtomicU32::new(0), AtomicU32::new(0)],
            futex: Futex::new(),
            event: EventFd::new(),
        })
    }

    fn publish(&self, which: usize) {
        self.news[which].store(1, Ordering::Release);
    }

    fn is_out(&self, which: usize) -> bool {
        self.news[which].load(Ordering::Relaxed) == 1
    }

    fn sleep_on_futex(&self, ready: impl FnMut() -> bool) {
        park(&self.word, ASLEEP, ready, || {
            self.futex.wait(&self.word, ASLEEP)
        });
    }

    fn rouse(&self) {
        match claim(&self.word) {
            AWAKE => {}
            IN_EVENT_LOOP => self.event.write(),
            _ => self.futex.wake(),
        }
    }
}

/// Publishes `which` on another thread.
fn spawn_publisher(handshake: &Arc<Handshake>, which: usize) -> thread::JoinHandle<()> {
    let there = handshake.clone();
    thread::spawn(move || {
        there.publish(which);
        there.rouse();
    })
}

/// Front to app thread: the publisher claims the word, the sleeper waits on it as a futex.
#[test]
fn a_futex_sleeper_misses_nothing() {
    exhaustively(|| {
        let handshake = Handshake::new();
        let publisher = spawn_publisher(&handshake, 0);
        handshake.sleep_on_futex(|| handshake.is_out(0));
        publisher.join().expect("the publisher ends");
    });
}

/// App thread to I/O thread: the publisher cannot write the word and only looks at it.
#[test]
fn a_sleeper_in_epoll_misses_nothing() {
    exhaustively(|| {
        let handshake = Handshake::new();
        let there = handshake.clone();
        let publisher = thread::spawn(move || {
            there.publish(0);
            if look(&there.word) != AWAKE {
                there.event.write();
            }
        });
        let wait = || {
            handshake.event.wait();
            handshake.event.empty();
        };
        park(&handshake.word, ASLEEP, || handshake.is_out(0), wait);
        publisher.join().expect("the publisher ends");
    });
}

/// The sleeper wants the second news too, sleeping again after the first: the publisher's second
/// look may still see the mark that the first took down, or the next one.
#[test]
fn nor_does_one_that_sleeps_again() {
    within(5, || {
        let handshake = Handshake::new();
        let there = handshake.clone();
        let publisher = thread::spawn(move || {
            for which in [0, 1] {
                there.publish(which);
                there.rouse();
            }
        });
        for which in [0, 1] {
            handshake.sleep_on_futex(|| handshake.is_out(which));
        }
        publisher.join().expect("the publisher ends");
    });
}

/// Two I/O threads have news for one sleeper: one of them takes the mark down and wakes, and what
/// the other published is seen all the same.
#[test]
fn two_publishers_do_not_rely_on_each_other_in_vain() {
    within(3, || {
        let handshake = Handshake::new();
        let publishers = [0, 1].map(|which| spawn_publisher(&handshake, which));
        handshake.sleep_on_futex(|| handshake.is_out(0) && handshake.is_out(1));
        for publisher in publishers {
            publisher.join().expect("the publisher ends");
        }
    });
}

/// A burst costs one wake.
#[test]
fn one_mark_is_claimed_once() {
    exhaustively(|| {
        let handshake = Handshake::new();
        announce(&handshake.word, ASLEEP);
        let there = handshake.clone();
        let other = thread::spawn(move || claim(&there.word));
        let here = claim(&handshake.word);
        let mut claimed = [here, other.join().expect("the publisher ends")];
        claimed.sort_unstable();
        assert_eq!(claimed, [AWAKE, ASLEEP]);
    });
}

/// An event loop that is woken by something else, reads its doorbell empty and goes to sleep
/// again: `guest::Thread::{arm, disarm}`.
#[test]
fn a_doorbell_that_is_read_away_was_heard() {
    exhaustively(|| {
        let handshake = Handshake::new();
        let publisher = spawn_publisher(&handshake, 0);
        announce(&handshake.word, IN_EVENT_LOOP);
        // Here the event loop returns for one of its other descriptors.
        retire(&handshake.word);
        handshake.event.empty();
        while !handshake.is_out(0) {
            announce(&handshake.word, IN_EVENT_LOOP);
            if !handshake.is_out(0) {
                handshake.event.wait();
            }
            retire(&handshake.word);
            handshake.event.empty();
        }
        publisher.join().expect("the publisher ends");
    });
}
