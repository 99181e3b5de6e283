//! The protocols under loom, which tries every interleaving of the threads and every value that
//! a load may return.
//!
//! [`wake`], [`slot`] and [`ring`] try one protocol each, [`journey`] tries them together.
//! `mutants.sh` beside the crate's manifest shows that they would notice: it runs them with each
//! ordering weakened, each fence, compare-and-swap and second look taken away.
//!
//! The words, and all that is done with them, are the product's own. `front.rs` and `app.rs` are
//! not: they need a kernel. [`Slot`] does the same steps in the same order on loom's memory, and
//! [`Futex`] and [`EventFd`] stand for the kernel. A wake that is lost leaves a thread blocked
//! for ever, which loom reports as a deadlock; a missing Release or Acquire is a data race on a
//! [`Bytes`] or a wrong value in it.
//!
//! What the models cannot show:
//! - More than the two or three threads and requests that each has. Where a test says
//!   `preemptions`, only schedules with at most so many involuntary switches were tried.
//! - Orders that loom does not produce: a load that sees a store of the future (load buffering),
//!   and a compare-and-swap that fails because it saw an old value. Nor spurious futex wakes.
//!   Threads change places before an atomic access, never between a fence and what precedes it.
//! - The sleeper's own stores to its word as what they are: see `wake::mark`.
//! - Anything that rests on SeqCst accesses, which loom takes for AcqRel; there are none. SeqCst
//!   fences it does order ([`the_instrument_sees_store_buffering`]), but it lets them synchronize
//!   as if each were released and acquired by the next, which is more than C++ promises; and so
//!   do `Futex` and `EventFd`, which are locks inside. A missing Release or Acquire can hide
//!   behind them, so the tests of `slot` and `ring` use neither.
//! - That the kernel does what `Futex` and `EventFd` say, and that two mappings of one page are
//!   one memory. The journeys run on the real ones.
//! - A peer that lies, which is for plain tests and the journeys to show.

mod journey;
mod ring;
mod slot;
mod wake;

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::{Condvar, Mutex};
use loom::thread;

use crate::layout::RING_BYTES;
use crate::ring::{End, Progress};
use crate::slot::Generation;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Data that is no atomic: loom reports every access that races with a write.
struct Bytes(UnsafeCell<u32>);

// SAFETY: loom checks each access of its `UnsafeCell`, which is what the tests are for.
unsafe impl Sync for Bytes {}

impl Bytes {
    fn new() -> Self {
        Self(UnsafeCell::new(0))
    }

    fn read(&self) -> u32 {
        // SAFETY: as for `Sync`.
        self.0.with(|bytes| unsafe { *bytes })
    }

    fn write(&self, value: u32) {
        // SAFETY: as for `Sync`.
        self.0.with_mut(|bytes| unsafe { *bytes = value });
    }
}

/// The kernel's queue behind a futex word. As in the kernel, nobody is woken between a sleeper's
/// comparison and its going to sleep.
struct Futex {
    queue: Mutex<()>,
    woken: Condvar,
}

impl Futex {
    fn new() -> Self {
        Self {
            queue: Mutex::new(()),
            woken: Condvar::new(),
        }
    }

    fn wait(&self, word: &AtomicU32, expected: u32) {
        let queue = self.queue.lock().expect("no test panics in here");
        if word.load(Ordering::Relaxed) == expected {
            drop(self.woken.wait(queue));
        }
    }

    fn wake(&self) {
        let _queue = self.queue.lock().expect("no test panics in here");
        self.woken.notify_one();
    }
}

/// An eventfd and somebody in `epoll_wait` for it.
struct EventFd {
    count: Mutex<u64>,
    rung: Condvar,
}

impl EventFd {
    fn new() -> Self {
        Self {
            count: Mutex::new(0),
            rung: Condvar::new(),
        }
    }

    fn write(&self) {
        *self.count.lock().expect("no test panics in here") += 1;
        self.rung.notify_one();
    }

    /// Level-triggered `epoll_wait`: returns while the count is not 0.
    fn wait(&self) {
        let mut count = self.count.lock().expect("no test panics in here");
        while *count == 0 {
            count = self.rung.wait(count).expect("no test panics in here");
        }
    }

    /// `read` of a non-blocking eventfd, or an edge-triggered event that was delivered.
    fn empty(&self) {
        *self.count.lock().expect("no test panics in here") = 0;
    }
}

/// The reply rings of the models hold two pieces, so that the third overwrites the first.
const PIECE_BYTES: u64 = RING_BYTES as u64 / 2;

/// One slot, its thread and its I/O thread, with the steps of `front.rs` and `app.rs`.
struct Slot {
    // down
    consumed: AtomicU64,
    gone: AtomicU32,
    request: Bytes,
    // up
    wake: AtomicU32,
    state: AtomicU32,
    reply: AtomicU64,
    pieces: [Bytes; 2],
    // flags
    asleep: AtomicU32,
    // the kernel's
    futex: Futex,
    doorbell: EventFd,
    knocker: EventFd,
}

/// The front's side.
impl Slot {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            consumed: AtomicU64::new(0),
            gone: AtomicU32::new(0),
            request: Bytes::new(),
            wake: AtomicU32::new(crate::wake::AWAKE),
            state: AtomicU32::new(0),
            reply: AtomicU64::new(0),
            pieces: [Bytes::new(), Bytes::new()],
            asleep: AtomicU32::new(crate::wake::AWAKE),
            futex: Futex::new(),
            doorbell: EventFd::new(),
            knocker: EventFd::new(),
        })
    }

    /// `front::Slot::offer` up to the wake.
    fn place(&self, generation: Generation, request: u32) {
        self.request.write(request);
        self.consumed.store(0, Ordering::Relaxed);
        crate::slot::offer(&self.state, generation);
    }

    fn offer(&self, generation: Generation, request: u32) {
        self.place(generation, request);
        self.rouse();
    }

    /// `front::Segment::rouse`
    fn rouse(&self) {
        match crate::wake::claim(&self.wake) {
            crate::wake::AWAKE => {}
            crate::wake::IN_EVENT_LOOP => self.doorbell.write(),
            _ => self.futex.wake(),
        }
    }

    fn is_pending(&self, generation: Generation) -> bool {
        crate::slot::is_pending(&self.state, generation)
    }

    fn retract(&self, generation: Generation) -> bool {
        crate::slot::retract(&self.state, generation)
    }

    fn progress(&self, generation: Generation, consumed: u64) -> Option<Progress> {
        crate::ring::observe(&self.reply, generation, consumed).expect("nobody lies here")
    }

    /// The thread is through with the request.
    fn is_over(&self, generation: Generation, consumed: u64) -> bool {
        self.progress(generation, consumed)
            .is_some_and(|progress| matches!(progress.end, End::Finished | End::Abandoned))
    }

    fn consume(&self, consumed: u64) {
        crate::ring::consume(&self.consumed, consumed);
    }

    /// An I/O thread with nothing else to do.
    fn wait_in_epoll(&self, ready: impl FnMut() -> bool) {
        crate::wake::park(&self.asleep, crate::wake::ASLEEP, ready, || {
            self.knocker.wait();
            self.knocker.empty();
        });
    }
}

/// The app's side.
impl Slot {
    fn take(&self) -> Option<Generation> {
        crate::slot::take(&self.state)
    }

    /// `app::Segment::sleep_until`
    fn sleep_until(&self, ready: impl FnMut() -> bool) {
        crate::wake::park(&self.wake, crate::wake::ASLEEP, ready, || {
            self.futex.wait(&self.wake, crate::wake::ASLEEP);
        });
    }

    /// What a thread does between two requests.
    fn accept(&self) -> Generation {
        loop {
            match self.take() {
                Some(generation) => return generation,
                None => self.sleep_until(|| crate::slot::is_offered(&self.state)),
            }
        }
    }

    fn room(&self, written: u64) -> usize {
        crate::ring::room(&self.consumed, written)
    }

    /// `app::ReplyWriter::publish` up to the knock.
    fn publish(&self, generation: Generation, written: u64, end: End) {
        crate::ring::publish(&self.reply, generation, Progress { written, end });
    }

    /// `app::Segment::knock`
    fn knock(&self) {
        if crate::wake::look(&self.asleep) != crate::wake::AWAKE {
            self.knocker.write();
        }
    }
}

/// Where the piece that begins at `position` lies.
fn piece(slot: &Slot, position: u64) -> &Bytes {
    let [(start, len), rest] = crate::ring::stretches(position, PIECE_BYTES as usize);
    assert_eq!((len as u64, rest.1), (PIECE_BYTES, 0));
    &slot.pieces[start / PIECE_BYTES as usize]
}

fn first() -> Generation {
    Generation::default().next()
}

fn second() -> Generation {
    first().next()
}

/// Tries every schedule.
fn exhaustively(test: impl Fn() + Send + Sync + 'static) {
    loom::model::Builder::new().check(test);
}

/// Tries every schedule with at most `preemptions` switches away from a thread that could go on.
fn within(preemptions: usize, test: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(test);
}

/// The wake handshake rests on loom's SeqCst fences: with them, two threads that each store and
/// then load the other's word never both see the old one; without, loom knows that they can.
#[test]
fn the_instrument_sees_store_buffering() {
    fn both_old(fenced: bool) -> bool {
        let seen = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let tell = seen.clone();
        exhaustively(move || {
            let words = Arc::new((AtomicU32::new(0), AtomicU32::new(0)));
            let store_then_load = move |mine: &AtomicU32, other: &AtomicU32| {
                mine.store(1, Ordering::Relaxed);
                if fenced {
                    fence(Ordering::SeqCst);
                }
                other.load(Ordering::Relaxed)
            };
            let theirs = words.clone();
            let peer = thread::spawn(move || store_then_load(&theirs.0, &theirs.1));
            let here = store_then_load(&words.1, &words.0);
            if here == 0 && peer.join().expect("the peer returns") == 0 {
                tell.store(true, std::sync::atomic::Ordering::Relaxed);
            }
        });
        seen.load(std::sync::atomic::Ordering::Relaxed)
    }
    assert!(both_old(false));
    assert!(!both_old(true));
}
