//! One connection.

use std::collections::VecDeque;

use rustix::fd::OwnedFd;
use rustix::io::Errno;

use crate::check::Watch;
use crate::reply::Reader;

/// ```text
///   Off ──► Connecting ──► Open ──► Off      ended, or needed no more
///    │       ▲  │  ▲  │     │
///    │       │  ▼  │  └─────┴─────► Waiting  came to nothing; made again after a while
///    │   Backlog   └───────────────────┘
///    └───────┘                               the backlog of a unix socket was full; tried again
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Off,
    Connecting,
    Open,
    Backlog { until_ns: u64 },
    Waiting { until_ns: u64 },
}

pub struct Conn {
    pub state: State,
    pub socket: Option<OwnedFd>,
    /// Events of a socket that is closed by now carry an older one.
    pub generation: u32,
    pub reader: Reader,
    pub watch: Watch,
    /// Requests that wait for their replies, the oldest first.
    pub sent: VecDeque<Sent>,
    /// What the socket did not take yet.
    pub out: VecDeque<Unsent>,
    /// Epoll tells when it can be written to. Otherwise not, as on unix sockets each read of the peer would.
    pub watches_out: bool,
    /// In the list of free connections.
    pub listed: bool,
    /// Writing failed; what can be read still counts.
    pub broken: Option<Errno>,
    /// Replies on this connection.
    pub replies: u64,
    /// Attempts in a row that made no connection.
    pub failures: u32,
    /// When the attempt to connect began.
    pub since_ns: u64,
    /// It has been made once, or has failed, before the load began.
    pub settled: bool,
    /// Since when it could send: the intended time of its next request in a closed loop.
    pub ready_ns: u64,
    /// The intended time of the request that the connection is made for, without keep-alive.
    pub job_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub intended_ns: u64,
    pub sent_ns: u64,
    pub target: u32,
}

/// The rest of a write.
pub enum Unsent {
    /// Of a target's one prepared request, from that byte on.
    Prepared {
        target: usize,
        at: usize,
    },
    Copied {
        bytes: Vec<u8>,
        at: usize,
    },
}

impl Conn {
    pub fn new(pipeline: usize) -> Conn {
        Conn {
            state: State::Off,
            socket: None,
            generation: 0,
            reader: Reader::default(),
            watch: Watch::default(),
            sent: VecDeque::with_capacity(pipeline),
            out: VecDeque::new(),
            watches_out: false,
            listed: false,
            broken: None,
            replies: 0,
            failures: 0,
            since_ns: 0,
            settled: false,
            ready_ns: 0,
            job_ns: None,
        }
    }

    /// Closes the socket. What was sent stays for the caller to account for.
    pub fn close(&mut self) {
        self.state = State::Off;
        // Closing takes it out of epoll.
        self.socket = None;
        self.generation = self.generation.wrapping_add(1);
        self.reader.end();
        self.watch.reset();
        self.out.clear();
        self.watches_out = false;
        self.broken = None;
        self.replies = 0;
    }
}
