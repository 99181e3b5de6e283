//! The front's side: segments, offers, and reading replies that may be lies.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use rustix::thread::futex;

use crate::layout::{
    CELL_BYTES, DownHeader, DownSlot, DownThread, Geometry, IO_THREADS_MAX, IoFlag, LINE_BYTES,
    MAGIC, PAGE_BYTES, REQUEST_HEAD_BYTES_MAX, RING_BYTES, UpSlot, UpThread,
};
use crate::memory::{Memory, Writers};
use crate::ring::{self, Nonsense, Progress};
use crate::slot::{self, Generation};
use crate::sync::Ordering;
use crate::wake;

/// The I/O threads' sleep marks: one page that every app process reads.
pub struct IoFlags {
    memory: Memory,
}

impl IoFlags {
    pub fn create() -> io::Result<Self> {
        Ok(Self {
            memory: Memory::create("baton-flags", PAGE_BYTES, Writers::FrontOnly)?,
        })
    }

    /// I/O thread `io` wants to be knocked up: it is about to sleep, or has more busy slots than
    /// it likes to look through. Look for replies once more after this.
    pub fn announce(&self, io: usize) {
        wake::announce(&self.flag(io).asleep, wake::ASLEEP);
    }

    pub fn retire(&self, io: usize) {
        wake::retire(&self.flag(io).asleep);
    }

    pub fn file(&self) -> BorrowedFd<'_> {
        self.memory.file()
    }

    fn flag(&self, io: usize) -> &IoFlag {
        assert!(io < IO_THREADS_MAX);
        self.memory.mapping().line(io * LINE_BYTES)
    }
}

/// The body that goes with an offered head.
#[derive(Clone, Copy)]
pub enum Body<'b> {
    /// At most [`crate::layout::REQUEST_BODY_BYTES_MAX`] bytes, copied into the cell.
    Memory(&'b [u8]),
    /// Length of a file whose descriptor was sent over the control socket before.
    File(u64),
}

/// The memory that the front shares with one app process.
pub struct Segment {
    geometry: Geometry,
    down: Memory,
    up: Memory,
    doorbell: Option<Doorbell>,
}

/// What an app's event loop waits on. A socket and not an eventfd: the app could change an eventfd
/// so that ringing it waits.
struct Doorbell {
    front: OwnedFd,
    app: OwnedFd,
}

impl Doorbell {
    fn new() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (front, app) = socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        Ok(Self { front, app })
    }

    fn ring(&self) {
        // Full means that it already rings.
        let _ = send(&self.front, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

impl Segment {
    /// `event_loop`: the app's thread may wait on a descriptor instead of its futex. For one thread
    /// only, which may have many slots.
    pub fn create(geometry: Geometry, event_loop: bool) -> io::Result<Self> {
        let down = Memory::create("baton-down", geometry.down_bytes(), Writers::FrontOnly)?;
        let up = Memory::create("baton-up", geometry.up_bytes(), Writers::Both)?;
        let header: &DownHeader = down.mapping().line(0);
        header.threads.store(geometry.threads, Ordering::Relaxed);
        header
            .slots_per_thread
            .store(geometry.slots_per_thread, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        let doorbell = match event_loop {
            // One bell for several threads: one of them would take another's ring.
            true if geometry.threads > 1 => return Err(io::ErrorKind::InvalidInput.into()),
            true => Some(Doorbell::new()?),
            false => None,
        };
        Ok(Self {
            geometry,
            down,
            up,
            doorbell,
        })
    }

    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Memory that has been written to so far. It is held until the segment ends.
    pub fn touched_bytes(&self) -> u64 {
        let files = [self.down.file(), self.up.file()];
        let blocks = |file| rustix::fs::fstat(file).map_or(0, |stat| stat.st_blocks as u64);
        // stat(2): blocks of 512 bytes, whatever the file system's are.
        files.map(blocks).iter().sum::<u64>() * 512
    }

    pub fn down_file(&self) -> BorrowedFd<'_> {
        self.down.file()
    }

    pub fn up_file(&self) -> BorrowedFd<'_> {
        self.up.file()
    }

    pub fn doorbell(&self) -> Option<BorrowedFd<'_>> {
        self.doorbell.as_ref().map(|doorbell| doorbell.app.as_fd())
    }

    /// Tell a thread to leave its loop when it next looks.
    pub fn stop(&self, thread: u32) {
        assert!(thread < self.geometry.threads);
        let line: &DownThread = self.down.mapping().line(self.geometry.down_thread(thread));
        line.stop.store(1, Ordering::Release);
        self.rouse(thread);
    }

    /// Whether the thread says that it sleeps.
    pub fn is_asleep(&self, thread: u32) -> bool {
        assert!(thread < self.geometry.threads);
        let line: &UpThread = self.up.mapping().line(self.geometry.up_thread(thread));
        line.wake.load(Ordering::Relaxed) != wake::AWAKE
    }

    /// How long the thread has been asleep, in microseconds, by what it says itself. 0: it is awake. Reads the clock.
    pub fn asleep_us(&self, thread: u32) -> u64 {
        if !self.is_asleep(thread) {
            return 0;
        }
        let line: &UpThread = self.up.mapping().line(self.geometry.up_thread(thread));
        wake::monotonic_us().saturating_sub(line.asleep_since_us.load(Ordering::Relaxed))
    }

    /// # Panics
    /// If `index` is not below the geometry's number of slots.
    pub fn slot(&self, index: u32) -> Slot<'_> {
        assert!(index < self.geometry.slots());
        Slot {
            segment: self,
            index,
        }
    }

    /// Wakes a thread, if it sleeps, after something was published for it.
    fn rouse(&self, thread: u32) {
        let line: &UpThread = self.up.mapping().line(self.geometry.up_thread(thread));
        match wake::claim(&line.wake) {
            wake::AWAKE => {}
            how => match &self.doorbell {
                Some(doorbell) if how == wake::IN_EVENT_LOOP => doorbell.ring(),
                // Any other word is the app's own nonsense; a futex wake does no harm.
                _ => wake_futex(&line.wake),
            },
        }
    }

    fn down_slot(&self, slot: u32) -> &DownSlot {
        self.down.mapping().line(self.geometry.down_slot(slot))
    }

    fn up_slot(&self, slot: u32) -> &UpSlot {
        self.up.mapping().line(self.geometry.up_slot(slot))
    }
}

fn wake_futex(word: &crate::sync::AtomicU32) {
    // Shared, not private: the sleeper is in another process.
    let _ = futex::wake(word, futex::Flags::empty(), 1);
}

/// One slot of a segment. The caller's own table says whether it is idle.
#[derive(Clone, Copy)]
pub struct Slot<'s> {
    segment: &'s Segment,
    index: u32,
}

impl Slot<'_> {
    /// Writes the request and offers it, and wakes the thread if it sleeps. The slot must be
    /// idle, and `generation` the next after that of the last offer.
    ///
    /// # Panics
    /// If head and body do not fit the cell.
    pub fn offer(&self, generation: Generation, io: u32, head: &[u8], body: Body<'_>) {
        assert!(head.len() <= REQUEST_HEAD_BYTES_MAX);
        let segment = self.segment;
        let cell = segment.geometry.cell(self.index);
        let down = segment.down_slot(self.index);
        segment.down.mapping().write(cell, head);
        let (in_file, body_bytes) = match body {
            Body::Memory(bytes) => {
                assert!(head.len() + bytes.len() <= CELL_BYTES);
                segment.down.mapping().write(cell + head.len(), bytes);
                (0, bytes.len() as u64)
            }
            Body::File(len) => (1, len),
        };
        // Relaxed: the offer below releases them all.
        down.head_bytes.store(head.len() as u32, Ordering::Relaxed);
        down.body_bytes.store(body_bytes, Ordering::Relaxed);
        down.body_in_file.store(in_file, Ordering::Relaxed);
        down.io.store(io, Ordering::Relaxed);
        down.consumed.store(0, Ordering::Relaxed);
        slot::offer(&segment.up_slot(self.index).state, generation);
        segment.rouse(segment.geometry.thread_of(self.index));
    }

    /// Takes an offer back. `false`: the app has it, or says so.
    pub fn retract(&self, generation: Generation) -> bool {
        slot::retract(&self.segment.up_slot(self.index).state, generation)
    }

    /// Whether the offer still lies there untaken.
    pub fn is_pending(&self, generation: Generation) -> bool {
        slot::is_pending(&self.segment.up_slot(self.index).state, generation)
    }

    /// How far the reply is, of which `consumed` bytes have been read.
    #[inline]
    pub fn progress(
        &self,
        generation: Generation,
        consumed: u64,
    ) -> Result<Option<Progress>, Nonsense> {
        ring::observe(
            &self.segment.up_slot(self.index).reply,
            generation,
            consumed,
        )
    }

    /// Appends `len` bytes of the reply from `position` on to `out`. They must be unread bytes
    /// that [`Slot::progress`] told of, so at most [`RING_BYTES`].
    pub fn copy(&self, position: u64, len: usize, out: &mut Vec<u8>) {
        assert!(len <= RING_BYTES);
        let ring = self.segment.geometry.ring(self.index);
        for (offset, len) in ring::stretches(position, len) {
            self.segment.up.mapping().append_to(out, ring + offset, len);
        }
    }

    /// One system call that sends `before`, `len` bytes of the reply from `position` on, and
    /// `after`; returns how many bytes in all the socket took.
    ///
    /// The kernel reads the ring by itself, so what the app writes meanwhile can only spoil the
    /// app's own body.
    pub fn send(
        &self,
        socket: BorrowedFd<'_>,
        before: &[u8],
        position: u64,
        len: usize,
        after: &[u8],
    ) -> io::Result<usize> {
        assert!(len <= RING_BYTES);
        let ring = self.segment.geometry.ring(self.index);
        let [first, second] = ring::stretches(position, len);
        let in_ring = |(offset, len): (usize, usize)| libc::iovec {
            iov_base: self.segment.up.mapping().bytes(ring + offset, len).cast(),
            iov_len: len,
        };
        let in_slice = |bytes: &[u8]| libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        let mut parts = [
            in_slice(before),
            in_ring(first),
            in_ring(second),
            in_slice(after),
        ];
        // SAFETY: a msghdr of zeros is a valid, empty one.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len();
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: every part is valid memory of its length for the duration of the call (slices
        // borrowed by us, ring stretches checked against the mapping), and is only read.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &message, flags) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// The app may write over everything before `consumed`; wakes it if it waits for room.
    pub fn consume(&self, consumed: u64) {
        ring::consume(&self.segment.down_slot(self.index).consumed, consumed);
        self.segment
            .rouse(self.segment.geometry.thread_of(self.index));
    }

    /// Nobody will read the reply of `generation`: the app may write it into the void.
    pub fn client_gone(&self, generation: Generation) {
        // Stored with a mark above the generation's 30 bits, so that 0 never means a generation.
        let down = self.segment.down_slot(self.index);
        down.gone
            .store(crate::layout::GONE | generation.bits(), Ordering::Release);
        self.segment
            .rouse(self.segment.geometry.thread_of(self.index));
    }
}
