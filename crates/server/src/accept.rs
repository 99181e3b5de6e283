//! New connections.

use std::net::SocketAddr;

use rustix::event::epoll;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{SocketAddrAny, SocketFlags, acceptfrom_with, getsockname};

use crate::conn::{Conn, Phase};
use crate::io::{Io, TAG_CONN, TAG_LISTENER};
use crate::io_thread::IoThread;
use crate::listener::Listener;
use crate::service::{Local, LocalAddress, Peer, Service};

/// Of one listener, before others have their turn.
const ACCEPTS_PER_TICK_MAX: usize = 64;
/// How long accept rests when descriptors or memory ran out.
const ACCEPT_RETRY_MS: u64 = 100;

/// What stopped a round of accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// The backlog is empty.
    All,
    /// The round was long enough; more may wait.
    Some,
    /// The connection limit; a knock tells when there is room.
    Limit,
    /// Descriptors or memory ran out.
    Exhausted,
}

impl Io {
    /// Of the threads that share a socket only one is to be woken.
    pub(crate) fn listen(&mut self, listener: &Listener) -> rustix::io::Result<()> {
        let mut flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        if listener.shared {
            flags |= epoll::EventFlags::EXCLUSIVE;
        }
        let data = epoll::EventData::new_u64(TAG_LISTENER | listener.number);
        epoll::add(&self.epoll, listener.descriptor(), data, flags)
    }

    fn admit(
        &mut self,
        socket: OwnedFd,
        peer: Option<SocketAddrAny>,
        index: usize,
        listener: &Listener,
    ) {
        let local = Local {
            listener: index,
            address: local_address(&socket, &listener.address),
        };
        let peer = match peer.and_then(|peer| SocketAddr::try_from(peer).ok()) {
            Some(peer) => Peer::Tcp(peer),
            None => Peer::Unix,
        };
        let trusted = self.config.trusted_proxies.contains_peer(&peer);
        if listener.proxy_protocol && !trusted {
            self.shared.connection_leave();
            return self.complain(&peer, "it is not one of the trusted proxies");
        }
        let out = self.ask_out_from_start(peer != Peer::Unix);
        let now = self.clock.used();
        let data = epoll::EventData::new_u64(TAG_CONN | self.conns.next_id().to_bits());
        if let Err(error) = epoll::add(&self.epoll, &socket, data, self.interest(out)) {
            tracing::error!(%error, "epoll_ctl");
            self.shared.connection_leave();
            return;
        }
        let mut conn = Conn::new(socket, peer, local, out, now);
        conn.trusted = trusted;
        if listener.proxy_protocol {
            conn.phase = Phase::Preface;
        }
        let id = self.conns.insert(conn);
        let wait_ms = match self.draining {
            true => self.config.drain_first_request_ms,
            false => self.config.header_ms,
        };
        self.set_deadline(id, now.mono_ms() + wait_ms);
    }
}

impl<S: Service> IoThread<S> {
    /// One round over all listeners that may have connections waiting.
    pub(crate) fn accept(&mut self) {
        let resting = self.accept_after_ms > 0;
        if !self.accept_again && !resting {
            return;
        }
        let now_ms = self.io.clock.now().mono_ms();
        if now_ms < self.accept_after_ms {
            self.accept_again = false;
            return;
        }
        self.accept_after_ms = 0;
        self.accept_again = false;
        for index in 0..self.listeners.len() {
            if !self.listeners[index].ready {
                continue;
            }
            match self.accept_round(index, ACCEPTS_PER_TICK_MAX, true) {
                Accepted::All => {}
                Accepted::Some => self.accept_again = true,
                Accepted::Limit => {}
                Accepted::Exhausted => self.accept_after_ms = now_ms + ACCEPT_RETRY_MS,
            }
        }
    }

    pub(crate) fn accept_round(
        &mut self,
        index: usize,
        count_max: usize,
        limited: bool,
    ) -> Accepted {
        let listener = &mut self.listeners[index];
        for _ in 0..count_max {
            let shared = &self.io.shared;
            if !limited {
                shared.connection_enter_over_limit();
            } else if !shared.connection_enter() {
                return Accepted::Limit;
            }
            match acceptfrom_with(
                listener.descriptor(),
                SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            ) {
                Ok((socket, peer)) => self.io.admit(socket, peer, index, listener),
                Err(error) => {
                    self.io.shared.connection_leave();
                    match error {
                        Errno::AGAIN => {
                            listener.ready = false;
                            return Accepted::All;
                        }
                        Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM => {
                            tracing::warn!(%error, "cannot accept; trying again in {ACCEPT_RETRY_MS} ms");
                            return Accepted::Exhausted;
                        }
                        // The client has gone already, or its network has: the next one may do.
                        _ => {}
                    }
                }
            }
        }
        Accepted::Some
    }
}

/// The connection's own end. Known without a call, unless the listener is bound to all addresses.
fn local_address(socket: &OwnedFd, listener: &LocalAddress) -> LocalAddress {
    match listener {
        LocalAddress::Tcp(address) if address.ip().is_unspecified() => {
            let own = getsockname(socket)
                .ok()
                .and_then(|own| SocketAddr::try_from(own).ok());
            LocalAddress::Tcp(own.unwrap_or(*address))
        }
        known => known.clone(),
    }
}
