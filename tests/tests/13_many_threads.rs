//! Many threads. More busy ones than an I/O thread looks through: every reply is found, also with two I/O threads. Fewer
//! busy ones than there are: all get work in turn.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use baton_journeys::options::THREADS;
use baton_journeys::{Account, Baton, Site, alone, wait_until};

/// An I/O thread looks through up to 512 busy slots by itself; beyond, completions have to knock.
const PROCESSES: usize = 560;
const CLIENTS: usize = 560;

fn every_reply_is_found(io_threads: &str) {
    let _alone = alone();
    let site =
        Site::with_index("<?php usleep(1000 * (int) ($_GET['ms'] ?? 0)); echo $_GET['tag'] ?? '';");
    let threads = PROCESSES.to_string();
    let server = Baton::with(
        site.root(),
        &[
            THREADS,
            &threads,
            "--io-threads",
            io_threads,
            "--deadline-ms",
            "8000",
        ],
    );
    wait_until("all processes are there", Duration::from_secs(20), || {
        server.app_processes().len() == PROCESSES
    });
    let account = Account::new();
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (account, addr) = (&account, server.addr());
            scope.spawn(move || {
                let mut conn = baton_journeys::Conn::open(addr);
                for turn in 0..20 {
                    // Bunches that end together, and others that end alone.
                    let ms = [50, 50, 7 + client % 40][turn % 3];
                    let start = Instant::now();
                    let request =
                        format!("GET /?ms={ms}&tag={client}-{turn} HTTP/1.1\r\nHost: a\r\n\r\n");
                    match conn.ask(&request) {
                        Ok(reply) if reply.status() == 200 => {
                            account.answered.fetch_add(1, Ordering::Relaxed);
                            if reply.text() != format!("{client}-{turn}") {
                                account.wrong(format!("another's reply: {}", reply.text()));
                            }
                        }
                        Ok(reply) => account.wrong(format!("status {}", reply.status())),
                        Err(fault) => account.wrong(format!("{fault:?}")),
                    }
                    if start.elapsed() > Duration::from_secs(5) {
                        account.wrong(format!("answered after {:?}", start.elapsed()));
                    }
                }
            });
        }
    });
    account.assert_nothing_wrong();
    server.stop();
}

/// So that no limit of a resource, connections to a database above all, is first met at the peak.
#[test]
fn at_sixty_percent_every_thread_gets_work_within_a_minute() {
    const THREADS_THERE: usize = 120;
    let _alone = alone();
    let site = Site::with_index("<?php usleep(20_000); echo getmypid();");
    let threads = THREADS_THERE.to_string();
    let server = Baton::with(site.root(), &[THREADS, &threads]);
    wait_until("all processes are there", Duration::from_secs(20), || {
        server.app_processes().len() == THREADS_THERE
    });
    let (start, addr) = (Instant::now(), server.addr());
    let at_work = Mutex::new(BTreeSet::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS_THERE * 6 / 10 {
            scope.spawn(|| {
                let mut conn = baton_journeys::Conn::open(addr);
                while start.elapsed() < Duration::from_secs(60) {
                    let reply = conn.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
                    let pid = reply.expect("a reply").text().to_owned();
                    let mut at_work = at_work.lock().expect("nobody panics with it");
                    at_work.insert(pid);
                    if at_work.len() == THREADS_THERE {
                        break;
                    }
                }
            });
        }
    });
    let count = at_work.into_inner().expect("nobody panicked").len();
    println!("{count} threads had work after {:?}", start.elapsed());
    assert_eq!(count, THREADS_THERE);
    server.stop();
}

#[test]
fn with_one_io_thread() {
    every_reply_is_found("1");
}

#[test]
fn with_two_io_threads() {
    every_reply_is_found("2");
}
