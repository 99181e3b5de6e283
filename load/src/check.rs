//! What a reply has to be, beyond well-formed.

use std::fmt;
use std::str::FromStr;

use memchr::memmem::Finder;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::kind::Kind;
use crate::reply::Reply;

const TEXT_BYTES_MAX: usize = 4096;

/// What is expected of each reply to a target.
pub struct Check {
    statuses: Statuses,
    length: Option<u64>,
    text: Option<Finder<'static>>,
    sha256: Option<[u8; 32]>,
}

/// As options and scenario files say it.
#[derive(Clone, Debug, Default, PartialEq, clap::Args, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Expect {
    /// Statuses that are no error, such as 200,204,300-399 [default: 200-399]
    #[arg(long = "expect-status", value_name = "LIST")]
    pub status: Option<Statuses>,

    /// Length of each reply's body, in bytes, transfer coding removed
    #[arg(long = "expect-length", value_name = "BYTES")]
    pub length: Option<u64>,

    /// Text that must occur in each reply's body, up to 4096 bytes
    #[arg(long = "expect-text", value_name = "TEXT")]
    pub text: Option<String>,

    /// SHA-256 of each reply's body, in hexadecimal as sha256sum prints it
    #[arg(long = "expect-sha256", value_name = "HEX")]
    pub sha256: Option<String>,
}

impl Expect {
    pub fn or(self, other: &Expect) -> Expect {
        Expect {
            status: self.status.or_else(|| other.status.clone()),
            length: self.length.or(other.length),
            text: self.text.or_else(|| other.text.clone()),
            sha256: self.sha256.or_else(|| other.sha256.clone()),
        }
    }

    pub fn check(&self) -> Result<Check, String> {
        let text = match self.text.as_deref() {
            Some(text) if text.is_empty() || text.len() > TEXT_BYTES_MAX => {
                return Err(format!(
                    "the expected text must have 1 to {TEXT_BYTES_MAX} bytes"
                ));
            }
            Some(text) => Some(Finder::new(text).into_owned()),
            None => None,
        };
        Ok(Check {
            statuses: self.status.clone().unwrap_or_default(),
            length: self.length,
            text,
            sha256: self.sha256.as_deref().map(digest).transpose()?,
        })
    }
}

fn digest(text: &str) -> Result<[u8; 32], String> {
    let wrong = || format!("`{text}` is no SHA-256: 64 hexadecimal digits are expected");
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let mut digest = [0; 32];
    for (byte, digits) in digest.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
    }
    Ok(digest)
}

impl Check {
    /// Otherwise only lengths are looked at, and no byte of a body.
    #[inline]
    pub fn reads_body(&self) -> bool {
        self.text.is_some() || self.sha256.is_some()
    }

    /// None: as it should be. Makes `watch` ready for the next reply.
    #[inline]
    pub fn verdict(&self, reply: &Reply, watch: &mut Watch) -> Option<Kind> {
        let body = match self.reads_body() {
            true => self.body(watch),
            false => None,
        };
        if !self.statuses.contains(reply.status) {
            return Some(Kind::Status);
        }
        if self.length.is_some_and(|length| length != reply.body_bytes) {
            return Some(Kind::Length);
        }
        body
    }

    #[cold]
    fn body(&self, watch: &mut Watch) -> Option<Kind> {
        let found = std::mem::take(&mut watch.found);
        watch.tail.clear();
        let sum = watch.sum.finalize_reset();
        if self.text.is_some() && !found {
            return Some(Kind::Text);
        }
        self.sha256
            .is_some_and(|expected| sum[..] != expected)
            .then_some(Kind::Hash)
    }
}

/// What has been seen of one reply's body.
#[derive(Default)]
pub struct Watch {
    found: bool,
    /// The end of what came, in which the text may have begun.
    tail: Vec<u8>,
    sum: Sha256,
}

impl Watch {
    /// The reply has been given up.
    pub fn reset(&mut self) {
        *self = Watch::default();
    }

    pub fn body(&mut self, check: &Check, data: &[u8]) {
        if check.sha256.is_some() {
            self.sum.update(data);
        }
        let Some(finder) = &check.text else {
            return;
        };
        if self.found {
            return;
        }
        let overlap = finder.needle().len() - 1;
        let seam = self.tail.len();
        self.tail
            .extend_from_slice(&data[..data.len().min(overlap)]);
        self.found = seam > 0 && finder.find(&self.tail).is_some() || finder.find(data).is_some();
        if data.len() >= overlap {
            self.tail.clear();
            self.tail.extend_from_slice(&data[data.len() - overlap..]);
        } else {
            let surplus = self.tail.len().saturating_sub(overlap);
            self.tail.drain(..surplus);
        }
    }
}

/// A set of statuses.
#[derive(Clone, PartialEq, Deserialize, Serialize)]
#[serde(try_from = "Written", into = "String")]
pub struct Statuses {
    text: String,
    bits: [u64; 16],
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    One(u16),
    List(String),
}

impl Statuses {
    #[inline]
    pub fn contains(&self, status: u16) -> bool {
        let bits = self
            .bits
            .get(usize::from(status / 64))
            .copied()
            .unwrap_or(0);
        bits >> (status % 64) & 1 != 0
    }
}

impl Default for Statuses {
    fn default() -> Statuses {
        "200-399".parse().expect("a good list")
    }
}

impl FromStr for Statuses {
    type Err = String;

    fn from_str(text: &str) -> Result<Statuses, String> {
        let wrong = || format!("`{text}` is no list of statuses such as 200,204,300-399");
        let mut statuses = Statuses {
            text: text.into(),
            bits: [0; 16],
        };
        for range in text.split(',') {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            let number = |text: &str| -> Result<u16, String> {
                match text.parse() {
                    Ok(status @ 200..=999) if text.len() == 3 => Ok(status),
                    _ => Err(wrong()),
                }
            };
            let (from, to) = (number(from.trim())?, number(to.trim())?);
            if from > to {
                return Err(wrong());
            }
            for status in from..=to {
                statuses.bits[usize::from(status / 64)] |= 1 << (status % 64);
            }
        }
        Ok(statuses)
    }
}

impl TryFrom<Written> for Statuses {
    type Error = String;

    fn try_from(written: Written) -> Result<Statuses, String> {
        match written {
            Written::One(status) => status.to_string().parse(),
            Written::List(text) => text.parse(),
        }
    }
}

impl From<Statuses> for String {
    fn from(statuses: Statuses) -> String {
        statuses.text
    }
}

impl fmt::Debug for Statuses {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn verdict(expect: &Expect, status: u16, pieces: &[&[u8]]) -> Option<Kind> {
        let (check, mut watch) = (expect.check().expect("good"), Watch::default());
        pieces.iter().for_each(|piece| watch.body(&check, piece));
        let reply = Reply {
            status,
            body_bytes: pieces.iter().map(|piece| piece.len() as u64).sum(),
            close: false,
        };
        let first = check.verdict(&reply, &mut watch);
        // The next reply is judged afresh.
        pieces.iter().for_each(|piece| watch.body(&check, piece));
        assert_eq!(check.verdict(&reply, &mut watch), first);
        first
    }

    #[test]
    fn statuses_are_lists_and_ranges() {
        let statuses: Statuses = "200,204,300-302".parse().expect("good");
        let found: Vec<_> = (0..2000)
            .filter(|status| statuses.contains(*status))
            .collect();
        assert_eq!(found, [200, 204, 300, 301, 302]);
        for text in [
            "", "20", "2000", "199", "300-200", "200-", "2x0", "+20", "200,,201",
        ] {
            assert!(text.parse::<Statuses>().is_err(), "{text}");
        }
    }

    #[test]
    fn each_expectation_has_its_own_error() {
        let body: &[&[u8]] = &[b"hel", b"lo"];
        let default = Expect::default();
        assert_eq!(verdict(&default, 200, body), None);
        assert_eq!(verdict(&default, 503, body), Some(Kind::Status));
        let length = |length| Expect {
            length: Some(length),
            ..Expect::default()
        };
        assert_eq!(verdict(&length(5), 200, body), None);
        assert_eq!(verdict(&length(6), 200, body), Some(Kind::Length));
        let text = |text: &str| Expect {
            text: Some(text.into()),
            ..Expect::default()
        };
        assert_eq!(verdict(&text("ell"), 200, body), None);
        assert_eq!(verdict(&text("hello"), 200, body), None);
        assert_eq!(verdict(&text("hello!"), 200, body), Some(Kind::Text));
        let hash = |hex: &str| Expect {
            sha256: Some(hex.into()),
            ..Expect::default()
        };
        let hello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
        assert_eq!(verdict(&hash(hello), 200, body), None);
        assert_eq!(verdict(&hash(hello), 200, &[b"Hello"]), Some(Kind::Hash));
        assert!(hash("abc").check().is_err() && hash(&"ä".repeat(32)).check().is_err());
        assert!(text("").check().is_err());
    }

    proptest! {
        #[test]
        fn a_text_is_found_however_the_body_is_cut(body in "[ab]{0,60}", text in "[ab]{1,6}", cuts in proptest::collection::vec(0_usize..60, 0..8)) {
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % (body.len() + 1)).collect();
            cuts.extend([0, body.len()]);
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|window| &body.as_bytes()[window[0]..window[1]]).collect();
            let expect = Expect { text: Some(text.clone()), ..Expect::default() };
            prop_assert_eq!(verdict(&expect, 200, &pieces).is_none(), body.contains(&text));
        }
    }
}
