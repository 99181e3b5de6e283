//! Conditional requests: RFC 9110, section 13.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use baton_server::http1::RequestHead;

use super::headers::{Single, lines, single};
use super::validators::Validators;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Met,
    /// What the client has is still good: 304.
    Unchanged,
    /// 412
    Failed,
}

/// The preconditions of a GET or HEAD in their order of precedence, section 13.2.2.
pub fn evaluate(head: &RequestHead<'_>, current: &Validators) -> Verdict {
    let has = |name| lines(head, name).next().is_some();
    if has("If-Match") {
        if !lists(head, "If-Match", current, Comparison::Strong) {
            return Verdict::Failed;
        }
    } else if date(head, "If-Unmodified-Since").is_some_and(|since| modified(current) > since) {
        return Verdict::Failed;
    }
    let is_unchanged = if has("If-None-Match") {
        lists(head, "If-None-Match", current, Comparison::Weak)
    } else {
        date(head, "If-Modified-Since").is_some_and(|since| modified(current) <= since)
    };
    match is_unchanged {
        true => Verdict::Unchanged,
        false => Verdict::Met,
    }
}

/// Whether a Range may be honoured: there is no If-Range, or it names what is there now (section 13.1.5).
pub fn range_applies(head: &RequestHead<'_>, current: &Validators) -> bool {
    match single(head, "If-Range") {
        Single::Absent => true,
        // A strong tag is written without W/, so a weak one is not equal to it.
        Single::Value(value) => {
            current.is_strong
                && (value == current.etag || parse_date(value) == Some(modified(current)))
        }
        Single::Unclear => false,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

/// Whether a list of entity tags names the current one, or is `*`. What follows a malformed tag is not read.
fn lists(
    head: &RequestHead<'_>,
    name: &'static str,
    current: &Validators,
    comparison: Comparison,
) -> bool {
    lines(head, name)
        .any(|line| line == b"*" || tags(line).any(|tag| tag.is_current(current, comparison)))
}

struct Tag<'h> {
    is_weak: bool,
    opaque: &'h [u8],
}

impl Tag<'_> {
    /// Section 8.8.3.2.
    fn is_current(&self, current: &Validators, comparison: Comparison) -> bool {
        let is_comparable = comparison == Comparison::Weak || (current.is_strong && !self.is_weak);
        is_comparable && self.opaque == current.opaque().as_bytes()
    }
}

fn tags(mut rest: &[u8]) -> impl Iterator<Item = Tag<'_>> {
    std::iter::from_fn(move || {
        while let [b' ' | b'\t' | b',', after @ ..] = rest {
            rest = after;
        }
        let is_weak = rest.starts_with(b"W/");
        let quoted = if is_weak { &rest[2..] } else { rest };
        let text = quoted.strip_prefix(b"\"")?;
        let end = text.iter().position(|&byte| byte == b'"')?;
        rest = &text[end + 1..];
        let opaque = &text[..end];
        Some(Tag { is_weak, opaque })
    })
}

fn modified(current: &Validators) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(current.modified_s.unsigned_abs())
}

/// `None` also for what is no date: such a header is to be ignored.
fn date(head: &RequestHead<'_>, name: &'static str) -> Option<SystemTime> {
    match single(head, name) {
        Single::Value(text) => parse_date(text),
        Single::Absent | Single::Unclear => None,
    }
}

fn parse_date(text: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(text).ok()
}

#[cfg(test)]
mod tests {
    use super::super::headers::test_head;
    use super::*;

    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn current(is_strong: bool) -> Validators {
        Validators {
            etag: if is_strong { "\"now\"" } else { "W/\"now\"" }.into(),
            last_modified: *b"Sun, 06 Nov 1994 08:49:37 GMT",
            modified_s: 784_111_777,
            is_strong,
        }
    }

    fn verdict(headers: &str) -> Verdict {
        test_head("GET", headers, |head| evaluate(head, &current(true)))
    }

    #[test]
    fn if_none_match() {
        for unchanged in [
            "\"now\"",
            "W/\"now\"",
            "*",
            "\"old\", \"now\"",
            " ,, \"old\" ,\t\"now\",",
            "\"a,b\", \"now\"",
            "\"old\"\nIf-None-Match: \"now\"",
        ] {
            assert_eq!(
                verdict(&format!("If-None-Match: {unchanged}")),
                Verdict::Unchanged,
                "{unchanged}"
            );
        }
        for met in [
            "\"old\"",
            "now",
            "",
            "\"now",
            "w/\"now\"",
            "\"old\" x \"now\"",
            "\"*\"",
        ] {
            assert_eq!(
                verdict(&format!("If-None-Match: {met}")),
                Verdict::Met,
                "{met}"
            );
        }
    }

    #[test]
    fn if_modified_since() {
        for (since, expected) in [
            (DATE, Verdict::Unchanged),
            (AFTER, Verdict::Unchanged),
            (BEFORE, Verdict::Met),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Verdict::Unchanged),
            ("Sun Nov  6 08:49:37 1994", Verdict::Unchanged),
            ("yesterday", Verdict::Met),
            ("", Verdict::Met),
            ("\u{e9}", Verdict::Met),
            (&format!("{DATE}\nIf-Modified-Since: {DATE}"), Verdict::Met),
        ] {
            assert_eq!(
                verdict(&format!("If-Modified-Since: {since}")),
                expected,
                "{since}"
            );
        }
    }

    #[test]
    fn if_match_compares_strongly() {
        for (tags, expected) in [
            ("\"now\"", Verdict::Met),
            ("\"old\", \"now\"", Verdict::Met),
            ("*", Verdict::Met),
            ("\"old\"", Verdict::Failed),
            ("W/\"now\"", Verdict::Failed),
            ("", Verdict::Failed),
        ] {
            assert_eq!(verdict(&format!("If-Match: {tags}")), expected, "{tags}");
        }
        test_head("GET", "If-Match: W/\"now\", \"now\"", |head| {
            assert_eq!(evaluate(head, &current(false)), Verdict::Failed);
        });
    }

    #[test]
    fn if_unmodified_since() {
        for (since, expected) in [
            (DATE, Verdict::Met),
            (AFTER, Verdict::Met),
            (BEFORE, Verdict::Failed),
            ("yesterday", Verdict::Met),
        ] {
            let headers = format!("If-Unmodified-Since: {since}");
            assert_eq!(verdict(&headers), expected, "{since}");
        }
    }

    #[test]
    fn precedence() {
        for (headers, expected) in [
            // Tags go before dates.
            (
                format!("If-None-Match: \"old\"\nIf-Modified-Since: {DATE}"),
                Verdict::Met,
            ),
            (
                format!("If-None-Match: \"now\"\nIf-Modified-Since: {BEFORE}"),
                Verdict::Unchanged,
            ),
            (
                format!("If-Match: \"now\"\nIf-Unmodified-Since: {BEFORE}"),
                Verdict::Met,
            ),
            (
                format!("If-Match: \"old\"\nIf-Unmodified-Since: {DATE}"),
                Verdict::Failed,
            ),
            // What asks to fail goes before what asks for nothing.
            (
                "If-None-Match: \"now\"\nIf-Match: \"old\"".into(),
                Verdict::Failed,
            ),
            (
                "If-None-Match: \"now\"\nIf-Match: \"now\"".into(),
                Verdict::Unchanged,
            ),
            (
                format!("If-Unmodified-Since: {BEFORE}\nIf-Modified-Since: {DATE}"),
                Verdict::Failed,
            ),
            (String::new(), Verdict::Met),
        ] {
            assert_eq!(verdict(&headers), expected, "{headers}");
        }
    }

    #[test]
    fn if_range_names_exactly_what_is_there() {
        for (headers, expected) in [
            (String::new(), true),
            ("If-Range: \"now\"".into(), true),
            (format!("If-Range: {DATE}"), true),
            ("If-Range: \"old\"".into(), false),
            ("If-Range: W/\"now\"".into(), false),
            ("If-Range: now".into(), false),
            ("If-Range: *".into(), false),
            ("If-Range:".into(), false),
            (format!("If-Range: {AFTER}"), false),
            (format!("If-Range: {BEFORE}"), false),
            ("If-Range: Wed, 09 Nov 1994 08:49:37 GMT".into(), false),
            ("If-Range: \"now\"\nIf-Range: \"now\"".into(), false),
        ] {
            test_head("GET", &headers, |head| {
                assert_eq!(range_applies(head, &current(true)), expected, "{headers}");
            });
        }
        for headers in ["If-Range: W/\"now\"".into(), format!("If-Range: {DATE}")] {
            test_head("GET", &headers, |head| {
                assert!(!range_applies(head, &current(false)), "{headers}");
            });
        }
    }
}
