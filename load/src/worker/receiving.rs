//! From bytes on a socket to replies, and to what is wrong with them.

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::Worker;
use super::conn::Sent;
use crate::kind::Kind;
use crate::reply::{Ended, Event, Reply};

/// Reads of one connection in one turn, so that the others have theirs.
const READS_PER_TURN_MAX: usize = 16;

impl Worker<'_> {
    /// Reads until nothing is there, as epoll tells only once (epoll(7), edge-triggered). `ending`: the end may
    /// follow what is read, unannounced.
    #[inline]
    pub(super) fn receive(&mut self, index: usize, ending: bool, input: &mut [u8]) {
        for _ in 0..READS_PER_TURN_MAX {
            let Some(socket) = &self.conns[index].socket else {
                return;
            };
            match recv(socket, &mut *input, RecvFlags::empty()) {
                Ok((0, _)) => return self.ended(index),
                Ok((count, _)) => {
                    self.tally.bytes_read += count as u64;
                    if !self.digest(index, &input[..count]) {
                        return;
                    }
                    // A stream socket that gave less than was asked for is empty.
                    if count < input.len() && !ending {
                        return;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    if let Some(errno) = self.conns[index].broken {
                        self.lost(index, errno);
                    }
                    return;
                }
                Err(errno) => return self.lost(index, errno),
            }
        }
        self.again
            .push((index as u32, self.conns[index].generation));
    }

    /// False: the connection is not what it was.
    #[inline]
    fn digest(&mut self, index: usize, mut bytes: &[u8]) -> bool {
        let plan = self.plan;
        loop {
            let conn = &mut self.conns[index];
            let Some(front) = conn.sent.front() else {
                self.unasked(index);
                return false;
            };
            let target = &plan.targets[front.target as usize];
            match conn.reader.next(&mut bytes, target.bodiless) {
                Ok(Event::More) => return true,
                Ok(Event::Body(data)) => {
                    if target.check.reads_body() {
                        conn.watch.body(&target.check, data);
                    }
                }
                Ok(Event::Reply(reply)) => {
                    let sent = conn.sent.pop_front();
                    let surplus = !bytes.is_empty() && (reply.close || conn.sent.is_empty());
                    self.replied(index, sent, &reply, surplus);
                    if surplus || reply.close || !plan.load.keep_alive {
                        self.owe(index);
                        self.reopen(index, !surplus);
                        return false;
                    }
                    if bytes.is_empty() {
                        self.conns[index].ready_ns = self.now_ns;
                        self.ready(index);
                        return true;
                    }
                }
                Err(fault) => {
                    self.break_off(index, Kind::Malformed, fault.0);
                    return false;
                }
            }
        }
    }

    #[inline]
    fn replied(&mut self, index: usize, sent: Option<Sent>, reply: &Reply, surplus: bool) {
        let Some(sent) = sent else {
            return;
        };
        let conn = &mut self.conns[index];
        conn.replies += 1;
        conn.failures = 0;
        self.tally.reply(reply.status);
        self.tally.last_reply_ns = self.now_ns - self.start_ns;
        let verdict = self.plan.targets[sent.target as usize]
            .check
            .verdict(reply, &mut conn.watch);
        match verdict {
            _ if surplus => self.tally.error(Kind::Surplus, || {
                format!(
                    "bytes follow the reply of {} body bytes that belong to no request",
                    reply.body_bytes
                )
            }),
            None => {
                self.tally.good += 1;
                self.record(&sent);
            }
            Some(kind) => self.tally.error(kind, || match kind {
                Kind::Status => format!("status {}", reply.status),
                Kind::Length => format!("a body of {} bytes", reply.body_bytes),
                Kind::Text => "the body does not have the text".into(),
                _ => "the body has another SHA-256".into(),
            }),
        }
    }

    #[inline]
    fn record(&mut self, sent: &Sent) {
        if sent.intended_ns >= self.measured_from_ns {
            self.tally
                .latency
                .saturating_record(self.now_ns - sent.intended_ns);
            self.tally
                .from_sending
                .saturating_record(self.now_ns - sent.sent_ns);
        }
    }

    /// The server closed the connection.
    #[cold]
    fn ended(&mut self, index: usize) {
        let conn = &mut self.conns[index];
        match conn.reader.end() {
            Ended::Reply(reply) => {
                let sent = conn.sent.pop_front();
                self.replied(index, sent, &reply, false);
                self.owe(index);
                self.reopen(index, true);
            }
            Ended::Between => {
                let idle = conn.sent.is_empty();
                self.fail_all(
                    index,
                    Kind::Closed,
                    "the server closed the connection before the reply",
                );
                self.reopen(index, idle);
            }
            Ended::Cut => {
                self.fail_one(
                    index,
                    Kind::Cut,
                    "the server closed the connection within the reply",
                );
                self.fail_all(
                    index,
                    Kind::Closed,
                    "the server closed the connection before the reply",
                );
                self.reopen(index, false);
            }
        }
    }

    /// The connection broke.
    #[cold]
    fn lost(&mut self, index: usize, errno: Errno) {
        let idle = self.conns[index].sent.is_empty();
        self.fail_all(index, Kind::Reset, &errno.to_string());
        self.reopen(index, idle);
    }

    /// The reply that is being read is no reply: the connection is of no more use.
    #[cold]
    fn break_off(&mut self, index: usize, kind: Kind, example: &str) {
        self.fail_one(index, kind, example);
        self.owe(index);
        self.reopen(index, false);
    }

    /// Bytes came that nothing was asked for.
    #[cold]
    fn unasked(&mut self, index: usize) {
        self.tally.error(Kind::Surplus, || {
            "bytes came while no request was under way".into()
        });
        self.reopen(index, false);
    }

    /// The oldest request of a connection has waited too long.
    #[cold]
    pub(super) fn timed_out(&mut self, index: usize) {
        let before_ns = self.now_ns - self.plan.load.timeout.ns();
        while let Some(sent) = self.conns[index]
            .sent
            .front()
            .copied()
            .filter(|sent| sent.sent_ns <= before_ns)
        {
            self.conns[index].sent.pop_front();
            self.tally
                .error(Kind::Timeout, || "no whole reply within the timeout".into());
            // It had waited that long at least; leaving it out would flatter the server.
            self.record(&sent);
        }
        self.owe(index);
        self.reopen(index, false);
    }

    fn fail_one(&mut self, index: usize, kind: Kind, example: &str) {
        if self.conns[index].sent.pop_front().is_some() {
            self.tally.error(kind, || example.into());
        }
    }

    fn fail_all(&mut self, index: usize, kind: Kind, example: &str) {
        while !self.conns[index].sent.is_empty() {
            self.fail_one(index, kind, example);
        }
    }

    /// The requests behind the reply that was the connection's last: RFC 9112, section 9.3.2, has them sent again.
    fn owe(&mut self, index: usize) {
        while let Some(sent) = self.conns[index].sent.pop_front() {
            self.owed.push_back(sent.intended_ns);
        }
    }
}
