//! What clients get back, whatever the application does: exact bodies, one framing, no smuggled line, in time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use baton_journeys::client::{Framing, request};
use baton_journeys::options::THREADS;
use baton_journeys::{Baton, Cases, Fault, Site, pattern};

fn serve() -> (Site, Baton) {
    let site = Site::of_fixture("php");
    let server = Baton::serve(site.root());
    (site, server)
}

fn ask(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")
}

#[test]
fn bodies_are_exact_in_every_framing() {
    let (_site, server) = serve();
    let mut cases = Cases::new();
    for length in [
        0, 1, 1_000, 16_383, 16_384, 16_385, 65_536, 131_072, 262_144, 262_145, 2_000_000,
        9_000_000,
    ] {
        for (name, query) in [
            ("announced", "&known"),
            ("as it comes", ""),
            ("small parts", "&part=1024"),
            ("flushed", "&flush"),
            ("announced and flushed", "&known&flush"),
        ] {
            cases.case(&format!("{length} bytes, {name}"), || {
                let target = format!("/body.php?length={length}{query}");
                let mut conn = server.connect();
                for _ in 0..2 {
                    let reply = conn
                        .ask(ask(&target))
                        .unwrap_or_else(|f| panic!("{f}"))
                        .expect(200);
                    assert!(
                        reply.body == pattern(length),
                        "{} bytes, or other bytes",
                        reply.body.len()
                    );
                    if query.contains("known") {
                        assert_eq!(
                            reply.header("content-length"),
                            Some(length.to_string().as_str())
                        );
                    }
                    assert!(!reply.head.says_close(), "the connection is not kept");
                }
            });
        }
    }
    cases.case("one byte at a time", || {
        let reply = server.get("/body.php?length=3000&part=1&flush").expect(200);
        assert!(reply.body == pattern(3000));
    });
    cases.case("a file read by the script", || {
        let site = Site::with_index("<?php readfile(__DIR__ . '/data.bin');");
        site.write("data.bin", pattern(131_072));
        assert!(Baton::serve(site.root()).get("/").expect(200).body == pattern(131_072));
    });
    cases.finish();
}

#[test]
fn the_length_of_a_short_reply_is_known() {
    let (_site, server) = serve();
    let reply = server.get("/headers.php?case=plain").expect(200);
    assert_eq!(reply.head.framing, Framing::Length(4), "{:?}", reply.head);
}

#[test]
fn http_1_0_gets_no_chunks() {
    let (_site, server) = serve();
    for query in ["length=100", "length=600000&flush", "length=600000&known"] {
        let mut conn = server.connect();
        let reply = conn
            .ask(format!("GET /body.php?{query} HTTP/1.0\r\n\r\n"))
            .expect("a reply")
            .expect(200);
        assert!(
            matches!(reply.head.framing, Framing::Length(_) | Framing::UntilClose),
            "{:?}",
            reply.head.framing
        );
        assert!(reply.body == pattern(if query == "length=100" { 100 } else { 600_000 }));
    }
}

#[test]
fn some_replies_have_no_body() {
    let (_site, server) = serve();
    let mut cases = Cases::new();
    let mut conn = server.connect();
    // All on one connection: a body that came nevertheless would be taken for the next reply.
    cases.case("HEAD of a known length", || {
        let reply = conn
            .ask("HEAD /body.php?length=5000&known HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("a reply")
            .expect(200);
        assert_eq!(
            (reply.header("content-length"), reply.body.len()),
            (Some("5000"), 0)
        );
    });
    cases.case("HEAD of a stream", || {
        let reply = conn
            .ask("HEAD /stream.php?gap=1 HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("a reply")
            .expect(200);
        assert!(reply.body.is_empty());
    });
    cases.case("HEAD of much", || {
        let reply = conn
            .ask("HEAD /body.php?length=3000000 HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("a reply")
            .expect(200);
        assert!(reply.body.is_empty());
    });
    for code in [204, 304] {
        cases.case(&format!("{code}"), || {
            let reply = conn
                .ask(ask(&format!("/status.php?code={code}")))
                .expect("a reply")
                .expect(code);
            assert_eq!(reply.header("x-fixture"), Some("status"));
            assert!(reply.body.is_empty());
        });
    }
    for code in [200, 201, 205, 301, 400, 403, 404, 418, 451, 500, 503, 599] {
        cases.case(&format!("{code}"), || {
            let reply = conn
                .ask(ask(&format!("/status.php?code={code}")))
                .expect("a reply")
                .expect(code);
            if code != 205 {
                assert_eq!(reply.text(), format!("body of {code}"));
            }
        });
    }
    cases.finish();
}

/// Seconds since 1970 of an IMF-fixdate; panics if it is none.
fn seconds(date: &str) -> i64 {
    let months = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let days = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    assert_eq!(date.len(), 29, "{date}");
    assert!(date.ends_with(" GMT") && &date[3..5] == ", ", "{date}");
    let number = |range: std::ops::Range<usize>| date[range].parse::<i64>().expect("digits");
    let month = 1 + months
        .iter()
        .position(|m| *m == &date[8..11])
        .expect("a month") as i64;
    let (year, day) = (number(12..16), number(5..7));
    // Days from the civil calendar, March being the first month.
    let (y, m) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let (era, yoe) = (y.div_euclid(400), y.rem_euclid(400));
    let total =
        era * 146_097 + yoe * 365 + yoe / 4 - yoe / 100 + (153 * m + 2) / 5 + day - 1 - 719_468;
    assert_eq!(
        &date[..3],
        days[total.rem_euclid(7) as usize],
        "weekday of {date}"
    );
    total * 86_400 + number(17..19) * 3_600 + number(20..22) * 60 + number(23..25)
}

#[test]
fn date_and_server_are_added_unless_set() {
    let (_site, server) = serve();
    for target in ["/headers.php?case=plain", "/stream.php?gap=1"] {
        let reply = server.get(target).expect(200);
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("after 1970")
            .as_secs() as i64;
        let date = seconds(reply.header("date").expect("a date"));
        assert!((now - date).abs() <= 2, "date is off by {} s", now - date);
        assert!(
            reply
                .header("server")
                .expect("a server")
                .to_lowercase()
                .contains("baton")
        );
    }
    let own = server.get("/headers.php?case=own").expect(200);
    assert_eq!(own.header("date"), Some("Tue, 01 Jan 2019 00:00:00 GMT"));
    assert_eq!(own.header("server"), Some("mine"));
    assert_eq!(seconds("Thu, 01 Jan 1970 00:00:00 GMT"), 0);
    assert_eq!(seconds("Tue, 29 Feb 2000 23:59:59 GMT"), 951_868_799);
}

#[test]
fn headers_of_the_application() {
    let (_site, server) = serve();
    let mut cases = Cases::new();
    let get = |case: &str| server.get(&format!("/headers.php?case={case}"));

    cases.case("no injection", || {
        for case in [
            "crlf", "lf", "cr", "nul", "fold", "name", "cookie", "reason",
        ] {
            let reply = get(case).expect(200);
            assert_eq!(reply.header("x-evil"), None, "{case}");
            assert!(
                !reply.head.headers.iter().any(|(n, _)| n.contains("Evil")),
                "{case}: {:?}",
                reply.head.headers
            );
            assert_eq!(reply.header("x-before"), Some("1"), "{case}");
            assert_eq!(reply.text(), "done", "{case}");
        }
    });
    cases.case("hop-by-hop headers stay here", || {
        let reply = get("hop").expect(200);
        assert_eq!(reply.text(), "done");
        assert!(
            reply.header("keep-alive").is_none()
                && !reply.head.all("connection").any(|v| v.contains("X-Custom"))
        );
    });
    cases.case("close is honoured", || {
        let mut conn = server.connect();
        let reply = conn
            .ask(ask("/headers.php?case=close"))
            .expect("a reply")
            .expect(200);
        assert!(reply.head.says_close());
        conn.expect_close();
    });
    cases.case("an own length", || {
        let reply = get("length").expect(200);
        assert_eq!(
            (reply.header("content-length"), reply.text().as_str()),
            (Some("5"), "abcde")
        );
    });
    cases.case("a length that is none", || {
        assert_eq!(get("length-bad").expect(200).text(), "done")
    });
    cases.case("high bytes", || {
        assert_eq!(get("high").header("x-high"), Some("\u{e9}t\u{e9}"))
    });
    cases.case("many", || {
        let reply = get("many").expect(200);
        for i in 0..25 {
            assert_eq!(
                reply.header(&format!("X-Many-{i}")),
                Some("v".repeat(i).as_str())
            );
        }
    });
    cases.case("repeated", || {
        let reply = get("repeat").expect(200);
        assert_eq!(reply.head.all("x-twice").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(get("replace").header("x-once"), Some("b"));
        assert_eq!(get("remove").header("x-before"), None);
    });
    cases.finish();
}

#[test]
fn streams_arrive_while_they_are_made() {
    let (_site, server) = serve();
    let mut conn = server.connect();
    let start = Instant::now();
    conn.send(ask("/stream.php?gap=500")).expect("sent");
    let (head, _) = conn.head("GET").expect("a head");
    assert_eq!((head.status, &head.framing), (200, &Framing::Chunked));
    assert!(
        start.elapsed() < Duration::from_millis(300),
        "the head came after {:?}",
        start.elapsed()
    );
    let mut got = String::new();
    for (word, from) in [("one\n", 0), ("two\n", 450), ("three\n", 950)] {
        while !got.ends_with(word) {
            let piece = conn.piece(100).expect("a piece").expect("more");
            got.push_str(&String::from_utf8(piece).expect("text"));
        }
        let at = start.elapsed();
        assert!(
            at >= Duration::from_millis(from) && at < Duration::from_millis(from + 350),
            "{word:?} came after {at:?}"
        );
    }
    assert_eq!(conn.body().expect("the end"), b"");
    assert_eq!(got, "one\ntwo\nthree\n");
    // The connection goes on after a stream.
    conn.ask(ask("/stream.php?gap=1"))
        .expect("a reply")
        .expect(200);
}

#[test]
fn early_hints_come_early() {
    let (_site, server) = serve();
    let mut conn = server.connect();
    let start = Instant::now();
    conn.send(ask("/hints.php?ms=400")).expect("sent");
    let mut first = [0u8; 13];
    std::io::Read::read_exact(&mut conn.stream(), &mut first).expect("an interim reply");
    assert_eq!(&first, b"HTTP/1.1 103 ");
    assert!(
        start.elapsed() < Duration::from_millis(250),
        "the hints came after {:?}",
        start.elapsed()
    );

    let reply = server.get("/hints.php?ms=1").expect(200);
    assert_eq!(reply.interim.len(), 1);
    assert_eq!(reply.interim[0].status, 103);
    assert_eq!(
        reply.interim[0].header("link"),
        Some("</style.css>; rel=preload; as=style")
    );
    assert_eq!(
        (reply.header("link"), reply.text().as_str()),
        (None, "answer")
    );
    // Never to HTTP/1.0.
    let reply = server
        .send("GET /hints.php?ms=1 HTTP/1.0\r\n\r\n")
        .expect(200);
    assert!(reply.interim.is_empty());
}

#[test]
fn a_slow_reader_gets_all_of_it() {
    let (_site, server) = serve();
    std::thread::scope(|scope| {
        for query in [
            "length=2000000",
            "length=2000000&flush&part=5000",
            "length=2000000&known",
        ] {
            let server = &server;
            scope.spawn(move || {
                let mut conn = server.connect();
                rustix::net::sockopt::set_socket_recv_buffer_size(conn.stream(), 16 * 1024)
                    .expect("SO_RCVBUF");
                conn.send(ask(&format!("/body.php?{query}"))).expect("sent");
                let (head, _) = conn.head("GET").expect("a head");
                assert_eq!(head.status, 200);
                let mut body = Vec::new();
                while let Some(piece) = conn.piece(20_000).expect("a piece") {
                    body.extend_from_slice(&piece);
                    std::thread::sleep(Duration::from_millis(10));
                }
                assert!(
                    body == pattern(2_000_000),
                    "{query}: {} bytes, or other bytes",
                    body.len()
                );
            });
        }
    });
}

#[test]
fn a_client_that_leaves_harms_nobody() {
    let site = Site::of_fixture("php");
    let server = Baton::with(site.root(), &[THREADS, "2"]);
    for round in 0..20 {
        let mut conn = server.connect();
        conn.send(ask("/body.php?length=9000000&flush"))
            .expect("sent");
        conn.piece_or_head(round % 3);
        if round % 2 == 0 {
            conn.reset()
        } else {
            drop(conn)
        }
    }
    let start = Instant::now();
    assert!(server.get("/body.php?length=100000").expect(200).body == pattern(100_000));
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
}

/// How far a client reads before it leaves.
trait Leave {
    fn piece_or_head(&mut self, how: usize);
}

impl Leave for baton_journeys::Conn {
    fn piece_or_head(&mut self, how: usize) {
        if how > 0 {
            let _: Result<_, Fault> = self.head("GET");
        }
        if how > 1 {
            let _ = self.piece(10_000);
        }
    }
}

#[test]
fn a_script_that_lies_about_its_length_breaks_one_reply_at_most() {
    let site = Site::new();
    site.write(
        "long.php",
        "<?php header('Content-Length: 3'); echo 'abcdef';",
    );
    site.write(
        "short.php",
        "<?php header('Content-Length: 30'); echo 'abc';",
    );
    site.write("index.php", "<?php echo 'fine';");
    let server = Baton::serve(site.root());
    for target in ["/long.php", "/short.php"] {
        let mut conn = server.connect();
        conn.send(format!("{}{}", ask(target), ask("/")))
            .expect("sent");
        // Whatever becomes of the first reply, what follows it is the second, or nothing.
        if conn.reply().is_ok() {
            match conn.reply() {
                Ok(reply) => assert_eq!(reply.text(), "fine", "after {target}"),
                Err(Fault::Closed) => {}
                Err(fault) => panic!("after {target}: {fault}"),
            }
        }
        assert_eq!(server.get("/").expect(200).text(), "fine");
    }
    // The request helper and a POST for good measure.
    assert_eq!(
        server
            .send(request("POST", "/", &[("Connection", "close")], b"x=1"))
            .expect(200)
            .text(),
        "fine"
    );
}
