//! Replies: framing, streaming, interim, broken off.

use std::time::Instant;

use crate::client::Client;
use crate::service::{Message, Running, pattern};

#[test]
fn sizes_and_forms_are_exact() {
    let server = Running::new();
    let mut client = Client::tcp(server.address());
    for form in [
        "respond",
        "sized",
        "chunked",
        "windows",
        "sized-windows",
        "file",
    ] {
        for length in [
            0, 1, 16_383, 16_384, 16_385, 70_000, 70_001, 300_000, 2_000_000,
        ] {
            let reply = client.get(&format!("/{form}/{length}")).reply();
            assert!(
                reply.status == 200 && reply.body == pattern(length),
                "{form} {length}"
            );
        }
    }
    for event in server.events.all() {
        assert!(
            !event.contains("gone") && !event.contains("false GET"),
            "{event}"
        );
    }
}

#[test]
fn http10_gets_unknown_lengths_until_close() {
    let server = Running::new();
    for length in [0, 100, 300_000] {
        let mut client = Client::tcp(server.address());
        let reply = client
            .send(format!(
                "GET /windows/{length} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
            ))
            .reply();
        assert!(reply.header("transfer-encoding").is_none() && reply.closes());
        assert!(reply.body == pattern(length), "{length}");
    }
}

#[test]
fn head_has_no_body() {
    let server = Running::new();
    let mut client = Client::tcp(server.address());
    for (path, length) in [
        ("/", Some("13")),
        ("/sized/300000", Some("300000")),
        ("/windows/300000", None),
        ("/file/9", Some("9")),
        ("/file-parts/9", Some("29")),
    ] {
        client.send(format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let head = client.head();
        assert_eq!(
            (head.status, head.header("content-length")),
            (200, length),
            "{path}"
        );
    }
    assert_eq!(client.get("/").reply().text(), "Hello, world!");
}

#[test]
fn statuses_without_body() {
    let server = Running::new();
    let mut client = Client::tcp(server.address());
    for status in [204, 304] {
        assert_eq!(
            client.get(&format!("/status/{status}")).reply().status,
            status
        );
    }
    assert_eq!(client.get("/status/418").reply().text(), "some body");
}

#[test]
fn early_hints_come_first_but_not_to_http10() {
    let server = Running::new();
    let mut client = Client::tcp(server.address());
    let hints = client.get("/hints").reply();
    assert_eq!(
        (hints.status, hints.header("link")),
        (103, Some("</style.css>"))
    );
    assert_eq!(client.reply().text(), "hinted");
    let mut client = Client::tcp(server.address());
    assert_eq!(
        client.send("GET /hints HTTP/1.0\r\n\r\n").reply().status,
        200
    );
}

#[test]
fn parts_arrive_when_they_are_pushed() {
    let server = Running::new();
    let mut client = Client::tcp(server.address());
    client.get("/parts");
    server.events.wait_for("request", 1);
    client.assert_silent(20);
    for part in [&b"one"[..], b"two", b"three"] {
        let sent = Instant::now();
        server.handle.post(0, Message::Part(part, false));
        if part == b"one" {
            assert_eq!(client.head().status, 200);
        }
        assert_eq!(client.chunk().unwrap(), part);
        assert!(sent.elapsed().as_millis() < 200);
        client.assert_silent(20);
    }
    server.handle.post(0, Message::Part(b"", true));
    assert_eq!(client.chunk(), None);
    assert_eq!(client.get("/").reply().status, 200);
}

#[test]
fn broken_reply_has_no_last_chunk() {
    let server = Running::new();
    let mut client = Client::tcp(server.address());
    assert_eq!(client.get("/abort").head().status, 200);
    assert_eq!(client.rest(), b"6\r\na part\r\n");
    server.events.wait_for("served 200 6 false", 1);
    assert_eq!(server.events.count("gone"), 0, "it knows");
}

#[test]
fn broken_reply_until_close_ends_in_an_error() {
    use std::io::{Read, Write};
    let server = Running::new();
    let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
    stream.write_all(b"GET /abort HTTP/1.0\r\n\r\n").unwrap();
    let error = stream.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn announced_length_is_kept_to() {
    let server = Running::new();
    for length in [10, 300_000] {
        let mut client = Client::tcp(server.address());
        client.get(&format!("/short/{length}")).head();
        assert_eq!(
            client.rest().len(),
            length,
            "cut, so that the client notices"
        );
        let mut client = Client::tcp(server.address());
        assert!(client.get(&format!("/long/{length}")).reply().body == pattern(length));
        assert_eq!(
            client.get("/").reply().text(),
            "Hello, world!",
            "the excess is not taken for a reply"
        );
        let mut client = Client::tcp(server.address());
        client.get(&format!("/cut-file/{length}")).head();
        assert_eq!(client.rest().len(), length);
    }
}

#[test]
fn second_reply_to_one_request_is_ignored() {
    let server = Running::new();
    let mut client = Client::tcp(server.address());
    assert_eq!(client.get("/twice").reply().text(), "first");
    assert_eq!(client.get("/").reply().text(), "Hello, world!");
}
