//! An app process as the front knows it. What is here was said by the kernel or decided by the
//! front; the process itself can change none of it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use baton_dispatch::SEATS;
use baton_handoff::control::{self, Kind};
use baton_handoff::front::{Segment, Slot};
use baton_handoff::slot::Generation;
use rustix::process::{Pid, Signal};

use super::Pool;

/// The numbers of a pool's processes begin with the pool's own, so that they differ from those of others.
pub const POOL_SHIFT: u32 = 40;

/// A process's number for people: that of its pool, and which one of that it is.
pub fn process_id(number: u64) -> String {
    let of_pool = number & ((1 << POOL_SHIFT) - 1);
    format!("{}.{of_pool}", number >> POOL_SHIFT)
}

pub struct Process {
    pub pool: Arc<Pool>,
    /// Counts the processes of all pools; never used again.
    pub number: u64,
    pub pid: Pid,
    /// Names the process even when its number has been given to another.
    pidfd: OwnedFd,
    segment: Segment,
    control: OwnedFd,
    /// An eventfd per I/O thread, with which this process, and no other, knocks.
    knockers: Vec<OwnedFd>,
    /// What was offered to each slot.
    offers: Vec<Offers>,
    /// The slot whose request it is at, as far as is known; for the log.
    current_slot: AtomicU32,
    dead: AtomicBool,
    /// It makes way for another, or is about to: its threads leave one after the other.
    leaving: AtomicBool,
    /// It was told to end.
    stopping: AtomicBool,
    /// Its threads that get no more requests.
    threads_left: AtomicU32,
    /// Offers in a row that lay untaken.
    untaken: AtomicU32,
}

/// Written by whoever was handed the slot.
#[derive(Default)]
struct Offers {
    /// Of the last request.
    generation: AtomicU32,
    request: AtomicU64,
    count: AtomicU64,
}

/// Where a request can be put: a thread of a process.
#[derive(Clone)]
pub struct Place {
    pub process: Arc<Process>,
    pub thread: u32,
}

impl Place {
    /// The slot of one of the thread's seats.
    pub fn slot_of(&self, seat: u32) -> u32 {
        self.thread * SEATS + seat
    }

    /// The dispatcher has let it go. When it has let all places of the process go, that is told to end: nothing can be
    /// offered to it any more.
    pub fn leave(&self) {
        self.process.leave();
        let left = self.process.threads_left.fetch_add(1, Ordering::AcqRel) + 1;
        if left >= self.process.thread_count() {
            self.process.stop();
        }
    }

    /// Whether the thread has gone to sleep since it was last woken.
    pub fn is_asleep_again(&self) -> bool {
        self.process.segment.is_asleep(self.thread)
    }

    /// For how long the thread has slept, in microseconds; 0 if it is awake.
    pub fn asleep_us(&self) -> u64 {
        self.process.segment.asleep_us(self.thread)
    }
}

impl Process {
    pub fn new(
        pool: Arc<Pool>,
        number: u64,
        pid: Pid,
        pidfd: OwnedFd,
        segment: Segment,
        control: OwnedFd,
        knockers: Vec<OwnedFd>,
    ) -> Self {
        let slots = segment.geometry().slots();
        Self {
            pool,
            number,
            pid,
            pidfd,
            segment,
            control,
            knockers,
            offers: (0..slots).map(|_| Offers::default()).collect(),
            current_slot: AtomicU32::new(0),
            dead: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            threads_left: AtomicU32::new(0),
            untaken: AtomicU32::new(0),
        }
    }

    pub fn thread_count(&self) -> u32 {
        self.segment.geometry().threads
    }

    pub fn slot(&self, slot: u32) -> Slot<'_> {
        self.segment.slot(slot)
    }

    pub fn control(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// What I/O thread `io` listens to.
    pub fn knocker(&self, io: usize) -> Option<BorrowedFd<'_>> {
        self.knockers.get(io).map(AsFd::as_fd)
    }

    /// The generation for the next offer in a slot. Called by whoever was handed the slot.
    pub fn next_generation(&self, slot: u32, request: u64, stands_by: bool) -> Generation {
        if !stands_by {
            self.goes_on(slot);
        }
        // One owner at a time, and the dispatcher's lock lies between two of them.
        let offers = &self.offers[slot as usize];
        offers.request.store(request, Ordering::Relaxed);
        let count = offers.count.load(Ordering::Relaxed) + 1;
        offers.count.store(count, Ordering::Relaxed);
        let next = Generation::from_bits(offers.generation.load(Ordering::Relaxed)).next();
        offers.generation.store(next.bits(), Ordering::Relaxed);
        next
    }

    /// It has come to the request of that slot.
    pub fn goes_on(&self, slot: u32) {
        self.current_slot.store(slot, Ordering::Relaxed);
    }

    /// 0 if that is not known: threads share what they write to.
    pub fn last_request(&self) -> u64 {
        if self.thread_count() > 1 {
            return 0;
        }
        let slot = self.current_slot.load(Ordering::Relaxed);
        let offers = self.offers.get(slot as usize);
        offers.map_or(0, |offers| offers.request.load(Ordering::Relaxed))
    }

    /// Memory of its segment that has been used so far.
    pub fn segment_bytes(&self) -> u64 {
        self.segment.touched_bytes()
    }

    /// Whether it was ever given a request: one that dies before is not fit to be started again
    /// at once.
    pub fn was_offered(&self) -> bool {
        (0..self.thread_count()).any(|thread| self.offer_count(thread) > 0)
    }

    /// Requests that were offered to a thread, ever.
    pub fn offer_count(&self, thread: u32) -> u64 {
        let seats = self.offers.chunks(SEATS as usize).nth(thread as usize);
        let counts = seats.into_iter().flatten();
        counts
            .map(|offers| offers.count.load(Ordering::Relaxed))
            .sum()
    }

    /// Passes the descriptor of a spooled body on, before its request is offered.
    pub fn send_body(
        &self,
        slot: u32,
        generation: Generation,
        file: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let numbers = (u64::from(slot), u64::from(generation.bits()));
        control::send(
            self.control.as_fd(),
            Kind::Body,
            numbers,
            &[],
            &[file],
            false,
        )
    }

    pub fn signal(&self, signal: Signal) {
        // It may have ended already: then there is nothing to signal.
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, signal);
    }

    /// Another is to take its place.
    pub fn leave(&self) {
        self.leaving.store(true, Ordering::Release);
    }

    pub fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire)
    }

    /// It is to leave, and none of its threads has.
    pub fn is_to_be_replaced(&self) -> bool {
        self.is_leaving() && self.threads_left.load(Ordering::Acquire) == 0
    }

    /// Tells all its threads to leave when they are done.
    pub fn stop(&self) {
        self.leave();
        self.stopping.store(true, Ordering::Release);
        for thread in 0..self.segment.geometry().threads {
            self.segment.stop(thread);
        }
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// It has answered a request.
    pub fn takes_requests(&self) {
        // Most often it is 0, and the line stays shared between the I/O threads.
        if self.untaken.load(Ordering::Relaxed) != 0 {
            self.untaken.store(0, Ordering::Relaxed);
        }
    }

    /// An offer lay untaken for too long; how many in a row.
    pub fn count_untaken(&self) -> u32 {
        self.untaken.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn mark_dead(&self) {
        self.dead.store(true, Ordering::Release);
    }

    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }
}
