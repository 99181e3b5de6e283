//! Why a request is refused.

use std::fmt;

/// Why a request is refused: the status to answer with, and a short plain reason for log and body.
///
/// After a reject the position in the stream is unknown: the connection must be closed behind the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// 400, 413, 414, 431, 501 or 505 from this crate; the caller's own timers add 408.
    pub status: u16,
    /// Fixed text: it never repeats what the client sent.
    pub reason: &'static str,
}

impl Reject {
    /// A reject with this status and reason.
    pub const fn new(status: u16, reason: &'static str) -> Reject {
        Reject { status, reason }
    }

    pub(crate) const fn bad(reason: &'static str) -> Reject {
        Reject::new(400, reason)
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.status, self.reason)
    }
}

impl std::error::Error for Reject {}

pub(crate) const BARE_LINE_END: Reject = Reject::bad("a bare CR or LF in the head");
pub(crate) const TARGET_TOO_LONG: Reject = Reject::new(414, "the request target is too long");
pub(crate) const HEAD_TOO_LARGE: Reject = Reject::new(431, "the request head is too large");
pub(crate) const TOO_MANY_HEADERS: Reject = Reject::new(431, "too many request headers");
pub(crate) const BODY_TOO_LARGE: Reject = Reject::new(413, "the request body is too large");
