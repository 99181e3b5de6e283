//! The orderly end: what was begun is finished, what waits in the backlog is taken in, nothing new is accepted.

use std::sync::Arc;

use crate::accept::Accepted;
use crate::conn::Phase;
use crate::io_thread::IoThread;
use crate::service::{ConnId, Service};

pub(crate) struct Drain {
    /// What still runs then is cut off.
    pub(crate) until_ms: u64,
}

impl<S: Service> IoThread<S> {
    #[cold]
    pub(crate) fn begin_drain(&mut self) {
        let now_ms = self.io.clock.now().mono_ms();
        let config = Arc::clone(&self.io.config);
        let until_ms = now_ms + config.shutdown_grace_ms;
        let first_request_ms = now_ms + config.drain_first_request_ms;
        self.drain = Some(Drain { until_ms });
        self.io.draining = true;
        for index in 0..self.listeners.len() {
            while self.accept_round(index, usize::MAX, false) == Accepted::Some {}
        }
        // A handshake that ends between the last accept and this close is refused by the kernel.
        self.listeners.clear();
        self.accept_again = false;
        self.service.draining(&mut self.io);
        for id in self.io.conns.ids() {
            match self.io.conns.get(id) {
                Some(conn)
                    if matches!(conn.phase, Phase::Preface | Phase::Idle) && conn.requests == 0 =>
                {
                    let deadline_ms = conn.deadline_ms.min(first_request_ms);
                    self.io.set_deadline(id, deadline_ms);
                }
                Some(conn) if conn.phase == Phase::Idle => self.drain_idle(id),
                _ => {}
            }
        }
        self.settle();
    }

    /// A connection that has been served is closed, unless its next request is in the socket already.
    pub(crate) fn drain_idle(&mut self, id: ConnId) {
        if let Some(conn) = self.io.conns.get_mut(id) {
            conn.may_read |= conn.phase == Phase::Idle;
        }
        self.go_on(id);
        if self
            .io
            .conns
            .get(id)
            .is_some_and(|conn| conn.phase == Phase::Idle && !conn.may_read)
        {
            self.io.remove(id);
        }
    }
}
