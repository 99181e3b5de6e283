//! What a server may answer, parsed strictly: a reply that two clients could read differently is an error.

use std::fmt;
use std::io;

/// Why there is no reply.
#[derive(Debug)]
pub enum Fault {
    /// The server closed the connection before the first byte of a reply.
    Closed,
    /// The connection ended, by FIN or RST, inside a reply.
    CutShort,
    /// Nothing came within the client's patience.
    Silent,
    /// Bytes came that are no HTTP/1.1 reply.
    Broken(String),
    Io(io::Error),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Closed => f.write_str("connection closed without a reply"),
            Fault::CutShort => f.write_str("connection ended inside a reply"),
            Fault::Silent => f.write_str("no answer in time"),
            Fault::Broken(what) => write!(f, "malformed reply: {what}"),
            Fault::Io(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Fault {}

pub(crate) fn broken<T>(what: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Broken(what.into()))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Framing {
    Empty,
    Length(u64),
    Chunked,
    UntilClose,
}

/// Status line and headers of a reply.
#[derive(Debug, Clone)]
pub struct Head {
    pub minor_version: u8,
    pub status: u16,
    pub reason: String,
    /// In order of arrival, names as sent. Values are Latin-1 decoded: one char is one byte.
    pub headers: Vec<(String, String)>,
    pub framing: Framing,
}

impl Head {
    pub fn all<'h>(&'h self, name: &str) -> impl Iterator<Item = &'h str> {
        self.headers
            .iter()
            .filter(move |(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v.as_str())
    }

    /// The header's value; it must not be there twice.
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.all(name);
        let first = all.next();
        assert!(
            all.next().is_none(),
            "header {name} came more than once: {:?}",
            self.headers
        );
        first
    }

    /// Whether the server will close the connection after this reply.
    pub fn says_close(&self) -> bool {
        let mut tokens = self.all("connection").flat_map(|v| v.split(','));
        let close = tokens.any(|t| t.trim().eq_ignore_ascii_case("close"));
        let keep = self
            .all("connection")
            .flat_map(|v| v.split(','))
            .any(|t| t.trim().eq_ignore_ascii_case("keep-alive"));
        close || self.framing == Framing::UntilClose || (self.minor_version == 0 && !keep)
    }
}

/// A whole reply.
#[derive(Debug, Clone)]
pub struct Reply {
    pub head: Head,
    /// Interim (1xx) replies that came before it.
    pub interim: Vec<Head>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn status(&self) -> u16 {
        self.head.status
    }

    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The value of `name` in a body of `name=value` lines, as the fixtures print them.
    pub fn line(&self, name: &str) -> Option<String> {
        self.text().lines().find_map(|line| {
            line.strip_prefix(name)?
                .strip_prefix('=')
                .map(str::to_owned)
        })
    }

    #[track_caller]
    pub fn expect(self, status: u16) -> Reply {
        let start: String = self.text().chars().take(600).collect();
        assert_eq!(
            self.status(),
            status,
            "unexpected status; body begins: {start}"
        );
        self
    }
}

pub(crate) fn parse_status_line(line: &str) -> Result<(u8, u16, String), Fault> {
    let minor = match line.get(..9) {
        Some("HTTP/1.1 ") => 1,
        Some("HTTP/1.0 ") => 0,
        _ => return broken(format!("status line {line:?}")),
    };
    let (code, reason) = line[9..]
        .split_once(' ')
        .ok_or(Fault::Broken(format!("status line {line:?}")))?;
    if code.len() != 3 || !code.bytes().all(|b| b.is_ascii_digit()) {
        return broken(format!("status line {line:?}"));
    }
    let status = code
        .parse()
        .map_err(|_| Fault::Broken(format!("status {code:?}")))?;
    Ok((minor, status, reason.to_owned()))
}

pub(crate) fn parse_header(line: &str) -> Result<(String, String), Fault> {
    let Some((name, value)) = line.split_once(':') else {
        return broken(format!("header line {line:?}"));
    };
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(token) {
        return broken(format!("header name {name:?}"));
    }
    if value.chars().any(|c| c.is_ascii_control() && c != '\t') {
        return broken(format!("header value {value:?}"));
    }
    Ok((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()))
}

pub(crate) fn framing_of(
    minor: u8,
    status: u16,
    method: &str,
    headers: &[(String, String)],
) -> Result<Framing, Fault> {
    let all = |name: &str| -> Vec<&str> {
        headers
            .iter()
            .filter(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v.as_str())
            .collect()
    };
    let lengths = all("content-length");
    let codings = all("transfer-encoding");
    if lengths.len() > 1 || codings.len() > 1 || (!lengths.is_empty() && !codings.is_empty()) {
        return broken(format!("more than one framing: {lengths:?} {codings:?}"));
    }
    let length = match lengths.first() {
        None => None,
        Some(digits) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => Some(
            digits
                .parse::<u64>()
                .map_err(|e| Fault::Broken(e.to_string()))?,
        ),
        Some(other) => return broken(format!("content-length {other:?}")),
    };
    if let Some(coding) = codings.first()
        && (!coding.eq_ignore_ascii_case("chunked") || minor == 0)
    {
        return broken(format!("transfer-encoding {coding:?} on HTTP/1.{minor}"));
    }
    let bodiless = status < 200 || status == 204;
    if bodiless && (length.is_some() || !codings.is_empty()) {
        return broken(format!("status {status} with framing headers"));
    }
    Ok(if bodiless || status == 304 || method == "HEAD" {
        Framing::Empty
    } else if !codings.is_empty() {
        Framing::Chunked
    } else if let Some(n) = length {
        Framing::Length(n)
    } else {
        Framing::UntilClose
    })
}
