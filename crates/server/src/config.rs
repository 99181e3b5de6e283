//! What may be configured, with safe defaults.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fd::OwnedFd;

use crate::clock::{ClockFactory, system_clock};
use crate::http1::Limits;
use crate::trusted::TrustedProxies;

/// A listener.
#[derive(Clone, Debug)]
pub struct Listen {
    pub at: ListenAt,
    /// Every connection begins with a header of the PROXY protocol, and comes from one of `Config::trusted_proxies`;
    /// others are closed.
    pub proxy_protocol: bool,
}

/// Where to listen.
#[derive(Clone, Debug)]
pub enum ListenAt {
    /// One socket per I/O thread, with SO_REUSEPORT. Port 0 picks a free one.
    Tcp(SocketAddr),
    /// One socket for all I/O threads. A socket file that nobody listens on is replaced. `mode`: the file's permissions.
    Unix { path: PathBuf, mode: Option<u32> },
    /// A stream socket that listens already, for all I/O threads. A socket file is its maker's to remove.
    Made(Arc<OwnedFd>),
}

impl Listen {
    /// The same but for the address.
    pub(crate) fn means_the_same(&self, other: &Listen) -> bool {
        let mode = |listen: &Listen| match &listen.at {
            ListenAt::Unix { mode, .. } => *mode,
            _ => None,
        };
        self.proxy_protocol == other.proxy_protocol && mode(self) == mode(other)
    }
}

impl ListenAt {
    pub(crate) fn is_same_place(&self, other: &ListenAt) -> bool {
        match (self, other) {
            (ListenAt::Tcp(one), ListenAt::Tcp(other)) => one == other,
            (ListenAt::Unix { path: one, .. }, ListenAt::Unix { path: other, .. }) => one == other,
            (ListenAt::Made(one), ListenAt::Made(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl From<ListenAt> for Listen {
    fn from(at: ListenAt) -> Listen {
        Listen {
            at,
            proxy_protocol: false,
        }
    }
}

/// Whether a reply is written at once, or only when epoll has said that the socket is writable. For a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    AtOnce,
    AskFirst,
}

/// Whether the clock is read once per tick, or whenever the time is needed. For a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockMode {
    PerTick,
    PerUse,
}

#[derive(Clone)]
pub struct Config {
    pub listeners: Vec<Listen>,
    pub io_threads: usize,
    /// The `Server` header; empty: none.
    pub server_name: String,
    pub limits: Limits,
    /// Peers that may speak for others: in a PROXY header, and in what a service makes of [`crate::Request::trusted`].
    pub trusted_proxies: TrustedProxies,
    /// Connections of all I/O threads together; at the limit none is accepted until one closes.
    pub connections_max: usize,
    /// The answer to the last request of a connection says close.
    pub requests_per_connection_max: u32,
    /// A whole request head, and the first byte of the first one, with a PROXY header before it.
    pub header_ms: u64,
    /// From one read of a request body to the next.
    pub body_ms: u64,
    /// A body that arrives more slowly on the whole, after `body_grace_ms`, is given up.
    pub body_rate_bytes_per_s_min: u64,
    pub body_grace_ms: u64,
    /// An idle connection, between two requests.
    pub keep_alive_ms: u64,
    /// From one progress in writing to the next.
    pub write_ms: u64,
    /// How long, and how much, is read and discarded after the last reply, so that no RST overtakes it.
    pub linger_ms: u64,
    pub linger_bytes_max: u64,
    /// Larger request bodies go to an unlinked temporary file.
    pub body_memory_bytes_max: usize,
    pub temp_dir: PathBuf,
    /// What may be copied of the end of one reply, so that its producer is free at once.
    pub reply_spill_bytes_per_reply_max: usize,
    /// The same, of all connections together.
    pub reply_spill_bytes_max: usize,
    /// How long a draining server waits for running requests.
    pub shutdown_grace_ms: u64,
    /// How long a draining server keeps connections that never had a request.
    pub drain_first_request_ms: u64,
    /// Remember of each request what an access log needs, for [`crate::Served`].
    pub log_requests: bool,
    pub write_mode: WriteMode,
    pub clock_mode: ClockMode,
    pub clock: ClockFactory,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            listeners: Vec::new(),
            io_threads: 1,
            server_name: String::from("baton"),
            limits: Limits::default(),
            trusted_proxies: TrustedProxies::default(),
            connections_max: 20_000,
            requests_per_connection_max: 100_000,
            header_ms: 10_000,
            body_ms: 30_000,
            body_rate_bytes_per_s_min: 50,
            body_grace_ms: 10_000,
            keep_alive_ms: 75_000,
            write_ms: 30_000,
            linger_ms: 2_000,
            linger_bytes_max: 256 * 1024,
            body_memory_bytes_max: 64 * 1024,
            temp_dir: std::env::temp_dir(),
            reply_spill_bytes_per_reply_max: 256 * 1024,
            reply_spill_bytes_max: 64 * 1024 * 1024,
            shutdown_grace_ms: 30_000,
            drain_first_request_ms: 1_000,
            log_requests: false,
            write_mode: WriteMode::AtOnce,
            clock_mode: ClockMode::PerTick,
            clock: system_clock(),
        }
    }
}
