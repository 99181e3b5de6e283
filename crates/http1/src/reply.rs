//! Writing replies. An application's headers are hostile until checked: none of them adds a line,
//! frames the message or speaks for the connection.

use crate::classes::{is_token, is_value, list_elements, trim};
use crate::framing::parse_length;
use crate::request::Version;
use crate::status::{reason_phrase, status_line};

/// Ends the data of a chunk.
pub const CHUNK_END: &[u8] = b"\r\n";

/// Ends a chunked body; there are no trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// How the body of a reply is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyFraming {
    /// Not at all: the answer to HEAD, 1xx, 204, 205, 304. A body that the application gives is dropped.
    None,
    /// Exactly so many bytes. The caller must not send more, and must cut the connection if it has less.
    Length(u64),
    /// In chunks ([`chunk_header`], the data, [`CHUNK_END`]), with [`LAST_CHUNK`] at the end.
    Chunked,
    /// As it is; the end of the connection ends it. Also for 101 and a successful CONNECT.
    UntilClose,
}

/// What the head that was written promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyPlan {
    /// How the body must be sent.
    pub framing: ReplyFraming,
    /// Whether another request may follow. If not, the connection must be closed behind the body.
    pub keep_alive: bool,
}

/// What a reply must know about its request and its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyContext {
    /// The method was HEAD.
    pub head_request: bool,
    /// The method was CONNECT.
    pub connect: bool,
    /// The request's version: chunks are for HTTP/1.1 only.
    pub version: Version,
    /// The request allows another one to follow, and so does the server.
    pub keep_alive: bool,
}

/// Appends status line, headers and empty line to `out`, and says how the body is to be sent.
///
/// `headers` are the application's. One whose name is no token, or whose value holds a control byte but
/// tab, is dropped whole. `Connection` only counts for its `close`; `Keep-Alive`, `Proxy-Connection`,
/// `Transfer-Encoding` and (but on 101) `Upgrade` are dropped (RFC 9110 section 7.6.1). `Content-Length` is
/// honoured if it is valid, given once (or the same each time), and `length` does not contradict it; for
/// HEAD and 304 it describes what GET would have sent and outranks `length`. The first `Date` and the
/// first `Server` stand, else `date` and `server` (none if empty) are added.
///
/// `length`: `Some` if the whole body is known already, in bytes. `reason`: the application's phrase,
/// instead of the standard one. A status outside 100..=999 becomes 500. A final reply with an
/// informational status closes the connection, as the client still waits for another.
#[allow(clippy::too_many_arguments)] // Each is said once, by a different party.
pub fn encode_reply_head<'h>(
    out: &mut Vec<u8>,
    ctx: &ReplyContext,
    status: u16,
    reason: Option<&str>,
    headers: impl IntoIterator<Item = (&'h [u8], &'h [u8])>,
    length: Option<u64>,
    date: &[u8; 29],
    server: &str,
) -> ReplyPlan {
    let status = if (100..=999).contains(&status) {
        status
    } else {
        500
    };
    // Most heads fit, so that they cost one growth at most.
    out.reserve(256);
    write_status_line(out, status, reason);
    let upgrade = status == 101;
    let mut seen = Seen::default();
    for (name, value) in headers {
        if seen.passes(name, value, upgrade) {
            write_header(out, name, value);
        }
    }
    let framing = plan_framing(ctx, status, length, seen.length());
    let keep_alive =
        ctx.keep_alive && !seen.close && framing != ReplyFraming::UntilClose && status >= 200;
    match announced_length(framing, status, length, seen.length()) {
        Some(length) => write_length(out, length),
        None if framing == ReplyFraming::Chunked => {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n")
        }
        None => {}
    }
    if upgrade {
        out.extend_from_slice(b"Connection: upgrade\r\n");
    } else if !keep_alive {
        out.extend_from_slice(b"Connection: close\r\n");
    } else if ctx.version == Version::Http10 {
        out.extend_from_slice(b"Connection: keep-alive\r\n");
    }
    if !seen.date {
        write_header(out, b"Date", date);
    }
    if !seen.server && !server.is_empty() && is_value(server.as_bytes()) {
        write_header(out, b"Server", server.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    ReplyPlan {
        framing,
        keep_alive,
    }
}

/// Appends an informational reply, such as `103 Early Hints`. Returns whether it was written: a status
/// outside 100..=199 and 101 are not, as they would end the exchange (RFC 9110 section 15.2).
///
/// The caller must not send it to HTTP/1.0.
pub fn encode_informational<'h>(
    out: &mut Vec<u8>,
    status: u16,
    headers: impl IntoIterator<Item = (&'h [u8], &'h [u8])>,
) -> bool {
    if !(100..=199).contains(&status) || status == 101 {
        return false;
    }
    write_status_line(out, status, None);
    let mut seen = Seen::default();
    for (name, value) in headers {
        if seen.passes(name, value, false) {
            write_header(out, name, value);
        }
    }
    out.extend_from_slice(b"\r\n");
    true
}

/// The line in front of a chunk of `len` bytes, as in `1f4\r\n`. `len` must not be 0, which would end the
/// body: see [`LAST_CHUNK`].
pub fn chunk_header(len: usize, buf: &mut [u8; 18]) -> &[u8] {
    debug_assert!(len > 0, "an empty chunk ends the body");
    let mut left = len;
    let mut start = 16;
    buf[16..].copy_from_slice(b"\r\n");
    loop {
        start -= 1;
        buf[start] = b"0123456789abcdef"[left & 15];
        left >>= 4;
        if left == 0 {
            return &buf[start..];
        }
    }
}

/// What the application's headers said that is the server's to say.
#[derive(Default)]
struct Seen {
    date: bool,
    server: bool,
    close: bool,
    length: Option<u64>,
    length_unclear: bool,
}

impl Seen {
    /// Whether the header may be written; notes it if the server speaks for it.
    #[inline]
    fn passes(&mut self, name: &[u8], value: &[u8], upgrade: bool) -> bool {
        if !is_token(name) || !is_value(value) {
            return false;
        }
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        match name.len() {
            4 if is(b"date") => !std::mem::replace(&mut self.date, true),
            6 if is(b"server") => !std::mem::replace(&mut self.server, true),
            7 if is(b"upgrade") => upgrade,
            10 if is(b"keep-alive") => false,
            10 if is(b"connection") => {
                self.close |=
                    list_elements(value).any(|option| option.eq_ignore_ascii_case(b"close"));
                false
            }
            14 if is(b"content-length") => {
                self.note_length(value);
                false
            }
            16 if is(b"proxy-connection") => false,
            17 if is(b"transfer-encoding") => false,
            _ => true,
        }
    }

    fn note_length(&mut self, value: &[u8]) {
        let length = parse_length(trim(value));
        self.length_unclear |=
            length.is_none() || self.length.is_some_and(|earlier| Some(earlier) != length);
        self.length = length;
    }

    fn length(&self) -> Option<u64> {
        self.length.filter(|_| !self.length_unclear)
    }
}

/// RFC 9112 section 6.3, from the sender's side.
fn plan_framing(
    ctx: &ReplyContext,
    status: u16,
    known: Option<u64>,
    claimed: Option<u64>,
) -> ReplyFraming {
    if status == 101 || (ctx.connect && (200..=299).contains(&status)) {
        return ReplyFraming::UntilClose;
    }
    if ctx.head_request || matches!(status, 100..=199 | 204 | 205 | 304) {
        return ReplyFraming::None;
    }
    match known.or(claimed) {
        Some(length) => ReplyFraming::Length(length),
        None if ctx.version == Version::Http11 => ReplyFraming::Chunked,
        None => ReplyFraming::UntilClose,
    }
}

/// The Content-Length to write (RFC 9110 section 8.6).
fn announced_length(
    framing: ReplyFraming,
    status: u16,
    known: Option<u64>,
    claimed: Option<u64>,
) -> Option<u64> {
    match (framing, status) {
        (ReplyFraming::Length(length), _) => Some(length),
        (ReplyFraming::Chunked | ReplyFraming::UntilClose, _) => None,
        (ReplyFraming::None, 100..=199 | 204) => None,
        (ReplyFraming::None, 205) => Some(0),
        (ReplyFraming::None, 304) => claimed,
        // HEAD: an empty body says nothing about what GET would have sent.
        (ReplyFraming::None, _) => claimed.or(known.filter(|&length| length > 0)),
    }
}

fn write_status_line(out: &mut Vec<u8>, status: u16, reason: Option<&str>) {
    let reason = reason.filter(|reason| is_value(reason.as_bytes()));
    if let (Some(line), None) = (status_line(status), reason) {
        out.extend_from_slice(line);
        return;
    }
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(itoa::Buffer::new().format(status).as_bytes());
    out.push(b' ');
    out.extend_from_slice(reason.unwrap_or(reason_phrase(status)).as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[inline]
fn write_header(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn write_length(out: &mut Vec<u8>, length: u64) {
    write_header(
        out,
        b"Content-Length",
        itoa::Buffer::new().format(length).as_bytes(),
    );
}
