//! Where everything lies in the shared memory of one app process.
//!
//! Two sealed memory files per process, so that each page has one possible writer besides the
//! front, and one page of the front's that every process maps:
//!
//! ```text
//! down  (front writes; sealed against further writable mappings; the app maps it read-only)
//!   line 0            DownHeader   magic, geometry
//!   1 line per thread DownThread   stop
//!   1 line per slot   DownSlot     generation, lengths, I/O thread, ring position read so far
//!   page-aligned      cells        CELL_BYTES per slot: the encoded request, then its body
//! up    (both map it writable; the front trusts none of it)
//!   1 line per thread UpThread     wake
//!   1 line per slot   UpSlot       state, reply
//!   page-aligned      rings        RING_BYTES per slot: reply heads and body
//! flags (front writes; one page for all processes)
//!   1 line per I/O thread          asleep
//! ```
//!
//! A request starts again at the beginning of its cell and of its ring, so that a thread which
//! serves small pages touches two pages of each file, however long it lives.

use crate::sync::{AtomicU32, AtomicU64};

pub const PAGE_BYTES: usize = 4096;
/// What two processes write to is kept this far apart, so that they do not share a cache line.
pub const LINE_BYTES: usize = 64;

/// An encoded request head of at most 64 KiB and a body of at most 64 KiB.
pub const CELL_BYTES: usize = 128 * 1024;
pub const REQUEST_HEAD_BYTES_MAX: usize = 64 * 1024;
pub const REQUEST_BODY_BYTES_MAX: usize = 64 * 1024;
/// What a reply may be ahead of its client before the thread has to wait.
pub const RING_BYTES: usize = 256 * 1024;
pub const REPLY_HEAD_BYTES_MAX: usize = 64 * 1024;

pub const THREADS_MAX: u32 = 256;
pub const SLOTS_MAX: u32 = 4096;
pub const IO_THREADS_MAX: usize = PAGE_BYTES / LINE_BYTES;

/// Marks a generation in [`DownSlot::gone`] as one that is really meant.
pub(crate) const GONE: u32 = 1 << 31;

/// "BATON" and the version of this layout.
pub(crate) const MAGIC: u64 = 0x4241_544f_4e00_0002;

/// How many threads a process has, and how many requests each may hold at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub threads: u32,
    pub slots_per_thread: u32,
}

impl Geometry {
    /// `None` unless 1..=[`THREADS_MAX`] threads with at least one slot each make at most
    /// [`SLOTS_MAX`] slots.
    pub fn new(threads: u32, slots_per_thread: u32) -> Option<Self> {
        let slots = threads.checked_mul(slots_per_thread)?;
        ((1..=THREADS_MAX).contains(&threads) && (1..=SLOTS_MAX).contains(&slots)).then_some(Self {
            threads,
            slots_per_thread,
        })
    }

    pub fn slots(&self) -> u32 {
        self.threads * self.slots_per_thread
    }

    pub fn thread_of(&self, slot: u32) -> u32 {
        slot / self.slots_per_thread
    }

    pub(crate) fn down_thread(&self, thread: u32) -> usize {
        LINE_BYTES * (1 + thread as usize)
    }

    pub(crate) fn down_slot(&self, slot: u32) -> usize {
        LINE_BYTES * (1 + self.threads as usize + slot as usize)
    }

    pub(crate) fn cell(&self, slot: u32) -> usize {
        self.down_slot(self.slots()).next_multiple_of(PAGE_BYTES) + slot as usize * CELL_BYTES
    }

    pub(crate) fn down_bytes(&self) -> usize {
        self.cell(self.slots())
    }

    pub(crate) fn up_thread(&self, thread: u32) -> usize {
        LINE_BYTES * thread as usize
    }

    pub(crate) fn up_slot(&self, slot: u32) -> usize {
        LINE_BYTES * (self.threads as usize + slot as usize)
    }

    pub(crate) fn ring(&self, slot: u32) -> usize {
        self.up_slot(self.slots()).next_multiple_of(PAGE_BYTES) + slot as usize * RING_BYTES
    }

    pub(crate) fn up_bytes(&self) -> usize {
        self.ring(self.slots())
    }
}

#[repr(C, align(64))]
pub(crate) struct DownHeader {
    pub(crate) magic: AtomicU64,
    pub(crate) threads: AtomicU32,
    pub(crate) slots_per_thread: AtomicU32,
}

#[repr(C, align(64))]
pub(crate) struct DownThread {
    /// 1: leave the loop at the next look.
    pub(crate) stop: AtomicU32,
}

#[repr(C, align(64))]
pub(crate) struct DownSlot {
    /// How much of the ring the front has read, from the start of this request.
    pub(crate) consumed: AtomicU64,
    /// The generation whose client has left, with [`GONE`].
    pub(crate) gone: AtomicU32,
    /// The I/O thread that waits for the reply.
    pub(crate) io: AtomicU32,
    pub(crate) head_bytes: AtomicU32,
    /// 1: the body lies in a file, whose descriptor came over the control socket.
    pub(crate) body_in_file: AtomicU32,
    pub(crate) body_bytes: AtomicU64,
}

#[repr(C, align(64))]
pub(crate) struct UpThread {
    /// See [`crate::wake`].
    pub(crate) wake: AtomicU32,
    /// When it last went to sleep, by the monotonic clock.
    pub(crate) asleep_since_us: AtomicU64,
}

#[repr(C, align(64))]
pub(crate) struct UpSlot {
    /// See [`crate::slot`].
    pub(crate) state: AtomicU32,
    /// See [`crate::ring`].
    pub(crate) reply: AtomicU64,
}

#[repr(C, align(64))]
pub(crate) struct IoFlag {
    /// See [`crate::wake`].
    pub(crate) asleep: AtomicU32,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps() {
        for (threads, slots_per_thread) in [(1, 1), (1, 2), (5, 1), (64, 3), (256, 16)] {
            let g = Geometry::new(threads, slots_per_thread).expect("within bounds");
            assert!(g.down_thread(threads) <= g.down_slot(0));
            assert!(g.down_slot(g.slots()) <= g.cell(0));
            assert!(g.up_thread(threads) <= g.up_slot(0));
            assert!(g.up_slot(g.slots()) <= g.ring(0));
            assert_eq!(g.cell(0) % PAGE_BYTES, 0);
            assert_eq!(g.ring(0) % PAGE_BYTES, 0);
            assert_eq!(g.down_bytes() % PAGE_BYTES, 0);
            assert_eq!(g.up_bytes() % PAGE_BYTES, 0);
        }
    }

    #[test]
    fn absurd_geometries_are_refused() {
        for (threads, slots) in [(0, 1), (1, 0), (257, 1), (256, 17), (u32::MAX, u32::MAX)] {
            assert_eq!(Geometry::new(threads, slots), None);
        }
    }

    #[test]
    fn a_head_and_a_body_fill_a_cell() {
        assert_eq!(REQUEST_HEAD_BYTES_MAX + REQUEST_BODY_BYTES_MAX, CELL_BYTES);
        const { assert!(REPLY_HEAD_BYTES_MAX < RING_BYTES) };
    }
}
