//! Tables of cases, one file per idea.

mod body;
mod date;
mod framing;
mod headers;
mod host;
mod pipelining;
mod properties;
mod proxy_header;
mod reply;
mod reply_framing;
mod request_line;
mod scan;
mod splits;
mod stream;

use crate::Limits;
use stream::{End, Message, read_whole};

/// The status that a server would answer: 200 for a stream that is read to its end, 0 for one that
/// stops in the middle.
fn status_of(bytes: impl AsRef<[u8]>) -> u16 {
    status_within(bytes, &Limits::default())
}

fn status_within(bytes: impl AsRef<[u8]>, limits: &Limits) -> u16 {
    match read_whole(bytes.as_ref(), limits).end {
        End::Rejected(reject) => reject.status,
        End::Boundary => 200,
        End::MidHead | End::MidBody => 0,
    }
}

/// The one request in `bytes`.
fn message(bytes: impl AsRef<[u8]>) -> Message {
    let mut reading = read_whole(bytes.as_ref(), &Limits::default());
    let text = String::from_utf8_lossy(bytes.as_ref());
    assert_eq!(reading.end, End::Boundary, "{text:?}");
    assert_eq!(reading.messages.len(), 1, "{text:?}");
    reading.messages.remove(0)
}

/// Each case is a request and the status it deserves.
fn check_statuses(cases: &[(&str, u16)]) {
    for (request, status) in cases {
        assert_eq!(status_of(request), *status, "{request:?}");
    }
}
