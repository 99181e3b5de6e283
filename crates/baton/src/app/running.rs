//! A request that has been handed to a thread, until its reply is through.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use baton_dispatch::{Handoff, ThreadId};
use baton_handoff::front::{Body, Slot};
use baton_handoff::reply;
use baton_handoff::ring::{End, Nonsense, Progress};
use baton_handoff::slot::Generation;
use baton_server::Source;
use rustix::process::Signal;

use super::{Message, Pending, Place, Pool};

/// More informational heads in front of a reply are no reply: each costs the front a system call.
const INFORMATIONAL_HEADS_MAX: u32 = 100;
/// How long a request may stand by at a thread that is busy for longer than its last request told.
const STANDBY_MS_MAX: u64 = 2;

/// The front's record of an offer: the truth about who has which request.
pub struct Running {
    pub pending: Pending,
    pub thread: ThreadId,
    pub place: Place,
    pub seat: u32,
    /// As far as is known the thread is still busy with another request.
    pub stands_by: bool,
    pub queued_since_ms: u64,
    pub offered_ms: u64,
    pub stage: Stage,
    pub client: Client,
    /// Set when the deadline has passed: the process is killed then.
    pub kill_at_ms: Option<u64>,
    generation: Generation,
    is_offered: bool,
    /// Reply bytes read so far.
    consumed: u64,
    /// What was acted upon last.
    seen: Option<Progress>,
    /// Its process has ended: what was seen is all there will be, whatever a child of the process writes.
    is_frozen: bool,
    informational_heads: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The final head has not been seen.
    Head,
    /// Body bytes follow until the end.
    Body,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    There,
    /// Nobody waits for the reply: it left, or has been answered otherwise.
    Gone,
}

/// What [`Running::take_head`] found in the ring.
pub enum TakenHead<'s> {
    Whole(reply::Head<'s>),
    /// Not all of it is there yet.
    Partial,
}

impl Running {
    /// Puts the request into its slot and tells the thread.
    pub fn offer(handoff: Handoff<Place, Pending>, now_ms: u64) -> Self {
        let Handoff {
            id: thread,
            thread: place,
            seat,
            stands_by,
            request: pending,
            queued_since_ms,
        } = handoff;
        let slot = place.slot_of(seat);
        let generation = place.process.next_generation(slot, pending.id, stands_by);
        let is_offered = match &pending.file {
            Some((file, _)) => place
                .process
                .send_body(slot, generation, file.as_fd())
                .is_ok(),
            None => true,
        };
        if is_offered {
            let (head, body) = pending.bytes.split_at(pending.head_bytes);
            let body = match &pending.file {
                Some((_, len)) => Body::File(*len),
                None => Body::Memory(body),
            };
            place
                .process
                .slot(slot)
                .offer(generation, pending.io as u32, head, body);
        } else {
            // It does not read its control socket: it is of no use. Its end brings the request back.
            place.process.signal(Signal::KILL);
        }
        Self {
            pending,
            thread,
            place,
            seat,
            stands_by,
            queued_since_ms,
            offered_ms: now_ms,
            stage: Stage::Head,
            client: Client::There,
            kill_at_ms: None,
            generation,
            is_offered,
            consumed: 0,
            seen: None,
            is_frozen: false,
            informational_heads: 0,
        }
    }

    /// As [`Running::offer`], for a request that belongs to another I/O thread. Offered first: the
    /// thread need not wait until that I/O thread is awake.
    pub fn offer_elsewhere(handoff: Handoff<Place, Pending>, now_ms: u64) {
        let pool = handoff.thread.process.pool.clone();
        let running = Self::offer(handoff, now_ms);
        pool.post(running.pending.io, Message::Adopt(Box::new(running)));
    }

    /// Whose thread has it.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.place.process.pool
    }

    fn slot(&self) -> Slot<'_> {
        self.place.process.slot(self.place.slot_of(self.seat))
    }

    /// Whether the app has said something that was not acted upon.
    #[inline]
    pub fn has_news(&self) -> bool {
        if self.is_frozen {
            return false;
        }
        match self.slot().progress(self.generation, self.consumed) {
            Ok(progress) => progress != self.seen,
            Err(Nonsense) => true,
        }
    }

    /// What the app says of the reply, if that is news.
    #[inline]
    pub fn news(&mut self) -> Result<Option<Progress>, Nonsense> {
        if self.is_frozen {
            return Ok(None);
        }
        let progress = self.slot().progress(self.generation, self.consumed)?;
        if progress == self.seen {
            return Ok(None);
        }
        match (self.seen, progress) {
            (None, _) => self.place.process.takes_requests(),
            (Some(seen), Some(progress)) if progress.can_follow(seen) => {}
            // It has unsaid what it said. Acting on that could run the request twice.
            (Some(_), _) => return Err(Nonsense),
        }
        self.seen = progress;
        Ok(progress)
    }

    /// No news will be heard from now on.
    pub fn freeze(&mut self) {
        self.is_frozen = true;
    }

    /// What was acted upon last: for going on when the client has room again.
    pub fn seen(&self) -> Option<Progress> {
        self.seen
    }

    /// Whether the thread has not taken it so far.
    pub fn is_untaken(&self) -> bool {
        self.seen.is_none() && (!self.is_offered || self.slot().is_pending(self.generation))
    }

    /// Takes the offer back. `false`: the thread has it, or had.
    pub fn retract(&self) -> bool {
        !self.is_offered || self.slot().retract(self.generation)
    }

    /// Copies the next head out of the ring into `copy` and decodes it there.
    pub fn take_head<'s>(
        &mut self,
        progress: Progress,
        copy: &'s mut Vec<u8>,
    ) -> Result<TakenHead<'s>, Nonsense> {
        let unread = (progress.written - self.consumed) as usize;
        if unread < reply::LENGTH_BYTES {
            return Ok(TakenHead::Partial);
        }
        copy.clear();
        self.slot().copy(self.consumed, reply::LENGTH_BYTES, copy);
        let prefix =
            <[u8; reply::LENGTH_BYTES]>::try_from(copy.as_slice()).map_err(|_| Nonsense)?;
        let len = reply::claimed_length(prefix).ok_or(Nonsense)?;
        if unread < len {
            return Ok(TakenHead::Partial);
        }
        // The length was read once and stays what it was, whatever the app writes there now.
        let rest = len - reply::LENGTH_BYTES;
        self.slot()
            .copy(self.consumed + reply::LENGTH_BYTES as u64, rest, copy);
        self.consumed += len as u64;
        let head = reply::Head::decode(copy).ok_or(Nonsense)?;
        if head.is_informational() {
            self.informational_heads += 1;
            if self.informational_heads > INFORMATIONAL_HEADS_MAX {
                return Err(Nonsense);
            }
            // Behind the last of them the thread may be waiting for room to begin its reply.
            if progress.end == End::Open {
                self.slot().consume(self.consumed);
            }
        }
        Ok(TakenHead::Whole(head))
    }

    /// Body bytes that may be read.
    pub fn unread(&self, progress: Progress) -> u64 {
        progress.written - self.consumed
    }

    /// The body bytes that are there, as something to push.
    pub fn source(&self, progress: Progress) -> RingSource<'_> {
        RingSource {
            slot: self.slot(),
            position: self.consumed,
            // Checked by `progress`: at most a ring.
            remaining: self.unread(progress) as usize,
        }
    }

    /// After a push: everything before `position` was read.
    pub fn consumed_up_to(&mut self, position: u64, end: End) {
        if self.consumed != position || end == End::Open {
            self.consumed = position;
            // After the end the app does not wait for room.
            if end == End::Open {
                self.slot().consume(position);
            }
        }
    }

    /// Nobody waits for the reply any more. The thread may write the rest into the void.
    pub fn forget_client(&mut self) {
        self.client = Client::Gone;
        if self.is_offered {
            self.slot().client_gone(self.generation);
        }
    }

    /// Reads the reply for nobody; whether the thread is through with it.
    pub fn swallow(&mut self, progress: Progress) -> bool {
        self.consumed_up_to(progress.written, progress.end);
        matches!(progress.end, End::Finished | End::Abandoned)
    }

    /// The client has its whole reply; the thread goes on as long as it likes.
    pub fn detach_client(&mut self) {
        self.client = Client::Gone;
        self.pending.deadline_ms = u64::MAX;
    }

    /// When something is to be done about it, if nothing is heard of it.
    pub fn next_check_ms(&self) -> u64 {
        let due_ms = self.kill_at_ms.unwrap_or(self.pending.deadline_ms);
        match self.is_untaken() {
            true => due_ms.min(self.take_back_ms()),
            false => due_ms,
        }
    }

    /// When it is to be taken back if it is untaken.
    #[inline]
    pub fn take_back_ms(&self) -> u64 {
        match self.stands_by {
            true => self.offered_ms + STANDBY_MS_MAX,
            false => self.offered_ms + self.pool().app.options.offer_ms,
        }
    }

    /// The thread has come to it, or would have to.
    pub fn comes_up(&mut self, now_ms: u64) {
        self.stands_by = false;
        self.offered_ms = now_ms;
    }
}

/// Body bytes in a slot's ring.
pub struct RingSource<'s> {
    slot: Slot<'s>,
    position: u64,
    remaining: usize,
}

impl RingSource<'_> {
    pub fn position(&self) -> u64 {
        self.position
    }
}

impl Source for RingSource<'_> {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        before: &[u8],
        limit: usize,
        after: &[u8],
    ) -> rustix::io::Result<usize> {
        let limit = limit.min(self.remaining);
        self.slot
            .send(socket, before, self.position, limit, after)
            .map_err(|error: io::Error| {
                rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO)
            })
    }

    fn copy_to(&mut self, out: &mut Vec<u8>, n: usize) {
        let n = n.min(self.remaining);
        self.slot.copy(self.position, n, out);
        self.consume(n);
    }

    fn consume(&mut self, n: usize) {
        let n = n.min(self.remaining);
        self.position += n as u64;
        self.remaining -= n;
    }
}
