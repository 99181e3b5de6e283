//! Files beside the scripts.

use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::{Duration, Instant};

use baton_journeys::options::FOLLOW_SYMLINKS;
use baton_journeys::site::set_mode;
use baton_journeys::{Baton, Cases, Reply, Site, pattern};

const SECRET: &str = "the-secret-text";

fn serve() -> (Site, Site, Baton) {
    let outside = Site::new();
    outside.write("secret.txt", SECRET);
    let site = Site::with_index("<?php echo 'index answered ', $_SERVER['REQUEST_URI'];");
    site.write("style.css", "p { color: red }");
    site.write("code.php", format!("<?php // {SECRET}\necho 'code ran';"));
    site.write("inc/lib.php", format!("<?php // {SECRET}\necho 'lib ran';"));
    site.write(
        "folder/index.php",
        "<?php echo 'folder index ', $_SERVER['SCRIPT_NAME'];",
    );
    site.write("folder/a b.txt", "spaced");
    site.write("plain/file.txt", "plain");
    site.write(".env", SECRET);
    site.write(".git/config", SECRET);
    site.write("folder/.htaccess", SECRET);
    site.write("empty.txt", "");
    site.write("big.bin", pattern(5_000_000));
    symlink(outside.path("secret.txt"), site.path("leaves.txt")).expect("a symbolic link");
    symlink(outside.root(), site.path("leaves")).expect("a symbolic link");
    symlink("style.css", site.path("stays.css")).expect("a symbolic link");
    symlink("../style.css", site.path("folder/up.css")).expect("a symbolic link");
    // However a script is called, it is not text.
    symlink("code.php", site.path("code.txt")).expect("a symbolic link");
    symlink("code.txt", site.path("code.css")).expect("a symbolic link");
    let server = Baton::serve(site.root());
    (outside, site, server)
}

#[test]
fn files_have_their_media_type_and_length() {
    let (_outside, site, server) = serve();
    let mut cases = Cases::new();
    for (file, kind) in [
        ("a.css", "text/css; charset=utf-8"),
        ("a.js", "text/javascript; charset=utf-8"),
        ("a.mjs", "text/javascript"),
        ("a.json", "application/json"),
        ("a.html", "text/html; charset=utf-8"),
        ("a.txt", "text/plain"),
        ("a.svg", "image/svg+xml"),
        ("a.png", "image/png"),
        ("a.jpg", "image/jpeg"),
        ("a.JPEG", "image/jpeg"),
        ("a.gif", "image/gif"),
        ("a.webp", "image/webp"),
        ("a.ico", "image/"),
        ("a.woff2", "font/woff2"),
        ("a.xml", "xml"),
        ("a.pdf", "application/pdf"),
        ("a.wasm", "application/wasm"),
        ("a.unknown", "application/octet-stream"),
        ("noextension", "application/octet-stream"),
    ] {
        cases.case(file, || {
            site.write(file, file);
            let reply = server.get(&format!("/{file}")).expect(200);
            let got = reply
                .header("content-type")
                .expect("a media type")
                .to_owned();
            assert!(got.contains(kind), "{got} instead of {kind}");
            assert_eq!(
                reply.header("content-length"),
                Some(file.len().to_string().as_str())
            );
            assert_eq!(reply.text(), file);
        });
    }
    cases.case("HEAD", || {
        let reply = server
            .send("HEAD /style.css HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect(200);
        assert_eq!(
            (reply.header("content-length"), reply.body.len()),
            (Some("16"), 0)
        );
    });
    cases.case("an empty file", || {
        for method in ["GET", "HEAD"] {
            let reply = server.send(format!("{method} /empty.txt HTTP/1.1\r\nHost: a\r\n\r\n"));
            let reply = reply.expect(200);
            assert_eq!(
                (reply.header("content-length"), reply.body.len()),
                (Some("0"), 0)
            );
        }
    });
    cases.case("a large file, twice on one connection", || {
        let mut conn = server.connect();
        for _ in 0..2 {
            let reply = conn
                .ask("GET /big.bin HTTP/1.1\r\nHost: a\r\n\r\n")
                .expect("a reply")
                .expect(200);
            assert!(reply.body == pattern(5_000_000));
        }
    });
    cases.case("to a slow reader", || {
        let mut conn = server.connect();
        conn.send("GET /big.bin HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("sent");
        conn.head("GET").expect("a head");
        let mut body = Vec::new();
        while let Some(piece) = conn.piece(100_000).expect("a piece") {
            body.extend_from_slice(&piece);
            std::thread::sleep(Duration::from_millis(4));
        }
        assert!(body == pattern(5_000_000));
    });
    cases.case("an encoded name", || {
        assert_eq!(server.get("/folder/a%20b.txt").expect(200).text(), "spaced")
    });
    cases.case("a query does not matter", || {
        assert_eq!(
            server.get("/style.css?v=1").expect(200).text(),
            "p { color: red }"
        )
    });
    cases.case("a link inside the root", || {
        for target in ["/stays.css", "/folder/up.css"] {
            assert_eq!(server.get(target).expect(200).text(), "p { color: red }");
        }
    });
    cases.case("no writing", || {
        for (method, target) in [
            ("POST", "/style.css"),
            ("PUT", "/style.css"),
            ("DELETE", "/style.css"),
            ("OPTIONS", "/style.css"),
            ("ODD", "/big.bin"),
        ] {
            let reply = server.send(format!(
                "{method} {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx"
            ));
            assert_eq!(reply.status(), 405, "{method}");
            assert_eq!(reply.header("allow"), Some("GET, HEAD"));
        }
    });
    cases.finish();
}

#[test]
fn what_is_no_public_file_is_not_served() {
    let (_outside, site, server) = serve();
    let fifo = Command::new("mkfifo")
        .arg(site.path("pipe"))
        .status()
        .expect("mkfifo");
    assert!(fifo.success());
    symlink("/dev/zero", site.path("device")).expect("a symbolic link");
    let refused = |reply: &Reply| {
        assert!(!reply.text().contains(SECRET), "the secret was served");
        assert!(!reply.text().contains("root:"), "/etc/passwd was served");
    };
    let mut cases = Cases::new();
    for target in [
        "/../secret.txt",
        "/../../../../etc/passwd",
        "/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/..%2f..%2f..%2fetc/passwd",
        "/folder/..%2f..%2f..%2f..%2fetc/passwd",
        "/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/folder/../../../../etc/passwd",
        "//etc/passwd",
        "/..\\..\\etc\\passwd",
        "/%c0%ae%c0%ae/etc/passwd",
        "/.../etc/passwd",
        "/./../etc/passwd",
        "/%252e%252e/etc/passwd",
        "/leaves.txt",
        "/leaves/secret.txt",
        "/style.css/../../../etc/passwd",
    ] {
        cases.case(target, || refused(&server.get(target)));
    }
    for target in [
        "/.env",
        "/.git/config",
        "/%2eenv",
        "/folder/.htaccess",
        "/folder/%2ehtaccess",
        "/folder/../.env",
        "//.env",
    ] {
        cases.case(target, || {
            let reply = server.get(target);
            refused(&reply);
            assert!(
                matches!(reply.status(), 403 | 404) || reply.text().starts_with("index answered"),
                "{}",
                reply.status()
            );
        });
    }
    for target in [
        "/code.php",
        "/code.php/",
        "/code.php/x.css",
        "/code.php%20",
        "/code.php.",
        "/code.php%00.css",
        "/code.PHP",
        "/code.php;x.css",
        "/code.php?x.css",
        "/code.php%2f",
        "/inc/lib.php",
        "/inc//lib.php",
        "/./code.php",
        "/folder/../code.php",
        "/code%2ephp",
        "/%63ode.php",
        "//code.php",
        "/code.php::$DATA",
        "/code.ph%70",
        "/code.txt",
        "/code.css",
    ] {
        cases.case(target, || refused(&server.get(target)));
    }
    for target in ["/pipe", "/device"] {
        cases.case(target, || {
            let start = Instant::now();
            let reply = server.get(target);
            assert!(
                reply.status() == 404 || reply.text().starts_with("index answered"),
                "{}",
                reply.status()
            );
            assert!(start.elapsed() < Duration::from_secs(1));
        });
    }
    cases.case("links that lead out or to source are not there", || {
        for target in [
            "/leaves.txt",
            "/leaves/secret.txt",
            "/code.txt",
            "/code.css",
        ] {
            assert_eq!(server.get(target).status(), 404, "{target}");
        }
    });
    // Whoever the front runs as, it sends only what the application's account may read.
    cases.case("a file that is not for everybody", || {
        site.write("private.txt", SECRET);
        set_mode(&site.path("private.txt"), 0o000);
        let reply = server.get("/private.txt");
        refused(&reply);
        assert_eq!(reply.status(), 403);
        site.write("closed/file.txt", SECRET);
        set_mode(&site.path("closed"), 0o000);
        refused(&server.get("/closed/file.txt"));
        set_mode(&site.path("closed"), 0o755);
    });
    cases.case("a script runs", || {
        assert_eq!(server.get("/code.php").expect(200).text(), "code ran");
        assert_eq!(server.get("/inc/lib.php").expect(200).text(), "lib ran");
        assert_eq!(server.get("/code%2ephp").expect(200).text(), "code ran");
    });
    cases.case("no listing", || {
        let reply = server.get("/plain/");
        assert!(!reply.text().contains("file.txt"), "{}", reply.text());
    });
    cases.finish();
}

#[test]
fn links_are_followed_where_that_is_wanted() {
    let (outside, site, server) = serve();
    drop(server);
    outside.write("code.php", format!("<?php // {SECRET} of the code"));
    symlink(outside.path("code.php"), site.path("source.txt")).expect("a symbolic link");
    let server = Baton::with(site.root(), &[FOLLOW_SYMLINKS]);
    for target in ["/leaves.txt", "/leaves/secret.txt"] {
        assert_eq!(server.get(target).expect(200).text(), SECRET, "{target}");
    }
    for target in ["/source.txt", "/code.txt"] {
        assert_eq!(server.get(target).status(), 404, "{target}");
    }
}

#[test]
fn folders_and_the_fallback() {
    let (_outside, site, server) = serve();
    for folder in ["sp ace?", "\\back"] {
        site.write(&format!("{folder}/index.html"), "a page");
    }
    let mut cases = Cases::new();
    cases.case("a folder with an index", || {
        assert_eq!(
            server.get("/folder/").expect(200).text(),
            "folder index /folder/index.php"
        );
    });
    cases.case("a folder without its slash", || {
        // A relative reference keeps the host, and whatever scheme and port a proxy in front has.
        for (target, location) in [
            ("/folder?a=b", "/folder/?a=b"),
            ("/folder", "/folder/"),
            ("/folder?", "/folder/?"),
            ("//folder?a=//b", "/folder/?a=//b"),
            ("/./folder", "/folder/"),
            ("/%66older?%66", "/folder/?%66"),
            ("/sp%20ace%3f", "/sp%20ace%3F/"),
            ("/%5cback", "/%5Cback/"),
        ] {
            let reply = server.get(target).expect(301);
            assert_eq!(reply.header("location"), Some(location), "{target}");
        }
    });
    cases.case("nothing there", || {
        assert_eq!(
            server.get("/no/such?x=1").expect(200).text(),
            "index answered /no/such?x=1"
        );
        assert_eq!(
            server.get("/no-such.css").expect(200).text(),
            "index answered /no-such.css"
        );
    });
    cases.case("a path below a file", || {
        let reply = server.get("/style.css/more");
        assert!(
            reply.status() == 404 || reply.text().starts_with("index answered"),
            "{}",
            reply.status()
        );
    });
    cases.finish();
}
