//! Clients that read slowly, or not at all.

use std::time::Duration;

use crate::client::Client;
use crate::service::{Running, pattern};

const LARGE: usize = 16_000_000;

#[test]
fn slow_reader_gets_all_of_it() {
    let server = Running::new();
    for form in ["respond", "sized", "chunked", "windows", "file"] {
        let mut client = Client::slow(server.address());
        client.get(&format!("/{form}/2000000"));
        std::thread::sleep(Duration::from_millis(50));
        assert!(client.reply().body == pattern(2_000_000), "{form}");
        assert_eq!(client.get("/").reply().text(), "Hello, world!");
    }
    assert_eq!(server.handle.spilled_bytes(), 0);
}

#[test]
fn parts_of_a_file_keep_their_order() {
    let server = Running::new();
    for length in [0, 9, 2_000_000] {
        let (half, end) = (length / 2, pattern(length));
        let mut client = Client::slow(server.address());
        client.get(&format!("/file-parts/{length}"));
        std::thread::sleep(Duration::from_millis(50));
        let body = client.reply().body;
        let expected = [
            &b"<first>"[..],
            &end[..half],
            b"<second>",
            &end[half..],
            b"<end>",
        ]
        .concat();
        assert!(body == expected, "{length}");
        assert_eq!(client.get("/").reply().text(), "Hello, world!");
        server
            .events
            .wait_for(&format!("served 200 {} true", expected.len()), 1);
    }
}

#[test]
fn many_slow_readers_and_one_quick_one() {
    let server = Running::new();
    let mut slow: Vec<Client> = (0..20).map(|_| Client::slow(server.address())).collect();
    for client in &mut slow {
        client.get(&format!("/windows/{LARGE}"));
    }
    let mut quick = Client::tcp(server.address());
    for _ in 0..100 {
        assert_eq!(quick.get("/").reply().status, 200);
    }
    let expected = pattern(LARGE);
    slow.truncate(2);
    for mut client in slow {
        assert!(client.reply().body == expected);
    }
}

/// The kernel takes some of the reply; of what it does not take, 256 KiB are copied.
#[test]
fn spilled_end_frees_the_service_at_once() {
    let server = Running::with(|config| config.reply_spill_bytes_per_reply_max = LARGE);
    let mut client = Client::slow(server.address());
    client.get(&format!("/chunked/{LARGE}"));
    server.events.wait_for("push Done true", 1);
    assert!(server.handle.spilled_bytes() > 1_000_000);
    assert_eq!(server.events.count("writable"), 0);
    assert_eq!(server.events.count("served"), 0, "not yet with the client");
    assert!(client.reply().body == pattern(LARGE));
    server.events.wait_for("served 200 16000000 true", 1);
    assert_eq!(server.handle.spilled_bytes(), 0);
}

#[test]
fn too_much_to_spill_blocks() {
    let server = Running::new();
    let mut client = Client::slow(server.address());
    client.get(&format!("/sized/{LARGE}"));
    server.events.wait_for("push Blocked true", 1);
    assert!(client.reply().body == pattern(LARGE));
    server.events.wait_for("push Done true", 1);
    assert!(server.events.count("writable") > 0);
}

#[test]
fn exhausted_budget_blocks_even_small_rests() {
    let server = Running::with(|config| {
        config.reply_spill_bytes_max = 10_000;
        config.reply_spill_bytes_per_reply_max = LARGE;
    });
    for form in ["sized", "chunked", "windows"] {
        let mut client = Client::slow(server.address());
        client.get(&format!("/{form}/{LARGE}"));
        server.events.wait_for("push Blocked", 1);
        assert!(
            server.handle.spilled_bytes() < 10_000 + 1_000,
            "framing only"
        );
        assert!(client.reply().body == pattern(LARGE), "{form}");
    }
}

#[test]
fn reader_that_leaves_is_gone_once() {
    let server = Running::new();
    let mut client = Client::slow(server.address());
    client.get(&format!("/sized/{LARGE}"));
    server.events.wait_for("push Blocked", 1);
    drop(client);
    server.events.wait_for("gone", 1);
    server.wait_connections(0);
    assert_eq!(server.events.count("gone"), 1);
    assert_eq!(server.events.count("served 200"), 1);
    assert_eq!(server.handle.spilled_bytes(), 0);
}
