//! Dates and phrases.

use crate::status::status_line;
use crate::{http_date, reason_phrase};

#[test]
fn dates() {
    let cases = [
        (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
        (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
        (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
        (4_107_542_399, "Sun, 28 Feb 2100 23:59:59 GMT"),
        (253_402_300_799, "Fri, 31 Dec 9999 23:59:59 GMT"),
        (253_402_300_800, "Fri, 31 Dec 9999 23:59:59 GMT"),
        (i64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
        (-1, "Thu, 01 Jan 1970 00:00:00 GMT"),
        (i64::MIN, "Thu, 01 Jan 1970 00:00:00 GMT"),
    ];
    for (seconds, expected) in cases {
        assert_eq!(
            http_date(seconds).escape_ascii().to_string(),
            expected,
            "{seconds}"
        );
    }
}

#[test]
fn phrases() {
    assert_eq!(reason_phrase(200), "OK");
    assert_eq!(reason_phrase(418), "I'm a teapot");
    assert_eq!(reason_phrase(299), "");
    for status in 0..1000 {
        let phrase = reason_phrase(status);
        let expected = format!("HTTP/1.1 {status} {phrase}\r\n");
        match status_line(status) {
            Some(line) => assert_eq!(line, expected.as_bytes()),
            None => assert_eq!(phrase, ""),
        }
    }
}
