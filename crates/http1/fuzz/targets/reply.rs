//! Hostile application headers never add a line to a reply, and never frame it.
//!
//! The input's first 4 bytes choose status and circumstances. Then come name, value, name, value...,
//! each ended by a 0xFF byte; the first of them is the reason phrase.
#![no_main]

use baton_http1::{
    ReplyContext, ReplyFraming, Version, encode_informational, encode_reply_head, http_date,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&[status_high, status_low, flags, length], rest)) = input.split_first_chunk() else {
        return;
    };
    let status = u16::from_be_bytes([status_high, status_low]);
    let mut parts = rest.split(|&byte| byte == 0xff);
    let reason = parts.next().and_then(|part| std::str::from_utf8(part).ok());
    let parts: Vec<&[u8]> = parts.collect();
    let headers: Vec<(&[u8], &[u8])> = parts
        .chunks_exact(2)
        .map(|pair| (pair[0], pair[1]))
        .collect();
    let ctx = ReplyContext {
        head_request: flags & 1 != 0,
        connect: flags & 2 != 0,
        version: if flags & 4 != 0 {
            Version::Http10
        } else {
            Version::Http11
        },
        keep_alive: flags & 8 != 0,
    };
    let length = (flags & 16 != 0).then_some(u64::from(length));
    let reason = reason.filter(|_| flags & 32 != 0);

    let mut out = b"before".to_vec();
    let date = http_date(i64::from(status_low));
    let plan = encode_reply_head(
        &mut out,
        &ctx,
        status,
        reason,
        headers.iter().copied(),
        length,
        &date,
        "s",
    );
    let lines = check_lines(out.strip_prefix(b"before").expect("appended"), &headers);

    let values = |name: &str| -> Vec<&Line> {
        lines
            .iter()
            .filter(|line| line.name.eq_ignore_ascii_case(name))
            .collect()
    };
    let lengths = values("content-length");
    let codings = values("transfer-encoding");
    assert_eq!(values("date").len(), 1);
    assert_eq!(values("server").len(), 1);
    assert!(lengths.len() + codings.len() <= 1, "two framings");
    match plan.framing {
        ReplyFraming::Length(n) => assert_eq!(lengths[0].value, n.to_string().as_bytes()),
        ReplyFraming::Chunked => {
            assert_eq!(codings[0].value, b"chunked");
            assert_eq!(ctx.version, Version::Http11);
        }
        ReplyFraming::UntilClose => {
            assert!(lengths.is_empty() && codings.is_empty() && !plan.keep_alive)
        }
        ReplyFraming::None => assert!(codings.is_empty()),
    }
    let connection = values("connection");
    assert!(connection.len() <= 1);
    let expected: Option<&[u8]> = match (status, plan.keep_alive, ctx.version) {
        (101, _, _) => Some(b"upgrade"),
        (_, false, _) => Some(b"close"),
        (_, true, Version::Http10) => Some(b"keep-alive"),
        (_, true, Version::Http11) => None,
    };
    assert_eq!(connection.first().map(|line| line.value), expected);
    assert!(ctx.keep_alive || !plan.keep_alive);

    let mut out = Vec::new();
    if encode_informational(&mut out, status, headers.iter().copied()) {
        let lines = check_lines(&out, &headers);
        assert!(lines.len() <= headers.len());
        assert!(
            lines
                .iter()
                .all(|line| !line.name.eq_ignore_ascii_case("content-length"))
        );
    } else {
        assert!(out.is_empty());
    }
});

struct Line<'o> {
    name: &'o str,
    value: &'o [u8],
}

/// The header lines of a head, each of which is the application's word for word, or the server's.
fn check_lines<'o>(head: &'o [u8], headers: &[(&[u8], &[u8])]) -> Vec<Line<'o>> {
    const OURS: [&str; 5] = [
        "Content-Length",
        "Transfer-Encoding",
        "Connection",
        "Date",
        "Server",
    ];
    let head = head
        .strip_suffix(b"\r\n\r\n")
        .expect("an empty line at the end");
    let mut lines = Vec::new();
    for (index, line) in head.split(|&byte| byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        assert!(
            !line.iter().any(|byte| matches!(byte, b'\r' | 0)),
            "a control byte"
        );
        if index == 0 {
            assert!(line.starts_with(b"HTTP/1.1 ") && line[9..12].iter().all(u8::is_ascii_digit));
            continue;
        }
        let colon = line
            .iter()
            .position(|&byte| byte == b':')
            .expect("a header line");
        let name = std::str::from_utf8(&line[..colon]).expect("a token");
        let value = line[colon + 1..].strip_prefix(b" ").expect("a blank");
        let theirs = headers
            .iter()
            .any(|header| *header == (name.as_bytes(), value));
        assert!(theirs || OURS.contains(&name), "a line from nowhere");
        lines.push(Line { name, value });
    }
    lines
}
