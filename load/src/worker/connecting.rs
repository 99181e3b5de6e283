//! Connections are made, made again, and closed.

use std::sync::atomic::Ordering;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::sockopt::{set_tcp_nodelay, socket_error};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::Worker;
use super::conn::State;
use super::pace::Pace;
use crate::kind::Kind;
use crate::tally::Stage;
use crate::url::Address;

/// The least wait before a connection that came to nothing is made again; it doubles, up to the most.
const BACKOFF_NS_MIN: u64 = 10_000_000;
const BACKOFF_NS_MAX: u64 = 1_000_000_000;
/// A unix socket whose backlog is full cannot be waited on.
const BACKLOG_NS: u64 = 1_000_000;

/// Level-triggered, epoll would look at each socket once more: 1 % more CPU a request.
pub(super) const EVENTS: EventFlags = EventFlags::IN
    .union(EventFlags::RDHUP)
    .union(EventFlags::ET);

impl Worker<'_> {
    /// Before the load begins, where connections stay: all of them.
    pub(super) fn open_first(&mut self) {
        if !self.plan.load.keep_alive || self.plan.load.connections.length_ns().is_some() {
            return;
        }
        self.wanted = self.conns.len();
        self.opening_left = self.wanted;
        for index in 0..self.wanted {
            self.begin(index);
        }
    }

    /// A connection is to be there from now on.
    pub(super) fn begin(&mut self, index: usize) {
        if !self.plan.load.keep_alive {
            match self.pace {
                Pace::Closed { .. } => {
                    let ready_ns = self.conns[index].ready_ns;
                    self.conns[index].job_ns = self.next_job(ready_ns);
                    if self.conns[index].job_ns.is_none() {
                        return;
                    }
                }
                Pace::Open(_) => return self.list(index),
            }
        }
        self.connect(index);
    }

    /// It has waited after a failure.
    pub(super) fn begin_again(&mut self, index: usize) {
        let conn = &mut self.conns[index];
        conn.state = State::Off;
        if index < self.wanted && !self.all_sent() {
            self.conns[index].ready_ns = self.now_ns;
            self.begin(index);
        }
    }

    pub(super) fn connect(&mut self, index: usize) {
        self.conns[index].since_ns = self.now_ns;
        self.attempt(index);
    }

    pub(super) fn attempt(&mut self, index: usize) {
        let since_ns = self.conns[index].since_ns;
        if self.now_ns - since_ns >= self.plan.load.connect_timeout.ns() {
            return self.connect_timed_out(index);
        }
        let socket = match new_socket(self.address) {
            Ok(socket) => socket,
            Err(errno) => return self.connect_failed(index, errno),
        };
        let outcome = match self.address {
            Address::Tcp(address) => connect(&socket, address),
            Address::Unix(path) => {
                SocketAddrUnix::new(path).and_then(|address| connect(&socket, &address))
            }
        };
        let events = match outcome {
            Ok(()) => EVENTS,
            Err(Errno::INPROGRESS) => EVENTS | EventFlags::OUT,
            Err(Errno::AGAIN) if self.address.unix_path().is_some() => {
                self.conns[index].state = State::Backlog {
                    until_ns: self.now_ns + BACKLOG_NS,
                };
                return;
            }
            Err(errno) => return self.connect_failed(index, errno),
        };
        if let Err(errno) = epoll::add(&self.epoll, &socket, self.data(index), events) {
            return self.connect_failed(index, errno);
        }
        let conn = &mut self.conns[index];
        conn.socket = Some(socket);
        conn.state = State::Connecting;
        if outcome.is_ok() {
            self.connected(index);
        }
    }

    pub(super) fn connect_event(&mut self, index: usize) {
        let Some(socket) = &self.conns[index].socket else {
            return;
        };
        let outcome = match socket_error(socket) {
            Ok(outcome) => {
                outcome.and_then(|()| epoll::modify(&self.epoll, socket, self.data(index), EVENTS))
            }
            Err(errno) => Err(errno),
        };
        match outcome {
            Ok(()) => self.connected(index),
            Err(errno) => self.connect_failed(index, errno),
        }
    }

    fn connected(&mut self, index: usize) {
        if !self.shared.connected.load(Ordering::Relaxed) {
            self.shared.connected.store(true, Ordering::Relaxed);
        }
        let conn = &mut self.conns[index];
        conn.state = State::Open;
        self.open += 1;
        self.tally.connects += 1;
        self.tally
            .connecting
            .saturating_record(self.now_ns - conn.since_ns);
        self.settle(index);
        if self.stage != Stage::Opening {
            self.ready(index);
        }
    }

    /// It can send.
    pub(super) fn ready(&mut self, index: usize) {
        if let Some(job_ns) = self.conns[index].job_ns.take() {
            return self.send_one(index, job_ns);
        }
        if index >= self.wanted || self.all_sent() {
            return self.retire(index);
        }
        match self.pace {
            Pace::Closed { .. } => self.fill(index),
            Pace::Open(_) => self.list(index),
        }
    }

    /// It is free for the next request that is due.
    pub(super) fn list(&mut self, index: usize) {
        let conn = &mut self.conns[index];
        if !conn.listed {
            conn.listed = true;
            conn.ready_ns = self.now_ns;
            self.free.push_back(index as u32);
        }
    }

    pub(super) fn connect_timed_out(&mut self, index: usize) {
        self.failed(index, Kind::ConnectTimeout, || {
            String::from("no connection within the connect timeout")
        });
    }

    #[cold]
    fn connect_failed(&mut self, index: usize, errno: Errno) {
        let ours = [
            Errno::MFILE,
            Errno::NFILE,
            Errno::NOBUFS,
            Errno::NOMEM,
            Errno::ADDRNOTAVAIL,
            Errno::NOSPC,
        ];
        let kind = match ours.contains(&errno) {
            true => Kind::Local,
            false => Kind::Connect,
        };
        self.failed(index, kind, || errno.to_string());
    }

    #[cold]
    fn failed(&mut self, index: usize, kind: Kind, example: impl FnOnce() -> String) {
        self.tally.error(kind, example);
        self.settle(index);
        self.close(index);
        // The request that it was for, or would have been for, has failed.
        if self.conns[index].job_ns.take().is_none() && self.sending() {
            self.forfeit();
        }
        let conn = &mut self.conns[index];
        conn.failures += 1;
        let doubled = BACKOFF_NS_MIN << (conn.failures - 1).min(10);
        conn.state = State::Waiting {
            until_ns: self.now_ns + doubled.min(BACKOFF_NS_MAX),
        };
    }

    /// Before the load begins: one connection less to wait for.
    fn settle(&mut self, index: usize) {
        if self.stage == Stage::Opening && !self.conns[index].settled {
            self.conns[index].settled = true;
            self.opening_left -= 1;
        }
    }

    /// Its end has been accounted for. `well`: as the server said, or as is usual.
    pub(super) fn reopen(&mut self, index: usize, well: bool) {
        let proved = self.conns[index].replies > 0;
        self.close(index);
        if index >= self.wanted || self.all_sent() {
            return;
        }
        if well && proved {
            self.conns[index].ready_ns = self.now_ns;
            self.begin(index);
        } else {
            self.conns[index].state = State::Waiting {
                until_ns: self.now_ns + BACKOFF_NS_MIN,
            };
        }
    }

    /// It is needed no more: closed now if it waits for nothing, and else with its last reply.
    pub(super) fn retire(&mut self, index: usize) {
        let conn = &self.conns[index];
        if conn.sent.is_empty() && conn.job_ns.is_none() {
            self.close(index);
        }
    }

    /// Closed, whatever it waits for.
    pub(super) fn shut(&mut self, index: usize) {
        self.close(index);
        self.conns[index].sent.clear();
        self.conns[index].job_ns = None;
    }

    fn close(&mut self, index: usize) {
        let conn = &mut self.conns[index];
        self.open -= u64::from(conn.state == State::Open);
        conn.close();
    }

    pub(super) fn data(&self, index: usize) -> EventData {
        EventData::new_u64(u64::from(self.conns[index].generation) << 32 | index as u64)
    }
}

fn new_socket(address: &Address) -> rustix::io::Result<OwnedFd> {
    let family = match address {
        Address::Tcp(address) if address.is_ipv6() => AddressFamily::INET6,
        Address::Tcp(_) => AddressFamily::INET,
        Address::Unix(_) => AddressFamily::UNIX,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    if family != AddressFamily::UNIX {
        set_tcp_nodelay(&socket, true)?;
    }
    Ok(socket)
}
