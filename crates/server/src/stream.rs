//! The body of a reply, piece by piece: small pieces are copied, large ones go straight from their source.

use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::conn::{Conn, Phase, Sending};
use crate::http1::{CHUNK_END, LAST_CHUNK, chunk_header};
use crate::io::Io;
use crate::output::Flow;
use crate::service::{ConnId, Push};
use crate::source::Source;

/// Up to this size, copying a piece behind the head costs less than a vectored write.
const COPY_BYTES_MAX: usize = 16 * 1024;
const CHUNK_END_AND_LAST: &[u8] = b"\r\n0\r\n\r\n";

impl Io {
    /// Sends what is in `source`. `last`: the reply is complete behind it.
    ///
    /// May be called while the connection is blocked: then nothing is written, but the last piece of a reply may be
    /// copied, so that the service is through. What exceeds an announced length is dropped.
    pub fn push(&mut self, conn: ConnId, source: &mut dyn Source, last: bool) -> Push {
        let Some(found) = self.conns.get(conn) else {
            return Push::Closed;
        };
        match found.phase {
            Phase::Replying => {}
            // Without a head. Nobody would ever end this exchange.
            Phase::Asked => {
                self.break_off(conn, false);
                return Push::Closed;
            }
            _ => return Push::Closed,
        }
        let flow = if found.blocked {
            Flow::Full
        } else {
            self.write_through(conn, source, last)
        };
        match flow {
            Flow::Sent | Flow::Yielded => {
                if last {
                    self.end_of_reply(conn);
                }
                Push::Done
            }
            Flow::Full => self.leave(conn, source, last),
            Flow::Lost => {
                self.break_off(conn, false);
                Push::Closed
            }
        }
    }

    /// Sent: all of the source, and of `out`, is with the kernel.
    fn write_through(&mut self, id: ConnId, source: &mut dyn Source, last: bool) -> Flow {
        loop {
            self.give_out_buffer(id);
            let Some(conn) = self.conns.get_mut(id) else {
                return Flow::Lost;
            };
            let wanted = wanted(conn, source, last);
            let small =
                wanted <= COPY_BYTES_MAX && self.shared.spill.has_room(wanted + conn.unsent());
            if small || wanted == 0 {
                append(conn, source, wanted, last);
                return self.flush(id, SendFlags::empty());
            }
            if !self.may_write(id) {
                return Flow::Full;
            }
            let Some(conn) = self.conns.get_mut(id) else {
                return Flow::Lost;
            };
            match send_once(conn, source, wanted, last) {
                Ok(()) => {}
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.socket_full(id);
                    return Flow::Full;
                }
                Err(_) => return Flow::Lost,
            }
            let Some(conn) = self.conns.get_mut(id) else {
                return Flow::Lost;
            };
            if conn.unsent() == 0 {
                conn.out.clear();
                conn.out_at = 0;
            }
        }
    }

    /// The socket is full. Decides whether the rest is copied, or waits where it is.
    fn leave(&mut self, id: ConnId, source: &mut dyn Source, last: bool) -> Push {
        let Some(conn) = self.conns.get_mut(id) else {
            return Push::Closed;
        };
        let rest = wanted(conn, source, last);
        let fits = last && rest <= self.config.reply_spill_bytes_per_reply_max;
        if rest == 0 || (fits && self.shared.spill.try_take(rest)) {
            conn.spilled += rest;
            self.copy_rest(id, source, last);
            return Push::Done;
        }
        conn.service_waits = true;
        Push::Blocked
    }

    /// Copies all that is left of the source to a connection that is blocked.
    pub(crate) fn copy_rest(&mut self, id: ConnId, source: &mut dyn Source, last: bool) {
        let Some(conn) = self.conns.get_mut(id) else {
            return;
        };
        let rest = wanted(conn, source, last);
        append(conn, source, rest, last);
        if last {
            self.end_of_reply(id);
        }
    }

    /// The service is through.
    fn end_of_reply(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else {
            return;
        };
        conn.phase = Phase::Flushing;
        conn.service_waits = false;
        conn.exchange.short = match conn.exchange.sending {
            Sending::Length(left) => left > 0,
            Sending::Chunked(owed) => owed > 0,
            Sending::Nothing | Sending::UntilClose => false,
        };
        if conn.unsent() == 0 {
            self.flushed(id);
        }
    }
}

/// How much of the source goes out. What goes beyond the announced length, or has no place in the reply, is dropped.
fn wanted(conn: &mut Conn, source: &mut dyn Source, last: bool) -> usize {
    let remaining = source.remaining();
    let wanted = match conn.exchange.sending {
        Sending::Nothing => 0,
        Sending::Length(left) => remaining.min(usize::try_from(left).unwrap_or(usize::MAX)),
        Sending::Chunked(_) | Sending::UntilClose => remaining,
    };
    if wanted == 0 && remaining > 0 {
        source.consume(remaining);
    } else if last && wanted < remaining && conn.exchange.body_bytes == 0 {
        tracing::debug!(
            announced = wanted,
            given = remaining,
            "a reply is longer than announced"
        );
    }
    wanted
}

/// Copies `n` bytes of the source, with their framing, behind what waits in `out`.
fn append(conn: &mut Conn, source: &mut dyn Source, n: usize, last: bool) {
    let mut left = n;
    match &mut conn.exchange.sending {
        Sending::Chunked(owed) => {
            if *owed > 0 && left > 0 {
                let part = left.min(*owed);
                source.copy_to(&mut conn.out, part);
                *owed -= part;
                left -= part;
                if *owed == 0 {
                    conn.out.extend_from_slice(CHUNK_END);
                }
            }
            if left > 0 {
                conn.out.extend_from_slice(chunk_header(left, &mut [0; 18]));
                source.copy_to(&mut conn.out, left);
                conn.out.extend_from_slice(CHUNK_END);
            }
            if last && *owed == 0 {
                conn.out.extend_from_slice(LAST_CHUNK);
                conn.exchange.sending = Sending::Nothing;
            }
        }
        Sending::Length(announced) => {
            source.copy_to(&mut conn.out, left);
            *announced -= left as u64;
        }
        Sending::UntilClose => source.copy_to(&mut conn.out, left),
        Sending::Nothing => {}
    }
    conn.exchange.body_bytes += n as u64;
    if last {
        // Beyond the announced length.
        let excess = source.remaining();
        source.consume(excess);
    }
}

/// One vectored write of what waits in `out`, a piece of the source, and the framing behind it.
fn send_once(
    conn: &mut Conn,
    source: &mut dyn Source,
    wanted: usize,
    last: bool,
) -> Result<(), Errno> {
    let mut limit = wanted;
    let mut after: &[u8] = b"";
    if let Sending::Chunked(owed) = &mut conn.exchange.sending {
        if *owed == 0 && wanted > 0 {
            conn.out
                .extend_from_slice(chunk_header(wanted, &mut [0; 18]));
            *owed = wanted;
        }
        limit = wanted.min(*owed);
        if limit == *owed {
            after = if last && limit == wanted {
                CHUNK_END_AND_LAST
            } else {
                CHUNK_END
            };
        }
    }
    let before = conn.unsent();
    let sent = source.send(conn.socket.as_fd(), &conn.out[conn.out_at..], limit, after)?;
    let of_before = sent.min(before);
    let of_source = (sent - of_before).min(limit);
    let of_after = sent - of_before - of_source;
    conn.out_at += of_before;
    conn.exchange.body_bytes += of_source as u64;
    source.consume(of_source);
    match &mut conn.exchange.sending {
        Sending::Length(left) => *left -= of_source as u64,
        Sending::Chunked(owed) => {
            *owed -= of_source;
            if *owed == 0 {
                conn.out
                    .extend_from_slice(&after[of_after.min(after.len())..]);
                if after == CHUNK_END_AND_LAST {
                    conn.exchange.sending = Sending::Nothing;
                }
            }
        }
        Sending::Nothing | Sending::UntilClose => {}
    }
    Ok(())
}
