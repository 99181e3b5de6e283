//! Requests that wait, in the queue or standing by at a busy thread: nobody stays behind a thread that turns out to be
//! busy for long, and what nobody waits for any more is never run.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use baton_journeys::options::{QUEUE_LEN_MAX, QUEUE_WAIT_MS_MAX, THREADS, WORKER};
use baton_journeys::{Account, Baton, Conn, Reply, Site, alone, wait_until};

const SCRIPT: &str = "<?php usleep(1000 * (int) ($_GET['ms'] ?? 0)); echo $_GET['tag'] ?? '';";
const CLIENTS: usize = 60;
const LONG: Duration = Duration::from_millis(1500);
/// A request that stays behind a long one takes longer.
const BOUND: Duration = Duration::from_millis(750);

fn ask(conn: &mut Conn, account: &Account, ms: u128, tag: &str) -> Duration {
    let start = Instant::now();
    let request = format!("GET /?ms={ms}&tag={tag} HTTP/1.1\r\nHost: a\r\n\r\n");
    match conn.ask(&request) {
        Ok(reply) if reply.status() == 200 && reply.text() == tag => {
            account.answered.fetch_add(1, Ordering::Relaxed);
        }
        Ok(reply) => account.wrong(format!("{tag}: {} {}", reply.status(), reply.text())),
        Err(fault) => account.wrong(format!("{tag}: {fault:?}")),
    }
    start.elapsed()
}

fn nobody_waits_behind_a_long_request(io_threads: &str) {
    let _alone = alone();
    let site = Site::with_index(SCRIPT);
    // What stands by is not to be taken back only because it is an offer like any other.
    let offer = ["--offer-ms", "5000"];
    let options = [THREADS, "4", "--io-threads", io_threads, offer[0], offer[1]];
    let server = Baton::with(site.root(), &options);
    let (account, addr) = (Account::new(), server.addr());
    let (is_over, longest_us) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (account, is_over, longest_us) = (&account, &is_over, &longest_us);
            scope.spawn(move || {
                let mut conn = Conn::open(addr);
                for turn in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let took = ask(&mut conn, account, 0, &format!("{client}-{turn}"));
                    longest_us.fetch_max(took.as_micros() as u64, Ordering::Relaxed);
                }
            });
        }
        let mut conn = Conn::open(addr);
        for turn in 0..3 {
            std::thread::sleep(Duration::from_millis(200));
            ask(
                &mut conn,
                &account,
                LONG.as_millis(),
                &format!("long-{turn}"),
            );
        }
        is_over.store(true, Ordering::Relaxed);
    });
    account.assert_nothing_wrong();
    let longest = Duration::from_micros(longest_us.into_inner());
    println!(
        "{} answers, the slowest of the short ones after {longest:?}",
        account.answered.load(Ordering::Relaxed)
    );
    assert!(longest < BOUND, "a short request took {longest:?}");
    server.stop();
}

/// Two processes, one of them blocked: what comes meanwhile goes to the other.
#[test]
fn beside_a_blocked_process_all_are_answered() {
    let _alone = alone();
    let site = Site::with_index(SCRIPT);
    let server = Baton::with(site.root(), &[THREADS, "2"]);
    let (account, addr) = (Account::new(), server.addr());
    std::thread::scope(|scope| {
        let account = &account;
        scope.spawn(move || ask(&mut Conn::open(addr), account, 5000, "blocked"));
        std::thread::sleep(Duration::from_millis(300));
        for client in 0..8 {
            scope.spawn(move || {
                let took = ask(
                    &mut Conn::open(addr),
                    account,
                    0,
                    &format!("quick-{client}"),
                );
                if took > Duration::from_secs(1) {
                    account.wrong(format!("answered after {took:?}"));
                }
            });
        }
    });
    account.assert_nothing_wrong();
    assert_eq!(account.answered.load(Ordering::Relaxed), 9);
    server.stop();
}

/// Whoever waits, in the queue or standing by, and leaves.
#[test]
fn requests_of_clients_that_left_are_never_run() {
    let _alone = alone();
    let site = Site::with_index(
        "<?php error_log('ran ' . $_GET['tag']); usleep(1000 * (int) ($_GET['ms'] ?? 0)); echo $_GET['tag'];",
    );
    let server = Baton::with(site.root(), &[THREADS, "1"]);
    let (account, addr) = (Account::new(), server.addr());
    std::thread::scope(|scope| {
        let account = &account;
        scope.spawn(move || ask(&mut Conn::open(addr), account, 1000, "long"));
        std::thread::sleep(Duration::from_millis(300));
        for client in 0..8 {
            let mut conn = Conn::open(addr);
            conn.send(format!(
                "GET /?tag=left-{client} HTTP/1.1\r\nHost: a\r\n\r\n"
            ))
            .expect("sent");
            std::thread::sleep(Duration::from_millis(10));
            conn.reset();
        }
    });
    ask(&mut Conn::open(addr), &account, 0, "last");
    account.assert_nothing_wrong();
    server.wait_for_log("ran last");
    let log = server.stop();
    assert!(log.contains("ran long"), "{log}");
    assert!(!log.contains("ran left"), "{log}");
}

/// Beyond what may wait, in number and in time, clients are told to come back, and what runs is not disturbed.
#[test]
fn too_many_are_refused_and_told_when_to_come_back() {
    let _alone = alone();
    let site = Site::with_index(SCRIPT);
    let bounds = [QUEUE_LEN_MAX, "2", QUEUE_WAIT_MS_MAX, "400"];
    let server = Baton::with(site.root(), &[&[THREADS, "1"], &bounds[..]].concat());
    let (account, addr) = (Account::new(), server.addr());
    let refused_after = |tag: &str| {
        let start = Instant::now();
        let reply = Conn::open(addr)
            .ask(format!("GET /?tag={tag} HTTP/1.1\r\nHost: a\r\n\r\n"))
            .expect("a reply");
        assert_eq!(reply.status(), 503, "{tag}: {}", reply.text());
        assert!(reply.header("retry-after").is_some(), "{tag}");
        start.elapsed()
    };
    std::thread::scope(|scope| {
        scope.spawn(|| ask(&mut Conn::open(addr), &account, 1500, "long"));
        std::thread::sleep(Duration::from_millis(200));
        for waiting in ["waits", "waits-too"] {
            scope.spawn(move || {
                let waited = refused_after(waiting);
                assert!(waited >= Duration::from_millis(350), "{waited:?}");
                assert!(waited < Duration::from_millis(1200), "{waited:?}");
            });
        }
        std::thread::sleep(Duration::from_millis(100));
        for number in 0..20 {
            refused_after(&format!("beyond-{number}"));
        }
    });
    account.assert_nothing_wrong();
    server.get("/?tag=after").expect(200);
    server.stop();
}

/// Five times as many requests as the one thread can do: it is never without work, and who cannot be served is told so at once
/// as soon as the pace is known, also where the queue never is full. Another application does not notice.
#[test]
fn under_overload_goodput_stays_and_refusals_come_at_once() {
    const WORK_MS: u64 = 40;
    const QUEUE_WAIT: Duration = Duration::from_secs(2);
    const KNOWN: Duration = Duration::from_secs(4);
    const WHOLE: Duration = Duration::from_secs(10);
    let _alone = alone();
    let site = Site::new();
    site.write("full/index.php", SCRIPT);
    site.write("free/index.php", SCRIPT);
    let file = site.write(
        "baton.toml",
        format!(
            "threads = 1\n[apps.full]\nroot = 'full'\nqueue_wait_ms_max = {}\n[apps.free]\nroot = 'free'\n\
            [[routes]]\nhost = 'free'\napp = 'free'\n[[routes]]\napp = 'full'\n",
            QUEUE_WAIT.as_millis()
        ),
    );
    let server = Baton::configured(&file);
    let (account, addr) = (Account::new(), server.addr());
    let [done, refused, refused_late] = [(); 3].map(|()| AtomicU64::new(0));
    let (done, refused, refused_late) = (&done, &refused, &refused_late);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let account = &account;
        while start.elapsed() < WHOLE {
            let is_known = start.elapsed() > KNOWN;
            scope.spawn(move || {
                let sent = Instant::now();
                let request = format!("GET /?ms={WORK_MS} HTTP/1.1\r\nHost: a\r\n\r\n");
                let reply = Conn::open(addr).ask(request);
                let count = match reply.map(|reply| reply.status()) {
                    Ok(200) if sent.elapsed() < QUEUE_WAIT * 2 => done,
                    Ok(503) if sent.elapsed() < QUEUE_WAIT / 2 => refused,
                    Ok(503) => refused_late,
                    other => return account.wrong(format!("{other:?} after {:?}", sent.elapsed())),
                };
                count.fetch_add(u64::from(is_known), Ordering::Relaxed);
            });
            if is_known {
                let reply = Conn::open(addr).ask("GET /?tag=free HTTP/1.1\r\nHost: free\r\n\r\n");
                match reply {
                    Ok(reply) if reply.text() == "free" => {
                        account.answered.fetch_add(1, Ordering::Relaxed);
                    }
                    other => account.wrong(format!("the other application: {other:?}")),
                }
            }
            std::thread::sleep(Duration::from_millis(WORK_MS / 5));
        }
    });
    account.assert_nothing_wrong();
    let [done, refused, late] = [done, refused, refused_late].map(|n| n.load(Ordering::Relaxed));
    println!("{done} done, {refused} refused at once, {late} late");
    let capacity = (WHOLE - KNOWN).as_millis() as u64 / WORK_MS;
    assert!(done * 10 >= capacity * 8, "{done} of {capacity}");
    assert!(refused >= done, "{refused} refused, {done} done");
    assert!(late * 20 <= refused, "{late} waited in vain, {refused} not");
    server.stop();
}

/// How long a request ran before its process died does not count as waiting: another thread gets it, as `retry` promises, also
/// if that thread has to boot first, and another request has waited for so long that the queue is looked through.
#[test]
fn a_request_that_is_tried_again_may_wait_again() {
    let _alone = alone();
    let site = Site::new();
    site.write(
        "worker.php",
        "<?php usleep(600000);
        while (frankenphp_handle_request(function () {
            $sign = __DIR__ . '/signs/tried';
            if (isset($_GET['crash']) && !file_exists($sign)) { touch($sign); usleep(800000); posix_kill(getmypid(), 9); }
            echo 'tried again';
        }));",
    );
    let signs = site.writable("signs");
    let bounds = [QUEUE_WAIT_MS_MAX, "900", "--retry"];
    let server = Baton::with(
        site.root(),
        &[&[WORKER, "worker.php", THREADS, "1"], &bounds[..]].concat(),
    );
    server.get("/").expect(200);
    let text = |reply: Reply| (reply.status(), reply.text());
    std::thread::scope(|scope| {
        let first = scope.spawn(|| text(server.get("/?crash")));
        wait_until("it is tried", Duration::from_secs(5), || {
            signs.join("tried").exists()
        });
        std::thread::sleep(Duration::from_millis(200));
        scope.spawn(|| server.get("/"));
        let first = first.join().expect("a reply");
        assert_eq!(first, (200, "tried again".into()));
    });
    std::fs::remove_file(signs.join("tried")).expect("it was tried");
    let posted =
        "POST /?crash HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    assert_eq!(server.send(posted).status(), 502, "not idempotent");
    server.stop();
}

/// Who leaves by a FIN is told of once: also while its request stands by, before that is put back into the queue.
#[test]
fn requests_that_stand_by_when_their_clients_leave_are_never_run() {
    let _alone = alone();
    let site = Site::with_index(
        "<?php error_log('ran ' . $_GET['tag']); isset($_GET['sign']) and touch($_GET['sign']);
        usleep(1000 * (int) ($_GET['ms'] ?? 0)); echo $_GET['tag'];",
    );
    let folder = site.writable("signs");
    let server = Baton::with(site.root(), &[THREADS, "1"]);
    let (account, addr) = (Account::new(), server.addr());
    for round in 0..5 {
        let sign = folder.join(round.to_string());
        std::thread::scope(|scope| {
            let account = &account;
            let sent = |target: String| {
                let mut conn = Conn::open(addr);
                conn.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"))
                    .expect("sent");
                std::thread::sleep(Duration::from_millis(10));
                conn
            };
            scope.spawn(move || ask(&mut Conn::open(addr), account, 400, "first"));
            std::thread::sleep(Duration::from_millis(100));
            // Behind a short request all others are handed to the thread, which then gets stuck in the next.
            let short = sent("/?tag=short".into());
            let long = sent(format!("/?tag=long&ms=200&sign={}", sign.display()));
            let leaving: Vec<_> = (0..7).map(|_| sent("/?tag=left".into())).collect();
            while !sign.exists() {
                std::thread::sleep(Duration::from_micros(50));
            }
            drop(leaving);
            drop((short, long));
        });
    }
    ask(&mut Conn::open(addr), &account, 0, "last");
    account.assert_nothing_wrong();
    server.wait_for_log("ran last");
    let log = server.stop();
    assert!(!log.contains("ran left"), "{log}");
}

#[test]
fn with_one_io_thread() {
    nobody_waits_behind_a_long_request("1");
}

#[test]
fn with_two_io_threads() {
    nobody_waits_behind_a_long_request("2");
}
