//! Properties that hold for any bytes.

use proptest::prelude::*;

use super::stream::{End, read_pieces, read_whole};
use crate::{
    HeaderStore, Limits, ReplyContext, RequestHead, Version, encode_reply_head, http_date,
};

fn small_limits() -> Limits {
    Limits {
        target_bytes_max: 64,
        head_bytes_max: 256,
        headers_max: 8,
        body_bytes_max: 64,
        chunk_line_bytes_max: 16,
        trailer_bytes_max: 32,
    }
}

/// Streams that are nearly HTTP: its pieces in any order.
fn nearly_http() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop::sample::select(vec![
        "GET / HTTP/1.1\r\nHost: a\r\n",
        "POST /a?b HTTP/1.1\r\nHost: b\r\n",
        "GET / HTTP/1.0\r\n",
        "Host: a\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Content-Length: 5\r\n",
        "Content-Length: 3\r\n",
        "Connection: close\r\n",
        "X: y\r\n",
        "X_Y: z\r\n",
        "\r\n",
        "\r",
        "\n",
        "5\r\nhello\r\n",
        "3;e\r\nabc\r\n",
        "0\r\n",
        "0\r\n\r\n",
        "hello",
        " ",
        "\0",
    ]);
    let piece = prop_oneof![
        9 => pieces.prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..4),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

fn token() -> impl Strategy<Value = String> {
    "[A-Za-z0-9!#$%&'*+.^`|~-]{1,12}"
}

proptest! {
    #[test]
    fn splits_change_nothing(stream in nearly_http(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.sort_unstable();
        cuts.push(stream.len());
        let mut from = 0;
        let pieces = cuts.iter().map(|&to| {
            let piece = &stream[from..to];
            from = to;
            piece
        });
        let split = read_pieces(pieces, &small_limits());
        prop_assert_eq!(split, read_whole(&stream, &small_limits()));
    }

    #[test]
    fn any_bytes_are_survived(head in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut store = HeaderStore::new();
        let _ = RequestHead::parse(&head, &Limits::default(), &mut store);
    }

    #[test]
    fn a_good_head_is_read_back(
        method in token(),
        path in "/[a-zA-Z0-9._~!$&'()*+,;=:@/-]{0,20}",
        query in prop::option::of("[a-z0-9=&%?/]{0,20}"),
        // Names that mean something to the server are another test's.
        headers in prop::collection::vec(("X-[A-Za-z0-9]{0,8}", "[!-~\u{a0}-\u{ff}]([ -~\t]{0,20}[!-~])?"), 0..10),
    ) {
        prop_assume!(method != "CONNECT");
        let target = query.as_ref().map_or(path.clone(), |query| format!("{path}?{query}"));
        let mut text = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n");
        for (name, value) in &headers {
            text.push_str(&format!("{name}: \t{value} \r\n"));
        }
        text.push_str("\r\n");
        let mut store = HeaderStore::new();
        let head = RequestHead::parse(text.as_bytes(), &Limits::default(), &mut store).expect("a good head");
        prop_assert_eq!(head.method, method);
        prop_assert_eq!(head.path, path);
        prop_assert_eq!(head.query, query.as_deref());
        let read: Vec<_> = head.headers().skip(1).map(|h| (h.name.to_owned(), h.value.to_vec())).collect();
        let sent: Vec<_> = headers.into_iter().map(|(name, value)| (name, value.into_bytes())).collect();
        prop_assert_eq!(read, sent);
    }

    #[test]
    fn a_chunked_body_is_read_back(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..200), 0..10), size in 1usize..50) {
        let mut stream = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for chunk in &chunks {
            let mut buf = [0; 18];
            stream.extend_from_slice(crate::chunk_header(chunk.len(), &mut buf));
            stream.extend_from_slice(chunk);
            stream.extend_from_slice(crate::CHUNK_END);
        }
        stream.extend_from_slice(crate::LAST_CHUNK);
        let reading = read_pieces(stream.chunks(size), &Limits::default());
        prop_assert_eq!(reading.end, End::Boundary);
        prop_assert_eq!(&reading.messages[0].body, &chunks.concat());
    }

    /// Whatever the application says, the reply has the lines that were meant, and one framing.
    #[test]
    fn a_reply_head_has_no_foreign_line(
        status in any::<u16>(),
        reason in prop::option::of(any::<String>()),
        headers in prop::collection::vec((hostile_text(), hostile_text()), 0..8),
        length in prop::option::of(any::<u64>()),
        head_request in any::<bool>(),
        keep_alive in any::<bool>(),
    ) {
        let ctx = ReplyContext { head_request, connect: false, version: Version::Http11, keep_alive };
        let pairs = headers.iter().map(|(name, value)| (name.as_slice(), value.as_slice()));
        let mut out = Vec::new();
        encode_reply_head(&mut out, &ctx, status, reason.as_deref(), pairs, length, &http_date(0), "s");
        let head = out.strip_suffix(b"\r\n\r\n").expect("an empty line");
        let text = String::from_utf8_lossy(head);
        let lines: Vec<&str> = text.split("\r\n").collect();
        prop_assert!(lines.len() <= 1 + headers.len() + 4, "{text}");
        for line in &lines {
            prop_assert!(!line.contains(['\r', '\n', '\0']), "{text}");
            prop_assert!(!line.is_empty(), "{text}");
        }
        let framing = |line: &&&str| {
            let name = line.split(':').next().unwrap_or_default();
            name.eq_ignore_ascii_case("content-length") || name.eq_ignore_ascii_case("transfer-encoding")
        };
        prop_assert!(lines.iter().filter(framing).count() <= 1, "{text}");
    }
}

fn hostile_text() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        "X",
        "Content-Length",
        "Transfer-Encoding",
        "Connection",
        "Date",
        "Server",
        "5",
        "chunked",
        "close",
        "a\r\nX: y",
        "a\nb",
        "",
        ":",
        "a\0",
        "Content-Length: 5\r\nX",
    ]);
    prop_oneof![
        3 => known.prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..12),
    ]
}
