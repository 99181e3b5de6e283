//! The load moves the number of threads: up to the most while requests wait, back to the least when nobody needs them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use baton_journeys::options::{ADMIN, IDLE_MS_MAX, MAX_THREADS, NUM_THREADS, THREADS, THREADS_MAX};
use baton_journeys::{Account, Admin, Baton, Cases, Site, alone, baton, proc, wait_until};
use rustix::process::Signal;

/// Until the number has followed the load, on a machine with other things to do.
const FOLLOWS: Duration = Duration::from_secs(20);

/// App processes; what is about to become a zygote has the front's name for a moment.
fn threads(server: &Baton) -> usize {
    let processes = server.app_processes();
    let named = processes
        .iter()
        .filter(|process| process.name == "baton-php");
    named.count()
}

/// So many clients ask again and again while `during` goes on. Returns what it returns, and the most threads there were.
fn under_load<T>(
    server: &Baton,
    clients: usize,
    query: &str,
    during: impl FnOnce(&Account) -> T,
) -> (T, usize) {
    let account = Account::new();
    let most = AtomicUsize::new(0);
    let result = std::thread::scope(|scope| {
        let _stop = account.stop_at_end();
        for number in 0..clients {
            let (account, addr) = (&account, server.addr());
            scope.spawn(move || account.client(addr, number, query));
        }
        let (account, most) = (&account, &most);
        scope.spawn(move || {
            while !account.is_stopped() {
                most.fetch_max(threads(server), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let result = during(account);
        // What `during` saw last, the sampler may have slept through.
        most.fetch_max(threads(server), Ordering::Relaxed);
        account.stop();
        result
    });
    account.assert_nothing_wrong();
    (result, most.into_inner())
}

#[test]
fn the_load_raises_the_number_and_its_end_lowers_it() {
    let _alone = alone();
    let site = Site::of_fixture("php");
    let server = Baton::with(
        site.root(),
        &[NUM_THREADS, "2", MAX_THREADS, "20", IDLE_MS_MAX, "800"],
    );
    wait_until("the least are there", FOLLOWS, || threads(&server) == 2);
    // A process is there before the front has all of its descriptors.
    let mut before = 0;
    wait_until("all is set up", FOLLOWS, || {
        let earlier = std::mem::replace(&mut before, proc::descriptors(server.pid()));
        std::thread::sleep(Duration::from_millis(300));
        before == earlier
    });
    let shared_kib = proc::shared_kib(server.pid());
    for _ in 0..2 {
        let (failures, most) = under_load(&server, 40, "ms=40", |account| {
            wait_until("as many as may be", FOLLOWS, || threads(&server) == 20);
            account.failures()
        });
        assert_eq!((failures, most), (0, 20));
        wait_until("back to the least", FOLLOWS, || threads(&server) == 2);
        server.get("/pid.php").expect(200);
    }
    wait_until("nothing stays behind", FOLLOWS, || {
        proc::descriptors(server.pid()) <= before
    });
    // Each of the 18 had a dozen pages of the front's at least.
    let kib = proc::shared_kib(server.pid());
    assert!(kib < shared_kib + 400, "{shared_kib} KiB, then {kib}");
    // Nothing waits, and none is above the least: so nobody looks.
    let pid = server.pid();
    let idle = || proc::ticks_during(pid, Duration::from_secs(2)) == 0;
    wait_until("idle costs nothing", FOLLOWS, idle);
    let log = server.stop();
    assert!(
        log.contains("start ") && log.contains("requests wait"),
        "{log}"
    );
    assert!(
        log.contains("stop ") && log.contains("not needed for 0.8 s"),
        "{log}"
    );
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
}

#[test]
fn those_that_were_added_by_hand_stay() {
    let _alone = alone();
    let site = Site::of_fixture("php");
    let socket = site.path("admin.sock");
    let place = format!("unix:{}", socket.display());
    let limits = [NUM_THREADS, "2", MAX_THREADS, "12", IDLE_MS_MAX, "400"];
    let server = Baton::with(site.root(), &[&limits[..], &[ADMIN, &place]].concat());
    let change = |method| Admin::at(&socket).ask(method, "/threads?count=3").status;
    assert_eq!(change("PUT"), 200);
    wait_until("they are there", FOLLOWS, || threads(&server) == 5);
    under_load(&server, 24, "ms=30", |_| {
        wait_until("as many as may be", FOLLOWS, || threads(&server) == 12);
    });
    wait_until("back to five", FOLLOWS, || threads(&server) == 5);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(
        threads(&server),
        5,
        "nobody needs them, but somebody wants them"
    );
    assert_eq!(change("DELETE"), 200);
    wait_until("back to the least", FOLLOWS, || threads(&server) == 2);
    server.stop();
}

#[test]
fn what_was_fixed_stays_as_it_is() {
    let _alone = alone();
    let site = Site::of_fixture("php");
    let server = Baton::with(site.root(), &[THREADS, "3", IDLE_MS_MAX, "100"]);
    wait_until("they are there", FOLLOWS, || threads(&server) == 3);
    let (_, most) = under_load(&server, 30, "ms=20", |account| {
        wait_until("some answers", FOLLOWS, || {
            account.answered.load(Ordering::Relaxed) > 300
        });
    });
    assert_eq!((most, threads(&server)), (3, 3));
    server.stop();
}

#[test]
fn applications_share_the_threads_of_the_server() {
    let _alone = alone();
    let site = Site::new();
    for name in ["blog", "shop"] {
        site.write(
            &format!("{name}/index.php"),
            "<?php usleep(30000); echo 'a';",
        );
    }
    let file = site.write(
        "baton.toml",
        "threads_max = 7\nnum_threads = 1\nidle_ms_max = 500\n\
         [apps.blog]\nroot = 'blog'\n[apps.shop]\nroot = 'shop'\n\
         [[routes]]\nhost = 'blog'\napp = 'blog'\n[[routes]]\napp = 'shop'\n",
    );
    let server = Baton::configured(&file);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..30 {
            let host = ["blog", "shop"][number % 2];
            let (server, stop) = (&server, &stop);
            scope.spawn(move || {
                let mut conn = server.connect();
                while !stop.load(Ordering::Relaxed) {
                    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
                    conn.ask(request).expect("a reply").expect(200);
                }
            });
        }
        let mut most = 0;
        wait_until("all that may be", FOLLOWS, || {
            most = most.max(threads(&server));
            most >= 7
        });
        for _ in 0..100 {
            most = most.max(threads(&server));
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(most, 7);
    });
    wait_until("back to the least", FOLLOWS, || threads(&server) == 2);
    server.stop();
}

/// Boots at once, or not at all.
const STUCK: &str = "<?php
    while (file_exists(__DIR__ . '/signs/hang')) { usleep(10000); clearstatcache(); }
    while (frankenphp_handle_request(function () { usleep(20000); echo getmypid(); }));";

#[test]
fn starts_that_hang_hold_up_no_other_application() {
    let _alone = alone();
    let site = Site::new();
    site.write("stuck/worker.php", STUCK);
    site.write("plain/index.php", "<?php");
    site.write(
        "plain/pid.php",
        "<?php usleep(20000); echo getmypid(), ' ', $_GET['tag'];",
    );
    let signs = site.writable("stuck/signs");
    let file = site.write(
        "baton.toml",
        "num_threads = 1\nmax_threads = 12\nidle_ms_max = 500\n\
         [apps.stuck]\nroot = 'stuck'\nworker = 'worker.php'\n[apps.plain]\nroot = 'plain'\n\
         [[routes]]\nhost = 'stuck'\napp = 'stuck'\n[[routes]]\napp = 'plain'\n",
    );
    let server = Baton::configured(&file);
    let ask_stuck = |conn: &mut baton_journeys::Conn| {
        let reply = conn.ask("GET / HTTP/1.1\r\nHost: stuck\r\n\r\n");
        reply.expect("a reply").expect(200);
    };
    ask_stuck(&mut server.connect());
    wait_until("one of each", FOLLOWS, || threads(&server) == 2);
    std::fs::write(signs.join("hang"), "").expect("a sign");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..12 {
            let (server, stop) = (&server, &stop);
            scope.spawn(move || {
                let mut conn = server.connect();
                while !stop.load(Ordering::Relaxed) {
                    ask_stuck(&mut conn);
                }
            });
        }
        wait_until("starts that hang", FOLLOWS, || threads(&server) > 2);
        under_load(&server, 24, "", |_| {
            wait_until("the other grows", FOLLOWS, || {
                let log = server.log();
                log.lines().any(|line| {
                    line.contains("\"app\":\"plain\"") && line.contains("\"threads\":12")
                })
            });
        });
        std::fs::remove_file(signs.join("hang")).expect("a sign");
        stop.store(true, Ordering::Relaxed);
    });
    wait_until("back to the least", FOLLOWS, || threads(&server) == 2);
    server.stop();
}

#[test]
fn one_that_dies_costs_its_request_and_no_more() {
    let _alone = alone();
    let site = Site::of_fixture("php");
    let server = Baton::with(
        site.root(),
        &[NUM_THREADS, "1", MAX_THREADS, "8", IDLE_MS_MAX, "500"],
    );
    let (failures, most) = under_load(&server, 16, "ms=40", |account| {
        for _ in 0..4 {
            wait_until("as many as may be", FOLLOWS, || threads(&server) == 8);
            let last = server.app_processes().pop().expect("a process");
            proc::signal(last.pid, Signal::KILL);
            wait_until("it is gone", FOLLOWS, || !proc::is_alive(last.pid));
        }
        wait_until("as many again", FOLLOWS, || threads(&server) == 8);
        account.failures()
    });
    assert!(
        failures <= 4 && most <= 8,
        "{failures} failed, {most} at most"
    );
    wait_until("back to the least", FOLLOWS, || threads(&server) == 1);
    // The least is made up for at once, and without any request.
    let last = server.app_processes().pop().expect("a process");
    proc::signal(last.pid, Signal::KILL);
    wait_until("another one", FOLLOWS, || {
        let processes = server.app_processes();
        processes.len() == 1 && processes[0].pid != last.pid
    });
    server.stop();
}

#[test]
fn a_restart_and_the_load_agree_on_the_number() {
    let _alone = alone();
    let site = Site::of_fixture("php");
    let server = Baton::with(
        site.root(),
        &[NUM_THREADS, "2", MAX_THREADS, "12", IDLE_MS_MAX, "400"],
    );
    wait_until("the least are there", FOLLOWS, || threads(&server) == 2);
    let restarted = || server.log().matches("\"restarted\"").count();
    let (failures, most) = under_load(&server, 24, "ms=30", |account| {
        // One while it grows, one when it has grown.
        for turn in 0..2 {
            server.signal(Signal::HUP);
            wait_until("a restart", FOLLOWS, || restarted() > turn);
            wait_until("as many as may be", FOLLOWS, || threads(&server) == 12);
        }
        account.failures()
    });
    assert_eq!(failures, 0);
    // A quarter more while new ones take over; two may be seen that were never there together.
    assert!(most <= 12 + 3 + 2, "{most} at most");
    // And one while it shrinks.
    server.signal(Signal::HUP);
    wait_until("a restart", FOLLOWS, || restarted() > 2);
    wait_until("back to the least", FOLLOWS, || threads(&server) == 2);
    server.get("/pid.php").expect(200);
    let log = server.stop();
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
}

#[test]
fn numbers_that_make_no_sense_are_refused() {
    let site = Site::with_index("<?php");
    let mut cases = Cases::new();
    for (options, part) in [
        (&[NUM_THREADS, "0"][..], "0 is not in 1..=4096"),
        (&[NUM_THREADS, "-1"], "-1 is not in 1..=4096"),
        (&[MAX_THREADS, "0"], "0 is neither in 1..=4096 nor auto"),
        (&[MAX_THREADS, "-3"], "-3 is neither in 1..=4096 nor auto"),
        (
            &[MAX_THREADS, "99999999999"],
            "is neither in 1..=4096 nor auto",
        ),
        (&[THREADS, "-2"], "-2 is not in 1..=4096"),
        (&[THREADS_MAX, "0"], "0 is not in 1..=65536"),
        (&[IDLE_MS_MAX, "5"], "5 is not in 100..=86400000"),
        (
            &[NUM_THREADS, "9", MAX_THREADS, "8"],
            "`num_threads`, the least, is 9: more than `max_threads`, 8",
        ),
        (
            &[THREADS, "4", MAX_THREADS, "8"],
            "`threads` fixes the number",
        ),
        (
            &[THREADS, "4", THREADS_MAX, "3"],
            "`threads_max` is 3, but the applications have 4",
        ),
    ] {
        cases.case(&options.join(" "), || {
            let root = site.root().to_str().expect("a plain path");
            let arguments = [&["serve", root], options].concat();
            let ended = baton::run(&arguments, Duration::from_secs(10));
            assert!(!ended.status.success());
            assert!(ended.output.contains(part), "{}", ended.output);
            assert_eq!(ended.output.lines().count(), 1, "{}", ended.output);
        });
    }
    cases.finish();
}
