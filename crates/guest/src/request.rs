//! One request in an app process, and the reply to it.

use std::io;
use std::os::fd::OwnedFd;

use baton_handoff::app::{Body, ReplyWriter, Segment, Taken};
use baton_handoff::reply;
use baton_handoff::request::Head;
use baton_handoff::ring::End;

use crate::process::Process;

/// Body bytes of a long reply that may gather before the front is told of them. Half a ring: the
/// front sends one half while the app writes the other.
const UNPUBLISHED_BYTES_MAX: usize = baton_handoff::layout::RING_BYTES / 2;

pub struct Request<'p> {
    process: &'p Process,
    thread: u32,
    taken: Taken,
    head: Head<'p>,
    body: Body<'p>,
    /// The spooled body, once it was asked for.
    file: Option<OwnedFd>,
    body_read: u64,
    writer: ReplyWriter,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Only informational heads so far.
    BeforeHead,
    /// The final head is written; body bytes follow.
    Started,
    /// Nobody reads it: the client has gone, the reply is complete, or a forked child has no right
    /// to answer.
    IntoTheVoid,
}

/// Why a reply could not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyError {
    /// Status out of range, or at this stage not possible.
    Invalid,
    /// The headers exceed 64 KiB.
    TooLarge,
    /// Nobody will read it.
    ClientGone,
}

impl<'p> Request<'p> {
    pub(crate) fn new(process: &'p Process, thread: u32, taken: Taken) -> Option<Self> {
        let (head, body) = process.segment().request(taken)?;
        let writer = ReplyWriter::new(taken);
        Some(Self {
            process,
            thread,
            taken,
            head,
            body,
            file: None,
            body_read: 0,
            writer,
            stage: Stage::BeforeHead,
        })
    }

    pub fn head(&self) -> &Head<'p> {
        &self.head
    }

    pub fn body_length(&self) -> u64 {
        match self.body {
            Body::Memory(bytes) => bytes.len() as u64,
            Body::File(len) => len,
        }
    }

    /// Reads on from where the last read ended; 0 at the end.
    pub fn read_body(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.read_body_at(buffer, self.body_read)?;
        self.body_read += read as u64;
        Ok(read)
    }

    pub fn read_body_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self.body {
            Body::Memory(bytes) => {
                let rest = usize::try_from(offset)
                    .ok()
                    .and_then(|at| bytes.get(at..))
                    .unwrap_or(&[]);
                let len = rest.len().min(buffer.len());
                buffer[..len].copy_from_slice(&rest[..len]);
                Ok(len)
            }
            Body::File(_) => {
                if self.file.is_none() {
                    self.file = Some(self.process.body_file(self.taken)?);
                }
                let Some(file) = &self.file else { return Ok(0) };
                Ok(rustix::io::retry_on_intr(|| {
                    rustix::io::pread(file, &mut *buffer, offset)
                })?)
            }
        }
    }

    pub fn is_client_gone(&self) -> bool {
        self.process.is_disowned() || self.segment().is_client_gone(self.taken)
    }

    /// An informational head, sent at once.
    pub fn inform<'h>(
        &mut self,
        status: u16,
        headers: impl Iterator<Item = (&'h [u8], &'h [u8])>,
    ) -> Result<(), ReplyError> {
        if !(100..200).contains(&status) || status == 101 || self.stage == Stage::Started {
            return Err(ReplyError::Invalid);
        }
        self.write_head(status, headers)?;
        self.flush()
    }

    pub fn start<'h>(
        &mut self,
        status: u16,
        headers: impl Iterator<Item = (&'h [u8], &'h [u8])>,
    ) -> Result<(), ReplyError> {
        if !(200..1000).contains(&status) || self.stage == Stage::Started {
            return Err(ReplyError::Invalid);
        }
        self.write_head(status, headers)?;
        self.stage = Stage::Started;
        Ok(())
    }

    fn write_head<'h>(
        &mut self,
        status: u16,
        headers: impl Iterator<Item = (&'h [u8], &'h [u8])>,
    ) -> Result<(), ReplyError> {
        let mut encoded = Vec::with_capacity(512);
        reply::encode(&mut encoded, status, headers).map_err(|_| ReplyError::TooLarge)?;
        self.write_all(&encoded)
    }

    /// Body bytes; sleeps while the ring is full.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), ReplyError> {
        match self.stage {
            Stage::BeforeHead => Err(ReplyError::Invalid),
            Stage::IntoTheVoid => Err(ReplyError::ClientGone),
            Stage::Started => self.write_all(bytes),
        }
    }

    /// Body bytes; takes what fits now.
    pub fn try_write(&mut self, bytes: &[u8]) -> Result<usize, ReplyError> {
        match self.stage {
            Stage::BeforeHead => return Err(ReplyError::Invalid),
            Stage::IntoTheVoid => return Err(ReplyError::ClientGone),
            Stage::Started => {}
        }
        self.check_client()?;
        let len = self.writer.copy_in(self.process.segment(), bytes);
        if len < bytes.len() || self.is_due() {
            self.publish(End::Open);
        }
        Ok(len)
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> Result<(), ReplyError> {
        self.check_client()?;
        loop {
            let len = self.writer.copy_in(self.process.segment(), bytes);
            bytes = &bytes[len..];
            if !bytes.is_empty() || self.is_due() {
                self.publish(End::Open);
            }
            if bytes.is_empty() {
                return Ok(());
            }
            self.wait_for_room();
            self.check_client()?;
        }
    }

    /// A reply that fits the ring is published whole, with a known length and in one write; one
    /// that does not, in halves.
    fn is_due(&self) -> bool {
        self.writer.has_published() && self.writer.unpublished() >= UNPUBLISHED_BYTES_MAX
    }

    fn wait_for_room(&self) {
        let segment = self.process.segment();
        segment.sleep_until(self.thread, || {
            self.writer.room(segment) > 0 || segment.is_client_gone(self.taken)
        });
    }

    fn check_client(&mut self) -> Result<(), ReplyError> {
        if self.is_client_gone() {
            self.stage = Stage::IntoTheVoid;
            return Err(ReplyError::ClientGone);
        }
        Ok(())
    }

    /// Sends what there is.
    pub fn flush(&mut self) -> Result<(), ReplyError> {
        self.check_client()?;
        if self.writer.unpublished() > 0 {
            self.publish(End::Open);
        }
        Ok(())
    }

    /// The reply is complete, but this thread goes on with the request: it gets no other before
    /// [`Request::end`].
    pub fn complete(&mut self) {
        let end = if self.stage == Stage::BeforeHead {
            End::Abandoned
        } else {
            End::Complete
        };
        self.publish(end);
        self.stage = Stage::IntoTheVoid;
    }

    /// Ends the reply: finished, or given up. One that never started counts as given up.
    pub fn end(mut self, end: End) {
        let end = if self.stage == Stage::BeforeHead {
            End::Abandoned
        } else {
            end
        };
        self.publish(end);
    }

    fn publish(&mut self, end: End) {
        if !self.process.is_disowned() {
            self.writer.publish(self.process.segment(), end);
        }
    }

    fn segment(&self) -> &'p Segment {
        self.process.segment()
    }
}
