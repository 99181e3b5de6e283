//! Bytes out: written at once; epoll is asked only when the socket is full.

use rustix::fd::AsFd;
use rustix::fs::sendfile;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use crate::config::WriteMode;
use crate::conn::{Conn, Phase};
use crate::io::Io;
use crate::service::ConnId;
use crate::slab::NEVER_MS;

/// A file is sent in pieces of this size, and others have their turn in between.
const FILE_BYTES_PER_TURN_MAX: u64 = 1024 * 1024;

/// What became of an attempt to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Nothing is left.
    Sent,
    /// The socket is full; epoll will say when it has room.
    Full,
    /// More could be written, but others wait.
    Yielded,
    /// The connection is broken.
    Lost,
}

impl Io {
    /// Whether a write may be tried now. In WriteMode::AskFirst epoll has to be asked before.
    pub(crate) fn may_write(&mut self, id: ConnId) -> bool {
        if self.config.write_mode == WriteMode::AtOnce {
            return true;
        }
        let Some(conn) = self.conns.get_mut(id) else {
            return false;
        };
        if !conn.out_granted {
            // Asked anew each time: only that makes epoll tell of a socket that is writable already.
            conn.out_asked = false;
            self.socket_full(id);
            return false;
        }
        true
    }

    /// Writes what waits in `out`.
    pub(crate) fn flush(&mut self, id: ConnId, flags: SendFlags) -> Flow {
        let Some(conn) = self.conns.get_mut(id) else {
            return Flow::Lost;
        };
        if conn.unsent() == 0 {
            self.out_drained(id);
            return Flow::Sent;
        }
        if !self.may_write(id) {
            return Flow::Full;
        }
        let Some(conn) = self.conns.get_mut(id) else {
            return Flow::Lost;
        };
        match write_out(conn, flags | SendFlags::NOSIGNAL) {
            Flow::Sent => {
                self.out_drained(id);
                Flow::Sent
            }
            Flow::Full => {
                self.socket_full(id);
                Flow::Full
            }
            other => other,
        }
    }

    /// `out` is empty: its memory and its part of the spill budget are free again.
    pub(crate) fn out_drained(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else {
            return;
        };
        let out = std::mem::take(&mut conn.out);
        conn.out_at = 0;
        let spilled = std::mem::take(&mut conn.spilled);
        self.shared.spill.give_back(spilled);
        self.give_buffer(out);
    }

    /// Waits for room, but not for ever.
    #[cold]
    pub(crate) fn socket_full(&mut self, id: ConnId) {
        let deadline_ms = self.used_ms() + self.config.write_ms;
        let Some(conn) = self.conns.get_mut(id) else {
            return;
        };
        conn.blocked = true;
        let waiting = conn.unsent();
        if waiting > conn.spilled {
            self.shared.spill.take(waiting - conn.spilled);
            conn.spilled = waiting;
        }
        if !conn.out_asked {
            self.ask_out(id, true);
        }
        self.set_deadline(id, deadline_ms);
    }

    /// Goes on with a reply that waited for room. Sent: nothing waits any more; whether the reply is complete is the
    /// phase's to say.
    pub(crate) fn writable(&mut self, id: ConnId) -> Flow {
        let ask_first = self.config.write_mode == WriteMode::AskFirst;
        let Some(conn) = self.conns.get_mut(id) else {
            return Flow::Lost;
        };
        conn.blocked = false;
        conn.out_granted = true;
        let phase = conn.phase;
        if !phase.reads() {
            conn.deadline_ms = NEVER_MS;
        }
        let flow = self.pump(id);
        let Some(conn) = self.conns.get_mut(id) else {
            return Flow::Lost;
        };
        // What is pushed now may be written at once, until the next reply.
        conn.out_granted = ask_first && phase == Phase::Replying && flow == Flow::Sent;
        let asked_for_this = conn.out_asked && (ask_first || conn.is_unix);
        if flow == Flow::Sent && asked_for_this {
            self.ask_out(id, false);
        }
        flow
    }

    /// Writes `out`, then the file. Completes or breaks the reply if that is its end.
    pub(crate) fn pump(&mut self, id: ConnId) -> Flow {
        let mut turn_left = FILE_BYTES_PER_TURN_MAX;
        let flow = loop {
            let more = match self.conns.get(id) {
                Some(conn) if conn.file.as_ref().is_some_and(|file| file.left > 0) => {
                    SendFlags::MORE
                }
                _ => SendFlags::empty(),
            };
            let mut flow = self.flush(id, more);
            if flow == Flow::Sent {
                flow = self.pump_file(id, &mut turn_left);
            }
            if flow != Flow::Sent || !self.next_part(id) {
                break flow;
            }
        };
        match flow {
            Flow::Sent => self.flushed(id),
            Flow::Lost => self.break_off(id, true),
            Flow::Yielded => self.again.push(id),
            Flow::Full => {}
        }
        flow
    }

    /// All that the service gave has gone out.
    pub(crate) fn flushed(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else {
            return;
        };
        if conn.phase != Phase::Flushing {
            return;
        }
        if conn.exchange.short {
            self.break_off(id, false);
        } else {
            conn.phase = Phase::Complete;
            self.settled.push(id);
        }
    }

    /// Sends what is left of the file's current part.
    fn pump_file(&mut self, id: ConnId, turn_left: &mut u64) -> Flow {
        let Some(conn) = self.conns.get_mut(id) else {
            return Flow::Lost;
        };
        let Some(reply) = conn.file.as_deref_mut() else {
            return Flow::Sent;
        };
        while reply.left > 0 {
            if *turn_left == 0 {
                return Flow::Yielded;
            }
            let count = reply.left.min(*turn_left) as usize;
            match sendfile(
                conn.socket.as_fd(),
                &*reply.file,
                Some(&mut reply.offset),
                count,
            ) {
                // The file has become shorter than what was announced.
                Ok(0) => return Flow::Lost,
                Ok(sent) => {
                    reply.left -= sent as u64;
                    *turn_left -= sent as u64;
                    conn.exchange.body_bytes += sent as u64;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.socket_full(id);
                    return Flow::Full;
                }
                Err(_) => return Flow::Lost,
            }
        }
        Flow::Sent
    }

    /// Puts what goes in front of the file's next part into `out`. False: there is none.
    fn next_part(&mut self, id: ConnId) -> bool {
        let next = self
            .conns
            .get_mut(id)
            .and_then(|conn| conn.file.as_deref_mut()?.parts.next());
        if next.is_some() {
            self.give_out_buffer(id);
        }
        let Some(conn) = self.conns.get_mut(id) else {
            return false;
        };
        match (next, conn.file.as_deref_mut()) {
            (Some(part), Some(reply)) => {
                conn.exchange.body_bytes += part.before.len() as u64;
                conn.out.extend_from_slice(&part.before);
                (reply.offset, reply.left) = (part.offset, part.len);
                true
            }
            _ => {
                conn.file = None;
                false
            }
        }
    }
}

/// Writes until all is gone or the socket has said so itself: a short write alone promises no event.
fn write_out(conn: &mut Conn, flags: SendFlags) -> Flow {
    while conn.unsent() > 0 {
        match send(&conn.socket, &conn.out[conn.out_at..], flags) {
            Ok(sent) => conn.out_at += sent,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Flow::Full,
            Err(_) => return Flow::Lost,
        }
    }
    Flow::Sent
}
