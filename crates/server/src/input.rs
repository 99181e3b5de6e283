//! Bytes in, until a request is whole.

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::body::{Arriving, Places, Store};
use crate::conn::Phase;
use crate::http1::{Framing, HeaderStore, RequestHead};
use crate::io_thread::IoThread;
use crate::service::{Body, ConnId, Service};

/// Of one connection, before others have their turn.
const READS_PER_TURN_MAX: usize = 4;
/// Pipelined requests answered at once, before others have their turn.
const REQUESTS_PER_TURN_MAX: usize = 32;

impl<S: Service> IoThread<S> {
    /// Reads what is there, and acts on it.
    #[inline]
    pub(crate) fn read(&mut self, id: ConnId) {
        for _ in 0..READS_PER_TURN_MAX {
            let Some(conn) = self.io.conns.get_mut(id) else {
                return;
            };
            if !conn.may_read || !conn.phase.reads() {
                return;
            }
            match recv(&conn.socket, &mut *self.scratch, RecvFlags::empty()) {
                Ok((0, _)) => return self.end_of_input(id),
                Ok((count, _)) => {
                    // A short read has emptied the socket. What comes later is a new edge; a FIN that came already
                    // is not.
                    if count < self.scratch.len() && !conn.peer_fin {
                        conn.may_read = false;
                    }
                    self.take_in(id, count);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    conn.may_read = false;
                    return;
                }
                Err(_) => return self.io.break_off(id, true),
            }
        }
        if self
            .io
            .conns
            .get(id)
            .is_some_and(|conn| conn.may_read && conn.phase.reads())
        {
            self.io.again.push(id);
        }
    }

    /// Acts on `count` bytes in the scratch buffer. What is left over goes to the connection.
    #[inline]
    fn take_in(&mut self, id: ConnId, count: usize) {
        let Some(conn) = self.io.conns.get_mut(id) else {
            return;
        };
        if conn.phase == Phase::Lingering {
            conn.lingered_bytes += count as u64;
            if conn.lingered_bytes > self.io.config.linger_bytes_max {
                self.io.remove(id);
            }
            return;
        }
        let scratch = std::mem::take(&mut self.scratch);
        let bytes = &scratch[..count];
        if conn.input.is_empty() {
            let consumed = self.feed(id, bytes);
            if consumed < count {
                self.keep(id, &bytes[consumed..]);
            }
        } else {
            conn.input.extend_from_slice(bytes);
            self.feed_input(id);
        }
        self.scratch = scratch;
    }

    /// Not in a spare buffer: what a slow client leaves unfinished should take no more memory than it has sent.
    #[cold]
    fn keep(&mut self, id: ConnId, rest: &[u8]) {
        if let Some(conn) = self.io.conns.get_mut(id) {
            conn.input = rest.to_vec();
        }
    }

    /// Acts on the bytes that the connection has kept.
    pub(crate) fn feed_input(&mut self, id: ConnId) {
        let Some(conn) = self.io.conns.get_mut(id) else {
            return;
        };
        if conn.input.is_empty() {
            return;
        }
        let mut input = std::mem::take(&mut conn.input);
        let consumed = self.feed(id, &input);
        input.drain(..consumed);
        match self.io.conns.get_mut(id) {
            Some(conn) if !input.is_empty() && conn.phase != Phase::Lingering => conn.input = input,
            _ => self.io.give_buffer(input),
        }
    }

    /// Acts on as many of the bytes as may be acted upon now; returns how many that were.
    fn feed(&mut self, id: ConnId, bytes: &[u8]) -> usize {
        let mut at = 0;
        let mut requests = 0;
        loop {
            let Some(conn) = self.io.conns.get(id) else {
                return bytes.len();
            };
            let rest = &bytes[at..];
            match conn.phase {
                Phase::Preface | Phase::Idle | Phase::Head if rest.is_empty() => return at,
                Phase::Preface => match self.preface(id, rest) {
                    Some(consumed) => at += consumed,
                    None => return at,
                },
                Phase::Idle | Phase::Head => match self.head(id, rest) {
                    Some(consumed) => at += consumed,
                    None => return at,
                },
                Phase::Body if rest.is_empty() => return at,
                Phase::Body => at += self.body(id, rest),
                Phase::Complete if requests < REQUESTS_PER_TURN_MAX => {
                    requests += 1;
                    self.conclude(id);
                }
                Phase::Complete | Phase::Asked | Phase::Replying | Phase::Flushing => return at,
                // Whatever follows is not listened to.
                Phase::Lingering | Phase::Broken => return bytes.len(),
            }
        }
    }

    /// Looks for a head at the beginning of `bytes`. None: it is not whole yet.
    #[inline]
    fn head(&mut self, id: ConnId, bytes: &[u8]) -> Option<usize> {
        let conn = self.io.conns.get_mut(id)?;
        match conn.scanner.scan(bytes, &self.io.config.limits) {
            Ok(Some(length)) => {
                conn.scanner.reset();
                Some(self.head_whole(id, bytes, length))
            }
            Ok(None) => {
                if conn.phase == Phase::Idle {
                    conn.phase = Phase::Head;
                    let deadline_ms = self.io.used_ms() + self.io.config.header_ms;
                    self.io.set_deadline(id, deadline_ms);
                }
                None
            }
            Err(reject) => {
                self.io.refuse(id, reject);
                Some(bytes.len())
            }
        }
    }

    /// A head of `length` bytes, and whatever of its body is there already.
    #[inline]
    fn head_whole(&mut self, id: ConnId, bytes: &[u8], length: usize) -> usize {
        let (head_bytes, rest) = bytes.split_at(length);
        let mut store = HeaderStore::new();
        let parsed = RequestHead::parse(head_bytes, &self.io.config.limits, &mut store);
        let head = match parsed {
            Ok(head) => head,
            Err(reject) => {
                self.io.refuse(id, reject);
                return bytes.len();
            }
        };
        let memory_bytes_max = self.io.config.body_memory_bytes_max;
        match head.framing {
            Framing::None | Framing::Length(0) => self.ask(id, &head, Body::Empty),
            Framing::Length(wanted) if wanted <= memory_bytes_max.min(rest.len()) as u64 => {
                let body = &rest[..wanted as usize];
                self.ask(id, &head, Body::Memory(body));
                return length + body.len();
            }
            framing => {
                let invite = head.expect_continue && rest.is_empty();
                self.begin_body(id, head_bytes, framing, invite);
            }
        }
        length
    }

    fn begin_body(&mut self, id: ConnId, head: &[u8], framing: Framing, invite: bool) {
        let now_ms = self.io.used_ms();
        let Some(conn) = self.io.conns.get_mut(id) else {
            return;
        };
        conn.phase = Phase::Body;
        conn.body = Some(Box::new(Arriving::new(
            head,
            framing,
            &self.io.config.limits,
            now_ms,
        )));
        if invite {
            self.io.interim(id, 100, []);
        }
        self.body_deadline(id, now_ms);
    }

    /// The next read of the body must come within `body_ms`, and the whole of it at the least rate, once the grace is
    /// over.
    fn body_deadline(&mut self, id: ConnId, now_ms: u64) {
        let config = &self.io.config;
        let Some(conn) = self.io.conns.get(id) else {
            return;
        };
        let Some(body) = &conn.body else { return };
        let paid_for_ms =
            body.stored_bytes.saturating_mul(1000) / config.body_rate_bytes_per_s_min.max(1);
        let rate_ms = body
            .started_ms
            .saturating_add(paid_for_ms.max(config.body_grace_ms));
        let deadline_ms = rate_ms.min(now_ms + config.body_ms);
        self.io.set_deadline(id, deadline_ms);
    }

    /// Some bytes of a body. Returns how many belonged to it.
    fn body(&mut self, id: ConnId, bytes: &[u8]) -> usize {
        let config = std::sync::Arc::clone(&self.io.config);
        let Some(conn) = self.io.conns.get_mut(id) else {
            return bytes.len();
        };
        let Some(mut body) = conn.body.take() else {
            return bytes.len();
        };
        let places = Places {
            memory_bytes_max: config.body_memory_bytes_max,
            temp_dir: &config.temp_dir,
        };
        let (consumed, done) = match body.take(bytes, &places) {
            Ok(taken) => taken,
            Err(reject) => {
                self.io.refuse(id, reject);
                return bytes.len();
            }
        };
        if !done {
            conn.body = Some(body);
            let now_ms = self.io.used_ms();
            self.body_deadline(id, now_ms);
            return consumed;
        }
        let (length, limits) = (body.stored_bytes, body.limits);
        let (head_bytes, stored) = match body.finish() {
            Ok(finished) => finished,
            Err(reject) => {
                self.io.refuse(id, reject);
                return bytes.len();
            }
        };
        let mut store = HeaderStore::new();
        match RequestHead::parse(&head_bytes, &limits, &mut store) {
            Ok(head) => match stored {
                Store::Memory(memory) if memory.is_empty() => self.ask(id, &head, Body::Empty),
                Store::Memory(memory) => self.ask(id, &head, Body::Memory(&memory)),
                Store::File(file) => self.ask(id, &head, Body::File(file, length)),
            },
            // It was parsed before; the same bytes give the same result.
            Err(reject) => self.io.refuse(id, reject),
        }
        consumed
    }
}
