//! Which host a request names.

use super::{message, status_of};
use crate::host::is_host_and_port;

#[test]
fn host_syntax() {
    let good = [
        "a",
        "localhost",
        "example.com",
        "EXAMPLE.COM.",
        "a.b:80",
        "a:",
        "a:0",
        "a:65535",
        "a:00080",
        "127.0.0.1",
        "127.0.0.1:8080",
        "[::1]",
        "[::1]:443",
        "[::1]:",
        "[2001:db8::7]:8080",
        "[::ffff:1.2.3.4]",
        "under_score.test",
        "xn--bcher-kva.example",
        "a-b~c",
    ];
    for host in good {
        assert!(is_host_and_port(host), "{host:?}");
    }
    let bad = [
        "",
        " ",
        ".",
        "..",
        ".a",
        "a..b",
        "127.0.0..1",
        "a/b",
        "/a",
        "/",
        "a b",
        "a,b",
        "a\tb",
        "a@b",
        "a:b",
        "a:80:80",
        "a:-1",
        "a:+1",
        "a:65536",
        "a:000080",
        ":80",
        ":",
        "a%2fb",
        "a?b",
        "a#b",
        "a\\b",
        "a'b",
        "<a>",
        "\u{e4}",
        "[::1",
        "::1",
        "[::1]a",
        "[]",
        "[::g]",
        "[fe80::1%25eth0]",
        "[v1.a]",
        "]",
        "[[::1]]",
    ];
    for host in bad {
        assert!(!is_host_and_port(host), "{host:?}");
    }
}

#[test]
fn the_host_header() {
    // What follows the request line, with 1.1 and 1.0.
    let cases = [
        ("", 400, 200),
        ("Host: a\r\n", 200, 200),
        ("Host:a\r\n", 200, 200),
        ("HOST: \t a \t\r\n", 200, 200),
        ("Host: [::1]:80\r\n", 200, 200),
        ("Host:\r\n", 400, 400),
        ("Host:  \r\n", 400, 400),
        ("Host: a..b\r\n", 400, 400),
        ("Host: /a\r\n", 400, 400),
        ("Host: a/b\r\n", 400, 400),
        ("Host: a\r\nHost: a\r\n", 400, 400),
        ("Host: a\r\nhost: b\r\n", 400, 400),
        ("Host: a, b\r\n", 400, 400),
        ("Hos_t: a\r\n", 400, 200),
    ];
    for (headers, on_11, on_10) in cases {
        for target in ["/", "http://a/"] {
            let with = |version| format!("GET {target} HTTP/{version}\r\n{headers}\r\n");
            assert_eq!(status_of(with("1.1")), on_11, "{headers:?} {target}");
            assert_eq!(status_of(with("1.0")), on_10, "{headers:?} {target}");
        }
    }
}

#[test]
fn an_absolute_target_outranks_the_header() {
    let absolute = message("GET http://b:8/ HTTP/1.1\r\nX: 1\r\nHost: a\r\n\r\n");
    assert_eq!(absolute.host.as_deref(), Some("b:8"));
    assert_eq!(absolute.values("host"), ["b:8"]);
    let origin = message("GET / HTTP/1.1\r\nHost: a:1\r\n\r\n");
    assert_eq!(origin.host.as_deref(), Some("a:1"));
    let old = message("GET http://b/ HTTP/1.0\r\n\r\n");
    assert_eq!(old.host.as_deref(), Some("b"));
    assert_eq!(message("GET / HTTP/1.0\r\n\r\n").host, None);
}
