//! The encoded reply head, first thing in a slot's ring. Informational heads (1xx) may precede
//! the final one; after the final one the ring holds body bytes until the reply's end.
//!
//! ```text
//!   0   u32  bytes in all, these four included
//!   4   u16  status
//!   6   u16  number of headers
//!   8   per header: u16 length of the name, u32 length of the value, name, value
//! ```
//!
//! The front decodes a copy of it. Whether names and values are fit to be sent is for the HTTP
//! room to say; here only the lengths have to add up.

use crate::layout::REPLY_HEAD_BYTES_MAX;

const FIXED_BYTES: usize = 8;
const HEADER_BYTES: usize = 6;

/// Bytes of the length in front of a head.
pub const LENGTH_BYTES: usize = 4;

/// The head would not fit [`REPLY_HEAD_BYTES_MAX`], or has more than 65,535 headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

/// Appends the encoded head to `out`; leaves `out` as it was on an error.
pub fn encode<'h>(
    out: &mut Vec<u8>,
    status: u16,
    headers: impl Iterator<Item = (&'h [u8], &'h [u8])>,
) -> Result<(), TooLarge> {
    let start = out.len();
    out.extend_from_slice(&[0; FIXED_BYTES]);
    let mut count: u16 = 0;
    for (name, value) in headers {
        let bytes = out.len() - start + HEADER_BYTES + name.len() + value.len();
        let (Ok(name_len), Some(next)) = (u16::try_from(name.len()), count.checked_add(1)) else {
            out.truncate(start);
            return Err(TooLarge);
        };
        if bytes > REPLY_HEAD_BYTES_MAX {
            out.truncate(start);
            return Err(TooLarge);
        }
        count = next;
        out.extend_from_slice(&name_len.to_ne_bytes());
        out.extend_from_slice(&(value.len() as u32).to_ne_bytes());
        out.extend_from_slice(name);
        out.extend_from_slice(value);
    }
    let total = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&total.to_ne_bytes());
    out[start + 4..start + 6].copy_from_slice(&status.to_ne_bytes());
    out[start + 6..start + 8].copy_from_slice(&count.to_ne_bytes());
    Ok(())
}

/// The length that a head claims, if it is a possible one.
pub fn claimed_length(prefix: [u8; LENGTH_BYTES]) -> Option<usize> {
    let len = u32::from_ne_bytes(prefix) as usize;
    (FIXED_BYTES..=REPLY_HEAD_BYTES_MAX)
        .contains(&len)
        .then_some(len)
}

/// A decoded head: every length in it has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'c> {
    pub status: u16,
    headers: &'c [u8],
}

impl<'c> Head<'c> {
    /// `None` if the lengths do not add up to exactly `bytes`, or the status is not 100..=999.
    pub fn decode(bytes: &'c [u8]) -> Option<Self> {
        let total = claimed_length(bytes.get(..4)?.try_into().ok()?)?;
        let status = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
        let count = u16::from_ne_bytes(bytes.get(6..8)?.try_into().ok()?);
        if total != bytes.len() || !(100..=999).contains(&status) {
            return None;
        }
        let headers = &bytes[FIXED_BYTES..];
        let mut rest = headers;
        for _ in 0..count {
            rest = split_header(rest)?.1;
        }
        rest.is_empty().then_some(Self { status, headers })
    }

    pub fn is_informational(&self) -> bool {
        self.status < 200
    }

    /// Name and value of each header, in order.
    pub fn headers(&self) -> Headers<'c> {
        Headers { rest: self.headers }
    }
}

#[derive(Clone)]
pub struct Headers<'c> {
    rest: &'c [u8],
}

impl<'c> Iterator for Headers<'c> {
    type Item = (&'c [u8], &'c [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (header, rest) = split_header(self.rest)?;
        self.rest = rest;
        Some(header)
    }
}

type Header<'c> = (&'c [u8], &'c [u8]);

fn split_header(bytes: &[u8]) -> Option<(Header<'_>, &[u8])> {
    let (fixed, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let name_len = u16::from_ne_bytes([fixed[0], fixed[1]]) as usize;
    let value_len = u32::from_ne_bytes([fixed[2], fixed[3], fixed[4], fixed[5]]) as usize;
    let (name, rest) = rest.split_at_checked(name_len)?;
    let (value, rest) = rest.split_at_checked(value_len)?;
    Some(((name, value), rest))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn encoded(status: u16, headers: &[Header<'_>]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&mut out, status, headers.iter().copied()).expect("fits");
        out
    }

    #[test]
    fn a_head_comes_back_as_it_went() {
        let headers: [Header<'_>; 2] = [(b"Content-Type", b"text/html"), (b"X-Empty", b"")];
        let bytes = encoded(404, &headers);
        let head = Head::decode(&bytes).expect("well formed");
        assert_eq!(head.status, 404);
        assert_eq!(head.headers().collect::<Vec<_>>(), headers);
    }

    #[test]
    fn any_flipped_or_missing_byte_is_survived() {
        let bytes = encoded(200, &[(b"A", b"bc"), (b"Def", b"g")]);
        for at in 0..bytes.len() {
            assert_eq!(Head::decode(&bytes[..at]), None);
            for flip in 1..=255 {
                let mut torn = bytes.clone();
                torn[at] ^= flip;
                if let Some(head) = Head::decode(&torn) {
                    assert!(head.headers().count() <= bytes.len());
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_leaves_nothing_behind() {
        let long = vec![b'x'; REPLY_HEAD_BYTES_MAX];
        let mut out = b"before".to_vec();
        let headers: [Header<'_>; 2] = [(b"A", b"b"), (b"X", &long)];
        assert_eq!(encode(&mut out, 200, headers.into_iter()), Err(TooLarge));
        assert_eq!(out, b"before");
    }
}
