//! A request head, parsed into something that is safe to act upon.

use std::mem::MaybeUninit;

use memchr::memchr_iter;

use crate::classes::list_elements;
use crate::framing::{Framing, FramingRules};
use crate::host::is_host_and_port;
use crate::limits::{HEADERS_MAX, LEADING_EMPTY_LINES_MAX, Limits, METHOD_BYTES_MAX};
use crate::reject::{BARE_LINE_END, HEAD_TOO_LARGE, Reject, TARGET_TOO_LONG, TOO_MANY_HEADERS};
use crate::target::split_target;

/// The protocol version of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
}

impl Version {
    /// `HTTP/1.0` or `HTTP/1.1`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
        }
    }
}

/// One header line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'b> {
    /// A token, in the case that was sent.
    pub name: &'b str,
    /// Without spaces and tabs at both ends. Holds no control byte but inner tabs; may hold 0x80-0xFF.
    pub value: &'b [u8],
}

/// Room for the headers of one [`RequestHead`]. Costs nothing to make: put it on the stack, next to the
/// call to [`RequestHead::parse`]. It is 4 KiB, so it is better not moved.
pub struct HeaderStore<'b> {
    slots: [MaybeUninit<httparse::Header<'b>>; HEADERS_MAX],
}

impl HeaderStore<'_> {
    /// Empty, and not even cleared.
    #[inline]
    pub fn new() -> Self {
        HeaderStore {
            slots: [const { MaybeUninit::uninit() }; HEADERS_MAX],
        }
    }
}

impl Default for HeaderStore<'_> {
    fn default() -> Self {
        HeaderStore::new()
    }
}

/// The head of a request: request line and headers, checked. Borrows from the bytes it was parsed from.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'b> {
    /// A token, in the case that was sent; at most [`METHOD_BYTES_MAX`] bytes. Not necessarily a known one.
    pub method: &'b str,
    /// As sent, but without a fragment.
    pub target: &'b str,
    /// The path, not decoded: begins with `/`. `*` for `OPTIONS *`, empty for CONNECT. Holds neither
    /// control bytes nor `%00`.
    pub path: &'b str,
    /// What follows the first `?`, not decoded; `Some("")` if nothing does.
    pub query: Option<&'b str>,
    /// HTTP/1.0 or HTTP/1.1.
    pub version: Version,
    /// `host[:port]`, valid: from an absolute target, else from the Host header. `None` only on HTTP/1.0.
    pub host: Option<&'b str>,
    /// How the body is delimited. A length is within [`Limits::body_bytes_max`].
    pub framing: Framing,
    /// Whether the client is willing to send another request on this connection.
    pub keep_alive: bool,
    /// Whether the client holds back a body until it sees `100 Continue`. Never on HTTP/1.0, never
    /// without a body.
    pub expect_continue: bool,
    headers: &'b [httparse::Header<'b>],
}

impl<'s> RequestHead<'s> {
    /// Parses a whole head, as [`crate::HeadScanner::scan`] delimits it: empty lines first are skipped, the
    /// empty line at the end is included. A plain function of its arguments: it may be called again on the
    /// same bytes.
    ///
    /// Headers with a `_` in their name are left out: in CGI variables they would pass for the ones with
    /// a `-`. A Content-Length that is repeated with the same value is given once. With an absolute
    /// target, the Host header's value is the target's (RFC 9112 section 3.2.2).
    ///
    /// # Errors
    /// - 400: malformed request line or header (RFC 9112 sections 2 to 5); a target of the wrong form
    ///   (section 3.2); a Host that is missing on HTTP/1.1, repeated or invalid (section 3.2); framing that
    ///   two readers could take differently (section 6).
    /// - 413: an announced length over [`Limits::body_bytes_max`].
    /// - 414: a target over [`Limits::target_bytes_max`].
    /// - 431: a head over [`Limits::head_bytes_max`], or more headers than [`Limits::headers_max`].
    /// - 501: a transfer coding other than chunked (section 6.1), a method over [`METHOD_BYTES_MAX`].
    /// - 505: a version other than HTTP/1.0 and HTTP/1.1.
    pub fn parse<'b: 's>(
        head: &'b [u8],
        limits: &Limits,
        store: &'s mut HeaderStore<'b>,
    ) -> Result<RequestHead<'s>, Reject> {
        if head.len() > limits.head_bytes_max {
            return Err(HEAD_TOO_LARGE);
        }
        let bytes = skip_empty_lines(head)?;
        let mut raw = httparse::Request::new(&mut []);
        let slots = &mut store.slots[..limits.headers_max.clamp(1, HEADERS_MAX)];
        match raw.parse_with_uninit_headers(bytes, slots) {
            Ok(httparse::Status::Complete(length)) if length == bytes.len() => {}
            Ok(_) => return Err(Reject::bad("not exactly one request head")),
            Err(error) => return Err(explain(error, bytes)),
        }
        // httparse takes a CR only in front of an LF, but an LF alone as well.
        if memchr_iter(b'\n', bytes).count() != memchr_iter(b'\r', bytes).count() {
            return Err(BARE_LINE_END);
        }
        let (Some(method), Some(sent), Some(minor)) = (raw.method, raw.path, raw.version) else {
            return Err(Reject::bad("malformed request line"));
        };
        if sent.len() > limits.target_bytes_max {
            return Err(TARGET_TOO_LONG);
        }
        if method.len() > METHOD_BYTES_MAX {
            return Err(Reject::new(501, "an unknown, overlong method"));
        }
        let version = if minor == 0 {
            Version::Http10
        } else {
            Version::Http11
        };
        let target = split_target(method, sent)?;
        let mut facts = Facts::default();
        let kept = facts.sift(raw.headers, target.authority)?;
        let host = match (facts.host, target.authority) {
            (None, _) if version == Version::Http11 => return Err(Reject::bad("no Host header")),
            (_, Some(authority)) => Some(authority),
            (host, None) => host,
        };
        let framing = facts.framing.decide(version, limits.body_bytes_max)?;
        let expects_body = !matches!(framing, Framing::None | Framing::Length(0));
        Ok(RequestHead {
            method,
            target: target.text,
            path: target.path,
            query: target.query,
            version,
            host,
            framing,
            keep_alive: !facts.close && (version == Version::Http11 || facts.keep_alive),
            expect_continue: facts.expect_continue && expects_body && version == Version::Http11,
            headers: kept,
        })
    }

    /// The headers in the order sent; a repeated one comes repeatedly.
    pub fn headers(
        &self,
    ) -> impl ExactSizeIterator<Item = Header<'s>> + DoubleEndedIterator + Clone + use<'s> {
        self.headers.iter().map(|header| Header {
            name: header.name,
            value: header.value,
        })
    }

    /// The first header of that name, in any case.
    pub fn header(&self, name: &str) -> Option<&'s [u8]> {
        let found = self
            .headers
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case(name));
        found.map(|header| header.value)
    }
}

/// What the headers say that concerns the server itself.
#[derive(Default)]
struct Facts<'b> {
    host: Option<&'b str>,
    framing: FramingRules,
    close: bool,
    keep_alive: bool,
    expect_continue: bool,
}

impl<'b> Facts<'b> {
    /// Reads the headers once, and moves those that are kept to the front.
    fn sift<'s>(
        &mut self,
        headers: &'s mut [httparse::Header<'b>],
        authority: Option<&'b str>,
    ) -> Result<&'s [httparse::Header<'b>], Reject> {
        let mut kept = 0;
        for index in 0..headers.len() {
            let mut header = headers[index];
            if self.note(&header)? || header.name.as_bytes().contains(&b'_') {
                continue;
            }
            if let Some(authority) = authority
                && header.name.eq_ignore_ascii_case("host")
            {
                header.value = authority.as_bytes();
            }
            headers[kept] = header;
            kept += 1;
        }
        Ok(&headers[..kept])
    }

    /// Returns whether the header adds nothing and is to be left out.
    #[inline]
    fn note(&mut self, header: &httparse::Header<'b>) -> Result<bool, Reject> {
        // The length tells most headers apart without looking at a byte.
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        match header.name.len() {
            4 if is("host") => self.note_host(header.value)?,
            6 if is("expect") => {
                self.expect_continue |= header.value.eq_ignore_ascii_case(b"100-continue")
            }
            10 if is("connection") => self.note_connection(header.value),
            14 if is("content-length") => return self.framing.content_length(header.value),
            17 if is("transfer-encoding") => self.framing.transfer_encoding(header.value),
            _ => {}
        }
        Ok(false)
    }

    fn note_host(&mut self, value: &'b [u8]) -> Result<(), Reject> {
        let host = std::str::from_utf8(value)
            .ok()
            .filter(|text| is_host_and_port(text));
        let host = host.ok_or(Reject::bad("malformed Host header"))?;
        match self.host.replace(host) {
            None => Ok(()),
            Some(_) => Err(Reject::bad("more than one Host header")),
        }
    }

    fn note_connection(&mut self, value: &[u8]) {
        for option in list_elements(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }
}

fn skip_empty_lines(head: &[u8]) -> Result<&[u8], Reject> {
    let mut bytes = head;
    let mut skipped = 0;
    while let [b'\r', b'\n', rest @ ..] = bytes {
        bytes = rest;
        skipped += 1;
        if skipped > LEADING_EMPTY_LINES_MAX {
            return Err(Reject::bad("too many empty lines before the request"));
        }
    }
    Ok(bytes)
}

#[cold]
fn explain(error: httparse::Error, head: &[u8]) -> Reject {
    match error {
        httparse::Error::TooManyHeaders => TOO_MANY_HEADERS,
        httparse::Error::HeaderName => Reject::bad("malformed header name"),
        httparse::Error::HeaderValue => Reject::bad("malformed header value"),
        httparse::Error::Version if names_other_version(head) => {
            Reject::new(505, "only HTTP/1.0 and HTTP/1.1 are spoken here")
        }
        _ => Reject::bad("malformed request line"),
    }
}

/// Whether the request line is good but for a version that is not spoken here (RFC 9112 section 2.3).
fn names_other_version(head: &[u8]) -> bool {
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|&byte| byte == b' ').skip(2);
    let (Some(version), None) = (words.next(), words.next()) else {
        return false;
    };
    let digits = match version {
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor] => [major, minor],
        _ => return false,
    };
    digits.iter().all(|digit| digit.is_ascii_digit())
}
