//! How the bytes of a stream are split never changes what is read from it.

use super::stream::{End, read_pieces, read_whole};
use crate::Limits;

/// Streams of every kind, good and bad; small limits, so that these are met as well.
const STREAMS: &[&str] = &[
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "\r\n\r\nGET /a?b#c HTTP/1.0\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: [::1]:80\r\nX: \t y \t\r\nX_Y: z\r\nConnection: close\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nhello world\r\nGET /2 HTTP/1.1\r\nHost: b\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;e=f\r\nhello\r\n0006\r\n world\r\n0\r\nT: u\r\n\r\nGET /2 HTTP/1.1\r\nHost: b\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello!\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: POST / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: tttttttttttttttttttttttttttttttttttttttttttttt\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX: y\rz\r\nA: b\n\r\n",
    "GET / HTTP/1.1\nHost: a\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\n\n",
    "GET /\r\r\nHost: a\r\n\r\n",
    "\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\n\r\n",
    "\r\n \r\n",
    "GET /aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n HTTP/1.1\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\rz\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX: y\rz\r\nX: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n\r\n",
    "GET / HTTP/2.0\r\n\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
];

fn limits() -> Limits {
    Limits {
        target_bytes_max: 20,
        head_bytes_max: 140,
        headers_max: 6,
        body_bytes_max: 40,
        chunk_line_bytes_max: 30,
        trailer_bytes_max: 40,
    }
}

#[test]
fn two_pieces_at_every_boundary() {
    for stream in STREAMS {
        let whole = read_whole(stream.as_bytes(), &limits());
        for at in 0..=stream.len() {
            let (first, second) = stream.as_bytes().split_at(at);
            assert_eq!(
                read_pieces([first, second], &limits()),
                whole,
                "{stream:?} at {at}"
            );
        }
    }
}

#[test]
fn three_pieces_at_every_pair_of_boundaries() {
    for stream in STREAMS {
        let bytes = stream.as_bytes();
        let whole = read_whole(bytes, &limits());
        for first in 0..bytes.len() {
            for second in first..bytes.len() {
                let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                assert_eq!(
                    read_pieces(pieces, &limits()),
                    whole,
                    "{stream:?} at {first}, {second}"
                );
            }
        }
    }
}

#[test]
fn byte_by_byte() {
    for stream in STREAMS {
        let whole = read_whole(stream.as_bytes(), &limits());
        assert_eq!(
            read_pieces(stream.as_bytes().chunks(1), &limits()),
            whole,
            "{stream:?}"
        );
    }
}

#[test]
fn the_streams_meet_every_kind_of_end() {
    let ends: Vec<End> = STREAMS
        .iter()
        .map(|stream| read_whole(stream.as_bytes(), &limits()).end)
        .collect();
    assert!(ends.contains(&End::Boundary));
    for status in [400, 413, 414, 431, 505] {
        let met = ends
            .iter()
            .any(|end| matches!(end, End::Rejected(reject) if reject.status == status));
        assert!(met, "{status}");
    }
}
