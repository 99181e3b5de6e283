//! Files beside the scripts.

use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::{Duration, Instant};

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
    let server = Baton::serve(site.root());
    (outside, site, server)
}

#[test]
fn files_have_their_media_type_and_length() {
    let (_outside, site, server) = serve();
    let mut cases = Cases::new();
    for (file, kind) in [
        ("a.css", "text/css"),
        ("a.js", "text/javascript"),
        ("a.mjs", "text/javascript"),
        ("a.json", "application/json"),
        ("a.html", "text/html"),
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
            // Both names of JavaScript are in use; a file of no kind may have no better type than plain text.
            let fits = got.contains(kind)
                || (kind == "text/javascript" && got.contains("application/javascript"))
                || (file == "noextension" && got.starts_with("text/plain"));
            assert!(fits, "{got} instead of {kind}");
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
        let reply = server.get("/empty.txt").expect(200);
        assert_eq!(
            (reply.header("content-length"), reply.body.len()),
            (Some("0"), 0)
        );
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
        assert_eq!(
            server.get("/stays.css").expect(200).text(),
            "p { color: red }"
        )
    });
    cases.case("no writing", || {
        for method in ["POST", "PUT", "DELETE"] {
            let reply = server.send(format!(
                "{method} /style.css HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
            ));
            assert_eq!(reply.status(), 405, "{method}");
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
fn folders_and_the_fallback() {
    let (_outside, _site, server) = serve();
    let mut cases = Cases::new();
    cases.case("a folder with an index", || {
        assert_eq!(
            server.get("/folder/").expect(200).text(),
            "folder index /folder/index.php"
        );
    });
    cases.case("a folder without its slash", || {
        let reply = server
            .send("GET /folder?a=b HTTP/1.1\r\nHost: h.example:81\r\nConnection: close\r\n\r\n")
            .expect(301);
        let to = reply.header("location").expect("a location");
        assert!(
            to == "/folder/?a=b" || to == "http://h.example:81/folder/?a=b",
            "{to}"
        );
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
