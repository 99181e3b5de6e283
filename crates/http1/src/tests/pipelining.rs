//! Several requests in one stream.

use super::stream::{End, read_pieces, read_whole};
use crate::Limits;

#[test]
fn twenty_chunked_requests_in_one_write() {
    let stream: String = (0..20)
        .map(|n| {
            let body = format!("body {n}");
            format!(
                "POST /{n} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
                body.len()
            )
        })
        .collect();
    for size in [1, 7, 64, stream.len()] {
        let reading = read_pieces(stream.as_bytes().chunks(size), &Limits::default());
        assert_eq!(reading.end, End::Boundary);
        assert_eq!(reading.messages.len(), 20);
        for (n, message) in reading.messages.iter().enumerate() {
            assert_eq!(message.path, format!("/{n}"));
            assert_eq!(message.body, format!("body {n}").as_bytes());
        }
    }
}

#[test]
fn what_looks_like_a_request_in_a_trailer_is_none() {
    let stream = "POST /1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
        0\r\nX: POST /evil HTTP/1.1\r\nHost: b\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n";
    let reading = read_whole(stream.as_bytes(), &Limits::default());
    let paths: Vec<_> = reading
        .messages
        .iter()
        .map(|message| message.path.as_str())
        .collect();
    assert_eq!(
        (paths.as_slice(), reading.end),
        (&["/1", "/2"][..], End::Boundary)
    );
}

#[test]
fn a_bad_request_does_not_spoil_the_ones_before() {
    let stream = "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\n\r\nGET /3 HTTP/1.1\r\nHost: a\r\n\r\n";
    let reading = read_whole(stream.as_bytes(), &Limits::default());
    assert_eq!(reading.messages.len(), 1);
    assert!(matches!(reading.end, End::Rejected(reject) if reject.status == 400));
}
