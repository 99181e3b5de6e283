//! The orderly end.

use std::time::{Duration, Instant};

use crate::client::Client;
use crate::service::{Message, Running};

#[test]
fn idle_ends_at_once_and_running_requests_are_answered() {
    let server = Running::new();
    let address = server.address();
    let mut idle = Client::tcp(address);
    assert_eq!(idle.get("/").reply().status, 200);
    let mut running: Vec<Client> = (0..10).map(|_| Client::tcp(address)).collect();
    for client in &mut running {
        client.get("/later");
    }
    server.events.wait_for("request GET /later", 10);
    server.handle.drain();
    idle.assert_closed();
    assert!(
        std::net::TcpStream::connect(address).is_err(),
        "nothing new"
    );
    assert_eq!(server.events.count("draining"), 1);
    server.handle.post(0, Message::Release);
    for client in &mut running {
        let reply = client.reply();
        assert!(reply.status == 200 && reply.closes());
        client.assert_closed();
    }
    drop(running);
    let start = Instant::now();
    server.join();
    assert!(start.elapsed() < Duration::from_millis(300));
}

/// The one I/O thread is held up while clients connect and send: all of it waits in the backlog.
#[test]
fn backlog_is_served() {
    let server = Running::with(|config| config.connections_max = 2);
    let address = server.address();
    let mut holders: Vec<Client> = (0..2).map(|_| Client::tcp(address)).collect();
    for client in &mut holders {
        client.get("/later");
    }
    server.events.wait_for("request", 2);
    let mut waiting: Vec<Client> = (0..20).map(|_| Client::tcp(address)).collect();
    for client in &mut waiting {
        client.get("/");
    }
    assert_eq!(server.handle.connections(), 2);
    server.handle.drain();
    for client in &mut waiting {
        let reply = client.reply();
        assert!(reply.status == 200 && reply.closes());
    }
    server.handle.post(0, Message::Release);
    holders
        .iter_mut()
        .for_each(|client| assert_eq!(client.reply().text(), "released"));
}

#[test]
fn connection_without_a_first_request_is_kept_a_little() {
    let server = Running::with(|config| config.drain_first_request_ms = 200);
    let mut quick = Client::tcp(server.address());
    let mut silent = Client::tcp(server.address());
    server.wait_connections(2);
    server.handle.drain();
    server.events.wait_for("draining", 1);
    assert!(quick.get("/").reply().closes());
    silent.assert_closed();
    drop(quick);
    server.join();
}

#[test]
fn reply_begun_before_is_finished_and_then_closed() {
    let server = Running::new();
    let mut client = Client::tcp(server.address());
    client.get("/parts");
    server.events.wait_for("request", 1);
    server.handle.post(0, Message::Part(b"one", false));
    let head = client.head();
    assert!(!head.closes(), "it was not known then");
    server.handle.drain();
    server.events.wait_for("draining", 1);
    server.handle.post(0, Message::Part(b"two", true));
    assert_eq!(client.chunk().unwrap(), b"one");
    assert_eq!(client.chunk().unwrap(), b"two");
    assert_eq!(client.chunk(), None);
    client.assert_closed();
    server.join();
}

#[test]
fn grace_ends_and_the_service_is_told() {
    let server = Running::with(|config| config.shutdown_grace_ms = 100);
    let mut client = Client::tcp(server.address());
    client.get("/later");
    server.events.wait_for("request", 1);
    server.handle.drain();
    client.assert_closed();
    let events = server.events.clone();
    server.join();
    assert_eq!(events.count("gone"), 1);
}

#[test]
fn stop_now_does_not_wait() {
    let server = Running::with(|config| config.io_threads = 2);
    let mut client = Client::tcp(server.address());
    client.get("/later");
    server.events.wait_for("request", 1);
    server.handle.drain();
    let start = Instant::now();
    server.handle.stop_now();
    server.join();
    assert!(start.elapsed() < Duration::from_millis(500));
    client.assert_closed();
}
