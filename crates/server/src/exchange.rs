//! From a whole request to the end of its reply, and on to the next request.

use std::net::IpAddr;

use crate::conn::{Exchange, Phase};
use crate::http1::{Reject, RequestHead};
use crate::io::Io;
use crate::io_thread::IoThread;
use crate::service::{Body, ConnId, Peer, Request, Served, Service};
use crate::slab::NEVER_MS;

impl<S: Service> IoThread<S> {
    /// Hands a whole request to the service.
    #[inline]
    pub(crate) fn ask(&mut self, id: ConnId, head: &RequestHead<'_>, body: Body<'_>) {
        let received = self.io.clock.used();
        let note = self.io.config.log_requests.then(|| {
            let mut note = self.io.take_note();
            note.fill(head);
            note
        });
        let Some(conn) = self.io.conns.get_mut(id) else {
            return;
        };
        conn.phase = Phase::Asked;
        conn.asked = true;
        conn.fin_told = false;
        conn.deadline_ms = NEVER_MS;
        conn.requests += 1;
        conn.exchange = Exchange::new(head, received);
        conn.note = note;
        self.asked_count += 1;
        let peer = conn.peer;
        let local = conn.local.clone();
        let (trusted, tls) = (conn.trusted, conn.tls);
        let request = Request {
            head,
            body,
            peer: &peer,
            local: &local,
            trusted,
            tls,
        };
        self.service.request(&mut self.io, id, request);
    }

    /// Goes on with the connections whose reply is complete, and closes those that are broken. What that settles in
    /// its turn waits for the next call, so that nobody waits for a client with a long pipeline.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if self.io.settled.is_empty() {
            return;
        }
        let mut settled = std::mem::take(&mut self.io.settled);
        for id in settled.drain(..) {
            match self.io.conns.get(id).map(|conn| conn.phase) {
                Some(Phase::Broken) => self.bury(id),
                Some(Phase::Complete) => {
                    self.conclude(id);
                    self.resume(id);
                }
                // It has moved on: concluded where it was read, most often.
                _ => {}
            }
        }
        if self.io.settled.is_empty() {
            // Its memory is used again.
            self.io.settled = settled;
        }
    }

    /// Ends a complete exchange. The connection is idle behind it, or ending.
    pub(crate) fn conclude(&mut self, id: ConnId) {
        self.report(id, true);
        let keep_alive_ms = self.io.config.keep_alive_ms;
        let now_ms = self.io.used_ms();
        let Some(conn) = self.io.conns.get_mut(id) else {
            return;
        };
        conn.out_granted = false;
        if !conn.exchange.keep_alive {
            return self.end(id);
        }
        conn.phase = Phase::Idle;
        self.io.set_deadline(id, now_ms + keep_alive_ms);
    }

    /// Takes up what arrived while the reply was under way.
    fn resume(&mut self, id: ConnId) {
        self.feed_input(id);
        if self.drain.is_some() {
            return self.drain_idle(id);
        }
        self.go_on(id);
    }

    /// Tells the service of a reply that has ended.
    pub(crate) fn report(&mut self, id: ConnId, complete: bool) {
        let now = self.io.clock.used();
        let Some(conn) = self.io.conns.get_mut(id) else {
            return;
        };
        if !std::mem::take(&mut conn.asked) {
            return;
        }
        let note = conn.note.take();
        let client = note.as_deref().and_then(|note| note.client);
        let served = Served {
            status: conn.exchange.status,
            body_bytes: conn.exchange.body_bytes,
            complete,
            duration_ns: now.mono_ns.saturating_sub(conn.exchange.received.mono_ns),
            received_wall_ns: conn.exchange.received.wall_ns,
            peer: conn.peer,
            client: client.or(match conn.peer {
                Peer::Tcp(address) => Some(address.ip()),
                Peer::Unix => None,
            }),
            listener: conn.local.listener,
            method: note.as_deref().map_or("", |note| &note.method),
            target: note.as_deref().map_or("", |note| &note.target),
            version: conn.exchange.version,
            host: note.as_deref().map_or("", |note| &note.host),
            referer: note.as_deref().map_or(b"", |note| &note.referer),
            user_agent: note.as_deref().map_or(b"", |note| &note.user_agent),
        };
        self.service.served(&mut self.io, id, &served);
        if let Some(note) = note {
            self.io.give_note(note);
        }
    }
}

impl Io {
    /// Whom a trusted proxy names as the client of the request that `conn` waits for: [`Served::client`].
    pub fn name_client(&mut self, conn: ConnId, client: IpAddr) {
        if let Some(note) = self.conns.get_mut(conn).and_then(|conn| conn.note.as_mut()) {
            note.client = Some(client);
        }
    }

    /// Answers what was no acceptable request. The connection ends behind the answer.
    #[cold]
    pub(crate) fn refuse(&mut self, id: ConnId, reject: Reject) {
        let now = self.clock.used();
        let Some(conn) = self.conns.get_mut(id) else {
            return;
        };
        conn.phase = Phase::Asked;
        conn.asked = true;
        // The service never had it, and is not told of its end.
        conn.fin_told = true;
        conn.body = None;
        conn.deadline_ms = NEVER_MS;
        conn.linger = true;
        conn.exchange = Exchange::refused(now);
        let body = format!("{} {}\n", reject.status, reject.reason);
        let headers: [(&[u8], &[u8]); 1] = [(b"Content-Type", b"text/plain; charset=utf-8")];
        self.respond(id, reject.status, None, headers, body.as_bytes());
    }
}
