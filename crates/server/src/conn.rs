//! One connection: its states, and what it carries in them.
//!
//! ```text
//!                           +----------------------- keep-alive ------------------------+
//!                           v                                                           |
//! accept --> [Preface] --> Idle --> Head --> [Body] --> Asked --> Replying --> Flushing --> Complete --> Lingering --> closed
//!                                                        |          (start)       ^
//!                                                        +--- respond, send_file -+
//! any state --> Broken --> closed
//! ```

use std::fs::File;
use std::net::IpAddr;
use std::rc::Rc;

use rustix::fd::OwnedFd;

use crate::body::Arriving;
use crate::clock::Now;
use crate::http1::{HeadScanner, RequestHead, Version};
use crate::service::{FilePart, Local, Peer};
use crate::slab::NEVER_MS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// A PROXY header is due, or a part of it has arrived.
    Preface,
    /// Nothing of a next request has arrived.
    Idle,
    /// A part of a request head has.
    Head,
    /// The head is whole, the body is not.
    Body,
    /// The service has the request.
    Asked,
    /// The service has begun the reply.
    Replying,
    /// The service is through; bytes wait in `out` or `file`.
    Flushing,
    /// All of the reply is with the kernel. The loop decides what comes next.
    Complete,
    /// Write side shut; what still arrives is read and discarded.
    Lingering,
    /// To be closed by the loop, at the end of the step that found out.
    Broken,
}

impl Phase {
    /// The service has been asked, and is not through.
    pub(crate) fn with_service(self) -> bool {
        matches!(self, Phase::Asked | Phase::Replying)
    }

    pub(crate) fn reads(self) -> bool {
        matches!(
            self,
            Phase::Preface | Phase::Idle | Phase::Head | Phase::Body | Phase::Lingering
        )
    }
}

pub(crate) struct Conn {
    pub(crate) socket: OwnedFd,
    pub(crate) peer: Peer,
    pub(crate) local: Local,
    pub(crate) trusted: bool,
    pub(crate) tls: bool,
    /// The socket's own kind, whomever a PROXY header names.
    pub(crate) is_unix: bool,
    pub(crate) phase: Phase,

    /// The socket may hold bytes, or a FIN, that were not read yet.
    pub(crate) may_read: bool,
    /// A FIN, perhaps behind unread bytes.
    pub(crate) peer_fin: bool,
    /// `half_closed` was called for the current request.
    pub(crate) fin_told: bool,
    /// The last write found the socket full: epoll will say when there is room.
    pub(crate) blocked: bool,
    /// EPOLLOUT is in the socket's interest set.
    pub(crate) out_asked: bool,
    /// In WriteMode::AskFirst: epoll has said that the socket is writable.
    pub(crate) out_granted: bool,
    /// `Push::Blocked` was returned.
    pub(crate) service_waits: bool,
    /// The server wants the connection closed, not the client: take care that the last reply is not lost to an RST.
    pub(crate) linger: bool,
    /// A request, or something refused as one, waits for the end of its reply.
    pub(crate) asked: bool,
    /// When Broken: the service must be told.
    pub(crate) tell_gone: bool,

    pub(crate) requests: u32,
    pub(crate) scanner: HeadScanner,
    /// Bytes read that no request has consumed. Without memory of its own while idle.
    pub(crate) input: Vec<u8>,
    pub(crate) body: Option<Box<Arriving>>,
    pub(crate) exchange: Exchange,
    /// Bytes to be written, from `out_at` on. Without memory of its own unless something waits.
    pub(crate) out: Vec<u8>,
    pub(crate) out_at: usize,
    /// What this connection has taken from the spill budget.
    pub(crate) spilled: usize,
    pub(crate) file: Option<Box<FileReply>>,
    pub(crate) note: Option<Box<Note>>,
    pub(crate) lingered_bytes: u64,
    /// NEVER_MS: no timeout applies.
    pub(crate) deadline_ms: u64,
}

impl Conn {
    pub(crate) fn new(
        socket: OwnedFd,
        peer: Peer,
        local: Local,
        out_asked: bool,
        now: Now,
    ) -> Conn {
        Conn {
            socket,
            peer,
            local,
            trusted: false,
            tls: false,
            is_unix: peer == Peer::Unix,
            phase: Phase::Idle,
            may_read: false,
            peer_fin: false,
            fin_told: false,
            blocked: false,
            out_asked,
            out_granted: false,
            service_waits: false,
            linger: false,
            asked: false,
            tell_gone: false,
            requests: 0,
            scanner: HeadScanner::default(),
            input: Vec::new(),
            body: None,
            exchange: Exchange::refused(now),
            out: Vec::new(),
            out_at: 0,
            spilled: 0,
            file: None,
            note: None,
            lingered_bytes: 0,
            deadline_ms: NEVER_MS,
        }
    }

    pub(crate) fn unsent(&self) -> usize {
        self.out.len() - self.out_at
    }
}

/// How the body of a reply goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sending {
    /// HEAD, 204, 304: whatever the service pushes is dropped.
    Nothing,
    /// So many bytes are left of the announced length.
    Length(u64),
    /// So many bytes are still owed to the chunk whose size is out.
    Chunked(usize),
    UntilClose,
}

/// One request and its reply.
pub(crate) struct Exchange {
    pub(crate) version: Version,
    pub(crate) head_request: bool,
    pub(crate) connect: bool,
    /// The client is willing to send another request.
    pub(crate) client_keeps: bool,
    /// The connection outlives this reply.
    pub(crate) keep_alive: bool,
    pub(crate) received: Now,
    /// 0: no final reply has begun.
    pub(crate) status: u16,
    pub(crate) sending: Sending,
    pub(crate) body_bytes: u64,
    /// The reply ended before its announced length: the connection must be cut behind it.
    pub(crate) short: bool,
}

impl Exchange {
    pub(crate) fn new(head: &RequestHead<'_>, received: Now) -> Exchange {
        Exchange {
            version: head.version,
            head_request: head.method == "HEAD",
            connect: head.method == "CONNECT",
            client_keeps: head.keep_alive,
            ..Exchange::refused(received)
        }
    }

    /// For a reply to what could not be understood as a request.
    pub(crate) fn refused(received: Now) -> Exchange {
        Exchange {
            version: Version::Http11,
            head_request: false,
            connect: false,
            client_keeps: false,
            keep_alive: false,
            received,
            status: 0,
            sending: Sending::Nothing,
            body_bytes: 0,
            short: false,
        }
    }
}

/// The rest of a file, or of parts of it, that goes out by sendfile.
pub(crate) struct FileReply {
    pub(crate) file: Rc<File>,
    pub(crate) offset: u64,
    pub(crate) left: u64,
    /// The parts behind this one.
    pub(crate) parts: std::vec::IntoIter<FilePart>,
}

/// What an access log wants to know of a request after its head is gone.
#[derive(Default)]
pub(crate) struct Note {
    pub(crate) client: Option<IpAddr>,
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) host: String,
    pub(crate) referer: Vec<u8>,
    pub(crate) user_agent: Vec<u8>,
}

impl Note {
    pub(crate) fn fill(&mut self, head: &RequestHead<'_>) {
        self.clear();
        self.method.push_str(head.method);
        self.target.push_str(head.target);
        self.host.push_str(head.host.unwrap_or_default());
        self.referer
            .extend_from_slice(head.header("referer").unwrap_or_default());
        self.user_agent
            .extend_from_slice(head.header("user-agent").unwrap_or_default());
    }

    pub(crate) fn clear(&mut self) {
        self.client = None;
        self.method.clear();
        self.target.clear();
        self.host.clear();
        self.referer.clear();
        self.user_agent.clear();
    }
}
