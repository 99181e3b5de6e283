//! The encoded request head: what the front writes into a cell and the guest reads in place.
//!
//! ```text
//!   0   u32  bytes in all                    each entry: u32 offset, u32 length of a string;
//!   4   u32  number of headers               fields first, in the order of `Field`,
//!   8   i64  wall clock of arrival, ns       then name and value of each header
//!  16   entries
//!   .   strings, each followed by a NUL that its length does not count
//! ```
//!
//! Integers are in the machine's byte order: both sides are on one machine. The guest trusts the
//! front, yet reads with checked slices: a bug here must not become one in an interpreter.

use crate::layout::REQUEST_HEAD_BYTES_MAX;

/// The strings that every request has; empty where it does not apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Field {
    Method = 0,
    /// As sent, without the fragment.
    Target,
    /// Decoded, without dot segments.
    Path,
    /// Without the question mark.
    Query,
    /// `HTTP/1.1` or `HTTP/1.0`.
    Protocol,
    /// `http` or `https`.
    Scheme,
    /// Without the port; IPv6 in brackets.
    Host,
    ServerAddr,
    ServerPort,
    RemoteAddr,
    RemotePort,
    DocumentRoot,
    ScriptName,
    ScriptFilename,
    PathInfo,
    RequestId,
}

impl Field {
    pub const COUNT: usize = Field::RequestId as usize + 1;
}

const FIXED_BYTES: usize = 16;
const ENTRY_BYTES: usize = 8;

/// The encoded head would not fit [`REQUEST_HEAD_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

/// Appends an encoded head to `out`, which must be empty. `header_count` must be the number of
/// items that `headers` yields. On an error `out` has to be cleared.
pub fn encode<'h>(
    out: &mut Vec<u8>,
    received_ns: i64,
    fields: &[&[u8]; Field::COUNT],
    header_count: usize,
    headers: impl Iterator<Item = (&'h [u8], &'h [u8])>,
) -> Result<(), TooLarge> {
    debug_assert!(out.is_empty());
    let entries = Field::COUNT + 2 * header_count;
    let strings = FIXED_BYTES + ENTRY_BYTES * entries;
    if strings > REQUEST_HEAD_BYTES_MAX {
        return Err(TooLarge);
    }
    out.resize(strings, 0);
    let mut entry = FIXED_BYTES;
    let mut add = |out: &mut Vec<u8>, string: &[u8]| {
        if out.len() + string.len() + 1 > REQUEST_HEAD_BYTES_MAX {
            return Err(TooLarge);
        }
        // Both fit: the sum was just compared with 64 KiB.
        let (offset, len) = (out.len() as u32, string.len() as u32);
        out.extend_from_slice(string);
        out.push(0);
        out[entry..entry + 4].copy_from_slice(&offset.to_ne_bytes());
        out[entry + 4..entry + 8].copy_from_slice(&len.to_ne_bytes());
        entry += ENTRY_BYTES;
        Ok(())
    };
    for field in fields {
        add(out, field)?;
    }
    let mut counted = 0;
    for (name, value) in headers.take(header_count) {
        add(out, name)?;
        add(out, value)?;
        counted += 1;
    }
    debug_assert_eq!(counted, header_count);
    let total = out.len() as u32;
    out[0..4].copy_from_slice(&total.to_ne_bytes());
    out[4..8].copy_from_slice(&(header_count as u32).to_ne_bytes());
    out[8..16].copy_from_slice(&received_ns.to_ne_bytes());
    Ok(())
}

/// An encoded head, read in place.
#[derive(Clone, Copy)]
pub struct Head<'c> {
    bytes: &'c [u8],
    header_count: u32,
}

impl<'c> Head<'c> {
    /// `None` if `bytes` is no encoded head.
    pub fn new(bytes: &'c [u8]) -> Option<Self> {
        let total = u32_at(bytes, 0)? as usize;
        let header_count = u32_at(bytes, 4)?;
        let bytes = bytes.get(..total)?;
        let entries = Field::COUNT + 2 * header_count as usize;
        (FIXED_BYTES + ENTRY_BYTES * entries <= total).then_some(Self {
            bytes,
            header_count,
        })
    }

    pub fn received_ns(&self) -> i64 {
        self.bytes
            .get(8..16)
            .and_then(|b| b.try_into().ok())
            .map_or(0, i64::from_ne_bytes)
    }

    pub fn field(&self, field: Field) -> &'c [u8] {
        self.string(field as usize)
    }

    /// As [`Head::field`], by number. Empty past the last.
    pub fn field_at(&self, index: usize) -> &'c [u8] {
        if index < Field::COUNT {
            self.string(index)
        } else {
            &[]
        }
    }

    pub fn header_count(&self) -> u32 {
        self.header_count
    }

    pub fn header(&self, index: u32) -> Option<(&'c [u8], &'c [u8])> {
        let entry = Field::COUNT + 2 * index as usize;
        (index < self.header_count).then(|| (self.string(entry), self.string(entry + 1)))
    }

    fn string(&self, entry: usize) -> &'c [u8] {
        let at = FIXED_BYTES + ENTRY_BYTES * entry;
        let found = || {
            let offset = u32_at(self.bytes, at)? as usize;
            let len = u32_at(self.bytes, at + 4)? as usize;
            self.bytes.get(offset..offset.checked_add(len)?)
        };
        found().unwrap_or(&[])
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn fields() -> [&'static [u8]; Field::COUNT] {
        let mut fields: [&[u8]; Field::COUNT] = [b""; Field::COUNT];
        fields[Field::Method as usize] = b"GET";
        fields[Field::RequestId as usize] = b"0123456789abcdef";
        fields
    }

    fn encoded(received_ns: i64, headers: &[(&[u8], &[u8])]) -> Result<Vec<u8>, TooLarge> {
        let mut out = Vec::new();
        encode(
            &mut out,
            received_ns,
            &fields(),
            headers.len(),
            headers.iter().copied(),
        )?;
        Ok(out)
    }

    #[test]
    fn a_head_comes_back_as_it_went() {
        let headers: [(&[u8], &[u8]); 2] = [(b"Host", b"localhost"), (b"X-Empty", b"")];
        let bytes = encoded(42, &headers).expect("fits");
        let head = Head::new(&bytes).expect("well formed");
        assert_eq!(head.received_ns(), 42);
        assert_eq!(head.field(Field::Method), b"GET");
        assert_eq!(head.field(Field::Query), b"");
        assert_eq!(head.field(Field::RequestId), b"0123456789abcdef");
        assert_eq!(head.header(0), Some(headers[0]));
        assert_eq!(head.header(1), Some(headers[1]));
        assert_eq!(head.header(2), None);
    }

    #[test]
    fn strings_are_followed_by_a_nul() {
        let bytes = encoded(0, &[]).expect("fits");
        assert!(bytes.windows(4).any(|w| w == b"GET\0"));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let long = vec![b'x'; REQUEST_HEAD_BYTES_MAX];
        assert_eq!(encoded(0, &[(b"X", &long)]), Err(TooLarge));
        let many: Vec<(&[u8], &[u8])> = vec![(b"", b""); 10_000];
        assert_eq!(encoded(0, &many), Err(TooLarge));
    }

    #[test]
    fn torn_heads_are_empty_not_fatal() {
        let bytes = encoded(0, &[(b"A", b"b")]).expect("fits");
        for at in 0..bytes.len() {
            let mut torn = bytes.clone();
            torn[at] ^= 0xff;
            if let Some(head) = Head::new(&torn) {
                for index in 0..=Field::COUNT {
                    let _ = head.field_at(index);
                }
                for index in 0..head.header_count().min(1000) {
                    let _ = head.header(index);
                }
            }
            assert!(Head::new(&bytes[..at]).is_none());
        }
    }
}
