//! What a user asks for is what the server sees, and what the report says.

mod common;

use std::collections::BTreeMap;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use baton_load::run::{Outcome, Progress};
use common::{HELLO, Server, answer, errors, latency, load, plan};

#[test]
fn a_number_of_requests_is_sent_exactly() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let server = Server::answering(move |asked| {
        counted.fetch_add(1, Ordering::Relaxed);
        assert!(asked.head.contains("\r\nHost: 127.0.0.1:"));
        Some(HELLO.to_vec())
    });
    for (options, connections) in [
        ("-c 7 -t 2", 7),
        ("-c 3 -t 3 --pipeline 8", 3),
        ("-c 5 -t 2 --keep-alive false", 1001),
        ("-c 4 -t 2 --rate 5000", 4),
        ("-c 4 -t 2 --rate 5000 --pipeline 4", 4),
        ("-c 4 -t 2 --rate 5000 --keep-alive false", 1001),
    ] {
        count.store(0, Ordering::Relaxed);
        server.connections.store(0, Ordering::Relaxed);
        let report = load(&format!("{}/x -n 1001 {options}", server.url()));
        assert_eq!(count.load(Ordering::Relaxed), 1001, "{options}");
        assert_eq!(
            (report.requests, report.sent, report.errors.total),
            (1001, 1001, 0),
            "{options}"
        );
        assert_eq!(
            (report.unfinished, report.unsent, report.resent),
            (0, 0, 0),
            "{options}"
        );
        assert_eq!(latency(&report).count, 1001, "{options}");
        assert_eq!(report.statuses, BTreeMap::from([(200, 1001)]), "{options}");
        assert_eq!(
            server.connections.load(Ordering::Relaxed),
            connections,
            "{options}"
        );
        assert!(latency(&report).p50 <= latency(&report).max && latency(&report).max > 0.0);
        assert_eq!(report.bytes_read, 1001 * HELLO.len() as u64, "{options}");
    }
}

#[test]
fn a_duration_ends_and_a_warm_up_is_left_out() {
    let server = Server::answering(|_| Some(HELLO.to_vec()));
    let report = load(&format!("{} -c 4 -d 1500ms --warm-up 500ms", server.url()));
    assert_eq!(report.seconds, 1.0);
    assert!(report.requests > 0 && report.errors.total == 0);
    assert_eq!(report.requests_per_second, report.requests as f64);
    let all: u64 = report.series.iter().map(|second| second.requests).sum();
    assert!(all > report.requests, "{all} are with the warm-up");
    assert!(report.series.iter().any(|second| second.connections == 4));
}

#[test]
fn a_rate_is_kept() {
    let server = Server::answering(|_| Some(HELLO.to_vec()));
    let report = load(&format!("{} -c 10 -t 2 -d 1s --rate 500", server.url()));
    // 500 were due, whenever their replies came.
    assert_eq!(report.sent + report.unsent, 500);
    assert_eq!(report.requests + report.requests_late, report.sent);
    let report = load(&format!(
        "{} -c 10 -t 2 --rate 500ms:500,500ms:0",
        server.url()
    ));
    assert_eq!(report.sent + report.unsent, 250);
}

#[test]
fn connections_follow_their_stages() {
    let open = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (its_open, its_most) = (Arc::clone(&open), Arc::clone(&most));
    let server = Server::start(move |stream| {
        its_most.fetch_max(
            its_open.fetch_add(1, Ordering::Relaxed) + 1,
            Ordering::Relaxed,
        );
        answer(stream, &|_| {
            thread::sleep(Duration::from_millis(1));
            Some(HELLO.to_vec())
        });
        its_open.fetch_sub(1, Ordering::Relaxed);
    });
    let report = load(&format!("{} -t 2 -c 300ms:20,1s:20,300ms:0", server.url()));
    assert_eq!(report.errors.total, 0, "{:?}", report.errors.examples);
    assert_eq!(most.load(Ordering::Relaxed), 20);
    assert_eq!(report.connects, 20);
    assert_eq!(report.seconds, 1.6);
    let waited = Instant::now();
    while open.load(Ordering::Relaxed) > 0 {
        assert!(waited.elapsed() < Duration::from_secs(30));
        thread::yield_now();
    }
}

#[test]
fn unix_sockets_are_served_alike() {
    let path = std::env::temp_dir().join(format!("baton-load-{}.sock", std::process::id()));
    let listener = UnixListener::bind(&path).expect("bound");
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                answer(stream, &|asked| {
                    assert_eq!(
                        (
                            asked.path.as_str(),
                            asked.head.contains("\r\nHost: localhost\r\n")
                        ),
                        ("/a?b", true)
                    );
                    Some(HELLO.to_vec())
                })
            });
        }
    });
    // More at once than the backlog of std's listener holds.
    for options in [
        "-c 300 -n 3000",
        "-c 20 -n 500 --keep-alive false",
        "-c 2 -n 500 --pipeline 32",
    ] {
        let report = load(&format!("unix:{}:/a?b {options}", path.display()));
        assert_eq!(
            report.errors.total, 0,
            "{options}: {:?}",
            report.errors.examples
        );
        assert_eq!(latency(&report).count, report.requests);
    }
    std::fs::remove_file(&path).expect("removed");
}

#[test]
fn targets_are_mixed_by_weight_and_parameters_drawn() {
    let paths = Arc::new(Mutex::new(BTreeMap::<String, usize>::new()));
    let seen = Arc::clone(&paths);
    let server = Server::answering(move |asked| {
        *seen
            .lock()
            .expect("no panic")
            .entry(asked.path.clone())
            .or_default() += 1;
        Some(HELLO.to_vec())
    });
    load(&format!(
        "{}/base --target 3:/a --target 1:/b -n 4000 -c 5",
        server.url()
    ));
    let counts = std::mem::take(&mut *paths.lock().expect("no panic"));
    assert_eq!(counts.values().sum::<usize>(), 4000);
    assert!((2800..3200).contains(&counts["/base/a"]), "{counts:?}");

    let scenario = std::env::temp_dir().join(format!("baton-load-{}.toml", std::process::id()));
    let text = "[load]\nrequests = 2000\nconnections = 3\n[expect]\ntext = \"hello\"\n[[target]]\npath = \"/{n}\"\n\
                parameters = { n = { min = 1, max = 4 } }";
    std::fs::write(&scenario, text).expect("written");
    let run = format!("{} --scenario {}", server.url(), scenario.display());
    let report = load(&run);
    assert_eq!((report.requests, report.errors.total), (2000, 0));
    let counts = std::mem::take(&mut *paths.lock().expect("no panic"));
    assert_eq!(counts.keys().collect::<Vec<_>>(), ["/1", "/2", "/3", "/4"]);
    assert!(
        counts.values().all(|count| (400..600).contains(count)),
        "{counts:?}"
    );
    // The same seed draws the same.
    load(&run);
    assert_eq!(*paths.lock().expect("no panic"), counts);
    std::fs::remove_file(&scenario).expect("removed");
}

#[test]
fn bodies_arrive_whole_however_slowly_the_server_reads() {
    let folder = std::env::temp_dir().join(format!("baton-load-body-{}", std::process::id()));
    let body: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    std::fs::write(&folder, &body).expect("written");
    let expected = body.clone();
    let server = Server::answering(move |asked| {
        assert_eq!(
            (asked.method.as_str(), asked.body == expected),
            ("PUT", true)
        );
        Some(HELLO.to_vec())
    });
    for options in ["", "--pipeline 4"] {
        let run = format!(
            "{} -m PUT --body-file {} -n 24 -c 3 {options}",
            server.url(),
            folder.display()
        );
        let report = load(&run);
        assert_eq!((report.requests, report.errors.total), (24, 0), "{options}");
        assert!(report.bytes_written > 24 * body.len() as u64);
    }
    std::fs::remove_file(&folder).expect("removed");
}

#[test]
fn replies_are_checked() {
    let server = Server::answering(|asked| {
        Some(match asked.path.as_str() {
            "/hello" => HELLO.to_vec(),
            "/chunked" => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n".to_vec(),
            _ => b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n".to_vec(),
        })
    });
    let hash = "--expect-sha256 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let other = "--expect-sha256 0000000000000000000000000000000000000000000000000000000000000000";
    for (path, options, kind) in [
        ("/hello", "", None),
        (
            "/hello",
            "--expect-length 5 --expect-text hello --expect-status 200",
            None,
        ),
        ("/chunked", "--expect-length 5 --expect-text hello", None),
        ("/hello", hash, None),
        ("/chunked", hash, None),
        ("/hello", "--expect-length 6", Some("length")),
        ("/hello", "--expect-text Hello", Some("text")),
        ("/chunked", other, Some("hash")),
        ("/hello", "--expect-status 204", Some("status")),
        ("/nothing", "", Some("status")),
        ("/nothing", "--expect-status 404", None),
    ] {
        let report = load(&format!("{}{path} -n 20 -c 2 {options}", server.url()));
        let wrong = if kind.is_some() { 20 } else { 0 };
        assert_eq!(
            (report.requests, report.errors.total),
            (20 - wrong, wrong),
            "{path} {options}"
        );
        if let Some(kind) = kind {
            assert_eq!(errors(&report, kind), 20, "{path} {options}");
            assert!(report.errors.examples.contains_key(kind));
        }
        // Wrong as they are, they do not cost the connection.
        assert_eq!(report.connects, 2);
    }
}

#[test]
fn replies_to_head_have_no_body() {
    let server = Server::answering(|asked| {
        assert_eq!(asked.method, "HEAD");
        Some(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n".to_vec())
    });
    let report = load(&format!(
        "{} -m HEAD -n 100 -c 2 --pipeline 3",
        server.url()
    ));
    assert_eq!(
        (report.requests, report.errors.total, report.connects),
        (100, 0, 2)
    );
}

/// RFC 9112, section 9.6: what was sent behind a request whose reply says close was not looked at.
#[test]
fn what_a_closing_server_left_unanswered_is_sent_again() {
    let server = Server::start(|stream| {
        let count = std::cell::Cell::new(0);
        answer(stream, &|_| {
            count.set(count.get() + 1);
            Some(match count.get() {
                10 => b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello"
                    .to_vec(),
                _ => HELLO.to_vec(),
            })
        });
    });
    for options in ["", "--rate 20000"] {
        // Closing with requests unread resets the connection, but only after the last reply was sent.
        let report = load(&format!(
            "{} -n 300 -c 2 --pipeline 1 {options}",
            server.url()
        ));
        assert_eq!(
            (report.requests, report.errors.total, report.resent),
            (300, 0, 0),
            "{options}"
        );
        assert!(report.connects >= 30);
    }
    let server = Server::start(|mut stream| {
        use std::io::{Read, Write};
        let _ = stream.read(&mut [0; 65536]);
        let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        let _ = stream.shutdown(std::net::Shutdown::Write);
        common::drain(stream);
    });
    let report = load(&format!("{} -n 60 -c 2 --pipeline 4", server.url()));
    assert_eq!(
        (report.requests, report.errors.total),
        (60, 0),
        "{:?}",
        report.errors.examples
    );
    assert!(report.resent > 0);
    assert_eq!(report.sent, 60 + report.resent);
}

#[test]
fn an_interrupt_ends_the_load_with_a_report() {
    let server = Server::answering(|_| Some(HELLO.to_vec()));
    let plan = plan(&format!("{} -d 1h -c 2", server.url())).expect("good");
    let outcome = run(&plan, &AtomicBool::new(true), &mut |_| {}).expect("an outcome");
    assert!(outcome.interrupted && outcome.seconds < 60.0);
}

#[test]
fn progress_is_told_each_second() {
    let server = Server::answering(|_| Some(HELLO.to_vec()));
    let plan = plan(&format!("{} -d 2200ms -c 2 -t 2", server.url())).expect("good");
    let mut told = vec![];
    let outcome = run(&plan, &AtomicBool::new(false), &mut |progress| {
        told.push(progress.second.clone())
    });
    let outcome = outcome.expect("an outcome");
    assert!(!told.is_empty());
    assert_eq!(told[0].connections, 2);
    let all: u64 = outcome.series.iter().map(|second| second.requests).sum();
    assert_eq!(all, outcome.measured.good + outcome.drain.good);
}

fn run(
    plan: &baton_load::plan::Plan,
    interrupt: &AtomicBool,
    watch: &mut dyn FnMut(&Progress<'_>),
) -> Result<Outcome, String> {
    let address = baton_load::run::reach(plan)?;
    baton_load::run::run(plan, &address, interrupt, watch)
}
