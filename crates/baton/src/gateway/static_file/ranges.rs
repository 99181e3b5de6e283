//! Which bytes a Range header asks for: RFC 9110, section 14.

use std::fmt;

/// More ranges than this are asked for by nobody in good faith: the header is ignored (section 14.2).
const RANGES_MAX: usize = 16;
/// Ranges that are nearer to each other go out as one: the bytes between cost less than another part's head.
const GAP_BYTES_MAX: u64 = 80;

/// At least one byte of a representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    pub first: u64,
    pub last: u64,
}

impl ByteRange {
    pub fn len(self) -> u64 {
        self.last - self.first + 1
    }
}

/// As in Content-Range, without the length of the whole.
impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bytes {}-{}", self.first, self.last)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The header is to be ignored: malformed, another unit, too many ranges, or nothing to choose from.
    Whole,
    One(ByteRange),
    /// Two or more that are apart; in the order of the request, unless some were joined.
    Several(Vec<ByteRange>),
    /// None begins within the file.
    Unsatisfiable,
}

/// `header`: the value of Range. `len`: of the whole, in bytes.
pub fn select(header: &str, len: u64) -> Selection {
    let specs = match parse(header) {
        Some(specs) if len > 0 => specs,
        // Some clients ask for a range of whatever they fetch; of an empty file there is none.
        _ => return Selection::Whole,
    };
    let asked: Vec<ByteRange> = specs
        .into_iter()
        .filter_map(|spec| spec.within(len))
        .collect();
    let joined = join(&asked);
    match (joined.len(), joined.first()) {
        (_, None) => Selection::Unsatisfiable,
        (1, Some(range)) => Selection::One(*range),
        (count, _) if count == asked.len() => Selection::Several(asked),
        _ => Selection::Several(joined),
    }
}

#[derive(Clone, Copy)]
enum Spec {
    From { first: u64, last: u64 },
    Last { count: u64 },
}

impl Spec {
    fn within(self, len: u64) -> Option<ByteRange> {
        let last = len - 1;
        match self {
            Spec::From { first, .. } if first > last => None,
            Spec::From { first, last: end } => Some(ByteRange {
                first,
                last: end.min(last),
            }),
            Spec::Last { count: 0 } => None,
            Spec::Last { count } => Some(ByteRange {
                first: len.saturating_sub(count),
                last,
            }),
        }
    }
}

/// `None` for what is no valid set of byte ranges, and for more of them than anybody needs.
fn parse(header: &str) -> Option<Vec<Spec>> {
    let (unit, set) = header.split_once('=')?;
    if !unit.eq_ignore_ascii_case("bytes") {
        return None;
    }
    let mut specs = Vec::new();
    for element in set.split(',') {
        let element = element.trim_matches([' ', '\t']);
        if element.is_empty() {
            continue;
        }
        if specs.len() == RANGES_MAX {
            return None;
        }
        let spec = match element.split_once('-')? {
            ("", count) => Spec::Last {
                count: number(count)?,
            },
            (first, "") => Spec::From {
                first: number(first)?,
                last: u64::MAX,
            },
            (first, last) => Spec::From {
                first: number(first)?,
                last: number(last)?,
            },
        };
        if matches!(spec, Spec::From { first, last } if first > last) {
            return None;
        }
        specs.push(spec);
    }
    (!specs.is_empty()).then_some(specs)
}

/// Digits only. What no file can be as long as is as good as infinite.
fn number(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

/// In the order of the file, those that overlap or nearly touch made one.
fn join(asked: &[ByteRange]) -> Vec<ByteRange> {
    let mut sorted = asked.to_vec();
    sorted.sort_unstable_by_key(|range| range.first);
    sorted.dedup_by(|next, before| {
        let is_near = next.first.saturating_sub(before.last) <= GAP_BYTES_MAX + 1;
        if is_near {
            before.last = before.last.max(next.last);
        }
        is_near
    });
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(first: u64, last: u64) -> Selection {
        Selection::One(ByteRange { first, last })
    }

    fn several(ranges: &[(u64, u64)]) -> Selection {
        let ranges = ranges.iter();
        Selection::Several(
            ranges
                .map(|&(first, last)| ByteRange { first, last })
                .collect(),
        )
    }

    #[test]
    fn single_ranges() {
        for (header, expected) in [
            ("bytes=0-0", one(0, 0)),
            ("bytes=0-499", one(0, 499)),
            ("bytes=500-", one(500, 999)),
            ("bytes=-1", one(999, 999)),
            ("bytes=-2000", one(0, 999)),
            ("bytes=990-5000", one(990, 999)),
            ("BYTES=0-1", one(0, 1)),
            ("bytes= 0-1 ", one(0, 1)),
            ("bytes=,0-1,", one(0, 1)),
            ("bytes=0-99999999999999999999999999", one(0, 999)),
            ("bytes=-99999999999999999999999999", one(0, 999)),
        ] {
            assert_eq!(select(header, 1000), expected, "{header}");
        }
    }

    #[test]
    fn what_begins_behind_the_end_cannot_be_satisfied() {
        for header in [
            "bytes=1000-",
            "bytes=1000-1001",
            "bytes=99999999999999999999999999-",
            "bytes=-0",
            "bytes=1000-,-0",
        ] {
            assert_eq!(select(header, 1000), Selection::Unsatisfiable, "{header}");
        }
    }

    #[test]
    fn what_is_malformed_is_ignored() {
        for header in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=-",
            "bytes=5",
            "bytes=5-2",
            "bytes=0-1,5-2",
            "bytes=+1-2",
            "bytes=1--2",
            "bytes=a-b",
            "bytes=0x1-2",
            "bytes=1 - 2",
            "bytes =0-1",
            "lines=0-1",
            "0-1",
        ] {
            assert_eq!(select(header, 1000), Selection::Whole, "{header}");
        }
    }

    #[test]
    fn an_empty_file_has_no_ranges() {
        for header in ["bytes=0-", "bytes=-5", "bytes=0-0"] {
            assert_eq!(select(header, 0), Selection::Whole, "{header}");
        }
    }

    #[test]
    fn several_ranges_keep_their_order_unless_they_are_joined() {
        for (header, expected) in [
            ("bytes=0-9,500-509", several(&[(0, 9), (500, 509)])),
            ("bytes=500-509, 0-9", several(&[(500, 509), (0, 9)])),
            ("bytes=0-9,-10", several(&[(0, 9), (990, 999)])),
            ("bytes=0-9,5000-", one(0, 9)),
            ("bytes=0-9,10-19", one(0, 19)),
            ("bytes=0-9,0-9,0-9", one(0, 9)),
            ("bytes=5-9,0-100", one(0, 100)),
            ("bytes=0-,500-", one(0, 999)),
            ("bytes=0-9,90-99", one(0, 99)),
            ("bytes=0-9,91-99", several(&[(0, 9), (91, 99)])),
            ("bytes=500-509,0-9,505-600", several(&[(0, 9), (500, 600)])),
        ] {
            assert_eq!(select(header, 1000), expected, "{header}");
        }
    }

    #[test]
    fn the_number_of_ranges_is_bounded() {
        let header = |count: u64| {
            let ranges: Vec<String> = (0..count)
                .map(|i| format!("{}-{}", i * 1000, i * 1000))
                .collect();
            format!("bytes={}", ranges.join(","))
        };
        let len = 1_000_000;
        assert!(matches!(select(&header(16), len), Selection::Several(all) if all.len() == 16));
        assert_eq!(select(&header(17), len), Selection::Whole);
    }
}
