//! Methods, versions and the forms of a target.

use super::{check_statuses, message, status_of, status_within};
use crate::{Limits, Version};

fn line(line: &str) -> String {
    format!("{line}\r\nHost: a\r\n\r\n")
}

#[test]
fn request_lines_that_are_refused_or_not() {
    let cases = [
        ("GET / HTTP/1.1", 200),
        ("GET / HTTP/1.0", 200),
        ("PURGE / HTTP/1.1", 200),
        ("M-SEARCH / HTTP/1.1", 200),
        ("get / HTTP/1.1", 200),
        ("!#$%&'*+-.^_`|~ / HTTP/1.1", 200),
        // Methods
        ("G@T / HTTP/1.1", 400),
        ("GET[] / HTTP/1.1", 400),
        ("G\u{e4}T / HTTP/1.1", 400),
        (" GET / HTTP/1.1", 400),
        ("\tGET / HTTP/1.1", 400),
        ("G\0T / HTTP/1.1", 400),
        // Versions
        ("GET / http/1.1", 400),
        ("GET / Http/1.1", 400),
        ("GET / HTTP/1.a", 400),
        ("GET / HTTP/1", 400),
        ("GET / HTTP/1.", 400),
        ("GET / HTTP/11.1", 400),
        ("GET / HTTP/1.10", 400),
        ("GET / HTTP/1.1 ", 400),
        ("GET / HTTP /1.1", 400),
        ("GET / XTTP/1.1", 400),
        ("GET / ", 400),
        ("GET /", 400),
        ("GET", 400),
        ("GET / HTTP/2.0 ", 400),
        ("GET  HTTP/2.0", 400),
        ("GET / HTTP/0.9", 505),
        ("GET / HTTP/1.2", 505),
        ("GET / HTTP/2.0", 505),
        ("PRI * HTTP/2.0", 505),
        ("GET / HTTP/3.0", 505),
        // Blanks
        ("GET  / HTTP/1.1", 400),
        ("GET /  HTTP/1.1", 400),
        ("GET\t/ HTTP/1.1", 400),
        ("GET /a b HTTP/1.1", 400),
        // Targets
        ("GET a HTTP/1.1", 400),
        ("GET ?a HTTP/1.1", 400),
        ("GET #a HTTP/1.1", 400),
        ("GET //a HTTP/1.1", 200),
        ("GET /\u{e4} HTTP/1.1", 200),
        ("GET /a\u{1}b HTTP/1.1", 400),
        ("GET /a\u{7f}b HTTP/1.1", 400),
        ("GET /a\0b HTTP/1.1", 400),
        ("GET /a?\u{1f} HTTP/1.1", 400),
        ("GET /a%00b HTTP/1.1", 400),
        ("GET /%00 HTTP/1.1", 400),
        ("GET /%%00 HTTP/1.1", 400),
        ("GET /a?b=%00 HTTP/1.1", 200),
        ("GET /%0 HTTP/1.1", 200),
        ("GET * HTTP/1.1", 400),
        ("OPTIONS * HTTP/1.1", 200),
        ("OPTIONS / HTTP/1.1", 200),
        ("OPTIONS *a HTTP/1.1", 400),
        ("GET a:80 HTTP/1.1", 400),
        ("CONNECT a:80 HTTP/1.1", 200),
        ("CONNECT [::1]:80 HTTP/1.1", 200),
        ("CONNECT a HTTP/1.1", 400),
        ("CONNECT a: HTTP/1.1", 400),
        ("CONNECT [::1] HTTP/1.1", 400),
        ("CONNECT a:65536 HTTP/1.1", 400),
        ("CONNECT / HTTP/1.1", 400),
        ("CONNECT http://a:80/ HTTP/1.1", 400),
        ("GET http://a/ HTTP/1.1", 200),
        ("GET HTTPS://a:1/ HTTP/1.1", 200),
        ("GET http:///x HTTP/1.1", 400),
        ("GET http:/x HTTP/1.1", 400),
        ("GET http://u@a/ HTTP/1.1", 400),
        ("GET http://a..b/ HTTP/1.1", 400),
        ("GET ftp://a/ HTTP/1.1", 400),
        ("GET ://a/ HTTP/1.1", 400),
    ];
    for (request_line, status) in cases {
        assert_eq!(status_of(line(request_line)), status, "{request_line:?}");
    }
    let mut latin1 = line("GET /ae HTTP/1.1").into_bytes();
    latin1[5] = 0xe4;
    assert_eq!(status_of(latin1), 400);
}

#[test]
fn targets_are_taken_apart() {
    // Request line, then target, path, query.
    let cases = [
        ("GET / HTTP/1.1", "/", "/", None),
        ("GET /a/b?c=d HTTP/1.1", "/a/b?c=d", "/a/b", Some("c=d")),
        ("GET /a? HTTP/1.1", "/a?", "/a", Some("")),
        ("GET /a?b?c HTTP/1.1", "/a?b?c", "/a", Some("b?c")),
        ("GET /a#b HTTP/1.1", "/a", "/a", None),
        ("GET /a?b#c?d#e HTTP/1.1", "/a?b", "/a", Some("b")),
        ("GET /a#b?c HTTP/1.1", "/a", "/a", None),
        ("GET /%41%2f HTTP/1.1", "/%41%2f", "/%41%2f", None),
        ("GET /a/../b HTTP/1.1", "/a/../b", "/a/../b", None),
        ("OPTIONS * HTTP/1.1", "*", "*", None),
        ("CONNECT b:80 HTTP/1.1", "b:80", "", None),
        ("GET http://b/c?d HTTP/1.1", "http://b/c?d", "/c", Some("d")),
        ("GET http://b HTTP/1.1", "http://b", "/", None),
        ("GET http://b?c HTTP/1.1", "http://b?c", "/", Some("c")),
        ("GET http://b/c#d HTTP/1.1", "http://b/c", "/c", None),
        (
            "GET http://b/c://d HTTP/1.1",
            "http://b/c://d",
            "/c://d",
            None,
        ),
    ];
    for (request_line, target, path, query) in cases {
        let message = message(line(request_line));
        assert_eq!(message.target, target, "{request_line:?}");
        assert_eq!(message.path, path, "{request_line:?}");
        assert_eq!(message.query.as_deref(), query, "{request_line:?}");
    }
}

#[test]
fn versions_are_told_apart() {
    assert_eq!(message(line("GET / HTTP/1.0")).version, Version::Http10);
    assert_eq!(message(line("GET / HTTP/1.1")).version, Version::Http11);
}

#[test]
fn a_long_target_is_414_whether_or_not_its_line_ends() {
    let limits = Limits {
        target_bytes_max: 100,
        ..Limits::default()
    };
    let target = |len: usize| format!("/{}", "a".repeat(len - 1));
    assert_eq!(
        status_within(line(&format!("GET {} HTTP/1.1", target(100))), &limits),
        200
    );
    assert_eq!(
        status_within(line(&format!("GET {} HTTP/1.1", target(101))), &limits),
        414
    );
    assert_eq!(
        status_within(line(&format!("GET {} HTTP/1.1", target(9000))), &limits),
        414
    );
    assert_eq!(status_within(format!("GET {}", target(9000)), &limits), 414);
    // The fragment counts: it was sent.
    assert_eq!(
        status_within(line(&format!("GET /#{} HTTP/1.1", target(100))), &limits),
        414
    );
    assert_eq!(
        status_within(format!("\r\nGET {}", target(9000)), &limits),
        414
    );
}

#[test]
fn a_long_method_is_501() {
    assert_eq!(
        status_of(line(&format!("{} / HTTP/1.1", "M".repeat(64)))),
        200
    );
    assert_eq!(
        status_of(line(&format!("{} / HTTP/1.1", "M".repeat(65)))),
        501
    );
}

#[test]
fn what_is_not_http_is_refused_at_its_first_byte() {
    check_statuses(&[
        ("\x16\x03\x01\x02", 400),
        ("\0", 400),
        ("\n", 400),
        (" ", 400),
        ("\r\n\x16", 400),
        ("\rG", 0),
        ("\r", 0),
        ("G", 0),
        ("", 200),
    ]);
}
