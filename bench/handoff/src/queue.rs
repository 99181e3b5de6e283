//! What processes pull from, in memory that all of them share: a blocking queue, a ring behind a semaphore, and for each I/O thread
//! a ring that says which requests are finished.
//!
//! All rings have a cell for each slot that there is, so none can be full. But a cell may still be taken when its turn comes
//! again: whoever has the ticket of a round ago can have lost the CPU before it looked.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::futex;

/// Requests of one I/O thread that may be under way: its slots.
pub const SLOTS_PER_IO: u32 = 1024;
const IO_THREADS: usize = 4;
pub const SLOTS: u32 = SLOTS_PER_IO * IO_THREADS as u32;
/// As many as Baton's threads yield before they sleep.
const YIELDS_BEFORE_SLEEP: u32 = 10;

/// Where requests wait until a thread pulls them.
pub trait Pull: Sync {
    fn push(&self, slot: u32);
    /// The oldest; sleeps until there is one.
    fn pop(&self) -> u32;
}

/// Zeros are an empty one.
#[repr(C)]
pub struct Queue {
    pub blocking: Blocking,
    pub semaphore: Semaphore,
    finished: [Finished; IO_THREADS],
}

impl Queue {
    pub fn create() -> io::Result<OwnedFd> {
        let file = memfd_create("bench-queue", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, size_of::<Queue>() as u64)?;
        Ok(file)
    }

    /// For as long as the process lives.
    pub fn map(file: OwnedFd) -> io::Result<&'static Queue> {
        let (protection, len) = (ProtFlags::READ | ProtFlags::WRITE, size_of::<Queue>());
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing of ours.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                protection,
                MapFlags::SHARED,
                file.as_fd(),
                0,
            )?
        };
        // SAFETY: `create` gave the file this length and nobody shortens it; the mapping is page-aligned and never taken
        // down; a Queue consists of atomics alone, for which any bytes are valid.
        Ok(unsafe { &*base.cast::<Queue>() })
    }

    /// The thread is about to publish this slot's reply.
    pub fn finished(&self, slot: u32) {
        self.finished[(slot / SLOTS_PER_IO) as usize].push(slot);
    }

    /// For I/O thread `io` alone: what it has not been told so far. `seen` counts what it has.
    pub fn next_finished(&self, io: usize, seen: &mut u32) -> Option<u32> {
        self.finished[io].next(seen)
    }
}

/// One word that other processes write to, on a cache line of its own.
#[repr(C, align(64))]
struct Line(AtomicU32);

/// Mutex, condition and ring, as in a textbook: all of it is touched under the mutex.
#[repr(C)]
pub struct Blocking {
    /// 0 free, 1 held, 2 held and waited for.
    lock: Line,
    /// Counts what was signalled, for those who sleep.
    signals: Line,
    sleepers: Line,
    head: AtomicU32,
    tail: AtomicU32,
    cells: [AtomicU32; SLOTS as usize],
}

impl Blocking {
    fn lock(&self) {
        let word = &self.lock.0;
        if word
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            while word.swap(2, Ordering::Acquire) != 0 {
                sleep_on(word, 2);
            }
        }
    }

    fn unlock(&self) {
        if self.lock.0.swap(0, Ordering::Release) == 2 {
            wake_one(&self.lock.0);
        }
    }

    /// Under the lock.
    fn try_pop(&self) -> Option<u32> {
        let head = self.head.load(Ordering::Relaxed);
        if head == self.tail.load(Ordering::Relaxed) {
            return None;
        }
        self.head.store(head.wrapping_add(1), Ordering::Relaxed);
        Some(self.cells[cell(head)].load(Ordering::Relaxed))
    }

    /// Without the lock: whether it is worth taking.
    fn seems_empty(&self) -> bool {
        self.head.load(Ordering::Relaxed) == self.tail.load(Ordering::Relaxed)
    }
}

impl Pull for Blocking {
    fn push(&self, slot: u32) {
        self.lock();
        let tail = self.tail.load(Ordering::Relaxed);
        self.cells[cell(tail)].store(slot, Ordering::Relaxed);
        self.tail.store(tail.wrapping_add(1), Ordering::Relaxed);
        let has_sleepers = self.sleepers.0.load(Ordering::Relaxed) > 0;
        if has_sleepers {
            self.signals.0.fetch_add(1, Ordering::Relaxed);
        }
        self.unlock();
        if has_sleepers {
            wake_one(&self.signals.0);
        }
    }

    fn pop(&self) -> u32 {
        for _ in 0..YIELDS_BEFORE_SLEEP {
            if !self.seems_empty() {
                break;
            }
            rustix::thread::sched_yield();
        }
        self.lock();
        loop {
            if let Some(slot) = self.try_pop() {
                self.unlock();
                return slot;
            }
            self.sleepers.0.fetch_add(1, Ordering::Relaxed);
            let signals = self.signals.0.load(Ordering::Relaxed);
            self.unlock();
            sleep_on(&self.signals.0, signals);
            self.lock();
            self.sleepers.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A semaphore that counts what waits, and a ring in which each that got past it has the next ticket.
#[repr(C)]
pub struct Semaphore {
    count: Line,
    sleepers: Line,
    head: Line,
    tail: Line,
    /// A slot and one; 0 where it is still to be written.
    cells: [AtomicU32; SLOTS as usize],
}

impl Semaphore {
    fn try_wait(&self) -> bool {
        let take = |count: u32| count.checked_sub(1);
        self.count
            .0
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, take)
            .is_ok()
    }

    fn wait(&self) {
        for _ in 0..YIELDS_BEFORE_SLEEP {
            if self.try_wait() {
                return;
            }
            rustix::thread::sched_yield();
        }
        self.sleepers.0.fetch_add(1, Ordering::SeqCst);
        while !self.try_wait() {
            // Returns at once if something was posted since.
            sleep_on(&self.count.0, 0);
        }
        self.sleepers.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pull for Semaphore {
    fn push(&self, slot: u32) {
        let ticket = self.tail.0.fetch_add(1, Ordering::Relaxed);
        put_cell(&self.cells[cell(ticket)], slot);
        self.count.0.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.0.load(Ordering::SeqCst) > 0 {
            wake_one(&self.count.0);
        }
    }

    fn pop(&self) -> u32 {
        self.wait();
        let ticket = self.head.0.fetch_add(1, Ordering::Relaxed);
        take_cell(&self.cells[cell(ticket)])
    }
}

/// Written to by all processes, read by one I/O thread.
#[repr(C)]
struct Finished {
    tail: Line,
    /// A slot and one; 0 where it is still to be written.
    cells: [AtomicU32; SLOTS_PER_IO as usize],
}

impl Finished {
    fn push(&self, slot: u32) {
        let ticket = self.tail.0.fetch_add(1, Ordering::Relaxed);
        put_cell(&self.cells[(ticket % SLOTS_PER_IO) as usize], slot);
    }

    fn next(&self, seen: &mut u32) -> Option<u32> {
        let cell = &self.cells[(*seen % SLOTS_PER_IO) as usize];
        if cell.load(Ordering::Acquire) == 0 {
            return None;
        }
        *seen = seen.wrapping_add(1);
        Some(take_cell(cell))
    }
}

fn cell(ticket: u32) -> usize {
    (ticket % SLOTS) as usize
}

fn put_cell(cell: &AtomicU32, slot: u32) {
    while cell
        .compare_exchange(0, slot + 1, Ordering::Release, Ordering::Relaxed)
        .is_err()
    {
        rustix::thread::sched_yield();
    }
}

/// Whoever has the ticket may be a little ahead of whoever writes the cell.
fn take_cell(cell: &AtomicU32) -> u32 {
    loop {
        match cell.swap(0, Ordering::Acquire) {
            0 => std::hint::spin_loop(),
            slot => return slot - 1,
        }
    }
}

fn sleep_on(word: &AtomicU32, value: u32) {
    // Any error means another look.
    let _ = futex::wait(word, futex::Flags::empty(), value, None);
}

fn wake_one(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::empty(), 1);
}
