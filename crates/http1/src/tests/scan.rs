//! Finding the end of a head.

use crate::{HeadScanner, LEADING_EMPTY_LINES_MAX, Limits};

#[test]
fn the_end_is_found_once_it_is_there() {
    let head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut bytes = head.to_vec();
    bytes.extend_from_slice(b"body\r\n\r\n");
    let limits = Limits::default();
    let mut scanner = HeadScanner::default();
    for end in 0..head.len() {
        assert_eq!(scanner.scan(&bytes[..end], &limits), Ok(None), "{end}");
    }
    assert_eq!(scanner.scan(&bytes, &limits), Ok(Some(head.len())));
    scanner.reset();
    assert_eq!(scanner.scan(&bytes, &limits), Ok(Some(head.len())));
}

#[test]
fn a_few_empty_lines_first_belong_to_the_head() {
    let limits = Limits::default();
    for count in 0..=LEADING_EMPTY_LINES_MAX + 2 {
        let bytes = format!("{}GET / HTTP/1.0\r\n\r\nX", "\r\n".repeat(count));
        let found = HeadScanner::default().scan(bytes.as_bytes(), &limits);
        if count <= LEADING_EMPTY_LINES_MAX {
            assert_eq!(found, Ok(Some(bytes.len() - 1)), "{count}");
        } else {
            assert_eq!(found.map_err(|reject| reject.status), Err(400), "{count}");
        }
    }
}

#[test]
fn a_bad_line_end_is_refused_with_its_line() {
    let limits = Limits::default();
    // Each is refused as soon as it ends here, with no empty line in sight.
    for bytes in [
        "GET / HTTP/1.1\n",
        "GET / HTTP/1.1\r\nHost: a\n",
        "GET /\r HTTP/1.1\r\n",
        "GET / HTTP/1.1\r\r\n",
        "\r\n\n",
        "\r\r\n",
    ] {
        let whole = HeadScanner::default().scan(bytes.as_bytes(), &limits);
        assert_eq!(whole.map_err(|reject| reject.status), Err(400), "{bytes:?}");
        let mut scanner = HeadScanner::default();
        let (before, _) = bytes.as_bytes().split_at(bytes.len() - 1);
        assert_eq!(scanner.scan(before, &limits), Ok(None), "{bytes:?}");
        assert_eq!(scanner.scan(bytes.as_bytes(), &limits), whole, "{bytes:?}");
    }
}

#[test]
fn odd_limits_do_no_harm() {
    let bytes = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let all = usize::MAX;
    let cases = [
        (0, 0, Some(431)),
        (0, all, None),
        (all, 0, Some(431)),
        (all, all, None),
        (all, 20, Some(431)),
    ];
    for (target_bytes_max, head_bytes_max, refused) in cases {
        let limits = Limits {
            target_bytes_max,
            head_bytes_max,
            ..Limits::default()
        };
        let found = HeadScanner::default().scan(bytes, &limits);
        assert_eq!(
            found.err().map(|reject| reject.status),
            refused,
            "{limits:?}"
        );
    }
}
