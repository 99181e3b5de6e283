//! Durations as people write them: `500ms`, `10s`, `1m30s`, `2h`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub const SECOND_NS: u64 = 1_000_000_000;
/// The longest that anything here lasts: a week.
pub const SPAN_S_MAX: u64 = 7 * 24 * 3600;

/// A duration in nanoseconds, at most [`SPAN_S_MAX`] seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Span(u64);

const UNITS: [(&str, u64); 5] = [
    ("h", 3600 * SECOND_NS),
    ("m", 60 * SECOND_NS),
    ("s", SECOND_NS),
    ("ms", 1_000_000),
    ("us", 1_000),
];

impl Span {
    pub const fn seconds(seconds: u64) -> Span {
        Span(seconds * SECOND_NS)
    }

    pub const fn from_ns(ns: u64) -> Span {
        Span(ns)
    }

    pub const fn ns(self) -> u64 {
        self.0
    }

    pub fn as_seconds(self) -> f64 {
        self.0 as f64 / SECOND_NS as f64
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let wrong = || format!("`{text}` is no duration; write 500ms, 10s, 1m30s or 2h");
        let mut left = text;
        let mut sum_ns = 0.0;
        if text.is_empty() {
            return Err(wrong());
        }
        while !left.is_empty() {
            let digits = left
                .find(|c: char| !c.is_ascii_digit() && c != '.')
                .ok_or_else(wrong)?;
            let number: f64 = left[..digits].parse().map_err(|_| wrong())?;
            left = &left[digits..];
            let letters = left
                .find(|c: char| !c.is_ascii_lowercase())
                .unwrap_or(left.len());
            let unit = UNITS.iter().find(|(name, _)| *name == &left[..letters]);
            let (_, unit_ns) = unit.ok_or_else(wrong)?;
            sum_ns += number * *unit_ns as f64;
            left = &left[letters..];
        }
        if sum_ns > (SPAN_S_MAX * SECOND_NS) as f64 {
            return Err(format!("`{text}` is longer than a week"));
        }
        Ok(Span(sum_ns.round() as u64))
    }
}

impl TryFrom<String> for Span {
    type Error = String;

    fn try_from(text: String) -> Result<Span, String> {
        text.parse()
    }
}

impl From<Span> for String {
    fn from(span: Span) -> String {
        span.to_string()
    }
}

/// In the largest unit that needs no fraction, so that what is written can be read again.
impl fmt::Display for Span {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return out.write_str("0s");
        }
        for (name, unit_ns) in UNITS {
            if self.0.is_multiple_of(unit_ns) {
                return write!(out, "{}{name}", self.0 / unit_ns);
            }
        }
        write!(out, "{}us", self.0 as f64 / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_read() {
        for (text, ns) in [
            ("10s", 10 * SECOND_NS),
            ("500ms", SECOND_NS / 2),
            ("1.5s", SECOND_NS * 3 / 2),
            ("1m30s", 90 * SECOND_NS),
            ("2h", 7200 * SECOND_NS),
            ("250us", 250_000),
            ("0s", 0),
            ("168h", SPAN_S_MAX * SECOND_NS),
        ] {
            let span: Span = text.parse().expect(text);
            assert_eq!(span.ns(), ns, "{text}");
            assert_eq!(span.to_string().parse(), Ok(span), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "", "10", "s", "-1s", "1 s", "1s ", "10x", "1e3s", ".s", "..1s", "1.2.3s", "169h",
            "inf", "NaNs", "10S", "٣s",
        ] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }
}
