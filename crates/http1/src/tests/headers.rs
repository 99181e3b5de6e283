//! Header lines, and what they say about the connection.

use super::{message, status_of, status_within};
use crate::{HEADERS_MAX, HeaderStore, Limits, RequestHead};

fn with(headers: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{headers}\r\n")
}

#[test]
fn header_lines_that_are_refused_or_not() {
    let cases: &[(&[u8], u16)] = &[
        (b"X: y\r\n", 200),
        (b"X:\r\n", 200),
        (b"X: \t \r\n", 200),
        (b"X: a\tb\r\n", 200),
        (b"X: \x80\xff\r\n", 200),
        (b"!#$%&'*+-.^_`|~: 1\r\n", 200),
        // Names
        (b": y\r\n", 400),
        (b"X : y\r\n", 400),
        (b"X\t: y\r\n", 400),
        (b"X Y: z\r\n", 400),
        (b"X\r\n", 400),
        (b"X(: y\r\n", 400),
        (b"\xff: y\r\n", 400),
        (b"X\0: y\r\n", 400),
        // A folded line (RFC 9112 section 5.2)
        (b"X: y\r\n z\r\n", 400),
        (b"X: y\r\n\tz\r\n", 400),
        (b" X: y\r\n", 400),
        // Control bytes and line ends
        (b"X: a\0b\r\n", 400),
        (b"X: a\x01b\r\n", 400),
        (b"X: a\x7fb\r\n", 400),
        (b"X: a\x0bb\r\n", 400),
        (b"X: a\rb\r\n", 400),
        (b"X: a\r\r\n", 400),
        (b"X: \r\r\n", 400),
        (b"\rX: a\r\n", 400),
        (b"X: a\nY: b\r\n", 400),
        (b"X: a\n", 400),
        (b"X:\n", 400),
        (b"\nX: a\r\n", 400),
        (b"X: a\r\n\n", 400),
    ];
    for (headers, status) in cases {
        let request = [b"GET / HTTP/1.1\r\nHost: a\r\n", *headers, b"\r\n"].concat();
        assert_eq!(status_of(&request), *status, "{}", request.escape_ascii());
    }
    assert_eq!(status_of("GET / HTTP/1.1\nHost: a\r\n\r\n"), 400);
    assert_eq!(status_of("GET / HTTP/1.1\r\nHost: a\n\n"), 400);
    assert_eq!(status_of("GET / HTTP/1.1\r\r\nHost: a\r\n\r\n"), 400);
    assert_eq!(status_of("GET / HTTP/1.1\rHost: a\r\n\r\n"), 400);
}

/// The server hands over what the scanner delimits, but parsing does not rest on that.
#[test]
fn parsing_keeps_line_discipline_without_the_scanner() {
    let heads = [
        "GET / HTTP/1.1\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "GET / HTTP/1.1\r\nHost:\n\r\n\r\n",
        "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n",
        "\r\n",
        "",
    ];
    for head in heads {
        let mut store = HeaderStore::default();
        let parsed = RequestHead::parse(head.as_bytes(), &Limits::default(), &mut store);
        assert_eq!(
            parsed.map(|_| ()).map_err(|reject| reject.status),
            Err(400),
            "{head:?}"
        );
    }
}

#[test]
fn values_are_trimmed_and_repeats_stay_in_order() {
    let message = message(with("X:\t a \t b \t\r\nY:\r\nx: c\r\n"));
    assert_eq!(message.values("x"), ["a \t b", "c"]);
    assert_eq!(message.values("y"), [""]);
    let names: Vec<_> = message
        .headers
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(names, ["Host", "X", "Y", "x"]);
}

#[test]
fn names_with_an_underscore_never_arrive() {
    let message = message(with(
        "X_Forwarded_For: 1\r\nX-Forwarded-For: 2\r\nContent_Length: 5\r\nTransfer_Encoding: chunked\r\n_: 3\r\nA: b_c\r\n",
    ));
    let names: Vec<_> = message
        .headers
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(names, ["Host", "X-Forwarded-For", "A"]);
    assert_eq!(message.body, b"");
}

#[test]
fn a_header_is_found_in_any_case() {
    let request = with("X-One: 1\r\nx-one: 2\r\n");
    let mut store = HeaderStore::new();
    let head = RequestHead::parse(request.as_bytes(), &Limits::default(), &mut store)
        .expect("a good head");
    assert_eq!(head.header("x-ONE"), Some(&b"1"[..]));
    assert_eq!(head.header("x-two"), None);
    assert_eq!(head.headers().len(), 3);
}

#[test]
fn header_bounds_are_431() {
    let many = |count: usize| with(&"X: y\r\n".repeat(count - 1));
    assert_eq!(status_of(many(100)), 200);
    assert_eq!(status_of(many(101)), 431);
    let limits = Limits {
        headers_max: usize::MAX,
        ..Limits::default()
    };
    assert_eq!(status_within(many(HEADERS_MAX), &limits), 200);
    assert_eq!(status_within(many(HEADERS_MAX + 1), &limits), 431);

    let long = |len: usize| {
        with(&format!(
            "X: {}\r\n",
            "y".repeat(len - with("X: \r\n").len())
        ))
    };
    assert_eq!(status_of(long(32 << 10)), 200);
    assert_eq!(status_of(long((32 << 10) + 1)), 431);
    assert_eq!(status_of(long(100 << 10)), 431);
    // The line that never ends.
    assert_eq!(status_of(&long(100 << 10)[..40 << 10]), 431);
    assert_eq!(status_of(&long(100 << 10)[..32 << 10]), 0);
}

#[test]
fn keep_alive() {
    // Connection headers, then the verdict on 1.1 and on 1.0.
    let cases = [
        ("", true, false),
        ("Connection: keep-alive\r\n", true, true),
        ("Connection: Keep-Alive\r\n", true, true),
        ("Connection: close\r\n", false, false),
        ("Connection: CLOSE\r\n", false, false),
        ("Connection: upgrade, close\r\n", false, false),
        ("Connection: foo,\tKeep-Alive ,bar\r\n", true, true),
        (
            "Connection: keep-alive\r\nConnection: close\r\n",
            false,
            false,
        ),
        ("Connection: closed\r\n", true, false),
        ("Connection:\r\n", true, false),
    ];
    for (headers, on_11, on_10) in cases {
        let with = |version| format!("GET / HTTP/{version}\r\nHost: a\r\n{headers}\r\n");
        assert_eq!(message(with("1.1")).keep_alive, on_11, "{headers:?}");
        assert_eq!(message(with("1.0")).keep_alive, on_10, "{headers:?}");
    }
}

#[test]
fn expect_continue_is_for_a_body_on_http_11() {
    let cases = [
        (
            "1.1",
            "Expect: 100-continue\r\nContent-Length: 1\r\n",
            "x",
            true,
        ),
        (
            "1.1",
            "Expect: 100-Continue\r\nTransfer-Encoding: chunked\r\n",
            "0\r\n\r\n",
            true,
        ),
        (
            "1.1",
            "Expect: 100-continue\r\nContent-Length: 0\r\n",
            "",
            false,
        ),
        ("1.1", "Expect: 100-continue\r\n", "", false),
        ("1.1", "Expect: tea\r\nContent-Length: 1\r\n", "x", false),
        (
            "1.0",
            "Expect: 100-continue\r\nContent-Length: 1\r\n",
            "x",
            false,
        ),
    ];
    for (version, headers, body, expected) in cases {
        let request = format!("POST / HTTP/{version}\r\nHost: a\r\n{headers}\r\n{body}");
        assert_eq!(message(&request).expect_continue, expected, "{request:?}");
    }
}
