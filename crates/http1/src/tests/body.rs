//! Bodies out of the stream.

use super::{message, status_within};
use crate::{BodyDecoder, Decoded, Framing, Limits};

const HEAD: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

fn chunked_status(body: &str) -> u16 {
    status_within(format!("{HEAD}{body}"), &Limits::default())
}

#[test]
fn chunked_bodies_that_are_good() {
    let cases = [
        ("0\r\n\r\n", ""),
        ("000\r\n\r\n", ""),
        ("5\r\nhello\r\n0\r\n\r\n", "hello"),
        ("05\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", "hello world"),
        (
            "A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n",
            "01234567890123456789",
        ),
        ("2\r\n\r\n\r\n0\r\n\r\n", "\r\n"),
        // Extensions
        ("2;a\r\nhi\r\n0;b=c;d=\"e;f\"\r\n\r\n", "hi"),
        ("2 ; a = b\r\nhi\r\n0\t;x\r\n\r\n", "hi"),
        ("2;\r\nhi\r\n0\r\n\r\n", "hi"),
        // Trailers
        ("2\r\nhi\r\n0\r\nX: y\r\nZ:\r\n\r\n", "hi"),
        ("0\r\nX: POST / HTTP/1.1\r\nHost: b\r\n\r\n", ""),
    ];
    for (body, expected) in cases {
        let message = message(format!("{HEAD}{body}"));
        assert_eq!(message.body, expected.as_bytes(), "{body:?}");
    }
}

#[test]
fn chunked_bodies_that_are_refused() {
    let cases = [
        // Sizes
        ("\r\n", 400),
        ("5.01\r\n", 400),
        ("+5\r\n", 400),
        ("-5\r\n", 400),
        ("5 bad\r\n", 400),
        ("5 \r\n", 400),
        (" 5\r\n", 400),
        ("0xA\r\n", 400),
        ("x\r\n", 400),
        (";a\r\n", 400),
        ("5_0\r\n", 400),
        ("5\n", 400),
        ("5\rh", 400),
        ("5\0\r\n", 400),
        ("5h\r\n", 400),
        // Extensions
        ("5;a\nhello", 400),
        ("5;a\rb", 400),
        ("5;a\0", 400),
        // Data that does not match
        ("5\r\nhell\r\n", 400),
        ("5\r\nhello!\r\n", 400),
        ("5\r\nhello\n", 400),
        ("5\r\nhello\rx", 400),
        ("4\r\nhello\r\n0\r\n\r\n", 400),
        // Trailers
        ("0\r\n\n", 400),
        ("0\r\n\rX", 400),
        ("0\r\nPOST / HTTP/1.1\r\n", 400),
        ("0\r\nX: y\n", 400),
        ("0\r\nX: y\rz", 400),
        ("0\r\nX\r\n", 400),
        ("0\r\n: y\r\n", 400),
        ("0\r\nX: y\r\n folded\r\n", 400),
        ("0\r\nX: \0\r\n", 400),
        // Sizes over the limit, and over any integer
        ("8000001\r\n", 413),
        ("ffffffffffffffff\r\n", 413),
        ("10000000000000000\r\n", 413),
        ("fffffffffffffffffffffffffffffff", 413),
        // Unfinished
        ("5\r\nhel", 0),
        ("0\r\n", 0),
        ("0\r\n\r", 0),
        ("0\r\nX: y\r\n", 0),
    ];
    for (body, status) in cases {
        assert_eq!(chunked_status(body), status, "{body:?}");
    }
}

#[test]
fn chunk_lines_and_trailers_are_bounded() {
    let limits = Limits {
        chunk_line_bytes_max: 20,
        trailer_bytes_max: 30,
        ..Limits::default()
    };
    let status = |body: String| status_within(format!("{HEAD}{body}"), &limits);
    let extension = |len: usize| format!("1;{}\r\nx\r\n0\r\n\r\n", "e".repeat(len - 4));
    assert_eq!(status(extension(20)), 200);
    assert_eq!(status(extension(21)), 400);
    assert_eq!(status(extension(2_000)), 400);
    // The bound is per line.
    assert_eq!(
        status(format!(
            "{}{}",
            "1;eeeeeeeeeeeeeeee\r\nx\r\n".repeat(50),
            extension(20)
        )),
        200
    );
    assert_eq!(
        status(format!("{}1\r\nx\r\n0\r\n\r\n", "0".repeat(20))),
        400
    );
    let trailer = |len: usize| format!("0\r\nX: {}\r\n\r\n", "t".repeat(len - 7));
    assert_eq!(status(trailer(30)), 200);
    assert_eq!(status(trailer(31)), 431);
    assert_eq!(status(format!("0\r\n{}\r\n", "X: y\r\n".repeat(5))), 431);
}

#[test]
fn body_bytes_are_bounded_over_all_chunks() {
    let limits = Limits {
        body_bytes_max: 10,
        ..Limits::default()
    };
    let status = |body: &str| status_within(format!("{HEAD}{body}"), &limits);
    assert_eq!(status("5\r\nhello\r\n5\r\nworld\r\n0\r\n\r\n"), 200);
    assert_eq!(status("5\r\nhello\r\n6\r\n"), 413);
    assert_eq!(status("b"), 413);
    let announced = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n";
    assert_eq!(status_within(announced, &limits), 413);
}

#[test]
fn a_decoder_stops_where_the_body_ends() {
    let limits = Limits::default();
    let cases = [
        (Framing::None, "GET", "", 0),
        (Framing::Length(0), "GET", "", 0),
        (Framing::Length(3), "abcGET", "abc", 3),
        (Framing::Chunked, "1\r\nx\r\n0\r\n\r\nGET", "x", 11),
    ];
    for (framing, input, expected, consumed) in cases {
        let mut decoder = BodyDecoder::new(framing, &limits);
        let mut body = Vec::new();
        let mut sink = |data: &[u8]| body.extend_from_slice(data);
        let decoded = decoder.decode(input.as_bytes(), &mut sink);
        assert_eq!(
            decoded,
            Ok(Decoded {
                consumed,
                done: true
            }),
            "{framing:?}"
        );
        let again = decoder.decode(b"more", &mut sink);
        assert_eq!(
            again,
            Ok(Decoded {
                consumed: 0,
                done: true
            }),
            "{framing:?}"
        );
        assert_eq!(body, expected.as_bytes(), "{framing:?}");
    }
}

#[test]
fn a_reject_stays() {
    let limits = Limits {
        body_bytes_max: 3,
        ..Limits::default()
    };
    let mut chunked = BodyDecoder::new(Framing::Chunked, &limits);
    let first = chunked.decode(b"x", &mut |_| {}).expect_err("no size");
    assert_eq!(chunked.decode(b"0\r\n\r\n", &mut |_| {}), Err(first));
    let mut long = BodyDecoder::new(Framing::Length(4), &limits);
    let reject = long.decode(b"", &mut |_| {}).expect_err("too long");
    assert_eq!(reject.status, 413);
}

#[test]
fn data_is_handed_on_without_copies() {
    let input = b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
    let mut pieces = Vec::new();
    let mut decoder = BodyDecoder::new(Framing::Chunked, &Limits::default());
    let decoded = decoder.decode(input, &mut |data| pieces.push(data.to_vec()));
    assert!(decoded.is_ok_and(|decoded| decoded.done));
    assert_eq!(pieces, [&b"hello"[..], b" world"]);
}
