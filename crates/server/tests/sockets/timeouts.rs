//! Timeouts, by a clock that the test moves.

use std::time::Duration;

use baton_server::ManualClock;

use crate::client::Client;
use crate::service::Running;

struct Timed {
    server: Running,
    clock: ManualClock,
}

impl Timed {
    fn new() -> Timed {
        let clock = ManualClock::new(1_000_000_000);
        let factory = clock.factory();
        Timed {
            server: Running::with(move |config| config.clock = factory),
            clock,
        }
    }

    fn pass_ms(&self, ms: u64) {
        // What was sent before has arrived, and was acted upon.
        std::thread::sleep(Duration::from_millis(20));
        self.clock.advance_ms(ms);
        self.server.handle.wake();
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn connection_without_a_request_closes_bare() {
    let timed = Timed::new();
    let mut client = Client::tcp(timed.server.address());
    timed.pass_ms(9_900);
    client.assert_silent(20);
    timed.pass_ms(200);
    client.assert_closed();
    timed.server.wait_connections(0);
    assert!(timed.server.events.all().is_empty());
}

#[test]
fn head_timer_is_total() {
    let timed = Timed::new();
    let mut client = Client::tcp(timed.server.address());
    for byte in "GET / HTT".bytes() {
        client.send([byte]);
        timed.pass_ms(1_000);
    }
    client.assert_silent(20);
    timed.pass_ms(1_200);
    let reply = client.reply();
    assert!(reply.status == 408 && reply.closes());
    client.assert_closed();
}

#[test]
fn idle_keep_alive_closes_bare() {
    let timed = Timed::new();
    let mut client = Client::tcp(timed.server.address());
    for _ in 0..3 {
        assert_eq!(client.get("/").reply().status, 200);
        timed.pass_ms(74_900);
        client.assert_silent(20);
    }
    timed.pass_ms(200);
    client.assert_closed();
}

#[test]
fn second_head_has_its_own_time() {
    let timed = Timed::new();
    let mut client = Client::tcp(timed.server.address());
    assert_eq!(client.get("/").reply().status, 200);
    timed.pass_ms(60_000);
    client.send("GET / HTTP/1.1\r\n");
    timed.pass_ms(9_900);
    client.assert_silent(20);
    timed.pass_ms(200);
    assert_eq!(client.reply().status, 408);
}

#[test]
fn body_timer_is_per_read() {
    let timed = Timed::new();
    let mut client = Client::tcp(timed.server.address());
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\n");
    // 50 bytes a second are enough.
    for _ in 0..4 {
        client.send([b'x'; 2_000]);
        timed.pass_ms(29_000);
    }
    client.assert_silent(20);
    timed.pass_ms(1_200);
    assert_eq!(client.reply().status, 408);
    assert_eq!(timed.server.events.count("request"), 0);
}

#[test]
fn body_below_the_least_rate_is_given_up() {
    let timed = Timed::new();
    let mut client = Client::tcp(timed.server.address());
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\n");
    for _ in 0..9 {
        client.send([b'x'; 10]);
        timed.pass_ms(1_000);
    }
    client.assert_silent(20);
    client.send([b'x'; 10]);
    timed.pass_ms(1_200);
    assert_eq!(client.reply().status, 408);
}

#[test]
fn reader_without_progress_is_given_up() {
    let timed = Timed::new();
    let mut client = Client::slow(timed.server.address());
    client.get("/sized/16000000");
    timed.server.events.wait_for("push Blocked", 1);
    timed.pass_ms(29_900);
    assert_eq!(timed.server.events.count("gone"), 0);
    timed.pass_ms(200);
    timed.server.events.wait_for("gone", 1);
    assert!(client.rest().len() < 16_000_000);
    timed.server.wait_connections(0);
}

#[test]
fn waiting_for_the_service_has_no_limit_here() {
    let timed = Timed::new();
    let mut client = Client::tcp(timed.server.address());
    client.get("/later");
    timed.pass_ms(10_000_000);
    timed
        .server
        .handle
        .post(0, crate::service::Message::Release);
    assert_eq!(client.reply().text(), "released");
}

#[test]
fn date_is_the_clocks() {
    let timed = Timed::new();
    let mut client = Client::tcp(timed.server.address());
    assert_eq!(
        client.get("/").reply().header("date"),
        Some("Sun, 09 Sep 2001 01:46:41 GMT")
    );
    timed.pass_ms(5_000);
    assert_eq!(
        client.get("/").reply().header("date"),
        Some("Sun, 09 Sep 2001 01:46:46 GMT")
    );
}

/// With the machine's own clock.
#[test]
fn timers_wake_a_sleeping_thread() {
    let server = Running::with(|config| config.keep_alive_ms = 100);
    let mut client = Client::tcp(server.address());
    assert_eq!(client.get("/").reply().status, 200);
    let start = std::time::Instant::now();
    client.assert_closed();
    let waited = start.elapsed().as_millis();
    assert!((80..400).contains(&waited), "{waited} ms");
}
