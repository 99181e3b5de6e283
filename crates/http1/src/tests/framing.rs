//! Content-Length and Transfer-Encoding: what frames a body, and what is refused.

use super::{message, status_of, status_within};
use crate::{Framing, Limits};

fn post(version: &str, headers: &str, body: &str) -> String {
    format!("POST / HTTP/{version}\r\nHost: a\r\n{headers}\r\n{body}")
}

#[test]
fn content_lengths() {
    let cases = [
        ("5", 200),
        ("005", 200),
        (" \t5\t ", 200),
        ("5.01", 400),
        ("+5", 400),
        ("-5", 400),
        ("5 test", 400),
        ("5 5", 400),
        ("0x5", 400),
        ("5a", 400),
        ("", 400),
        ("5,", 400),
        ("5, 5", 400),
        ("41, 42", 400),
        ("18446744073709551616", 400),
        ("99999999999999999999999999", 400),
        ("\u{665}", 400),
        ("18446744073709551615", 413),
        ("134217729", 413),
    ];
    for (length, status) in cases {
        let request = post("1.1", &format!("Content-Length: {length}\r\n"), "12345");
        assert_eq!(status_of(&request), status, "{length:?}");
    }
    assert_eq!(
        message(post("1.1", "Content-Length: 5\r\n", "12345")).framing,
        Framing::Length(5)
    );
    assert_eq!(
        message(post("1.1", "Content-Length: 0\r\n", "")).framing,
        Framing::Length(0)
    );
    assert_eq!(message(post("1.1", "", "")).framing, Framing::None);
    assert_eq!(message(post("1.0", "", "")).framing, Framing::None);
    let any = Limits {
        body_bytes_max: u64::MAX,
        ..Limits::default()
    };
    let longest = post("1.1", "Content-Length: 18446744073709551615\r\n", "12345");
    assert_eq!(status_within(longest, &any), 0);
}

#[test]
fn repeated_content_lengths() {
    let twice = message(post(
        "1.1",
        "Content-Length: 3\r\nX: y\r\ncontent-length: 03\r\n",
        "abc",
    ));
    assert_eq!(
        (twice.body.as_slice(), twice.values("content-length")),
        (&b"abc"[..], vec!["3"])
    );
    let differ = post("1.1", "Content-Length: 41\r\nContent-Length: 42\r\n", "abc");
    assert_eq!(status_of(differ), 400);
}

#[test]
fn transfer_encodings() {
    let cases = [
        ("Transfer-Encoding: chunked\r\n", 200),
        ("Transfer-Encoding: Chunked\r\n", 200),
        ("tRANSFER-eNCODING:\t CHUNKED \r\n", 200),
        ("Transfer-Encoding: gzip\r\n", 400),
        ("Transfer-Encoding: chunked, gzip\r\n", 400),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n",
            400,
        ),
        ("Transfer-Encoding: chunked, foo\r\n", 400),
        ("Transfer-Encoding: chunked, chunked\r\n", 400),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            400,
        ),
        ("Transfer-Encoding:\r\n", 400),
        ("Transfer-Encoding: ,chunked\r\n", 400),
        ("Transfer-Encoding: chunked,\r\n", 400),
        ("Transfer-Encoding: \u{b}chunked\r\n", 400),
        ("Transfer-Encoding : chunked\r\n", 400),
        ("Transfer-Encoding: foo\r\n", 501),
        ("Transfer-Encoding: xchunked\r\n", 501),
        ("Transfer-Encoding: \"chunked\"\r\n", 501),
        ("Transfer-Encoding: chunked;q=1\r\n", 501),
        ("Transfer-Encoding: identity\r\n", 501),
        ("Transfer-Encoding: gzip, chunked\r\n", 501),
        ("Transfer-Encoding: foo, chunked\r\n", 501),
        (
            "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
            501,
        ),
        // Both framings
        ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", 400),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 400),
        ("Content-Length: 0\r\nTransfer-Encoding: foo\r\n", 400),
        (
            "Content-Length: 999999999999\r\nTransfer-Encoding: chunked\r\n",
            400,
        ),
    ];
    for (headers, status) in cases {
        let body = "5\r\n12345\r\n0\r\n\r\n";
        assert_eq!(status_of(post("1.1", headers, body)), status, "{headers:?}");
        assert_eq!(
            status_of(post("1.0", headers, body)),
            400,
            "{headers:?} on 1.0"
        );
    }
    let chunked = message(post("1.1", "Transfer-Encoding: chunked\r\n", "0\r\n\r\n"));
    assert_eq!(chunked.framing, Framing::Chunked);
}

#[test]
fn any_method_may_carry_a_body() {
    for method in ["GET", "DELETE", "HEAD", "OPTIONS", "PROPFIND"] {
        let request = format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
        assert_eq!(message(request).body, b"hi", "{method}");
    }
}
