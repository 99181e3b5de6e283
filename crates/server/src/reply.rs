//! A reply begun: its head, and replies that are whole at once.

use std::fs::File;
use std::rc::Rc;

use crate::conn::{FileReply, Phase, Sending};
use crate::http1::{self, ReplyContext, ReplyFraming, Version};
use crate::io::Io;
use crate::service::{ConnId, FilePart, Push};
use crate::source::{Bytes, Source};

impl Io {
    /// A whole reply: head and body leave in one system call. Cuts the connection if a reply has begun already.
    pub fn respond<'h>(
        &mut self,
        conn: ConnId,
        status: u16,
        reason: Option<&str>,
        headers: impl IntoIterator<Item = (&'h [u8], &'h [u8])>,
        body: &[u8],
    ) {
        self.start(conn, status, reason, headers, Some(body.len() as u64));
        let mut source = Bytes(body);
        if self.push(conn, &mut source, true) == Push::Blocked {
            // The body lies in the front's own memory and cannot wait there: copied, whatever the budget says.
            self.spill_all(conn, &mut source);
        }
    }

    /// An interim reply (1xx, not 101) in front of the final one. Nothing for a client that speaks HTTP/1.0.
    pub fn inform<'h>(
        &mut self,
        conn: ConnId,
        status: u16,
        headers: impl IntoIterator<Item = (&'h [u8], &'h [u8])>,
    ) {
        let Some(found) = self.conns.get_mut(conn) else {
            return;
        };
        // A client that does not read gets no hints: they would pile up.
        if found.phase != Phase::Asked || found.exchange.version == Version::Http10 || found.blocked
        {
            return;
        }
        self.interim(conn, status, headers);
    }

    pub(crate) fn interim<'h>(
        &mut self,
        id: ConnId,
        status: u16,
        headers: impl IntoIterator<Item = (&'h [u8], &'h [u8])>,
    ) {
        self.give_out_buffer(id);
        let Some(conn) = self.conns.get_mut(id) else {
            return;
        };
        http1::encode_informational(&mut conn.out, status, headers);
        self.pump(id);
    }

    /// Begins a reply; nothing is written before the next `push`. `length`: the whole body's, if it is known. Cuts the
    /// connection if a reply has begun already.
    pub fn start<'h>(
        &mut self,
        conn: ConnId,
        status: u16,
        reason: Option<&str>,
        headers: impl IntoIterator<Item = (&'h [u8], &'h [u8])>,
        length: Option<u64>,
    ) {
        let Some(found) = self.conns.get(conn) else {
            return;
        };
        match found.phase {
            Phase::Asked => {}
            Phase::Replying => return self.break_off(conn, false),
            _ => return,
        }
        self.give_out_buffer(conn);
        let Some(found) = self.conns.get_mut(conn) else {
            return;
        };
        let exchange = &mut found.exchange;
        let context = ReplyContext {
            head_request: exchange.head_request,
            connect: exchange.connect,
            version: exchange.version,
            keep_alive: exchange.client_keeps
                && !self.draining
                && found.requests < self.config.requests_per_connection_max,
        };
        let server = &self.config.server_name;
        let date = self.clock.date();
        let plan = http1::encode_reply_head(
            &mut found.out,
            &context,
            status,
            reason,
            headers,
            length,
            date,
            server,
        );
        exchange.status = status;
        exchange.keep_alive = plan.keep_alive;
        // Where the client would have stayed it may be sending already.
        found.linger |= exchange.client_keeps && !plan.keep_alive;
        exchange.sending = match plan.framing {
            ReplyFraming::None => Sending::Nothing,
            ReplyFraming::Length(length) => Sending::Length(length),
            ReplyFraming::Chunked => Sending::Chunked(0),
            ReplyFraming::UntilClose => Sending::UntilClose,
        };
        found.phase = Phase::Replying;
    }

    /// A whole reply from a file: `len` bytes from `offset` on, by sendfile. The server keeps it going by itself, and
    /// cuts the connection if the file turns out to be shorter.
    pub fn send_file<'h>(
        &mut self,
        conn: ConnId,
        status: u16,
        headers: impl IntoIterator<Item = (&'h [u8], &'h [u8])>,
        file: Rc<File>,
        offset: u64,
        len: u64,
    ) {
        self.start(conn, status, None, headers, Some(len));
        let all = FilePart {
            before: Vec::new(),
            offset,
            len,
        };
        self.send_from(conn, file, all, Vec::new());
    }

    /// The same for several parts of a file, in this order, each with some bytes in front of it.
    pub fn send_file_parts<'h>(
        &mut self,
        conn: ConnId,
        status: u16,
        headers: impl IntoIterator<Item = (&'h [u8], &'h [u8])>,
        file: Rc<File>,
        first: FilePart,
        others: Vec<FilePart>,
    ) {
        let len = others.iter().map(FilePart::bytes).sum::<u64>() + first.bytes();
        self.start(conn, status, None, headers, Some(len));
        self.send_from(conn, file, first, others);
    }

    fn send_from(&mut self, conn: ConnId, file: Rc<File>, first: FilePart, others: Vec<FilePart>) {
        let Some(found) = self
            .conns
            .get_mut(conn)
            .filter(|found| found.phase == Phase::Replying)
        else {
            return;
        };
        found.phase = Phase::Flushing;
        if let Sending::Length(1..) = found.exchange.sending {
            found.exchange.body_bytes += first.before.len() as u64;
            found.out.extend_from_slice(&first.before);
            found.file = Some(Box::new(FileReply {
                file,
                offset: first.offset,
                left: first.len,
                parts: others.into_iter(),
            }));
        }
        found.exchange.sending = Sending::Nothing;
        if !found.blocked {
            self.pump(conn);
        }
    }

    /// Ends a streaming reply: a last, empty push.
    pub fn finish(&mut self, conn: ConnId) -> Push {
        self.push(conn, &mut Bytes(b""), true)
    }

    pub(crate) fn give_out_buffer(&mut self, id: ConnId) {
        if self
            .conns
            .get(id)
            .is_some_and(|conn| conn.out.capacity() == 0)
        {
            let buffer = self.take_buffer();
            if let Some(conn) = self.conns.get_mut(id) {
                conn.out = buffer;
            }
        }
    }

    fn spill_all(&mut self, id: ConnId, source: &mut dyn Source) {
        self.shared.spill.take(source.remaining());
        if let Some(conn) = self.conns.get_mut(id) {
            conn.spilled += source.remaining();
            conn.service_waits = false;
        }
        self.copy_rest(id, source, true);
    }
}
