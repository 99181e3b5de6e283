//! The ways in which a connection ends.

use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use rustix::net::{Shutdown, shutdown};

use crate::conn::{Phase, Sending};
use crate::io_thread::IoThread;
use crate::service::{ConnId, Service};

/// While draining, a client that does not close its end delays the exit by no more than this.
const LINGER_DRAINING_MS_MAX: u64 = 500;

impl<S: Service> IoThread<S> {
    /// After the last reply. Closing a socket that holds unread bytes sends an RST, which may overtake the reply. So
    /// where the client may still be sending, the write side is shut and the rest read for a while.
    pub(crate) fn end(&mut self, id: ConnId) {
        let Some(conn) = self.io.conns.get_mut(id) else {
            return;
        };
        if !conn.linger && conn.input.is_empty() {
            self.io.remove(id);
            return;
        }
        let input = std::mem::take(&mut conn.input);
        if shutdown(&conn.socket, Shutdown::Write).is_err() {
            self.io.remove(id);
            return;
        }
        conn.phase = Phase::Lingering;
        conn.may_read = true;
        self.io.give_buffer(input);
        let mut linger_ms = self.io.config.linger_ms;
        if self.drain.is_some() {
            linger_ms = linger_ms.min(LINGER_DRAINING_MS_MAX);
        }
        let now_ms = self.io.used_ms();
        self.io.set_deadline(id, now_ms + linger_ms);
    }

    /// Closes a broken connection.
    #[cold]
    pub(crate) fn bury(&mut self, id: ConnId) {
        self.report(id, false);
        let Some(conn) = self.io.conns.get_mut(id) else {
            return;
        };
        let tell = conn.tell_gone;
        if conn.exchange.status != 0 && conn.exchange.sending == Sending::UntilClose {
            // A FIN would pass for the end of the reply.
            let _ = set_socket_linger(&conn.socket, Some(Duration::ZERO));
        }
        if tell {
            self.service.gone(&mut self.io, id);
        }
        self.io.remove(id);
    }

    /// The client has closed its end, and everything before that was read.
    pub(crate) fn end_of_input(&mut self, id: ConnId) {
        let Some(conn) = self.io.conns.get_mut(id) else {
            return;
        };
        conn.may_read = false;
        conn.peer_fin = true;
        if conn.phase.reads() {
            // Idle, or in the middle of a request that nobody will ever complete.
            self.io.remove(id);
        }
    }

    /// Closes what is left when the loop ends.
    pub(crate) fn close_all(&mut self) {
        for id in self.io.conns.ids() {
            self.io.break_off(id, true);
        }
        while !self.io.settled.is_empty() {
            self.settle();
        }
    }
}
