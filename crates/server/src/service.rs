//! The request as a service sees it, and what a service is told.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use crate::http1::{RequestHead, Version};
use crate::io::Io;

/// Names a connection of one I/O thread, not one of its requests: reply once, and not after [`Push::Done`] for the last
/// piece. A late name is harmless: it is not used again for another connection before 2^30 have come and gone in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnId {
    pub(crate) index: u32,
    /// From 1, at most 30 bits.
    pub(crate) generation: u32,
}

impl ConnId {
    /// The two highest bits are always 0.
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub fn from_bits(bits: u64) -> ConnId {
        ConnId {
            index: bits as u32,
            generation: (bits >> 32) as u32,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    Tcp(SocketAddr),
    Unix,
}

/// The listener that a connection came in by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    /// Index into `Config::listeners`.
    pub listener: usize,
    pub address: LocalAddress,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalAddress {
    /// The connection's own end, also where the listener is bound to all addresses. With the PROXY protocol: the end
    /// that the client connected to.
    Tcp(SocketAddr),
    Unix(Arc<Path>),
}

/// A whole request. It lies in a buffer that is used again as soon as [`Service::request`] returns.
pub struct Request<'r> {
    pub head: &'r RequestHead<'r>,
    pub body: Body<'r>,
    /// The other end; on a listener with the PROXY protocol, whom the proxy names.
    pub peer: &'r Peer,
    pub local: &'r Local,
    /// The peer is one of `Config::trusted_proxies`: what it says of the client may be believed.
    pub trusted: bool,
    /// A PROXY header said that the client speaks TLS.
    pub tls: bool,
}

pub enum Body<'r> {
    Empty,
    Memory(&'r [u8]),
    /// An unlinked file, at its beginning, and its length in bytes.
    File(File, u64),
}

/// A part of a reply that comes from a file, and what goes out in front of it. Either may be empty.
pub struct FilePart {
    pub before: Vec<u8>,
    pub offset: u64,
    pub len: u64,
}

impl FilePart {
    pub(crate) fn bytes(&self) -> u64 {
        self.before.len() as u64 + self.len
    }
}

/// What became of a [`Io::push`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Push {
    /// The source is empty: sent, or copied. If it was the last push, the service is through with this reply.
    Done,
    /// Some of the source is left; [`Service::writable`] will be called.
    Blocked,
    /// The connection is no more; [`Service::gone`] will not be called.
    Closed,
}

/// A reply that was handed to the socket, or broken off. Texts are empty unless `Config::log_requests`.
#[derive(Debug)]
pub struct Served<'s> {
    pub status: u16,
    /// Body bytes that the socket took, without chunk framing.
    pub body_bytes: u64,
    /// False: the connection ended before all of the reply was written.
    pub complete: bool,
    /// From the whole head's arrival to now.
    pub duration_ns: u64,
    pub received_wall_ns: i64,
    pub peer: Peer,
    /// Who asked: the peer's address, unless [`Io::name_client`] named another. None: nobody knows.
    pub client: Option<IpAddr>,
    pub listener: usize,
    pub method: &'s str,
    pub target: &'s str,
    pub version: Version,
    pub host: &'s str,
    pub referer: &'s [u8],
    pub user_agent: &'s [u8],
}

/// What an application of this library is: one instance per I/O thread, made on that thread, never called from another.
///
/// Nothing here may block. Every method may use everything that [`Io`] offers.
pub trait Service: 'static {
    /// What [`crate::Handle::post`] carries to an I/O thread.
    type Message: Send + 'static;

    /// A whole request, body included. Answer now or later; until then the connection waits.
    fn request(&mut self, io: &mut Io, conn: ConnId, request: Request<'_>);

    fn message(&mut self, _io: &mut Io, _message: Self::Message) {}

    /// A reply that `push` reported blocked has room again.
    fn writable(&mut self, _io: &mut Io, _conn: ConnId) {}

    /// The client sent a FIN while its request waits for the reply. It may still read: the reply is written if one
    /// comes. A service may drop what was only queued and [`Io::abort`].
    fn half_closed(&mut self, _io: &mut Io, _conn: ConnId) {}

    /// The connection ended (RST, write error, timeout, shutdown) before the service was through with its reply.
    fn gone(&mut self, _io: &mut Io, _conn: ConnId) {}

    /// A descriptor registered with `token` became readable.
    fn ready(&mut self, _io: &mut Io, _token: u64) {}

    /// After all events of the tick: look for finished replies.
    fn tick(&mut self, _io: &mut Io) {}

    /// True: the thread does not sleep in this turn, and nobody is told that it does.
    fn busy_poll(&mut self) -> bool {
        false
    }

    /// The thread is about to sleep. Announce that to peers, then look once more: false if there is work after all.
    fn may_sleep(&mut self) -> bool {
        true
    }

    /// Follows every `may_sleep`, whatever it returned, as soon as `epoll_wait` is back.
    fn awake(&mut self) {}

    /// The monotonic millisecond at which `tick` must be called at the latest.
    fn next_deadline_ms(&self) -> Option<u64> {
        None
    }

    /// The server began to drain.
    fn draining(&mut self, _io: &mut Io) {}

    /// Once per reply that was written or broken off, also for those that the server gives by itself. Keep it cheap.
    fn served(&mut self, _io: &mut Io, _conn: ConnId, _served: &Served<'_>) {}
}
