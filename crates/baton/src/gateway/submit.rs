//! To the app: a request is encoded and submitted; it runs, waits or is refused.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use baton_dispatch::{Handoff, Submitted};
use baton_handoff::layout::REQUEST_BODY_BYTES_MAX;
use baton_server::{Body, ConnId, Io, Request};

use super::answers::{refuse, unavailable};
use super::caller::Caller;
use super::fields::Script;
use super::resolve::UrlPath;
use super::{Gateway, QueuedAt, SPARE_BUFFER_BYTES_MAX, SPARE_BUFFERS_MAX};
use crate::app::{Pending, Place, Pool, Running};

impl Gateway {
    pub(super) fn pass_to_script(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        request: Request<'_>,
        (caller, path): (&Caller<'_>, &UrlPath),
        pool: &Pool,
        script: &Script<'_>,
    ) {
        if !pool.is_up() && !pool.wake() {
            return unavailable(io, conn, "The application cannot start.\n");
        }
        let id = self.next_id();
        let mut bytes = self.spare.pop().unwrap_or_default();
        let ends = (caller, request.local);
        if self
            .fields
            .encode(&mut bytes, request.head, path, script, ends, io.now(), id)
            .is_err()
        {
            self.recycle(bytes);
            return refuse(io, conn, 431, "The request head is too large.\n");
        }
        let head_bytes = bytes.len();
        let file = match request.body {
            Body::Empty => None,
            Body::Memory(body) if body.len() <= REQUEST_BODY_BYTES_MAX => {
                bytes.extend_from_slice(body);
                None
            }
            Body::Memory(_) => {
                self.recycle(bytes);
                return refuse(io, conn, 500, "The request body was not spooled.\n");
            }
            Body::File(file, len) => match read_only(&file) {
                Ok(file) => Some((file, len)),
                Err(error) => {
                    tracing::error!("cannot reopen a spooled request body: {error}");
                    self.recycle(bytes);
                    return refuse(io, conn, 500, "The request body could not be kept.\n");
                }
            },
        };
        let now_ms = io.now().mono_ms();
        let pending = Pending {
            conn,
            io: self.index,
            id,
            bytes,
            head_bytes,
            file,
            deadline_ms: now_ms + pool.app.options.deadline_ms,
            idempotent: is_idempotent(request.head.method),
            retried: false,
            _begun: pool.begin(),
        };
        let served = self.served.get(conn).copied();
        let last = served.and_then(|(number, thread)| (number == pool.number).then_some(thread));
        let submitted = pool
            .dispatcher()
            .submit_after(last, pending, self.index, now_ms);
        self.submitted(io, conn, pool, submitted, now_ms);
    }

    pub(super) fn submitted(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        pool: &Pool,
        submitted: Submitted<Place, Pending>,
        now_ms: u64,
    ) {
        match submitted {
            Submitted::Handoff(handoff) => self.run(handoff, now_ms),
            Submitted::Queued(ticket) => {
                pool.has_queued();
                self.check_by(now_ms + pool.app.options.queue_wait_ms_max);
                let queued = QueuedAt {
                    pool: pool.number,
                    ticket,
                };
                self.queued.set(conn, queued);
            }
            Submitted::Refused(pending) => {
                self.count_trouble(pool, |counters| &counters.queue_full);
                unavailable(io, pending.conn, "Too many requests are waiting.\n");
                self.recycle(pending.bytes);
            }
        }
    }

    pub(super) fn run(&mut self, handoff: Handoff<Place, Pending>, now_ms: u64) {
        if handoff.request.io == self.index {
            let running = Running::offer(handoff, now_ms);
            self.count_handed(&running);
            self.check_by(running.take_back_ms());
            self.running.push(running);
        } else {
            Running::offer_elsewhere(handoff, now_ms);
        }
    }

    pub(super) fn next_id(&mut self) -> u64 {
        // A Weyl sequence: distinct, and unlike its neighbours at first sight.
        self.next_id = self.next_id.wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.next_id
    }

    /// Takes the connection's request out of the queue, if it waits there.
    pub(super) fn cancel_queued(&mut self, conn: ConnId) -> bool {
        let Some(queued) = self.queued.take(conn) else {
            return false;
        };
        let pool = self.pool_of_number(queued.pool);
        let cancelled = pool.and_then(|pool| {
            let pending = pool.dispatcher().cancel(queued.ticket)?;
            self.count_trouble(&pool, |counters| &counters.left_waiting);
            Some(pending)
        });
        let was_queued = cancelled.is_some();
        if let Some(pending) = cancelled {
            self.recycle(pending.bytes);
        }
        was_queued
    }

    pub(super) fn recycle(&mut self, mut bytes: Vec<u8>) {
        if self.spare.len() < SPARE_BUFFERS_MAX && bytes.capacity() <= SPARE_BUFFER_BYTES_MAX {
            bytes.clear();
            self.spare.push(bytes);
        }
    }
}

fn is_idempotent(method: &str) -> bool {
    // RFC 9110, section 9.2.2.
    matches!(
        method,
        "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE"
    )
}

/// The app gets a description that it cannot write through.
fn read_only(file: &File) -> io::Result<OwnedFd> {
    Ok(File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?.into())
}
