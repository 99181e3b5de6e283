//! Request bodies: where they lie, and that they are exact.

use std::time::Duration;

use crate::client::Client;
use crate::service::{Running, pattern};

fn post(client: &mut Client, body: &[u8]) {
    client
        .send(format!(
            "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
            body.len()
        ))
        .send(body);
}

#[test]
fn small_bodies_stay_in_memory_and_large_ones_go_to_a_file() {
    let server = Running::new();
    let mut client = Client::tcp(server.address());
    for (length, kind) in [
        (0, "empty"),
        (1, "memory"),
        (65_000, "memory"),
        (65_536, "memory"),
        (65_537, "file"),
        (3_000_000, "file"),
    ] {
        let body = pattern(length);
        post(&mut client, &body);
        let reply = client.reply();
        assert_eq!(reply.header("x-body"), Some(kind), "{length}");
        assert!(reply.body == body, "{length}");
    }
}

#[test]
fn chunked_bodies_too() {
    let server = Running::new();
    let mut client = Client::tcp(server.address());
    for (length, kind) in [(0, "empty"), (10, "memory"), (100_000, "file")] {
        let body = pattern(length);
        client.send("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n");
        for chunk in body.chunks(7_001) {
            client
                .send(format!("{:x}\r\n", chunk.len()))
                .send(chunk)
                .send("\r\n");
        }
        let reply = client.send("0\r\n\r\n").reply();
        assert_eq!(reply.header("x-body"), Some(kind));
        assert!(reply.body == body);
    }
}

#[test]
fn body_in_slow_pieces_with_a_request_behind_it() {
    let server = Running::new();
    let mut client = Client::tcp(server.address());
    let body = pattern(70_000);
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 70000\r\n\r\n");
    for piece in body[..69_000].chunks(9_000) {
        client.send(piece);
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut rest = body[69_000..].to_vec();
    rest.extend_from_slice(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.send(rest);
    assert!(client.reply().body == body);
    assert_eq!(client.reply().text(), "Hello, world!");
}

#[test]
fn body_that_cannot_be_stored_is_500() {
    let server = Running::with(|config| config.temp_dir = "/does/not/exist".into());
    let mut client = Client::tcp(server.address());
    post(&mut client, &pattern(100_000));
    assert_eq!(client.reply().status, 500);
    assert_eq!(server.events.count("request"), 0);
}

#[test]
fn client_that_leaves_within_its_body_is_forgotten() {
    let server = Running::new();
    let mut client = Client::tcp(server.address());
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf");
    server.wait_connections(1);
    drop(client);
    server.wait_connections(0);
    assert!(server.events.all().is_empty());
}
