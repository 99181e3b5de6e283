//! Latency from when a request was meant to be sent, against a server that stalls for 100 ms; and what a tester
//! that stops asking meanwhile would say.

mod common;

use std::collections::HashMap;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use common::{HELLO, latency, load};

const RATE: u64 = 1_000;
const SECONDS: u64 = 2;
const STALL: Duration = Duration::from_millis(100);
const STALL_AT: usize = 1_000;

/// A bare epoll server of one thread: the times at which it sent its replies, in their order.
fn serve(listener: &TcpListener) -> Vec<Instant> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll");
    let (stream, _) = listener.accept().expect("a client");
    stream.set_nodelay(true).expect("set");
    let mut connections = HashMap::from([(7_u64, OwnedFd::from(stream))]);
    epoll::add(
        &epoll,
        &connections[&7],
        epoll::EventData::new_u64(7),
        epoll::EventFlags::IN,
    )
    .expect("added");
    let mut sent = Vec::new();
    let mut input = [0; 4096];
    while !connections.is_empty() {
        let mut events = Vec::with_capacity(8);
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None).expect("events");
        for event in events {
            let key = event.data.u64();
            let (count, _) =
                recv(&connections[&key], &mut input[..], RecvFlags::empty()).expect("readable");
            if count == 0 {
                connections.remove(&key);
                continue;
            }
            if sent.len() == STALL_AT {
                thread::sleep(STALL);
            }
            send(&connections[&key], HELLO, SendFlags::NOSIGNAL).expect("room");
            sent.push(Instant::now());
        }
    }
    sent
}

/// What a client saw of each request that was due at equal distances, in microseconds, the 99.9th percentile.
fn truth(sent: &[Instant]) -> f64 {
    let due = |index: usize| Duration::from_nanos(index as u64 * 1_000_000_000 / RATE);
    // The load began when the least delayed reply would have been sent without delay.
    let start = sent
        .iter()
        .enumerate()
        .filter_map(|(index, at)| at.checked_sub(due(index)))
        .min()
        .expect("replies");
    let mut latencies: Vec<_> = sent
        .iter()
        .enumerate()
        .map(|(index, at)| *at - start - due(index))
        .collect();
    latencies.sort_unstable();
    let rank = (latencies.len() as f64 * 0.999).ceil() as usize;
    latencies[rank - 1].as_secs_f64() * 1e6
}

#[test]
fn a_stall_is_seen_by_all_who_waited() {
    // A machine that is busy with other things adds delays of its own between server and client, which are no
    // fault of the figures; a wrong correction would be wrong each time.
    let mut seen = Vec::new();
    for _ in 0..8 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let server = thread::spawn(move || serve(&listener));
        let report = load(&format!("{url} -c 1 -t 1 -d {SECONDS}s --rate {RATE}"));
        let sent = server.join().expect("no panic");
        assert_eq!(sent.len() as u64, report.requests + report.requests_late);
        assert_eq!(report.sent + report.unsent, RATE * SECONDS);
        let uncorrected = report
            .latency_uncorrected_us
            .as_ref()
            .expect("good replies");
        // One request was under way.
        assert!(uncorrected.max > 90_000.0);
        let (corrected, uncorrected) = (latency(&report).p99_9, uncorrected.p99_9);
        let truth = truth(&sent);
        seen.push((truth, corrected, uncorrected));
        // All requests that were due within the stall waited.
        assert!(truth > 90_000.0, "{seen:?}");
        if (corrected / truth - 1.0).abs() <= 0.02 && uncorrected < truth / 5.0 {
            return;
        }
    }
    panic!("(truth, corrected, uncorrected) P99.9 in us: {seen:?}");
}
