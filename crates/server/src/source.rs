//! Bytes of a reply that lie outside the front's own memory.

use std::io::IoSlice;

use rustix::fd::BorrowedFd;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

/// The unsent part of a reply's body, such as a ring shared with an application process.
///
/// Between two calls for the same reply the source may grow at its end; its first bytes are those that have not been
/// consumed yet.
pub trait Source {
    /// Bytes that are there now.
    fn remaining(&self) -> usize;

    /// One `writev` of `before`, at most `limit` of the source's own bytes, then `after`. Consumes nothing; returns how
    /// many bytes the socket took in all. `limit` is never more than `remaining()`; `after` may go only behind all of
    /// `limit`. Must not raise SIGPIPE.
    fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        before: &[u8],
        limit: usize,
        after: &[u8],
    ) -> rustix::io::Result<usize>;

    /// Appends the first `n` bytes to `out` and consumes them. `n` is never more than `remaining()`.
    fn copy_to(&mut self, out: &mut Vec<u8>, n: usize);

    fn consume(&mut self, n: usize);
}

/// A source in ordinary memory.
pub struct Bytes<'b>(pub &'b [u8]);

impl Source for Bytes<'_> {
    fn remaining(&self) -> usize {
        self.0.len()
    }

    fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        before: &[u8],
        limit: usize,
        after: &[u8],
    ) -> rustix::io::Result<usize> {
        let parts = [
            IoSlice::new(before),
            IoSlice::new(&self.0[..limit]),
            IoSlice::new(after),
        ];
        sendmsg(
            socket,
            &parts,
            &mut SendAncillaryBuffer::default(),
            SendFlags::NOSIGNAL,
        )
    }

    fn copy_to(&mut self, out: &mut Vec<u8>, n: usize) {
        out.extend_from_slice(&self.0[..n]);
        self.0 = &self.0[n..];
    }

    fn consume(&mut self, n: usize) {
        self.0 = &self.0[n..];
    }
}
