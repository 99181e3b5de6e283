//! What a request for a file gets, from its head and what is known of the file. No I/O.

use baton_server::http1::RequestHead;

use super::conditions::{self, Verdict};
use super::headers::{Single, single};
use super::ranges::{self, ByteRange, Selection};
use super::validators::Validators;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// 200
    Whole,
    /// 206
    Range(ByteRange),
    /// 206, multipart/byteranges
    Ranges(Vec<ByteRange>),
    /// 304
    NotModified,
    /// 412
    PreconditionFailed,
    /// 416
    RangeNotSatisfiable,
}

/// For a GET or HEAD: preconditions, then the range, as RFC 9110, section 13.2.2 has it. `len`: in bytes, in the
/// coding that was chosen.
pub fn plan(head: &RequestHead<'_>, current: &Validators, len: u64) -> Plan {
    match conditions::evaluate(head, current) {
        Verdict::Failed => return Plan::PreconditionFailed,
        Verdict::Unchanged => return Plan::NotModified,
        Verdict::Met => {}
    }
    // Section 14.2: Range is for GET only.
    let range = match single(head, "Range") {
        Single::Value(range) if head.method == "GET" => range,
        _ => return Plan::Whole,
    };
    if !conditions::range_applies(head, current) {
        return Plan::Whole;
    }
    match ranges::select(range, len) {
        Selection::Whole => Plan::Whole,
        Selection::One(range) => Plan::Range(range),
        Selection::Several(ranges) => Plan::Ranges(ranges),
        Selection::Unsatisfiable => Plan::RangeNotSatisfiable,
    }
}

#[cfg(test)]
mod tests {
    use super::super::headers::test_head;
    use super::*;

    #[test]
    fn conditions_go_before_ranges() {
        let current = Validators::new(784_111_777, 0, 1000, "", i64::MAX, true);
        let tag = current.etag.as_str();
        let range = ByteRange { first: 0, last: 9 };
        for (method, headers, expected) in [
            ("GET", String::new(), Plan::Whole),
            ("GET", "Range: bytes=0-9".into(), Plan::Range(range)),
            ("HEAD", "Range: bytes=0-9".into(), Plan::Whole),
            (
                "GET",
                "Range: bytes=1000-".into(),
                Plan::RangeNotSatisfiable,
            ),
            ("HEAD", "Range: bytes=1000-".into(), Plan::Whole),
            (
                "GET",
                "Range: bytes=0-9\nRange: bytes=0-9".into(),
                Plan::Whole,
            ),
            (
                "GET",
                format!("Range: bytes=0-9\nIf-Range: {tag}"),
                Plan::Range(range),
            ),
            (
                "GET",
                "Range: bytes=0-9\nIf-Range: \"old\"".into(),
                Plan::Whole,
            ),
            (
                "GET",
                "Range: bytes=1000-\nIf-Range: \"old\"".into(),
                Plan::Whole,
            ),
            (
                "GET",
                format!("Range: bytes=0-9\nIf-None-Match: {tag}"),
                Plan::NotModified,
            ),
            ("HEAD", format!("If-None-Match: {tag}"), Plan::NotModified),
            (
                "GET",
                format!("Range: bytes=1000-\nIf-None-Match: {tag}"),
                Plan::NotModified,
            ),
            (
                "GET",
                "Range: bytes=0-9\nIf-Match: \"old\"".into(),
                Plan::PreconditionFailed,
            ),
            (
                "GET",
                format!("Range: bytes=0-9\nIf-Match: {tag}\nIf-None-Match: \"old\""),
                Plan::Range(range),
            ),
        ] {
            test_head(method, &headers, |head| {
                assert_eq!(plan(head, &current, 1000), expected, "{method} {headers}");
            });
        }
    }
}
