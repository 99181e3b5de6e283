//! What PHP applications rely on (regular mode): variables, input, headers, failures, sessions, opcache, limits.

use std::collections::BTreeSet;
use std::fs;
use std::net::Shutdown;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use baton_journeys::client::request;
use baton_journeys::options::{DEADLINE_MS, INI_ADMIN, INI_USER, THREADS};
use baton_journeys::{Baton, Browser, Cases, Multipart, Reply, Site, pattern, wait_until};

const FORM: (&str, &str) = ("Content-Type", "application/x-www-form-urlencoded");

fn serve_with(options: &[&str]) -> (Site, Baton) {
    let site = Site::of_fixture("php");
    site.writable("data");
    let server = Baton::with(site.root(), options);
    (site, server)
}

fn serve() -> (Site, Baton) {
    serve_with(&[])
}

#[track_caller]
fn line(reply: &Reply, name: &str, value: &str) {
    assert_eq!(reply.line(name).as_deref(), Some(value), "{name}");
}

/// Unset, or set to nothing: for what has no value applications see no difference.
#[track_caller]
fn absent(reply: &Reply, name: &str) {
    assert!(
        reply.line(name).is_none_or(|v| v.is_empty()),
        "{name} is {:?}",
        reply.line(name)
    );
}

#[test]
fn server_variables() {
    let (site, server) = serve();
    let root = site.root().to_str().expect("a plain path");
    let mut cases = Cases::new();

    cases.case("path info", || {
        let reply = server.get("/index.php/blah/x%20y?v=1&w=%20").expect(200);
        line(&reply, "SCRIPT_NAME", "/index.php");
        line(&reply, "PATH_INFO", "/blah/x y");
        line(&reply, "PHP_SELF", "/index.php/blah/x y");
        line(&reply, "PATH_TRANSLATED", &format!("{root}/blah/x y"));
        line(&reply, "REQUEST_URI", "/index.php/blah/x%20y?v=1&w=%20");
        line(&reply, "QUERY_STRING", "v=1&w=%20");
        line(&reply, "SCRIPT_FILENAME", &format!("{root}/index.php"));
        line(&reply, "DOCUMENT_ROOT", root);
        line(&reply, "get", r#"{"v":"1","w":" "}"#);
    });
    cases.case("front controller", || {
        let reply = server.get("/en?a=1").expect(200);
        line(&reply, "SCRIPT_NAME", "/index.php");
        line(&reply, "REQUEST_URI", "/en?a=1");
        line(&reply, "PHP_SELF", "/index.php");
        line(&reply, "SCRIPT_FILENAME", &format!("{root}/index.php"));
        absent(&reply, "PATH_INFO");
        absent(&reply, "PATH_TRANSLATED");
    });
    cases.case("the root", || {
        let reply = server.get("/").expect(200);
        line(&reply, "SCRIPT_NAME", "/index.php");
        line(&reply, "PHP_SELF", "/index.php");
        line(&reply, "REQUEST_URI", "/");
        line(&reply, "QUERY_STRING", "");
        absent(&reply, "PATH_INFO");
    });
    cases.case("server and client", || {
        let mut conn = server.connect();
        let reply = conn
            .ask("GET /where HTTP/1.1\r\nHost: a.example:8081\r\nUser-Agent: u\r\nX-Empty:\r\n\r\n")
            .expect("a reply")
            .expect(200);
        line(&reply, "SERVER_PROTOCOL", "HTTP/1.1");
        line(&reply, "GATEWAY_INTERFACE", "CGI/1.1");
        line(&reply, "REQUEST_METHOD", "GET");
        line(&reply, "REMOTE_ADDR", "127.0.0.1");
        line(&reply, "REMOTE_PORT", &conn.local().port().to_string());
        line(&reply, "SERVER_ADDR", "127.0.0.1");
        line(&reply, "SERVER_PORT", &server.addr().port().to_string());
        line(&reply, "HTTP_USER_AGENT", "u");
        line(&reply, "HTTP_X_EMPTY", "");
        line(&reply, "sapi", "fpm-fcgi");
        absent(&reply, "HTTPS");
        absent(&reply, "PHP_AUTH_USER");
        line(&reply, "HTTP_HOST", "a.example:8081");
        line(&reply, "SERVER_NAME", "a.example");
        line(&reply, "REQUEST_SCHEME", "http");
        assert!(
            reply
                .line("SERVER_SOFTWARE")
                .expect("a name")
                .to_lowercase()
                .starts_with("baton")
        );
    });
    cases.case("times", || {
        let reply = server.get("/").expect(200);
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("after 1970")
            .as_secs_f64();
        let whole: f64 = reply
            .line("REQUEST_TIME")
            .and_then(|v| v.parse().ok())
            .expect("a number");
        let exact: f64 = reply
            .line("REQUEST_TIME_FLOAT")
            .and_then(|v| v.parse().ok())
            .expect("a number");
        assert!(
            (now - exact).abs() < 1.0 && whole == exact.floor(),
            "{whole} {exact} {now}"
        );
    });
    cases.case("lengths do not lie", || {
        let reply = server.send(request(
            "POST",
            "/",
            &[("Content-Type", "text/x-a"), ("Content-Length", "0005")],
            b"hello",
        ));
        if reply.status() == 200 {
            line(&reply, "CONTENT_LENGTH", "5");
            line(&reply, "body", "hello");
        }
        let reply = server
            .send(request(
                "POST",
                "/",
                &[("Transfer-Encoding", "chunked")],
                b"5\r\nhello\r\n0\r\n\r\n",
            ))
            .expect(200);
        assert!(
            reply.line("CONTENT_LENGTH").is_none_or(|v| v == "5"),
            "{:?}",
            reply.line("CONTENT_LENGTH")
        );
        let reply = server.get("/").expect(200);
        absent(&reply, "CONTENT_LENGTH");
        absent(&reply, "CONTENT_TYPE");
        let reply = server
            .send(request("POST", "/", &[FORM], b"a=b"))
            .expect(200);
        line(&reply, "CONTENT_TYPE", "application/x-www-form-urlencoded");
    });
    cases.case("no variable from a header's name alone", || {
        let hostile = [
            ("Proxy", "http://evil"),
            ("Remote-Addr", "6.6.6.6"),
            ("Document-Root", "/"),
            ("Https", "on"),
        ];
        let reply = server.send(request("GET", "/", &hostile, b"")).expect(200);
        absent(&reply, "HTTP_PROXY");
        absent(&reply, "HTTPS");
        line(&reply, "REMOTE_ADDR", "127.0.0.1");
        line(&reply, "DOCUMENT_ROOT", root);
    });
    cases.finish();
}

#[test]
fn authentication() {
    let (_site, server) = serve();
    let with = |value: &str| {
        server
            .send(request("GET", "/", &[("Authorization", value)], b""))
            .expect(200)
    };
    let mut cases = Cases::new();
    cases.case("basic", || {
        // user:pa:ss
        let reply = with("Basic dXNlcjpwYTpzcw==");
        line(&reply, "PHP_AUTH_USER", "user");
        line(&reply, "PHP_AUTH_PW", "pa:ss");
        line(&with("basic dXNlcjpwYTpzcw=="), "PHP_AUTH_USER", "user");
    });
    cases.case("digest", || {
        let digest = "username=\"u\", realm=\"r\", nonce=\"n\", uri=\"/\", response=\"x\"";
        line(
            &with(&format!("Digest {digest}")),
            "PHP_AUTH_DIGEST",
            digest,
        );
    });
    for bad in [
        "Basic",
        "Basic ",
        "Basic !!!",
        "Basic dXNlcg==",
        "Bearer abc",
        "dXNlcjpwYTpzcw==",
        "Digest",
    ] {
        cases.case(bad, || {
            let reply = with(bad);
            for name in ["PHP_AUTH_USER", "PHP_AUTH_PW", "PHP_AUTH_DIGEST"] {
                absent(&reply, name);
            }
        });
    }
    cases.case("nothing stays for the next", || {
        let mut conn = server.connect();
        for _ in 0..10 {
            conn.ask(request(
                "GET",
                "/",
                &[("Authorization", "Basic dXNlcjpwYTpzcw==")],
                b"",
            ))
            .expect("a reply");
            absent(
                &conn.ask(request("GET", "/", &[], b"")).expect("a reply"),
                "PHP_AUTH_USER",
            );
        }
    });
    cases.finish();
}

#[test]
fn input() {
    let (_site, server) = serve();
    let mut cases = Cases::new();
    let cookies = |value: &str| {
        server
            .send(request("GET", "/", &[("Cookie", value)], b""))
            .expect(200)
            .line("cookie")
    };
    cases.case("names", || {
        line(
            &server.get("/?foo%20=1&.dot.=2&a[b]=3&a[c][]=4").expect(200),
            "get",
            r#"{"foo_":"1","_dot_":"2","a":{"b":"3","c":["4"]}}"#,
        );
        assert_eq!(
            cookies("foo =1; .dot.=2").as_deref(),
            Some(r#"{"foo_":"1","_dot_":"2"}"#)
        );
    });
    cases.case("cookies", || {
        assert_eq!(
            cookies("a=1; a=2; b=x%20y; c; d=").as_deref(),
            Some(r#"{"a":"1","b":"x y","c":"","d":""}"#)
        );
        let twice = server
            .send("GET / HTTP/1.1\r\nHost: a\r\nCookie: a=1\r\nCookie: b=2\r\n\r\n")
            .expect(200);
        line(&twice, "cookie", r#"{"a":"1","b":"2"}"#);
    });
    cases.case("a form", || {
        let reply = server
            .send(request(
                "POST",
                "/?a=1",
                &[FORM],
                b"a=2&b[]=3&b[]=4&c=%C3%A9",
            ))
            .expect(200);
        line(&reply, "get", r#"{"a":"1"}"#);
        line(&reply, "post", r#"{"a":"2","b":["3","4"],"c":"\u00e9"}"#);
        line(&reply, "body", "a=2&b[]=3&b[]=4&c=%C3%A9");
    });
    cases.case("a form in chunks", || {
        let headers = [FORM, ("Transfer-Encoding", "chunked")];
        line(
            &server
                .send(request(
                    "POST",
                    "/",
                    &headers,
                    b"3\r\na=2\r\n2\r\n&b\r\n0\r\n\r\n",
                ))
                .expect(200),
            "post",
            r#"{"a":"2","b":""}"#,
        );
    });
    cases.case("PUT has input but no form", || {
        let reply = server
            .send(request("PUT", "/", &[FORM], b"a=2"))
            .expect(200);
        line(&reply, "post", "[]");
        line(&reply, "body", "a=2");
    });
    cases.case("six megabytes", || {
        let body = pattern(6_000_000);
        let reply = server
            .send(request(
                "POST",
                "/",
                &[("Content-Type", "application/octet-stream")],
                &body,
            ))
            .expect(200);
        line(&reply, "body_length", "6000000");
        line(&reply, "body_md5", "a8dc09f6f893c2de6154bc2d3a8dd871");
    });
    cases.case("never mixed", || {
        std::thread::scope(|scope| {
            for client in 0..6 {
                let server = &server;
                scope.spawn(move || {
                    let mut conn = server.connect();
                    for i in 0..60 {
                        let tag = format!("c{client}r{i}");
                        let body = format!("p={tag}");
                        let cookie = format!("k={tag}");
                        // A third of them have no cookie and no form: nothing of the one before may show.
                        let (bytes, want) = if i % 3 == 0 {
                            (
                                request("GET", &format!("/superglobals.php?g={tag}"), &[], b""),
                                format!(r#"{{"get":{{"g":"{tag}"}},"post":[],"cookie":[],"request":{{"g":"{tag}"}},"files":[],"method":"GET"}}"#),
                            )
                        } else {
                            (
                                request("POST", &format!("/superglobals.php?g={tag}"), &[FORM, ("Cookie", &cookie)], body.as_bytes()),
                                format!(
                                    r#"{{"get":{{"g":"{tag}"}},"post":{{"p":"{tag}"}},"cookie":{{"k":"{tag}"}},"request":{{"g":"{tag}","p":"{tag}"}},"files":[],"method":"POST"}}"#
                                ),
                            )
                        };
                        assert_eq!(conn.ask(&bytes).expect("a reply").expect(200).text(), want);
                    }
                });
            }
        });
    });
    cases.case("request headers", || {
        let headers = [
            ("X-One", "1"),
            ("x-two", "b"),
            ("Authorization", "Bearer t"),
            ("Content-Type", "text/x-a"),
        ];
        let reply = server
            .send(request("POST", "/request_headers.php", &headers, b"hello"))
            .expect(200)
            .text()
            .to_lowercase();
        for part in [
            r#""x-one":"1""#,
            r#""x-two":"b""#,
            r#""authorization":"bearer t""#,
            r#""content-type":"text\/x-a""#,
            r#""content-length":"5""#,
        ] {
            assert_eq!(reply.matches(part).count(), 2, "{part} in {reply}");
        }
    });
    cases.finish();
}

#[test]
fn uploads() {
    let (site, server) = serve();
    let mut cases = Cases::new();
    let send = |target: &str, body: Multipart| {
        server.send(request(
            "POST",
            target,
            &[("Content-Type", &Multipart::content_type())],
            &body.finish(),
        ))
    };
    let temporary = |reply: &Reply| reply.line("tmp").expect("a temporary file");
    cases.case("fields and files", || {
        let body = Multipart::new()
            .field("a", "1")
            .file("f", "n\u{e9} m.txt", "text/plain", b"hello")
            .field("b[]", "2");
        let reply = send("/upload.php", body).expect(200);
        line(
            &reply,
            "file",
            "f n\u{e9} m.txt 5 0 5d41402abc4b2a76b9719d911017c592 true",
        );
        line(&reply, "post", r#"{"a":"1","b":["2"]}"#);
        let file = temporary(&reply);
        wait_until("the temporary file is gone", Duration::from_secs(2), || {
            !std::path::Path::new(&file).exists()
        });
    });
    cases.case("an empty file and none", || {
        let reply = send(
            "/upload.php",
            Multipart::new().file("f", "empty", "text/plain", b""),
        )
        .expect(200);
        line(
            &reply,
            "file",
            "f empty 0 0 d41d8cd98f00b204e9800998ecf8427e true",
        );
        let reply = send(
            "/upload.php",
            Multipart::new().file("f", "", "text/plain", b""),
        )
        .expect(200);
        assert!(
            reply.line("file").is_some_and(|l| l.contains(" 0 4 - ")),
            "{}",
            reply.text()
        );
    });
    cases.case("moved", || {
        let body = Multipart::new().file("f", "a", "text/plain", &pattern(100_000));
        line(
            &send("/upload.php?move=kept", body).expect(200),
            "moved",
            "true",
        );
        assert!(fs::read(site.path("data/kept")).expect("the moved file") == pattern(100_000));
    });
    cases.case("over upload_max_filesize", || {
        let reply = send(
            "/upload.php",
            Multipart::new().file("f", "big", "text/plain", &pattern(3 << 20)),
        )
        .expect(200);
        assert!(
            reply.line("file").is_some_and(|l| l.contains(" 1 - ")),
            "{}",
            reply.text()
        );
    });
    cases.case("over post_max_size", || {
        let reply = send(
            "/upload.php",
            Multipart::new()
                .field("a", "1")
                .file("f", "big", "text/plain", &pattern(9 << 20)),
        );
        line(&reply.expect(200), "post", "[]");
    });
    cases.finish();
}

#[test]
fn headers_and_status() {
    let (_site, server) = serve();
    let get = |case: &str| server.get(&format!("/headers.php?case={case}"));
    let mut cases = Cases::new();
    cases.case("kept", || {
        assert_eq!(get("plain").expect(200).header("foo3"), Some("bar3"))
    });
    cases.case("no header", || {
        let reply = get("invalid").expect(200);
        assert!(
            !reply
                .head
                .headers
                .iter()
                .any(|(n, v)| n.contains("Invalid") || v.contains("Invalid"))
        );
    });
    cases.case("status line", || drop(get("status-line").expect(418)));
    cases.case("status line cut off", || {
        assert_eq!(get("status-cut").expect(200).text(), "done")
    });
    cases.case("http_response_code", || {
        get("code").expect(201);
        assert!(get("code-get").expect(200).text().starts_with("200\n"));
    });
    cases.case("Location", || {
        assert_eq!(
            get("location").expect(302).header("location"),
            Some("/elsewhere")
        )
    });
    cases.case("apache_response_headers", || {
        assert!(
            get("list")
                .text()
                .to_lowercase()
                .contains(r#""x-listed":"yes""#)
        );
    });
    cases.case("default media type", || {
        let site = Site::with_index("<?php echo 'x';");
        let reply = Baton::serve(site.root()).get("/").expect(200);
        assert_eq!(
            reply
                .header("content-type")
                .map(|v| v.replace("; ", ";").to_lowercase())
                .as_deref(),
            Some("text/html;charset=utf-8")
        );
    });
    cases.finish();
}

#[test]
fn the_answer_may_end_before_the_script() {
    let (site, server) = serve_with(&[THREADS, "2"]);
    let mut conn = server.connect();
    let start = Instant::now();
    let reply = conn
        .ask("GET /finish.php?tag=a HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("a reply")
        .expect(200);
    assert_eq!(reply.text(), "answered");
    assert!(
        start.elapsed() < Duration::from_millis(300),
        "{:?}",
        start.elapsed()
    );
    let file = site.path("data/finish-a");
    assert!(!file.exists());
    // Meanwhile the connection serves on.
    conn.ask("GET /pid.php HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("a reply")
        .expect(200);
    wait_until("the script went on", Duration::from_secs(3), || {
        fs::read(&file).is_ok_and(|bytes| !bytes.is_empty())
    });
    assert_eq!(
        fs::read_to_string(&file).expect("the file"),
        "[true,false,0]"
    );
}

#[test]
fn a_client_that_aborts_is_seen() {
    let (site, server) = serve();
    let leave = |tag: &str, ignore: u8| {
        let mut conn = server.connect();
        conn.send(format!(
            "GET /abort.php?tag={tag}&ignore={ignore} HTTP/1.1\r\nHost: a\r\n\r\n"
        ))
        .expect("sent");
        conn.head("GET").expect("a head");
        conn.stream().shutdown(Shutdown::Both).expect("closed");
        conn.reset();
    };
    leave("stop", 0);
    leave("go-on", 1);
    let end = |tag: &str| {
        let path = site.path(&format!("data/abort-{tag}-end"));
        wait_until("the shutdown function ran", Duration::from_secs(6), || {
            fs::read(&path).is_ok_and(|b| !b.is_empty())
        });
        fs::read_to_string(&path).expect("the file")
    };
    assert_eq!(
        end("stop"),
        "1",
        "connection_status() is CONNECTION_ABORTED"
    );
    assert!(
        !site.path("data/abort-stop-after").exists(),
        "the script went on without a client"
    );
    assert_eq!(end("go-on"), "1");
    assert_eq!(
        fs::read_to_string(site.path("data/abort-go-on-after")).expect("the file"),
        "1"
    );
}

#[test]
fn failures_are_answered_and_logged() {
    let (_site, server) = serve_with(&[THREADS, "1"]);
    let pid = || server.get("/pid.php").expect(200).text();
    let before = pid();
    let mut cases = Cases::new();
    for how in ["exception", "fatal", "memory", "parse"] {
        cases.case(how, || {
            server
                .get(&format!("/fail.php?how={how}&tag=t1"))
                .expect(500);
            assert_eq!(pid(), before, "the process lives on");
        });
    }
    cases.case("the log has them", || {
        server.wait_for_log("journey exception t1");
        server.wait_for_log("undefined_function_of_the_journey");
        server.wait_for_log("Allowed memory size");
        server.wait_for_log("syntax error");
    });
    cases.case("after the first bytes", || {
        let reply = server
            .send("GET /fail.php?how=exception&after&tag=t2 HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect(200);
        assert!(reply.text().starts_with("partial"));
        server.wait_for_log("journey exception t2");
        assert_eq!(pid(), before);
    });
    cases.case("error_log and stderr", || {
        server.get("/fail.php?how=log&tag=t3").expect(200);
        server.wait_for_log("journey message t3");
        server.get("/fail.php?how=stderr&tag=t4").expect(200);
        server.wait_for_log("journey stderr t4");
        // The log says who wrote it: the app process.
        let log = server.log();
        let line = log
            .lines()
            .find(|l| l.contains("journey message t3"))
            .expect("the line");
        assert!(line.contains(before.trim()), "no pid in {line}");
    });
    cases.case("exit", || {
        assert_eq!(server.get("/fail.php?how=exit").expect(200).text(), "bye")
    });
    cases.finish();
}

#[test]
fn a_request_leaves_nothing_behind() {
    let (_site, server) = serve_with(&[THREADS, "1"]);
    let clean = server.get("/request_state.php").expect(200);
    line(&clean, "env", "false");
    line(&clean, "cwd", "script");
    for _ in 0..3 {
        server.get("/request_state.php?leave").expect(200);
        assert_eq!(
            server.get("/request_state.php").expect(200).text(),
            clean.text()
        );
    }
}

#[test]
fn sessions() {
    let (_site, server) = serve_with(&[DEADLINE_MS, "1500"]);
    let mut cases = Cases::new();
    cases.case("each client has its own", || {
        std::thread::scope(|scope| {
            for client in 0..8 {
                let addr = server.addr();
                scope.spawn(move || {
                    let mut browser = Browser::new(addr);
                    for visit in 1..=25 {
                        let page = browser
                            .get(&format!("/session.php?owner=c{client}"))
                            .expect(200);
                        assert_eq!(page.text(), format!("c{client} {visit}"));
                    }
                });
            }
        });
    });
    cases.case("a timeout leaves no lock", || {
        let mut browser = Browser::new(server.addr());
        browser.get("/session.php?owner=x").expect(200);
        browser.get("/session.php?hold=20000").expect(504);
        let start = Instant::now();
        assert!(
            browser
                .get("/session.php")
                .expect(200)
                .text()
                .starts_with("x ")
        );
        assert!(
            start.elapsed() < Duration::from_millis(1400),
            "{:?}",
            start.elapsed()
        );
    });
    cases.finish();
}

#[test]
fn opcache_is_on_and_shared() {
    let (_site, server) = serve();
    let sample = || -> Vec<Reply> {
        std::thread::scope(|scope| {
            let asked: Vec<_> = (0..12)
                .map(|_| scope.spawn(|| server.get("/opcache.php").expect(200)))
                .collect();
            asked
                .into_iter()
                .map(|t| t.join().expect("a reply"))
                .collect()
        })
    };
    let column = |replies: &[Reply], name: &str| -> BTreeSet<String> {
        replies.iter().filter_map(|r| r.line(name)).collect()
    };
    sample();
    let replies = sample();
    assert_eq!(
        column(&replies, "enabled"),
        BTreeSet::from(["true".to_owned()])
    );
    assert_eq!(
        column(&replies, "cached"),
        BTreeSet::from(["true".to_owned()])
    );
    assert!(column(&replies, "pid").len() > 1, "one process only");
    assert_eq!(
        column(&replies, "started").len(),
        1,
        "each process has a cache of its own"
    );
    // A reset under load fails no request.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut conn = server.connect();
                for i in 0..100 {
                    let target = if i % 20 == 0 {
                        "/opcache.php?reset"
                    } else {
                        "/index.php"
                    };
                    conn.ask(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"))
                        .expect("a reply")
                        .expect(200);
                }
            });
        }
    });
    wait_until("the cache is filled again", Duration::from_secs(10), || {
        column(&sample(), "enabled").contains("true")
    });
}

#[test]
fn the_guest_does_not_reach_programs_of_scripts() {
    let (_site, server) = serve();
    let alone = server.get("/programs.php").expect(200);
    line(&alone, "name", "baton-php");
    absent(&alone, "preload");
    absent(&alone, "programs");
    // What the user wants in front of all libraries stays.
    let list = "LD_PRELOAD=libm.so.6:libc.so.6";
    let (_site, server) = serve_with(&["--env", list]);
    let with_others = server.get("/programs.php").expect(200);
    line(&with_others, "preload", "libm.so.6:libc.so.6");
    line(&with_others, "programs", list);
}

#[test]
fn opcache_preload_works() {
    let site = Site::of_fixture("php");
    let preload = format!("opcache.preload={}", site.path("preload.inc").display());
    let server = Baton::with(
        site.root(),
        &[
            INI_ADMIN,
            &preload,
            INI_ADMIN,
            "opcache.preload_user=www-data",
        ],
    );
    let reply = server.get("/opcache.php").expect(200);
    line(&reply, "has", "true");
    assert!(
        reply
            .line("preloaded")
            .is_some_and(|l| l.contains("preloaded_by_the_journey"))
    );
}

#[test]
fn ini_values() {
    let (_site, server) = serve_with(&[
        INI_ADMIN,
        "memory_limit=77M",
        INI_USER,
        "precision=9",
        THREADS,
        "1",
    ]);
    for _ in 0..2 {
        let admin = server.get("/ini.php?name=memory_limit&set=99M").expect(200);
        assert_eq!(
            (admin.line("value").as_deref(), admin.line("now").as_deref()),
            (Some("77M"), Some("77M"))
        );
        let user = server.get("/ini.php?name=precision&set=5").expect(200);
        assert_eq!(
            (user.line("value").as_deref(), user.line("now").as_deref()),
            (Some("9"), Some("5"))
        );
    }
}

#[test]
fn time_limits() {
    let (site, server) = serve_with(&[DEADLINE_MS, "6000", THREADS, "2"]);
    let mut cases = Cases::new();
    cases.case("max_execution_time ends a loop", || {
        let start = Instant::now();
        server.get("/time_limit.php?limit=1&tag=loop").expect(500);
        // How much longer than its second of CPU it takes is up to what else the machine does.
        let took = start.elapsed();
        assert!(took > Duration::from_millis(800), "{took:?}");
        server.wait_for_log("Maximum execution time");
    });
    cases.case("it counts CPU time", || {
        assert_eq!(
            server
                .get("/time_limit.php?limit=1&sleep=1600")
                .expect(200)
                .text(),
            "slept"
        );
    });
    cases.case("the deadline ends a sleep", || {
        let start = Instant::now();
        server
            .get("/time_limit.php?limit=0&sleep=30000&tag=deadline")
            .expect(504);
        let took = start.elapsed();
        assert!(
            took > Duration::from_millis(5800) && took < Duration::from_millis(20_000),
            "{took:?}"
        );
        server.get("/pid.php").expect(200);
        // PHP's own timeout path ran its shutdown functions.
        let file = site.path("data/limit-deadline");
        wait_until("the shutdown function ran", Duration::from_secs(5), || {
            file.exists()
        });
    });
    cases.case("the deadline ends a loop without a limit", || {
        let start = Instant::now();
        server.get("/time_limit.php?limit=0").expect(504);
        assert!(
            start.elapsed() < Duration::from_millis(20_000),
            "{:?}",
            start.elapsed()
        );
        server.get("/pid.php").expect(200);
    });
    cases.finish();
}
