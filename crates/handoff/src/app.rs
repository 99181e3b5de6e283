//! The app process's side: taking requests, writing replies, sleeping in between.
//!
//! This side believes the front: what lies in the read-only pages is taken as it is.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::thread::futex;

use crate::layout::{
    CELL_BYTES, DownHeader, DownSlot, DownThread, GONE, Geometry, IO_THREADS_MAX, IoFlag,
    LINE_BYTES, MAGIC, PAGE_BYTES, UpSlot, UpThread,
};
use crate::memory::{Access, Mapping};
use crate::request;
use crate::ring::{self, End, Progress};
use crate::slot::{self, Generation};
use crate::sync::Ordering;
use crate::wake;

/// Measured at 50 connections on two cores: with 0 each request costs a sleep and a wake, with 10
/// one in fifty does. An idle CPU returns from a yield at once, so this is some microseconds.
const YIELDS_BEFORE_SLEEP: u32 = 10;

/// What one app process has mapped.
pub struct Segment {
    geometry: Geometry,
    down: Mapping,
    up: Mapping,
    flags: Mapping,
    knockers: Vec<OwnedFd>,
    doorbell: Option<OwnedFd>,
}

impl Segment {
    /// `knockers`: one eventfd per I/O thread of the front.
    pub fn map(
        down: BorrowedFd<'_>,
        up: BorrowedFd<'_>,
        flags: BorrowedFd<'_>,
        knockers: Vec<OwnedFd>,
        doorbell: Option<OwnedFd>,
    ) -> io::Result<Self> {
        let geometry = read_geometry(down)?;
        Ok(Self {
            geometry,
            down: Mapping::new(down, geometry.down_bytes(), Access::Read)?,
            up: Mapping::new(up, geometry.up_bytes(), Access::ReadWrite)?,
            flags: Mapping::new(flags, PAGE_BYTES, Access::Read)?,
            knockers,
            doorbell,
        })
    }

    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The descriptor that an event loop waits on.
    pub fn doorbell(&self) -> Option<BorrowedFd<'_>> {
        self.doorbell.as_ref().map(AsFd::as_fd)
    }

    /// Whether the front has told this thread to leave its loop.
    pub fn is_stopped(&self, thread: u32) -> bool {
        let line: &DownThread = self.down.line(self.geometry.down_thread(thread));
        line.stop.load(Ordering::Acquire) != 0
    }

    /// Whether one of the thread's slots holds an offer.
    #[inline]
    pub fn has_offer(&self, thread: u32) -> bool {
        self.slots_of(thread)
            .any(|slot| slot::is_offered(&self.up_slot(slot).state))
    }

    /// Takes an offered request of the thread, if there is one. It looks first at the slots behind `last`, which it
    /// took from before: so none of them waits for ever, and of two the older goes first.
    #[inline]
    pub fn take(&self, thread: u32, last: u32) -> Option<Taken> {
        let slots = self.slots_of(thread);
        let after = (last + 1).clamp(slots.start, slots.end);
        (after..slots.end)
            .chain(slots.start..after)
            .find_map(|slot| {
                let generation = slot::take(&self.up_slot(slot).state)?;
                Some(Taken { slot, generation })
            })
    }

    /// Sleeps until `ready`, which is asked again after each wake. First it lets others run: under
    /// load the front has the next request by then, and nobody need sleep or be woken.
    pub fn sleep_until(&self, thread: u32, mut ready: impl FnMut() -> bool) {
        for _ in 0..YIELDS_BEFORE_SLEEP {
            if ready() {
                return;
            }
            rustix::thread::sched_yield();
        }
        let line = self.up_thread(thread);
        line.asleep_since_us
            .store(wake::monotonic_us(), Ordering::Relaxed);
        let word = &line.wake;
        wake::park(word, wake::ASLEEP, ready, || {
            // Shared, not private: the front wakes it. Returns at once if the front has already
            // taken the mark down; errors (a signal, mostly) lead to another look.
            let _ = futex::wait(word, futex::Flags::empty(), wake::ASLEEP, None);
        });
    }

    /// Marks the thread as waiting in an event loop for its doorbell.
    pub fn announce_event_loop(&self, thread: u32) {
        wake::announce(&self.up_thread(thread).wake, wake::IN_EVENT_LOOP);
    }

    pub fn retire_event_loop(&self, thread: u32) {
        wake::retire(&self.up_thread(thread).wake);
    }

    fn slots_of(&self, thread: u32) -> std::ops::Range<u32> {
        let per_thread = self.geometry.slots_per_thread;
        thread * per_thread..(thread + 1) * per_thread
    }

    fn up_thread(&self, thread: u32) -> &UpThread {
        self.up.line(self.geometry.up_thread(thread))
    }

    fn up_slot(&self, slot: u32) -> &UpSlot {
        self.up.line(self.geometry.up_slot(slot))
    }

    fn down_slot(&self, slot: u32) -> &DownSlot {
        self.down.line(self.geometry.down_slot(slot))
    }

    /// Knocks the I/O thread up, if it sleeps, after something was published for it.
    fn knock(&self, io: u32) {
        let io = io as usize;
        if io >= IO_THREADS_MAX {
            return;
        }
        let flag: &IoFlag = self.flags.line(io * LINE_BYTES);
        if wake::look(&flag.asleep) != wake::AWAKE
            && let Some(knocker) = self.knockers.get(io)
        {
            // Full means that it is being knocked already.
            let _ = rustix::io::write(knocker, &1u64.to_ne_bytes());
        }
    }
}

/// The geometry that the front wrote into the first page.
fn read_geometry(down: BorrowedFd<'_>) -> io::Result<Geometry> {
    let page = Mapping::new(down, PAGE_BYTES, Access::Read)?;
    let header: &DownHeader = page.line(0);
    let wrong = || io::Error::other("the shared memory is not of this version of Baton");
    if header.magic.load(Ordering::Acquire) != MAGIC {
        return Err(wrong());
    }
    let threads = header.threads.load(Ordering::Relaxed);
    Geometry::new(threads, header.slots_per_thread.load(Ordering::Relaxed)).ok_or_else(wrong)
}

/// A request that this process has taken.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    pub slot: u32,
    pub generation: Generation,
}

/// Where a request's body is.
pub enum Body<'s> {
    Memory(&'s [u8]),
    /// Length; the descriptor comes over the control socket.
    File(u64),
}

impl Segment {
    /// Head and body of a taken request.
    pub fn request(&self, taken: Taken) -> Option<(request::Head<'_>, Body<'_>)> {
        let down = self.down_slot(taken.slot);
        let head_bytes = down.head_bytes.load(Ordering::Relaxed) as usize;
        let body_bytes = down.body_bytes.load(Ordering::Relaxed);
        let in_file = down.body_in_file.load(Ordering::Relaxed) != 0;
        let in_cell = if in_file {
            head_bytes
        } else {
            head_bytes.checked_add(usize::try_from(body_bytes).ok()?)?
        };
        if in_cell > CELL_BYTES {
            return None;
        }
        let cell = self.down.bytes(self.geometry.cell(taken.slot), in_cell);
        // SAFETY: in bounds of the mapping, which lives as long as `self`. The front writes a
        // cell only while its slot is idle, and this request has been taken and not finished;
        // the app itself cannot write there.
        let bytes = unsafe { std::slice::from_raw_parts(cell, in_cell) };
        let (head, body) = bytes.split_at(head_bytes);
        let body = if in_file {
            Body::File(body_bytes)
        } else {
            Body::Memory(body)
        };
        Some((request::Head::new(head)?, body))
    }

    /// Whether nobody will read the reply.
    #[inline]
    pub fn is_client_gone(&self, taken: Taken) -> bool {
        self.down_slot(taken.slot).gone.load(Ordering::Acquire) == GONE | taken.generation.bits()
    }
}

/// Writes the reply of a taken request into its ring.
pub struct ReplyWriter {
    taken: Taken,
    written: u64,
    published: u64,
}

impl ReplyWriter {
    pub fn new(taken: Taken) -> Self {
        Self {
            taken,
            written: 0,
            published: 0,
        }
    }

    /// Bytes that the front has not been told of.
    pub fn unpublished(&self) -> usize {
        (self.written - self.published) as usize
    }

    /// Whether the front has been told of anything.
    pub fn has_published(&self) -> bool {
        self.published > 0
    }

    /// Bytes that fit now.
    pub fn room(&self, segment: &Segment) -> usize {
        ring::room(&segment.down_slot(self.taken.slot).consumed, self.written)
    }

    /// Copies as much of `bytes` as fits, without telling the front; returns how much.
    pub fn copy_in(&mut self, segment: &Segment, bytes: &[u8]) -> usize {
        let len = bytes.len().min(self.room(segment));
        let ring = segment.geometry.ring(self.taken.slot);
        let [first, second] = ring::stretches(self.written, len);
        segment.up.write(ring + first.0, &bytes[..first.1]);
        segment.up.write(ring + second.0, &bytes[first.1..len]);
        self.written += len as u64;
        len
    }

    /// Tells the front what there is, and knocks it up if it sleeps.
    pub fn publish(&mut self, segment: &Segment, end: End) {
        let word = &segment.up_slot(self.taken.slot).reply;
        // Read before the reply is said to be over: afterwards the slot may be offered again.
        let io = segment
            .down_slot(self.taken.slot)
            .io
            .load(Ordering::Relaxed);
        ring::publish(
            word,
            self.taken.generation,
            Progress {
                written: self.written,
                end,
            },
        );
        self.published = self.written;
        segment.knock(io);
    }
}
