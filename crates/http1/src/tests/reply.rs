//! What a reply's head looks like, whatever the application asks for.

use crate::{
    CHUNK_END, LAST_CHUNK, ReplyContext, ReplyPlan, Version, chunk_header, encode_informational,
    encode_reply_head, http_date,
};

pub(super) const GET: ReplyContext = ReplyContext {
    head_request: false,
    connect: false,
    version: Version::Http11,
    keep_alive: true,
};

pub(super) fn encode(
    ctx: &ReplyContext,
    status: u16,
    headers: &[(&str, &str)],
    length: Option<u64>,
) -> (String, ReplyPlan) {
    encode_bytes(ctx, status, None, headers, length, "s")
}

fn encode_bytes(
    ctx: &ReplyContext,
    status: u16,
    reason: Option<&str>,
    headers: &[(&str, &str)],
    length: Option<u64>,
    server: &str,
) -> (String, ReplyPlan) {
    let mut out = Vec::new();
    let headers = headers
        .iter()
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let plan = encode_reply_head(
        &mut out,
        ctx,
        status,
        reason,
        headers,
        length,
        &http_date(0),
        server,
    );
    (String::from_utf8(out).expect("a text head"), plan)
}

/// The head without the headers that the server always adds.
fn lines(head: &str) -> Vec<&str> {
    let head = head.strip_suffix("\r\n\r\n").expect("an empty line");
    let added = [
        "Date: Thu, 01 Jan 1970 00:00:00 GMT",
        "Server: s",
        "Content-Length: 0",
    ];
    head.split("\r\n")
        .filter(|line| !added.contains(line))
        .collect()
}

#[test]
fn the_whole_head() {
    let (head, _) = encode(
        &GET,
        200,
        &[("Content-Type", "text/plain"), ("X", "y")],
        Some(5),
    );
    let expected = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX: y\r\nContent-Length: 5\r\n\
        Date: Thu, 01 Jan 1970 00:00:00 GMT\r\nServer: s\r\n\r\n";
    assert_eq!(head, expected);
}

#[test]
fn status_lines() {
    let cases = [
        (200, None, "HTTP/1.1 200 OK"),
        (200, Some("Fine"), "HTTP/1.1 200 Fine"),
        (200, Some(""), "HTTP/1.1 200 "),
        (418, None, "HTTP/1.1 418 I'm a teapot"),
        (299, None, "HTTP/1.1 299 "),
        (299, Some("Odd"), "HTTP/1.1 299 Odd"),
        (999, None, "HTTP/1.1 999 "),
        (200, Some("a\r\nX: y"), "HTTP/1.1 200 OK"),
        (200, Some("a\0"), "HTTP/1.1 200 OK"),
        (0, None, "HTTP/1.1 500 Internal Server Error"),
        (99, None, "HTTP/1.1 500 Internal Server Error"),
        (1000, None, "HTTP/1.1 500 Internal Server Error"),
    ];
    for (status, reason, expected) in cases {
        let (head, _) = encode_bytes(&GET, status, reason, &[], Some(0), "s");
        assert_eq!(lines(&head), [expected], "{status} {reason:?}");
    }
}

#[test]
fn hostile_headers_are_dropped_whole() {
    let headers = [
        ("X\r\nY", "1"),
        ("X: 1\r\nY", "2"),
        ("X Y", "3"),
        ("X:", "4"),
        ("", "5"),
        ("X", "6\r\nSet-Cookie: a=b"),
        ("X", "7\nSet-Cookie: a=b"),
        ("X", "8\rSet-Cookie: a=b"),
        ("X", "9\0"),
        ("X", "\u{7f}"),
        ("X", "\u{1b}[1m"),
        ("X\0", "10"),
        ("\u{e4}", "11"),
        ("Good", "a\tb \u{e4}"),
        ("Empty", ""),
    ];
    let (head, _) = encode(&GET, 200, &headers, Some(0));
    assert_eq!(
        lines(&head),
        ["HTTP/1.1 200 OK", "Good: a\tb \u{e4}", "Empty: "]
    );
}

#[test]
fn hop_by_hop_headers_are_the_servers() {
    let headers = [
        ("Connection", "keep-alive, x"),
        ("Keep-Alive", "timeout=5"),
        ("Proxy-Connection", "keep-alive"),
        ("Transfer-Encoding", "chunked"),
        ("transfer-encoding", "gzip"),
        ("Upgrade", "h2c"),
        ("Connections", "1"),
    ];
    let (head, plan) = encode(&GET, 200, &headers, Some(0));
    assert_eq!(lines(&head), ["HTTP/1.1 200 OK", "Connections: 1"]);
    assert!(plan.keep_alive);
}

#[test]
fn connection() {
    let version_10 = ReplyContext {
        version: Version::Http10,
        ..GET
    };
    // Context, the application's Connection, then the line written, if any.
    let cases = [
        (GET, "", None),
        (GET, "keep-alive", None),
        (GET, "close", Some("Connection: close")),
        (GET, "x, Close", Some("Connection: close")),
        (GET, "close\r\n", None),
        (
            ReplyContext {
                keep_alive: false,
                ..GET
            },
            "keep-alive",
            Some("Connection: close"),
        ),
        (version_10, "", Some("Connection: keep-alive")),
        (version_10, "close", Some("Connection: close")),
        (
            ReplyContext {
                keep_alive: false,
                ..version_10
            },
            "",
            Some("Connection: close"),
        ),
    ];
    for (ctx, connection, expected) in cases {
        let (head, plan) = encode(&ctx, 200, &[("Connection", connection)], Some(0));
        let written = head
            .split("\r\n")
            .find(|line| line.starts_with("Connection:"));
        assert_eq!(written, expected, "{ctx:?} {connection:?}");
        assert_eq!(
            plan.keep_alive,
            expected != Some("Connection: close"),
            "{ctx:?} {connection:?}"
        );
    }
}

#[test]
fn date_and_server_may_be_the_applications() {
    let headers = [
        ("date", "then"),
        ("DATE", "later"),
        ("server", "mine"),
        ("Server", "too"),
    ];
    let (head, _) = encode(&GET, 200, &headers, Some(0));
    assert_eq!(
        head,
        "HTTP/1.1 200 OK\r\ndate: then\r\nserver: mine\r\nContent-Length: 0\r\n\r\n"
    );
    for server in ["", "a\r\nb"] {
        let (head, _) = encode_bytes(&GET, 200, None, &[], Some(0), server);
        assert!(!head.contains("Server"), "{head}");
    }
}

#[test]
fn a_head_is_appended() {
    let mut out = b"before".to_vec();
    encode_reply_head(&mut out, &GET, 204, None, [], None, &http_date(0), "");
    assert!(out.starts_with(b"beforeHTTP/1.1 204 No Content\r\n"));
}

#[test]
fn informational_replies() {
    let link: &[(&[u8], &[u8])] = &[
        (b"Link", b"</a>"),
        (b"Content-Length", b"5"),
        (b"X", b"a\nb"),
        (b"Connection", b"close"),
    ];
    let mut out = Vec::new();
    assert!(encode_informational(&mut out, 103, link.iter().copied()));
    assert!(encode_informational(&mut out, 100, []));
    assert_eq!(
        out,
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
    );
    for status in [0, 99, 101, 200, 500] {
        let mut out = Vec::new();
        assert!(!encode_informational(&mut out, status, []));
        assert!(out.is_empty());
    }
}

#[test]
fn chunk_headers() {
    let mut buf = [0; 18];
    for (len, expected) in [
        (1, "1\r\n"),
        (15, "f\r\n"),
        (16, "10\r\n"),
        (65_536, "10000\r\n"),
    ] {
        assert_eq!(chunk_header(len, &mut buf), expected.as_bytes());
    }
    assert_eq!(
        chunk_header(usize::MAX, &mut buf),
        format!("{:x}\r\n", usize::MAX).as_bytes()
    );
    assert_eq!((CHUNK_END, LAST_CHUNK), (&b"\r\n"[..], &b"0\r\n\r\n"[..]));
}
