//! The shared memory without the handoff's manners: any word at any place.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

use crate::random::Random;

/// Where things lie in `up` for one thread with eight slots, as `baton_handoff::layout` has it. Should they move, the
/// blows fall elsewhere, and only the journey's count of processes killed for nonsense would tell.
pub const WAKE: usize = 0;
pub const SLOTS: u32 = 8;
pub const RINGS: usize = 4096;
pub const UP_BYTES: usize = ring(SLOTS);

pub const fn state(slot: u32) -> usize {
    64 + slot as usize * 64
}

pub const fn reply(slot: u32) -> usize {
    state(slot) + 8
}

pub const fn ring(slot: u32) -> usize {
    RINGS + slot as usize * baton_handoff::layout::RING_BYTES
}

/// A shared mapping of a memory file.
pub struct Raw {
    base: *mut u8,
    len: usize,
}

// SAFETY: a mapping that is never unmapped, and accessed through atomics only.
unsafe impl Send for Raw {}
// SAFETY: as above.
unsafe impl Sync for Raw {}

impl Raw {
    /// The first `len` bytes of the file, which must have so many.
    pub fn map(file: BorrowedFd<'_>, len: usize, protection: ProtFlags) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing of ours.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                protection,
                MapFlags::SHARED,
                file,
                0,
            )?
        };
        Ok(Self {
            base: base.cast(),
            len,
        })
    }

    /// Whether a mapping that was made for reading can be made writable.
    pub fn try_make_writable(&self) -> bool {
        let flags = rustix::mm::MprotectFlags::READ | rustix::mm::MprotectFlags::WRITE;
        // SAFETY: the range is a whole mapping of ours; more rights break no use of it.
        unsafe { rustix::mm::mprotect(self.base.cast(), self.len, flags) }.is_ok()
    }

    pub fn u32(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.len);
        // SAFETY: in bounds and aligned (just checked), mapped for ever, valid with any bytes.
        unsafe { &*self.base.add(offset).cast() }
    }

    pub fn u64(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.len);
        // SAFETY: in bounds and aligned (just checked), mapped for ever, valid with any bytes.
        unsafe { &*self.base.add(offset).cast() }
    }

    /// A random word somewhere: every second time among the words of the protocol.
    pub fn scribble(&self, random: &mut Random) {
        let word = match random.below(4) {
            0 => random.next() & 0xff,
            _ => random.next(),
        };
        let offset = match random.below(4) {
            0 => random.of(&[WAKE, state(0), reply(0), state(1), reply(1)]),
            1 => random.below(RINGS / 8) * 8,
            2 => ring(random.below(SLOTS as usize) as u32) + random.below(64) * 8,
            _ => random.below(self.len / 8) * 8,
        };
        self.u64(offset).store(word, Ordering::Relaxed);
    }

    /// Both, whichever is looked at.
    pub fn fill_ring(&self, bytes: &[u8]) {
        for slot in 0..SLOTS {
            for (offset, piece) in (ring(slot)..ring(slot + 1)).step_by(8).zip(bytes.chunks(8)) {
                let mut word = [0; 8];
                word[..piece.len()].copy_from_slice(piece);
                self.u64(offset)
                    .store(u64::from_ne_bytes(word), Ordering::Relaxed);
            }
        }
    }
}

/// A reply word: any generation, end code and count.
pub fn reply_word(generation: u32, end: u64, written: u64) -> u64 {
    u64::from(generation & 0xffff) << 48 | (end & 0xf) << 44 | written & ((1 << 44) - 1)
}

pub const OPEN: u64 = 0;
pub const FINISHED: u64 = 1;
pub const COMPLETE: u64 = 3;

pub const OFFERED: u32 = 1;
pub const TAKEN: u32 = 2;
