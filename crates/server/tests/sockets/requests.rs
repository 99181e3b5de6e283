//! Whole requests, pipelined, split, refused.

use std::time::Duration;

use crate::client::Client;
use crate::service::{Message, Running};

#[test]
fn keep_alive_serves_many_on_one_connection() {
    let server = Running::new();
    let mut client = Client::tcp(server.address());
    for _ in 0..100 {
        let reply = client.get("/").reply();
        assert_eq!((reply.status, reply.text()), (200, "Hello, world!"));
        assert!(!reply.closes() && reply.header("date").is_some());
        assert_eq!(reply.header("server"), Some("baton"));
    }
    assert_eq!(server.handle.connections(), 1);
    server.events.wait_for("served 200 13 true GET /", 100);
}

#[test]
fn client_that_asks_for_close_gets_it() {
    let server = Running::new();
    for request in [
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
    ] {
        let mut client = Client::tcp(server.address());
        assert!(client.send(request).reply().closes());
        client.assert_closed();
    }
    let mut client = Client::tcp(server.address());
    let reply = client
        .send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        .reply();
    assert_eq!(reply.header("connection"), Some("keep-alive"));
    assert_eq!(client.get("/").reply().status, 200);
}

#[test]
fn twenty_chunked_requests_in_one_write() {
    let server = Running::new();
    let mut client = Client::tcp(server.address());
    let mut all = String::new();
    for i in 0..20 {
        all += &format!(
            "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nno \r\n2;x=y\r\n{i:02}\r\n0\r\n\r\n"
        );
    }
    client.send(all);
    for i in 0..20 {
        assert_eq!(client.reply().text(), format!("no {i:02}"));
    }
}

#[test]
fn pipelined_beyond_one_turn_and_one_buffer() {
    let server = Running::new();
    let mut client = Client::tcp(server.address());
    const COUNT: usize = 5_000;
    let request = "GET /1 HTTP/1.1\r\nHost: a-somewhat-longer-host-name\r\n\r\n";
    let sender = std::net::TcpStream::connect(server.address()).unwrap();
    drop(sender);
    client.send(request.repeat(COUNT));
    for _ in 0..COUNT {
        assert_eq!(client.reply().text(), "Hello, world!");
    }
    assert_eq!(client.get("/").reply().status, 200);
}

#[test]
fn pipelined_behind_a_slow_one_waits_its_turn() {
    let server = Running::new();
    let mut client = Client::tcp(server.address());
    client.get("/later").get("/").get("/later").get("/");
    server.events.wait_for("request GET /later", 1);
    client.assert_silent(50);
    assert_eq!(server.events.count("request"), 1, "one at a time");
    server.handle.post(0, Message::Release);
    assert_eq!(client.reply().text(), "released");
    assert_eq!(client.reply().text(), "Hello, world!");
    server.events.wait_for("request GET /later", 2);
    server.handle.post(0, Message::Release);
    assert_eq!(client.reply().text(), "released");
    assert_eq!(client.reply().text(), "Hello, world!");
}

#[test]
fn split_at_every_byte() {
    let server = Running::new();
    let request = "POST /echo?x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;e=1\r\nHello\r\n1\r\n!\r\n0\r\nT: x\r\n\r\n";
    let mut client = Client::tcp(server.address());
    for at in 1..request.len() {
        client.send(&request[..at]);
        std::thread::sleep(Duration::from_millis(1));
        client.send(&request[at..]);
        assert_eq!(client.reply().text(), "Hello!", "split at {at}");
    }
    for byte in request.bytes() {
        client.send([byte]);
        std::thread::sleep(Duration::from_micros(200));
    }
    assert_eq!(client.reply().text(), "Hello!");
}

#[test]
fn refusals_are_answered_and_close() {
    let server = Running::with(|config| {
        config.limits.target_bytes_max = 100;
        config.limits.head_bytes_max = 1_000;
        config.limits.headers_max = 10;
        config.limits.body_bytes_max = 1_000;
    });
    let long_target = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(200));
    let long_head = format!(
        "GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n",
        "x".repeat(2_000)
    );
    let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(20));
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let cases: [(u16, String); 10] = [
        (400, String::from("GET / HTTP/1.1\r\n\r\n")),
        (400, String::from("GET / HTTP/1.1\nHost: a\n\n")),
        (
            400,
            String::from("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello"),
        ),
        (
            413,
            String::from("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n"),
        ),
        (413, format!("{chunked}3e9\r\n")),
        (400, format!("{chunked}5\r\nHello!\r\n")),
        (414, long_target),
        (431, long_head),
        (431, many),
        (505, String::from("GET / HTTP/2.7\r\nHost: a\r\n\r\n")),
    ];
    for (status, request) in cases {
        let mut client = Client::tcp(server.address());
        let reply = client.send(&request).reply();
        assert_eq!(reply.status, status, "{request}");
        assert!(reply.closes() && reply.text().starts_with(&status.to_string()));
        client.assert_closed();
    }
    assert_eq!(
        server.events.count("request"),
        0,
        "none reached the service"
    );
    assert_eq!(server.events.count("gone"), 0);
}

/// The client goes on sending behind the refusal; the answer must not be lost to an RST.
#[test]
fn refusal_survives_what_is_still_being_sent() {
    let server = Running::with(|config| config.limits.body_bytes_max = 1_000);
    for _ in 0..20 {
        let mut client = Client::tcp(server.address());
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n");
        for _ in 0..20 {
            client.send([b'x'; 10_000]);
        }
        let reply = client.reply();
        assert_eq!(reply.status, 413);
        client.assert_closed();
    }
}

#[test]
fn expect_continue() {
    let server = Running::with(|config| config.limits.body_bytes_max = 1_000);
    let mut client = Client::tcp(server.address());
    let head = |version, length| {
        format!(
            "POST /echo {version}\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    assert_eq!(client.send(head("HTTP/1.1", 5)).reply().status, 100);
    let reply = client.send("hello").reply();
    assert_eq!((reply.status, reply.text()), (200, "hello"));
    // The body did not wait.
    let reply = client.send(head("HTTP/1.1", 5) + "hello").reply();
    assert_eq!((reply.status, reply.text()), (200, "hello"));
    assert_eq!(
        client.send(head("HTTP/1.1", 1_001)).reply().status,
        413,
        "no 100 before it"
    );
    let mut client = Client::tcp(server.address());
    client.send(head("HTTP/1.0", 5)).assert_silent(50);
    assert_eq!(client.send("hello").reply().status, 200);
}

#[test]
fn last_request_of_a_connection_says_close() {
    let server = Running::with(|config| config.requests_per_connection_max = 3);
    let mut client = Client::tcp(server.address());
    client.get("/").get("/").get("/").get("/");
    assert!(!client.reply().closes());
    assert!(!client.reply().closes());
    assert!(client.reply().closes());
    client.assert_closed();
    assert_eq!(server.events.count("request"), 3);
}
