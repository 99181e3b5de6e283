//! Where a request's body ends (RFC 9112 section 6).

use crate::classes::list_elements;
use crate::reject::{BODY_TOO_LARGE, Reject};
use crate::request::Version;

/// How the body of a request is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No body was announced.
    None,
    /// So many bytes follow; may be 0.
    Length(u64),
    /// Chunked transfer coding.
    Chunked,
}

/// Collects what the head says about the body, header by header, and decides at the end.
#[derive(Default)]
pub(crate) struct FramingRules {
    length: Option<u64>,
    codings: usize,
    chunked_codings: usize,
    last_coding: LastCoding,
    malformed_codings: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum LastCoding {
    #[default]
    Unknown,
    /// Registered (RFC 9112 section 7), but cannot end a message.
    Compression,
    Chunked,
}

impl FramingRules {
    /// Takes a Content-Length. Returns whether it repeats an earlier one: the repeat should be dropped
    /// (RFC 9110 section 8.6), one that differs is refused.
    pub(crate) fn content_length(&mut self, value: &[u8]) -> Result<bool, Reject> {
        let length = parse_length(value).ok_or(Reject::bad("malformed Content-Length"))?;
        match self.length.replace(length) {
            Some(earlier) if earlier != length => {
                Err(Reject::bad("Content-Length headers that differ"))
            }
            earlier => Ok(earlier.is_some()),
        }
    }

    pub(crate) fn transfer_encoding(&mut self, value: &[u8]) {
        for coding in list_elements(value) {
            self.codings += 1;
            self.malformed_codings |= coding.is_empty();
            self.last_coding = if coding.eq_ignore_ascii_case(b"chunked") {
                self.chunked_codings += 1;
                LastCoding::Chunked
            } else if COMPRESSIONS
                .iter()
                .any(|name| coding.eq_ignore_ascii_case(name))
            {
                LastCoding::Compression
            } else {
                LastCoding::Unknown
            };
        }
    }

    pub(crate) fn decide(&self, version: Version, body_bytes_max: u64) -> Result<Framing, Reject> {
        if self.codings > 0 {
            return self.decide_codings(version);
        }
        match self.length {
            None => Ok(Framing::None),
            Some(length) if length > body_bytes_max => Err(BODY_TOO_LARGE),
            Some(length) => Ok(Framing::Length(length)),
        }
    }

    #[cold]
    fn decide_codings(&self, version: Version) -> Result<Framing, Reject> {
        if self.length.is_some() {
            return Err(Reject::bad("both Transfer-Encoding and Content-Length"));
        }
        if version == Version::Http10 {
            return Err(Reject::bad("Transfer-Encoding on HTTP/1.0"));
        }
        if self.malformed_codings || self.chunked_codings > 1 {
            return Err(Reject::bad("malformed Transfer-Encoding"));
        }
        match (self.last_coding, self.codings) {
            (LastCoding::Chunked, 1) => Ok(Framing::Chunked),
            (LastCoding::Chunked, _) | (LastCoding::Unknown, 1) => {
                Err(Reject::new(501, "a transfer coding other than chunked"))
            }
            _ => Err(Reject::bad("the last transfer coding is not chunked")),
        }
    }
}

const COMPRESSIONS: [&[u8]; 5] = [b"gzip", b"deflate", b"compress", b"x-gzip", b"x-compress"];

/// `1*DIGIT` that fits a `u64`; neither sign, nor list, nor blank.
pub(crate) fn parse_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0u64, |length, byte| match byte {
        b'0'..=b'9' => length.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    })
}
