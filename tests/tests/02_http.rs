//! HTTP/1.x requests as they come: good ones reach the application exactly as sent, bad ones never do.

use std::time::{Duration, Instant};

use baton_journeys::options::{
    BODY_BYTES_MAX, BODY_MS, HEADER_MS, KEEP_ALIVE_MS, REQUESTS_PER_CONNECTION_MAX, THREADS,
};
use baton_journeys::{Baton, Cases, Conn, Fault, Reply, Site, client, pattern};

fn serve() -> (Site, Baton) {
    let site = Site::of_fixture("php");
    let server = Baton::serve(site.root());
    (site, server)
}

/// A GET with these header lines besides Host.
fn with_headers(lines: &str) -> Vec<u8> {
    format!("GET /echo HTTP/1.1\r\nHost: a\r\n{lines}\r\n").into_bytes()
}

/// A POST with these header lines besides Host, and this after the head.
fn with_body(lines: &str, body: &str) -> Vec<u8> {
    format!("POST /echo HTTP/1.1\r\nHost: a\r\n{lines}\r\n{body}").into_bytes()
}

#[track_caller]
fn line(reply: &Reply, name: &str, value: &str) {
    assert_eq!(reply.line(name).as_deref(), Some(value), "{name}");
}

#[test]
fn bad_requests_are_refused_and_never_reach_the_application() {
    let (_site, server) = serve();
    let mut cases = Cases::new();
    let get = |line: &str| format!("{line}\r\nHost: a\r\n\r\n").into_bytes();
    let mut table: Vec<(String, Vec<u8>, &[u16])> = Vec::new();
    let mut bad = |name: &str, bytes: Vec<u8>, statuses: &'static [u16]| {
        table.push((name.to_owned(), bytes, statuses))
    };

    // Host
    bad("no host", b"GET / HTTP/1.1\r\n\r\n".to_vec(), &[400]);
    bad(
        "two hosts",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".to_vec(),
        &[400],
    );
    bad(
        "the same host twice",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n".to_vec(),
        &[400],
    );
    for host in [
        "", " ", "..", "/", "a/b", "a b", "user@a", "a:b:c", "[::1", "a:x", "a\tb",
    ] {
        bad(
            &format!("host {host:?}"),
            format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes(),
            &[400],
        );
    }
    bad(
        "absolute form without host",
        b"GET http://a/ HTTP/1.1\r\n\r\n".to_vec(),
        &[400],
    );

    // Request line
    for text in [
        "GET / http/1.1",
        "GET / HTTP/1.a",
        "GET / HTTP/1",
        "GET / HTTP/1.",
        "GET / HTTP/1.1 ",
        "GET / HTTP/1.10",
        "GET /",
        "GET",
        "GET  / HTTP/1.1",
        "GET /  HTTP/1.1",
        " GET / HTTP/1.1",
        "GET\t/\tHTTP/1.1",
        "GE(T / HTTP/1.1",
        "GE:T / HTTP/1.1",
        "G\u{1}T / HTTP/1.1",
        "GET a HTTP/1.1",
        "GET * HTTP/1.1",
        "GET a.example:80 HTTP/1.1",
        "GET /a b HTTP/1.1",
        "GET /\u{1} HTTP/1.1",
        "GET /\u{7f} HTTP/1.1",
        "GET /a\0b HTTP/1.1",
        "GET /a%00b HTTP/1.1",
    ] {
        bad(&format!("request line {text:?}"), get(text), &[400]);
    }
    bad(
        "a method without end",
        get(&format!("{} / HTTP/1.1", "M".repeat(20_000))),
        &[400, 414, 431, 501],
    );
    for text in ["GET / HTTP/2.0", "GET / HTTP/3.0", "GET / HTTP/9.9"] {
        bad(text, get(text), &[505]);
    }

    for text in ["GET / HTTP/11", "GET / HTTP/0.9"] {
        bad(text, get(text), &[400, 505]);
    }

    // Headers
    for text in [
        "X A: b\r\n",
        "X : b\r\n",
        " X: b\r\n",
        "X: b\r\n Y: c\r\n",
        "X: b\r\n\tc\r\n",
        ": b\r\n",
        "X\r\n",
        "X(: b\r\n",
        "X: a\0b\r\n",
        "X: a\u{1}b\r\n",
        "X: a\u{7f}b\r\n",
        "X: a\rb\r\n",
        "X: a\nY: b\r\n",
        "X: a\n",
        "\u{1}: b\r\n",
        "X\0: b\r\n",
    ] {
        bad(&format!("header {text:?}"), with_headers(text), &[400]);
    }
    bad(
        "bare LF at the end",
        b"GET / HTTP/1.1\r\nHost: a\r\n\n".to_vec(),
        &[400],
    );
    bad(
        "bare LF throughout",
        b"GET / HTTP/1.1\nHost: a\n\n".to_vec(),
        &[400],
    );

    // Limits
    bad(
        "a long target",
        get(&format!("GET /{} HTTP/1.1", "a".repeat(9_000))),
        &[414],
    );
    bad(
        "a long query",
        get(&format!("GET /?{} HTTP/1.1", "a".repeat(9_000))),
        &[414],
    );
    bad(
        "a large header",
        with_headers(&format!("X-Large: {}\r\n", "a".repeat(40_000))),
        &[431],
    );
    bad(
        "large headers",
        with_headers(&format!("X-Large: {}\r\n", "a".repeat(4_000)).repeat(10)),
        &[431],
    );
    bad(
        "many headers",
        with_headers(&"X: y\r\n".repeat(150)),
        &[431],
    );

    // Content-Length
    for value in [
        "5.01",
        "+5",
        "5 test",
        "-5",
        "18446744073709551616",
        "99999999999999999999999",
        "41, 42",
        "",
        "0x5",
        "five",
        "5,",
        ",5",
        "5;5",
    ] {
        bad(
            &format!("content-length {value:?}"),
            with_body(&format!("Content-Length: {value}\r\n"), "hello"),
            &[400],
        );
    }
    bad(
        "lengths that differ",
        with_body("Content-Length: 5\r\nContent-Length: 6\r\n", "hello!"),
        &[400],
    );

    // Transfer-Encoding
    let chunked = "5\r\nhello\r\n0\r\n\r\n";
    bad(
        "both framings",
        with_body(
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            chunked,
        ),
        &[400],
    );
    bad(
        "both framings, the other way",
        with_body(
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            chunked,
        ),
        &[400],
    );
    bad(
        "coding on 1.0",
        b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_vec(),
        &[400],
    );
    bad(
        "chunked is not last",
        with_body("Transfer-Encoding: chunked, gzip\r\n", chunked),
        &[400, 501],
    );
    bad(
        "chunked twice",
        with_body("Transfer-Encoding: chunked, chunked\r\n", chunked),
        &[400, 501],
    );
    bad(
        "empty coding",
        with_body("Transfer-Encoding:\r\n", chunked),
        &[400, 501],
    );
    bad(
        "unknown last coding",
        with_body("Transfer-Encoding: foo\r\n", chunked),
        &[400, 501],
    );
    bad(
        "unknown coding before chunked",
        with_body("Transfer-Encoding: foo, chunked\r\n", chunked),
        &[501],
    );
    bad(
        "gzip before chunked",
        with_body(
            "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
            chunked,
        ),
        &[501],
    );
    bad(
        "a coding in disguise",
        with_body("Transfer-Encoding: \u{b}chunked\r\n", chunked),
        &[400, 501],
    );
    for size in [
        "5.01",
        "+5",
        "5 bad",
        "0xA",
        "",
        "-5",
        "g",
        "FFFFFFFFFFFFFFFFF",
        "5\n",
    ] {
        let body = format!("{size}\r\nhello\r\n0\r\n\r\n");
        bad(
            &format!("chunk size {size:?}"),
            with_body("Transfer-Encoding: chunked\r\n", &body),
            &[400, 413],
        );
    }
    for body in [
        "5\r\nhello!\r\n0\r\n\r\n",
        "6\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
    ] {
        bad(
            &format!("chunks {body:?}"),
            with_body("Transfer-Encoding: chunked\r\n", body),
            &[400],
        );
    }
    let extension = format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(100_000));
    bad(
        "a chunk extension without end",
        with_body("Transfer-Encoding: chunked\r\n", &extension),
        &[400, 413, 431],
    );
    let trailers = format!(
        "0\r\n{}\r\n",
        format!("X-T: {}\r\n", "t".repeat(1_000)).repeat(200)
    );
    bad(
        "trailers without end",
        with_body("Transfer-Encoding: chunked\r\n", &trailers),
        &[400, 413, 431],
    );

    for (name, bytes, statuses) in table {
        cases.case(&name, || {
            let mut conn = server.connect();
            let reply = conn.ask(&bytes).unwrap_or_else(|fault| panic!("{fault}"));
            assert!(
                statuses.contains(&reply.status()),
                "{} instead of {statuses:?}: {:?}",
                reply.status(),
                reply.text().lines().next()
            );
            assert!(
                reply.line("REQUEST_METHOD").is_none(),
                "it reached the application"
            );
            assert!(reply.head.says_close(), "the reply does not say close");
            assert!(reply.header("date").is_some() && reply.header("content-type").is_some());
            conn.expect_close();
        });
    }
    cases.case("the server goes on", || drop(server.get("/").expect(200)));
    cases.finish();
}

#[test]
fn good_requests_arrive_as_sent() {
    let (_site, server) = serve();
    let mut cases = Cases::new();
    let served = |bytes: &[u8]| server.send(bytes).expect(200);

    cases.case("1.0 without host", || {
        let mut conn = server.connect();
        let reply = conn
            .ask("GET /old HTTP/1.0\r\n\r\n")
            .expect("a reply")
            .expect(200);
        line(&reply, "REQUEST_URI", "/old");
        line(&reply, "SERVER_PROTOCOL", "HTTP/1.0");
        conn.expect_close();
    });
    cases.case("1.0 kept alive when asked", || {
        let mut conn = server.connect();
        for _ in 0..2 {
            let reply = conn
                .ask("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
                .expect("a reply")
                .expect(200);
            // Without a length the end of the connection is the end of the body.
            if reply.head.says_close() {
                return;
            }
        }
    });
    cases.case("1.1 kept alive", || {
        let mut conn = server.connect();
        for i in 0..5 {
            let reply = conn
                .ask(format!("GET /{i} HTTP/1.1\r\nHost: a\r\n\r\n"))
                .expect("a reply")
                .expect(200);
            line(&reply, "REQUEST_URI", &format!("/{i}"));
        }
    });
    cases.case("1.1 closed when asked", || {
        let mut conn = server.connect();
        let reply = conn
            .ask(with_headers("Connection: close\r\n"))
            .expect("a reply")
            .expect(200);
        assert!(reply.head.says_close());
        conn.expect_close();
    });
    for (host, name) in [
        ("[::1]:8080", "[::1]"),
        ("[2001:db8::1]", "[2001:db8::1]"),
        ("a.example:81", "a.example"),
        ("a-b_c.example", "a-b_c.example"),
    ] {
        cases.case(&format!("host {host}"), || {
            let reply = served(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
            line(&reply, "HTTP_HOST", host);
            line(&reply, "SERVER_NAME", name);
        });
    }
    cases.case("absolute form", || {
        let reply = served(b"GET http://a.example/x/y?z=1 HTTP/1.1\r\nHost: a.example\r\n\r\n");
        line(&reply, "REQUEST_URI", "/x/y?z=1");
        line(&reply, "QUERY_STRING", "z=1");
    });
    cases.case("options of the server", || {
        let reply = server.send(b"OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert!(matches!(reply.status(), 200 | 204), "{}", reply.status());
    });
    cases.case("fragment", || {
        let reply =
            server.send(b"GET /x?a=1#frag HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert!(!reply.text().contains("frag"), "{}", reply.text());
    });
    for method in ["PROPFIND", "BREW", "PATCH", "DELETE", "PUT", "M-SEARCH"] {
        cases.case(method, || {
            line(
                &served(&client::request(method, "/", &[], b"")),
                "REQUEST_METHOD",
                method,
            )
        });
    }
    cases.case("empty line before the request", || {
        drop(served(b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"))
    });
    cases.case("header values are trimmed", || {
        let reply = served(&with_headers(
            "X-A: \t b \t c\t \r\nX-Empty:\r\nX-Tight:d\r\n",
        ));
        line(&reply, "HTTP_X_A", "b \t c");
        line(&reply, "HTTP_X_EMPTY", "");
        line(&reply, "HTTP_X_TIGHT", "d");
    });
    cases.case("high bytes in a value", || {
        let reply = served(b"GET / HTTP/1.1\r\nHost: a\r\nX-High: \xe9\x80\xff\r\n\r\n");
        let wanted = b"HTTP_X_HIGH=\xe9\x80\xff\n";
        assert!(reply.body.windows(wanted.len()).any(|w| w == wanted));
    });
    cases.case("repeated headers join", || {
        let reply = served(&with_headers(
            "X-A: 1\r\nCookie: a=1\r\nx-a: 2\r\nX-A: 3\r\ncookie: b=2\r\n",
        ));
        line(&reply, "HTTP_X_A", "1, 2, 3");
        line(&reply, "HTTP_COOKIE", "a=1; b=2");
    });
    cases.case("underscores are no dashes", || {
        let reply = served(&with_headers("X_Forwarded_For: 6.6.6.6\r\n"));
        assert_eq!(reply.line("HTTP_X_FORWARDED_FOR"), None);
        let reply = served(&with_headers(
            "X-Forwarded_For: 6.6.6.6\r\nX-Forwarded-For: 7.7.7.7\r\nX_Forwarded-For: 6.6.6.6\r\n",
        ));
        line(&reply, "HTTP_X_FORWARDED_FOR", "7.7.7.7");
    });
    cases.case("underscores never frame a body", || {
        let mut conn = server.connect();
        for lines in [
            "Content_Length: 40\r\n",
            "Transfer_Encoding: chunked\r\n",
            "Content_Length: 40\r\nContent-Length: 0\r\n",
        ] {
            let reply = conn
                .ask(with_headers(lines))
                .unwrap_or_else(|f| panic!("{f}"))
                .expect(200);
            line(&reply, "body_length", "0");
        }
    });
    cases.case("a target just under the limit", || {
        let target = format!("/?{}", "a".repeat(8_000));
        line(
            &served(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()),
            "REQUEST_URI",
            &target,
        );
    });
    cases.case("ninety headers", || {
        let lines: String = (0..90).map(|i| format!("X-N{i}: v{i}\r\n")).collect();
        let reply = served(&with_headers(&lines));
        (0..90).for_each(|i| line(&reply, &format!("HTTP_X_N{i}"), &format!("v{i}")));
    });
    cases.case("equal lengths", || {
        // Equal duplicates may be taken or refused, but the body is never read twice or not at all.
        let reply = server.send(with_body(
            "Content-Length: 5\r\nContent-Length: 5\r\nConnection: close\r\n",
            "hello",
        ));
        assert!(
            reply.status() == 400 || reply.line("body").as_deref() == Some("hello"),
            "{}",
            reply.text()
        );
    });
    for coding in ["chunked", "Chunked", "CHUNKED", " chunked ", ", chunked"] {
        cases.case(&format!("coding {coding:?}"), || {
            let reply = server.send(with_body(
                &format!("Transfer-Encoding: {coding}\r\n"),
                "5\r\nhello\r\n0\r\n\r\n",
            ));
            // An empty list element may be refused.
            if coding != ", chunked" || reply.status() == 200 {
                line(&reply.expect(200), "body", "hello");
            }
        });
    }
    for body in [
        "5\r\nhello\r\n0\r\n\r\n",
        "1\r\nh\r\n4\r\nello\r\n0\r\n\r\n",
        "5;a=b\r\nhello\r\n0;c\r\n\r\n",
        "005\r\nhello\r\n000\r\n\r\n",
        "5\r\nhello\r\n0\r\nX-Trailer: t\r\nX-Other: u\r\n\r\n",
        "5;a=\"b;c\"\r\nhello\r\n0\r\n\r\n",
    ] {
        cases.case(&format!("chunks {body:?}"), || {
            let mut conn = server.connect();
            let reply = conn
                .ask(with_body("Transfer-Encoding: chunked\r\n", body))
                .expect("a reply")
                .expect(200);
            line(&reply, "body", "hello");
            assert_eq!(reply.line("HTTP_X_TRAILER"), None);
            let next = conn
                .ask("GET /next HTTP/1.1\r\nHost: a\r\n\r\n")
                .expect("a reply")
                .expect(200);
            line(&next, "REQUEST_URI", "/next");
        });
    }
    cases.case("a trailer smuggles nothing", || {
        let mut conn = server.connect();
        let smuggled = "0\r\nX: POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
        conn.send(with_body("Transfer-Encoding: chunked\r\n", smuggled))
            .expect("sent");
        let reply = conn.reply_to("POST").expect("a reply").expect(200);
        line(&reply, "body_length", "0");
        assert!(
            conn.stays_silent(Duration::from_millis(300)),
            "a second answer"
        );
        line(
            &conn
                .ask("GET /next HTTP/1.1\r\nHost: a\r\n\r\n")
                .expect("a reply"),
            "REQUEST_URI",
            "/next",
        );
    });
    cases.finish();
}

#[test]
fn bodies_arrive_exactly() {
    let (_site, server) = serve();
    let mut conn = server.connect();
    for length in [
        0, 1, 1023, 1024, 16_384, 65_535, 65_536, 65_537, 200_000, 3_000_000,
    ] {
        let body = pattern(length);
        let reply = conn
            .ask(client::request("POST", "/echo", &[], &body))
            .expect("a reply")
            .expect(200);
        line(&reply, "body_length", &length.to_string());
        line(&reply, "CONTENT_LENGTH", &length.to_string());
        let plain = reply.line("body_md5");
        // The same in chunks of changing size.
        let mut chunks = Vec::new();
        let mut rest = body.as_slice();
        for size in [1usize, 7, 4_096, 65_536, 300].iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (now, later) = rest.split_at(rest.len().min(*size));
            chunks.extend_from_slice(format!("{:x}\r\n", now.len()).as_bytes());
            chunks.extend_from_slice(now);
            chunks.extend_from_slice(b"\r\n");
            rest = later;
        }
        chunks.extend_from_slice(b"0\r\n\r\n");
        let request = client::request(
            "POST",
            "/echo",
            &[("Transfer-Encoding", "chunked")],
            &chunks,
        );
        let reply = conn.ask(request).expect("a reply").expect(200);
        line(&reply, "body_length", &length.to_string());
        assert_eq!(reply.line("body_md5"), plain, "{length} bytes in chunks");
    }
}

#[test]
fn pauses_change_nothing() {
    let (_site, server) = serve();
    let request = with_body(
        "X-A: b\r\nTransfer-Encoding: chunked\r\n",
        "b;x=y\r\nhello world\r\n1\r\n!\r\n0\r\nT: u\r\n\r\n",
    );
    let mut conn = server.connect();
    for at in 1..request.len() {
        let (before, after) = request.split_at(at);
        conn.send_slowly(&[before, after], Duration::from_millis(4))
            .expect("sent");
        let reply = conn
            .reply_to("POST")
            .unwrap_or_else(|f| panic!("split at {at}: {f}"))
            .expect(200);
        line(&reply, "body", "hello world!");
        line(&reply, "HTTP_X_A", "b");
    }
    let bytes: Vec<[u8; 1]> = request.iter().map(|b| [*b]).collect();
    conn.send_slowly(&bytes, Duration::from_millis(2))
        .expect("sent");
    line(
        &conn.reply_to("POST").expect("a reply").expect(200),
        "body",
        "hello world!",
    );
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let (_site, server) = serve();
    let mut conn = server.connect();
    let mut all = Vec::new();
    for i in 0..20 {
        let body = format!("{:x}\r\nbody-{i:02}\r\n0\r\n\r\n", 7);
        all.extend_from_slice(
            format!("POST /{i} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}")
                .as_bytes(),
        );
    }
    conn.send(&all).expect("sent");
    for i in 0..20 {
        let reply = conn
            .reply_to("POST")
            .unwrap_or_else(|f| panic!("answer {i}: {f}"))
            .expect(200);
        line(&reply, "REQUEST_URI", &format!("/{i}"));
        line(&reply, "body", &format!("body-{i:02}"));
    }
    // One behind a slow one waits its turn; other connections do not.
    let mut slow = server.connect();
    slow.send("GET /pid.php?ms=800&tag=slow HTTP/1.1\r\nHost: a\r\n\r\nGET /pid.php?tag=fast HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    let start = Instant::now();
    server.get("/pid.php").expect(200);
    assert!(
        start.elapsed() < Duration::from_millis(400),
        "others wait: {:?}",
        start.elapsed()
    );
    assert!(slow.reply().expect("a reply").text().ends_with("slow"));
    assert!(start.elapsed() >= Duration::from_millis(600));
    assert!(slow.reply().expect("a reply").text().ends_with("fast"));
    // A bad request behind good ones: they are answered first.
    let mut mixed = server.connect();
    mixed
        .send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\n\r\n")
        .expect("sent");
    line(
        &mixed.reply().expect("a reply").expect(200),
        "REQUEST_URI",
        "/1",
    );
    assert_eq!(mixed.reply().expect("a reply").status(), 400);
    mixed.expect_close();
}

#[test]
fn expect_100_continue() {
    let site = Site::of_fixture("php");
    let server = Baton::with(site.root(), &[BODY_BYTES_MAX, "1048576"]);
    let head = |version: &str, length: usize| {
        format!(
            "POST /echo HTTP/{version}\r\nHost: a\r\nContent-Length: {length}\r\nExpect: 100-continue\r\n\r\n"
        )
    };

    let mut conn = server.connect();
    conn.send(head("1.1", 5)).expect("sent");
    let mut interim = [0u8; 64];
    std::io::Read::read_exact(&mut conn.stream(), &mut interim[..25]).expect("an interim reply");
    assert_eq!(&interim[..25], b"HTTP/1.1 100 Continue\r\n\r\n");
    conn.send("hello").expect("sent");
    line(
        &conn.reply_to("POST").expect("a reply").expect(200),
        "body",
        "hello",
    );

    // A client that does not wait needs no 100.
    let mut conn = server.connect();
    conn.send(format!("{}hello", head("1.1", 5))).expect("sent");
    line(
        &conn.reply_to("POST").expect("a reply").expect(200),
        "body",
        "hello",
    );

    let mut conn = server.connect();
    conn.send(head("1.0", 5)).expect("sent");
    assert!(
        conn.stays_silent(Duration::from_millis(300)),
        "100 to HTTP/1.0"
    );
    conn.send("hello").expect("sent");
    let reply = conn.reply_to("POST").expect("a reply").expect(200);
    assert!(reply.interim.is_empty());

    let mut conn = server.connect();
    conn.send(head("1.1", 2_000_000)).expect("sent");
    let reply = conn.reply_to("POST").expect("a reply");
    assert_eq!((reply.status(), reply.interim.len()), (413, 0));
}

#[test]
fn bodies_over_the_limit_are_refused() {
    let site = Site::of_fixture("php");
    let server = Baton::with(site.root(), &[BODY_BYTES_MAX, "1000000"]);
    let exact = client::request("POST", "/echo", &[], &pattern(1_000_000));
    line(&server.send(exact).expect(200), "body_length", "1000000");

    let mut announced = server.connect();
    announced
        .send(with_body("Content-Length: 1000001\r\n", ""))
        .expect("sent");
    assert_eq!(announced.reply_to("POST").expect("a reply").status(), 413);
    announced.expect_close();

    // The answer comes through although the client goes on sending.
    let chunk = format!("8000\r\n{}\r\n", "x".repeat(0x8000));
    let mut chunked = server.connect();
    chunked
        .send(with_body("Transfer-Encoding: chunked\r\n", ""))
        .expect("sent");
    for _ in 0..36 {
        if chunked.send(&chunk).is_err() {
            break;
        }
    }
    let reply = chunked.reply_to("POST").unwrap_or_else(|f| panic!("{f}"));
    assert_eq!(reply.status(), 413);
    server.get("/").expect(200);
}

#[test]
fn slow_heads_and_bodies_time_out() {
    let site = Site::of_fixture("php");
    let server = Baton::with(
        site.root(),
        &[HEADER_MS, "700", BODY_MS, "700", KEEP_ALIVE_MS, "600"],
    );
    let between = |start: Instant, from: u64, to: u64| {
        let took = start.elapsed();
        assert!(
            took >= Duration::from_millis(from) && took < Duration::from_millis(to),
            "after {took:?}"
        );
    };
    let mut cases = Cases::new();
    cases.case("the head's time is total", || {
        let mut conn = server.connect();
        let start = Instant::now();
        let bytes = b"GET / HTTP/1.1\r\nHost: a\r\nX-Long: aaaaaaaaaaaaaaaaaaaaaaaaaaaa";
        for byte in bytes {
            if conn.send([*byte]).is_err() || start.elapsed() > Duration::from_millis(1500) {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let reply = conn.reply().unwrap_or_else(|f| panic!("{f}"));
        assert_eq!(reply.status(), 408);
    });
    cases.case("half a head, then silence", || {
        let mut conn = server.connect();
        let start = Instant::now();
        conn.send("GET / HTTP/1.1\r\nHo").expect("sent");
        assert_eq!(conn.reply().expect("a reply").status(), 408);
        between(start, 600, 2000);
        conn.expect_close();
    });
    cases.case("a body that stops", || {
        let mut conn = server.connect();
        let start = Instant::now();
        conn.send(with_body("Content-Length: 10\r\n", "half"))
            .expect("sent");
        assert_eq!(conn.reply_to("POST").expect("a reply").status(), 408);
        between(start, 600, 2500);
        conn.expect_close();
    });
    cases.case("a body with pauses goes on", || {
        let mut conn = server.connect();
        let pieces: Vec<Vec<u8>> = vec![
            with_body("Content-Length: 4\r\n", ""),
            b"a".to_vec(),
            b"b".to_vec(),
            b"c".to_vec(),
            b"d".to_vec(),
        ];
        conn.send_slowly(&pieces, Duration::from_millis(350))
            .expect("sent");
        line(
            &conn.reply_to("POST").expect("a reply").expect(200),
            "body",
            "abcd",
        );
    });
    cases.case("nothing at all ends bare", || {
        let mut conn = server.connect();
        conn.expect_close();
    });
    cases.case("idle after a request ends bare", || {
        let mut conn = server.connect();
        conn.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("a reply")
            .expect(200);
        let start = Instant::now();
        conn.expect_close();
        between(start, 500, 2000);
    });
    cases.case("a slow application is no idle client", || {
        assert_eq!(server.get("/pid.php?ms=1500").status(), 200);
    });
    cases.finish();
}

#[test]
fn a_connection_has_a_last_request() {
    let site = Site::of_fixture("php");
    let server = Baton::with(site.root(), &[REQUESTS_PER_CONNECTION_MAX, "3"]);
    let mut conn = server.connect();
    for i in 1..=3 {
        let reply = conn
            .ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("a reply")
            .expect(200);
        assert_eq!(reply.head.says_close(), i == 3, "answer {i}");
    }
    conn.expect_close();
}

#[test]
fn idle_clients_starve_nobody_and_log_nothing() {
    let site = Site::of_fixture("php");
    let server = Baton::with(site.root(), &[THREADS, "1"]);
    let mut idle = server.connect();
    idle.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("a reply")
        .expect(200);
    let silent = server.connect();
    let start = Instant::now();
    (0..10).for_each(|_| drop(server.get("/pid.php").expect(200)));
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );

    let before = server.log();
    drop(silent);
    (0..20).for_each(|_| drop(server.connect()));
    (0..20).for_each(|_| server.connect().reset());
    server.get("/pid.php").expect(200);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(server.log(), before, "connect-and-close was logged");
}

#[test]
fn a_half_closed_client_still_gets_its_answer() {
    let (_site, server) = serve();
    let mut conn = server.connect();
    conn.send("GET /half HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("sent");
    conn.finish_sending();
    match conn.reply() {
        Ok(reply) => line(&reply.expect(200), "REQUEST_URI", "/half"),
        // A server may take the FIN for a departure; it must not answer half.
        Err(Fault::Closed) => {}
        Err(fault) => panic!("{fault}"),
    }
    // An unfinished request is not served.
    let mut cut = server.connect();
    cut.send(with_body("Content-Length: 100\r\n", "half"))
        .expect("sent");
    cut.finish_sending();
    assert!(!matches!(cut.reply_to("POST"), Ok(reply) if reply.status() == 200));
}

#[test]
fn the_connection_limit_lets_others_wait() {
    let site = Site::of_fixture("php");
    let server = Baton::with(
        site.root(),
        &[baton_journeys::options::CONNECTIONS_MAX, "8"],
    );
    let held: Vec<Conn> = (0..8)
        .map(|_| {
            let mut conn = server.connect();
            conn.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                .expect("a reply")
                .expect(200);
            conn
        })
        .collect();
    let mut waits = server.connect();
    waits
        .send("GET /late HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("sent");
    assert!(
        waits.stays_silent(Duration::from_millis(400)),
        "served over the limit"
    );
    drop(held);
    line(
        &waits.reply().expect("a reply").expect(200),
        "REQUEST_URI",
        "/late",
    );
}
