//! Sealed memory files, and their mappings.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// Who may write to a memory file once it is sealed.
#[derive(Clone, Copy)]
pub(crate) enum Writers {
    /// Only mappings that existed before the seal: the front's.
    FrontOnly,
    /// Everyone who has the descriptor.
    Both,
}

/// A memory file of fixed size, mapped whole and writable.
pub(crate) struct Memory {
    file: OwnedFd,
    mapping: Mapping,
}

impl Memory {
    /// A zeroed file, mapped and then sealed: nobody can shrink or grow it, so that no access
    /// within a mapping can fault; nor lift the seals.
    pub(crate) fn create(name: &str, len: usize, writers: Writers) -> io::Result<Self> {
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, len as u64)?;
        let mapping = Mapping::new(file.as_fd(), len, Access::ReadWrite)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        let seals = match writers {
            Writers::FrontOnly => seals | SealFlags::FUTURE_WRITE,
            Writers::Both => seals,
        };
        rustix::fs::fcntl_add_seals(&file, seals)?;
        Ok(Self { file, mapping })
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Access {
    Read,
    ReadWrite,
}

/// A mapped memory file. Words in it are reached as atomics; bytes only by copying them.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    _not_a_reference: PhantomData<*mut u8>,
}

// SAFETY: the mapping is plain memory, owned by this value until it is dropped; all access goes
// through atomics or raw copies, so it makes no difference which thread does it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(crate) fn new(file: BorrowedFd<'_>, len: usize, access: Access) -> io::Result<Self> {
        let protection = match access {
            Access::Read => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        let flags = MapFlags::SHARED;
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing of ours.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, flags, file, 0)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            base,
            len,
            _not_a_reference: PhantomData,
        })
    }

    /// The words at `offset`, which must be one of the layout's for this mapping.
    ///
    /// `T` must be one of the layout's structures: nothing but atomics, for which any bytes are
    /// valid and which others may change at any time.
    pub(crate) fn line<T: Words>(&self, offset: usize) -> &T {
        assert!(offset.is_multiple_of(align_of::<T>()) && offset + size_of::<T>() <= self.len);
        // SAFETY: in bounds and aligned (just checked; the base is page-aligned), mapped for the
        // lifetime of `self`, and `T` is made of atomics only. In a read-only mapping the callers
        // only load.
        unsafe { &*self.base.as_ptr().add(offset).cast::<T>() }
    }

    /// Where `len` bytes at `offset` lie, for copies and system calls.
    pub(crate) fn bytes(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset <= self.len && len <= self.len - offset);
        // SAFETY: in bounds, just checked.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// Copies out of the mapping into `out`'s spare room, and counts it in.
    pub(crate) fn append_to(&self, out: &mut Vec<u8>, offset: usize, len: usize) {
        let from = self.bytes(offset, len);
        out.reserve(len);
        // SAFETY: `from` is valid for `len` bytes; the spare capacity was just reserved and does
        // not overlap a mapping. Bytes that the peer changes meanwhile are copied in either
        // version; any bytes are valid as `u8`.
        unsafe {
            std::ptr::copy_nonoverlapping(from, out.as_mut_ptr().add(out.len()), len);
            out.set_len(out.len() + len);
        }
    }

    /// Copies `bytes` into the mapping, which must be writable.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.bytes(offset, bytes.len());
        // SAFETY: `to` is valid for the length (just checked) and no Rust object lies in a
        // mapping, so `bytes` does not overlap it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; nothing borrowed from `self` outlives it. An
        // error would mean that the range is not mapped, which leaves nothing to do.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Structures that consist of atomics alone.
///
/// # Safety
/// Every byte pattern must be valid, and every field must tolerate being changed by others.
pub(crate) unsafe trait Words {}

// SAFETY: atomics and padding only.
unsafe impl Words for crate::layout::DownHeader {}
// SAFETY: atomics and padding only.
unsafe impl Words for crate::layout::DownThread {}
// SAFETY: atomics and padding only.
unsafe impl Words for crate::layout::DownSlot {}
// SAFETY: atomics and padding only.
unsafe impl Words for crate::layout::UpThread {}
// SAFETY: atomics and padding only.
unsafe impl Words for crate::layout::UpSlot {}
// SAFETY: atomics and padding only.
unsafe impl Words for crate::layout::IoFlag {}
