//! Worker mode: a script boots once and handles requests in a loop, with FrankenPHP's function. What must be fresh for each
//! request is, what was made at the boot stays, and whatever a handler does costs its own request only.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use baton_journeys::client::request;
use baton_journeys::options::{
    DEADLINE_MS, ENV, INI_ADMIN, KILL_GRACE_MS, MAX_REQUESTS, OFFER_MS, QUEUE_WAIT_MS_MAX, THREADS,
    WORKER,
};
use baton_journeys::{Baton, Browser, Cases, Multipart, Reply, Site, pattern, wait_until};

const SOON: Duration = Duration::from_secs(5);
const FORM: (&str, &str) = ("Content-Type", "application/x-www-form-urlencoded");

fn serve_with(threads: &str, options: &[&str]) -> (Site, Baton) {
    let site = Site::of_fixture("worker");
    site.writable("data");
    let mut all = vec![WORKER, "worker.php", THREADS, threads];
    all.extend(options);
    let server = Baton::with(site.root(), &all);
    (site, server)
}

/// One thread, so that all requests are of the same worker.
fn serve() -> (Site, Baton) {
    serve_with("1", &[])
}

/// A site whose worker is this script.
fn serve_script(script: &str, options: &[&str]) -> (Site, Baton) {
    let site = Site::new();
    site.writable("data");
    site.write("worker.php", script);
    let mut all = vec![WORKER, "worker.php"];
    all.extend(options);
    let server = Baton::with(site.root(), &all);
    (site, server)
}

#[track_caller]
fn line(reply: &Reply, name: &str, value: &str) {
    assert_eq!(reply.line(name).as_deref(), Some(value), "{name}");
}

#[track_caller]
fn number(reply: &Reply, name: &str) -> u64 {
    let text = reply.line(name).expect(name);
    text.parse().expect("a number")
}

/// How often the worker has been called since it booted, and in which boot and process.
#[track_caller]
fn state(server: &Baton) -> (String, u64, u64) {
    let reply = server.get("/").expect(200);
    let boot = reply.line("boot").expect("a boot");
    (boot, number(&reply, "count"), number(&reply, "pid"))
}

/// Until as many processes have answered, with their pids: all of them have booted then.
#[track_caller]
fn wait_for_threads(server: &Baton, target: &str, count: usize) {
    let mut pids = BTreeSet::new();
    wait_until("all threads serve", Duration::from_secs(20), || {
        std::thread::scope(|scope| {
            let ask = || server.get(target).text();
            let asked: Vec<_> = (0..count).map(|_| scope.spawn(ask)).collect();
            pids.extend(asked.into_iter().map(|pid| pid.join().expect("a pid")));
        });
        pids.len() >= count
    });
}

#[test]
fn what_was_made_at_the_boot_stays() {
    let (_site, server) = serve();
    let first = server.get("/").expect(200);
    for turn in 2..=20 {
        let reply = server.get("/").expect(200);
        for same in ["boot", "pid", "file", "precision"] {
            line(&reply, same, &first.line(same).expect(same));
        }
        for counted in ["count", "visits", "kept"] {
            assert_eq!(number(&reply, counted), turn, "{counted}");
        }
    }
    line(&first, "precision", "0.33333");
    assert_ne!(number(&first, "file"), 0);
}

#[test]
fn superglobals_are_those_of_the_request() {
    let (_site, server) = serve();
    let mut cases = Cases::new();
    let plain = || server.get("/super").expect(200);
    cases.case("everything", || {
        let headers = [
            FORM,
            ("Cookie", "c=1"),
            ("Cookie", "d=2"),
            ("X-Mark", "first"),
            ("Authorization", "Basic YWxhZGRpbjpvcGVu"),
        ];
        let reply = server.send(request("POST", "/super?a=1&b=2", &headers, b"p=3&a=4"));
        let reply = reply.expect(200);
        line(&reply, "get", r#"{"a":"1","b":"2"}"#);
        line(&reply, "post", r#"{"p":"3","a":"4"}"#);
        line(&reply, "cookie", r#"{"c":"1","d":"2"}"#);
        line(&reply, "request", r#"{"a":"4","b":"2","p":"3"}"#);
        line(&reply, "headers", "first");
        line(&reply, "server", "first");
        line(&reply, "filtered", "first 1");
        line(&reply, "getenv", "first");
        line(&reply, "user", "aladdin");
        line(&reply, "input", "d2b7e8d511d9ddf738f37c095ebe4a2a");
        line(&reply, "stray", "- - -");
        line(&reply, "env", "-");
    });
    cases.case("nothing of it is left", || {
        let reply = plain();
        for name in ["get", "post", "cookie", "files", "request"] {
            line(&reply, name, "[]");
        }
        for name in ["headers", "server", "getenv", "user"] {
            line(&reply, name, "-");
        }
        line(&reply, "filtered", "- -");
        line(&reply, "session", "false");
        line(&reply, "input", "d41d8cd98f00b204e9800998ecf8427e");
        line(&reply, "stray", "- - -");
        // As in FrankenPHP, whose adapters keep there what they read from .env files.
        line(&reply, "env", "here");
    });
    cases.case("the time is the request's", || {
        let time = |reply: &Reply| -> f64 {
            let text = reply.line("time").expect("a time");
            text.parse().expect("seconds")
        };
        let first = time(&plain());
        std::thread::sleep(Duration::from_millis(30));
        assert!(time(&plain()) >= first + 0.03);
    });
    cases.finish();
}

#[test]
fn superglobals_without_jit() {
    let options = [
        INI_ADMIN,
        "auto_globals_jit=0",
        INI_ADMIN,
        "variables_order=EGPCS",
    ];
    let (_site, server) = serve_with("1", &options);
    let get = |target: &str| server.send(request("GET", target, &[("X-Mark", "m")], b""));
    line(&get("/super?a=1").expect(200), "request", r#"{"a":"1"}"#);
    line(&get("/super?b=1").expect(200), "request", r#"{"b":"1"}"#);
    let reply = server.get("/super").expect(200);
    line(&reply, "request", "[]");
    line(&reply, "server", "-");
    line(&reply, "stray", "- - -");
}

#[test]
fn the_worker_knows_what_it_is() {
    let (site, server) = serve_with("1", &[MAX_REQUESTS, "500"]);
    let root = site.root().to_str().expect("a plain path");
    let reply = server.get("/self?x=1").expect(200);
    for at in ["", "boot "] {
        line(&reply, &format!("{at}SCRIPT_NAME"), "/worker.php");
        line(&reply, &format!("{at}PHP_SELF"), "/worker.php");
        line(
            &reply,
            &format!("{at}SCRIPT_FILENAME"),
            &format!("{root}/worker.php"),
        );
        line(&reply, &format!("{at}DOCUMENT_ROOT"), root);
        line(&reply, &format!("{at}FRANKENPHP_WORKER"), "1");
        line(&reply, &format!("{at}MAX_REQUESTS"), "500");
    }
    line(&reply, "REQUEST_URI", "/self?x=1");
    line(&reply, "boot REQUEST_URI", "/worker.php");
    line(&reply, "PATH_INFO", "");
    line(&reply, "sapi", "frankenphp");
    line(&reply, "getenv", "1 500");

    // Under its own name it has a path info, as any script.
    server.get("/worker.php/self").expect(404);
    let reply = server.get("/worker.php").expect(404);
    assert_eq!(reply.text(), "nothing at /worker.php");
}

#[test]
fn the_worker_is_told_its_bound() {
    let told = |options: &[&str]| {
        let (_site, server) = serve_with("1", options);
        let reply = server.get("/self").expect(200);
        reply.line("MAX_REQUESTS").expect("a bound")
    };
    // Without one, scripts that cannot do without get a number that is never reached.
    assert_eq!(told(&[]), i64::MAX.to_string());
    // What the application was given wins.
    assert_eq!(told(&[MAX_REQUESTS, "500", ENV, "MAX_REQUESTS=7"]), "7");

    let site = Site::with_index("<?php var_dump(getenv('MAX_REQUESTS'));");
    let server = Baton::with(site.root(), &[MAX_REQUESTS, "500"]);
    assert_eq!(server.get("/").expect(200).text(), "bool(false)\n");
}

#[test]
fn a_worker_outside_of_the_root() {
    // With the function's other name, which stands for the same.
    let site = Site::new();
    site.write("public/style.css", "b {}");
    site.write(
        "app/worker.php",
        "<?php while (baton_handle_request(function () {
            echo \"name=$_SERVER[SCRIPT_NAME]\\nfile=$_SERVER[SCRIPT_FILENAME]\\nroot=$_SERVER[DOCUMENT_ROOT]\\ncwd=\", getcwd(), \"\\n\";
        }));",
    );
    let server = Baton::with(site.root(), &[WORKER, "app/worker.php"]);
    let reply = server.get("/any/where").expect(200);
    let path = |name: &str| site.path(name).to_str().expect("plain").to_owned();
    line(&reply, "name", "/worker.php");
    line(&reply, "file", &path("app/worker.php"));
    line(&reply, "root", &path("public"));
    line(&reply, "cwd", &path("app"));
    assert_eq!(server.get("/style.css").expect(200).text(), "b {}");
}

#[test]
fn outside_of_a_worker_the_function_throws() {
    let site = Site::with_index(
        "<?php try { frankenphp_handle_request(fn () => 1); } catch (Throwable $e) { echo get_class($e); }
         echo ' ', isset($_SERVER['FRANKENPHP_WORKER']) ? 'set' : 'unset', ' ', PHP_SAPI;",
    );
    let server = Baton::serve(site.root());
    let reply = server.get("/").expect(200);
    assert_eq!(reply.text(), "RuntimeException unset fpm-fcgi");

    let (_site, server) = serve();
    let reply = server.get("/nested").expect(200);
    assert!(
        reply.text().starts_with("RuntimeException: "),
        "{}",
        reply.text()
    );
    assert_eq!(state(&server).1, 2);

    // In shutdown functions the loop is over.
    let script = "<?php
        register_shutdown_function(function () {
            try { frankenphp_handle_request(fn () => 1); } catch (RuntimeException $e) { echo ' refused'; }
        });
        frankenphp_handle_request(function () { echo 'answered'; exit; });";
    let (_site, server) = serve_script(script, &[THREADS, "1"]);
    assert_eq!(server.get("/").expect(200).text(), "answered refused");
    assert_eq!(server.get("/").expect(200).text(), "answered refused");
}

#[test]
fn what_a_handler_leaves_behind_ends_with_its_request() {
    let (_site, server) = serve();
    let mut cases = Cases::new();
    cases.case("output buffers, headers, status", || {
        let left = server.get("/left").expect(201);
        assert_eq!(left.text(), "LEFT OPEN");
        assert_eq!(left.header("X-Left"), Some("over"));
        assert_eq!(left.header("X-Last"), Some("word"));
        let next = server.get("/").expect(200);
        assert_eq!((next.header("X-Left"), next.header("X-Last")), (None, None));
        assert!(!next.text().contains("left"), "{}", next.text());
    });
    cases.case("uploads", || {
        let body = Multipart::new()
            .field("a", "1")
            .file("f", "name.txt", "text/plain", b"hello");
        let headers = [("Content-Type", Multipart::content_type())];
        let headers = headers
            .each_ref()
            .map(|(name, value)| (*name, value.as_str()));
        let reply = server.send(request("POST", "/upload", &headers, &body.finish()));
        let reply = reply.expect(200);
        line(
            &reply,
            "file",
            "f name.txt 5 5d41402abc4b2a76b9719d911017c592",
        );
        line(&reply, "post", r#"{"a":"1"}"#);
        let temporary = reply.line("tmp").expect("a temporary file");
        wait_until("the temporary file is gone", SOON, || {
            !Path::new(&temporary).exists()
        });
        assert_eq!(server.get("/upload").expect(200).text(), "post=[]\n");
    });
    cases.case("php://input", || {
        let post = |len: usize| {
            let headers = [("Content-Type", "application/octet-stream")];
            server
                .send(request("POST", "/input", &headers, &pattern(len)))
                .expect(200)
                .text()
        };
        assert_eq!(post(3_000_000), "3000000 open ");
        assert_eq!(post(10), "10 closed open ");
        assert_eq!(post(0), "0 closed closed open ");
    });
    cases.case("memory of many bodies", || {
        let headers = [("Content-Type", "application/json")];
        let pid = state(&server).2 as u32;
        let post = || {
            for _ in 0..50 {
                server
                    .send(request("POST", "/super", &headers, &pattern(1_000_000)))
                    .expect(200);
            }
            baton_journeys::proc::anonymous_kib(pid)
        };
        let before = post();
        let after = post();
        assert!(after < before + 10_000, "from {before} to {after} KiB");
    });
    cases.finish();
}

#[test]
fn sessions() {
    let (_site, server) = serve_with("2", &[]);
    let mut browsers: Vec<Browser> = (0..4).map(|_| Browser::new(server.addr())).collect();
    for visit in 1..=10 {
        for (number, browser) in browsers.iter_mut().enumerate() {
            let page = browser
                .get(&format!("/session?owner=c{number}"))
                .expect(200);
            assert_eq!(page.text(), format!("c{number} {visit}"));
        }
    }
    line(&server.get("/super").expect(200), "session", "false");

    // The lock is free with the reply: another thread has the session at once.
    let browser = &mut browsers[0];
    for _ in 0..5 {
        browser.get("/session?hold=50").expect(200);
        let start = Instant::now();
        browser.get("/session").expect(200);
        assert!(start.elapsed() < Duration::from_secs(2));
    }
}

#[test]
fn session_handlers_of_the_boot_stay() {
    let script = "<?php
        class Handler extends SessionHandler {
            public static array $calls = [];
            function read(string $id): string|false { self::$calls[] = 'read'; return parent::read($id); }
            function write(string $id, string $data): bool { self::$calls[] = 'write'; return parent::write($id, $data); }
        }
        session_set_save_handler(new Handler(), true);
        $handler = function () {
            session_start();
            $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1;
            echo $_SESSION['n'], ' ', implode(',', Handler::$calls);
        };
        while (frankenphp_handle_request($handler));";
    let (_site, server) = serve_script(script, &[THREADS, "1"]);
    let mut browser = Browser::new(server.addr());
    assert_eq!(browser.get("/").expect(200).text(), "1 read");
    assert_eq!(browser.get("/").expect(200).text(), "2 read,write,read");
    assert_eq!(
        browser.get("/").expect(200).text(),
        "3 read,write,read,write,read"
    );
}

#[test]
fn a_session_may_start_by_itself() {
    let script = "<?php while (frankenphp_handle_request(function () {
        $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1;
        echo $_SESSION['n'];
    }));";
    let options = [THREADS, "1", INI_ADMIN, "session.auto_start=1"];
    let (_site, server) = serve_script(script, &options);
    let (mut one, mut other) = (Browser::new(server.addr()), Browser::new(server.addr()));
    for (browser, text) in [(0, "1"), (1, "1"), (0, "2"), (0, "3"), (1, "2")] {
        let browser = if browser == 0 { &mut one } else { &mut other };
        assert_eq!(browser.get("/").expect(200).text(), text);
    }
}

#[test]
fn a_handler_that_fails_costs_its_request() {
    let (_site, server) = serve();
    let mut cases = Cases::new();
    // Target, status, body, and whether the script goes on.
    let table = [
        ("/exit", 200, "so far", false),
        ("/exit?status=3", 200, "so far", false),
        ("/fatal", 500, "", true),
        ("/throw", 500, "", true),
        ("/include", 500, "", true),
        ("/memory", 500, "", false),
        ("/limit", 500, "", false),
        ("/limit?own", 500, "", false),
    ];
    let options = [INI_ADMIN, "max_execution_time=1"];
    let (_other_site, limited) = serve_with("1", &options);
    for (target, status, body, goes_on) in table {
        cases.case(target, || {
            let server = if target.starts_with("/limit") {
                &limited
            } else {
                &server
            };
            let before = state(server);
            let reply = server.get(target);
            assert_eq!((reply.status(), reply.text().as_str()), (status, body));
            let after = state(server);
            assert_eq!(after.2, before.2, "the process is another");
            assert_eq!(after.0 == before.0, goes_on, "the boot");
            let count = if goes_on { before.1 + 2 } else { 1 };
            assert_eq!(after.1, count);
        });
    }
    cases.case("a form that needs more memory than there is", || {
        let (_site, server) = serve_with("1", &[INI_ADMIN, "memory_limit=4M"]);
        let before = state(&server);
        let form = format!("a={}", "x".repeat(3_500_000));
        let reply = server.send(request("POST", "/super", &[FORM], form.as_bytes()));
        assert_eq!(reply.status(), 500);
        let after = state(&server);
        assert_eq!((after.1, after.2), (1, before.2));
    });
    cases.finish();
    let log = server.log();
    for part in [
        "unknown_function",
        "thrown by the handler",
        "broken.inc",
        "Allowed memory size",
    ] {
        assert!(log.contains(part), "{part} is not in the log");
    }
    assert!(limited.log().contains("Maximum execution time"));
}

#[test]
fn time_limits_are_for_each_request() {
    // Much more than the limit in all, but none of the requests.
    let (_site, server) = serve_with("1", &[INI_ADMIN, "max_execution_time=1"]);
    let before = state(&server);
    for _ in 0..12 {
        server.get("/pid.php?busy=250").expect(200);
    }
    server.get("/pid.php?ms=1500").expect(200);
    let after = state(&server);
    assert_eq!((after.0, after.1), (before.0, before.1 + 14));
}

#[test]
fn one_that_crashes_on_every_third_request() {
    let (_site, server) = serve_with("4", &[]);
    let outcomes: Vec<(u16, String)> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let addr = server.addr();
                scope.spawn(move || {
                    let ask = |_| {
                        let reply = baton_journeys::get(addr, "/third");
                        (reply.status(), reply.text())
                    };
                    (0..60).map(ask).collect::<Vec<_>>()
                })
            })
            .collect();
        clients
            .into_iter()
            .flat_map(|client| client.join().expect("a client"))
            .collect()
    });
    assert_eq!(outcomes.len(), 480);
    let mut by_status = BTreeMap::new();
    for (status, text) in &outcomes {
        *by_status.entry((*status, text.is_empty())).or_insert(0) += 1;
    }
    // A third ends with exit(1), which is 200 without a word, or fails with 500; nothing else happens.
    assert!(
        by_status
            .keys()
            .all(|key| matches!(key, (200, _) | (500, true))),
        "{by_status:?}"
    );
    assert!(by_status[&(200, false)] >= 300, "{by_status:?}");
    // The processes live on.
    let pids: BTreeSet<&str> = outcomes
        .iter()
        .filter_map(|(_, text)| text.split(' ').nth(1))
        .collect();
    assert!(pids.len() <= 4, "{pids:?}");
    assert!(!server.log().contains("a process has ended"));
}

#[test]
fn a_worker_that_cannot_boot() {
    let mut cases = Cases::new();
    let table = [
        ("a parse error", "$a = ;", "syntax error"),
        (
            "an exception",
            "throw new Exception('no database');",
            "no database",
        ),
        (
            "exit",
            "echo \"said at the boot\\n\"; exit(3);",
            "said at the boot",
        ),
        (
            "an end",
            "error_log('nothing to do'); return;",
            "nothing to do",
        ),
        ("a signal", "posix_kill(getmypid(), 11);", "signal 11"),
    ];
    let up =
        "<?php if (!file_exists(__DIR__ . '/data/go')) { include __DIR__ . '/boot.inc'; return; }
        while (frankenphp_handle_request(function () { echo 'up'; }));";
    for (name, boot, reason) in table {
        cases.case(name, || {
            let site = Site::new();
            site.writable("data");
            site.write("worker.php", up);
            site.write("boot.inc", format!("<?php {boot}"));
            let server = Baton::with(site.root(), &[WORKER, "worker.php", THREADS, "2"]);
            // Whoever asked while it was tried is told when it has failed, later ones at once.
            let start = Instant::now();
            server.get("/").expect(503);
            assert!(start.elapsed() < SOON, "told after {:?}", start.elapsed());
            server.wait_for_log(reason);
            server.wait_for_log("a process has ended before it served");
            if name != "a signal" {
                server.wait_for_log("before it called frankenphp_handle_request()");
            }
            let tries = server.log().matches("before it served").count();
            std::thread::sleep(Duration::from_millis(700));
            let more = server.log().matches("before it served").count() - tries;
            assert!(more <= 10, "{more} tries in 0.7 s: it does not back off");

            // It goes on trying.
            site.write("data/go", "");
            wait_until("it is up", Duration::from_secs(20), || {
                server.get("/").status() == 200
            });
            server.stop();
        });
    }
    cases.finish();
}

/// So long that a request which was offered to a thread that does not look shows.
const OFFER: [&str; 2] = [OFFER_MS, "20000"];
/// What a request may take that need not wait.
const AT_ONCE: Duration = Duration::from_secs(2);

#[test]
fn requests_wait_while_a_worker_boots() {
    let script = "<?php usleep(3000000); while (frankenphp_handle_request(function () {
        if (isset($_GET['exit'])) exit;
        usleep(20000);
        echo getmypid();
    }));";
    let (_site, server) = serve_script(script, &[THREADS, "2", OFFER[0], OFFER[1]]);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| server.get("/").expect(200));
        }
    });
    wait_for_threads(&server, "/", 2);
    // While one boots again, the other works.
    server.get("/?exit").expect(200);
    for _ in 0..10 {
        let start = Instant::now();
        server.get("/").expect(200);
        assert!(
            start.elapsed() < AT_ONCE,
            "waited {:?} for a worker that boots",
            start.elapsed()
        );
    }
    // While both do, requests wait for the first that is ready.
    server.get("/?exit").expect(200);
    server.get("/").expect(200);
    let log = server.stop();
    assert!(!log.contains("does not take requests"), "{log}");
}

#[test]
fn a_boot_that_fails_later_ends_the_process() {
    let script = "<?php
        if (file_exists(__DIR__ . '/data/broken')) { throw new Exception('broken by now'); }
        while (frankenphp_handle_request(function () { isset($_GET['exit']) && exit; usleep(20000); echo getmypid(); }));";
    let (site, server) = serve_script(script, &[THREADS, "2"]);
    wait_for_threads(&server, "/", 2);
    site.write("data/broken", "");
    server.get("/?exit").expect(200);
    server.wait_for_log("broken by now");
    // The other thread serves.
    server.get("/").expect(200);
    server.get("/?exit").expect(200);
    wait_until("nobody serves", SOON, || server.get("/").status() == 503);
    fs::remove_file(site.path("data/broken")).expect("removed");
    wait_until("it is up again", Duration::from_secs(20), || {
        server.get("/").status() == 200
    });
}

#[test]
fn what_is_done_after_a_reply_keeps_nobody_waiting() {
    let (_site, server) = serve_with("2", &OFFER);
    wait_for_threads(&server, "/pid.php?ms=20", 2);
    let start = Instant::now();
    let busy = server.get("/after?ms=5000").expect(200).text();
    assert!(
        start.elapsed() < AT_ONCE,
        "the reply waited for what follows"
    );
    for _ in 0..20 {
        let start = Instant::now();
        let reply = server.get("/pid.php").expect(200);
        assert_ne!(reply.text().trim(), busy);
        assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
    }
    server.wait_for_log("after the reply");
    wait_for_threads(&server, "/pid.php?ms=20", 2);
}

#[test]
fn threads_are_replaced_after_max_requests() {
    let (_site, server) = serve_with("2", &[MAX_REQUESTS, "10"]);
    let mut served: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for _ in 0..100 {
        let reply = server.get("/leak").expect(200).text();
        let (count, pid) = reply.split_once(' ').expect("count and pid");
        served
            .entry(pid.into())
            .or_default()
            .push(count.parse().expect("a count"));
    }
    // Each process served its ten in a row, the last ones perhaps fewer.
    assert!(served.len() >= 10, "{served:?}");
    for (pid, counts) in &served {
        let expected: Vec<u64> = (1..=counts.len() as u64).collect();
        assert_eq!(counts, &expected, "{pid}");
        assert!(counts.len() <= 10, "{pid} served {}", counts.len());
    }
    assert!(!server.log().contains("Allowed memory size"));
    assert!(server.log().contains("the worker ends after 10 requests"));

    // Under load nobody notices.
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..50 {
                    server.get("/pid.php").expect(200);
                }
            });
        }
    });

    // And the same for scripts that start afresh each time.
    let site = Site::with_index("<?php echo getmypid();");
    let server = Baton::with(site.root(), &[THREADS, "1", MAX_REQUESTS, "5"]);
    let pids: BTreeSet<String> = (0..20)
        .map(|_| server.get("/").expect(200).text())
        .collect();
    assert_eq!(pids.len(), 4, "{pids:?}");
}

#[test]
fn streams_flushes_and_early_ends() {
    let (site, server) = serve_with("2", &[]);
    let mut cases = Cases::new();
    cases.case("parts arrive as they are flushed", || {
        let mut conn = server.connect();
        conn.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("sent");
        conn.head("GET").expect("a head");
        let start = Instant::now();
        let first = conn.piece(100).expect("a piece").expect("not the end");
        assert_eq!(first, b"one\n");
        let rest = conn.body().expect("the rest");
        assert_eq!(rest, b"two\nthree\n");
        assert!(
            start.elapsed() > Duration::from_millis(1200),
            "{:?}",
            start.elapsed()
        );
    });
    cases.case("frankenphp_finish_request", || {
        let start = Instant::now();
        let reply = server.get("/finish?tag=f").expect(200);
        assert_eq!(reply.text(), "answered");
        assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
        let file = site.path("data/finish-f");
        wait_until("the script goes on", SOON, || file.exists());
        wait_until("both calls are told", SOON, || {
            fs::read_to_string(&file).is_ok_and(|text| text == "[true,false]")
        });
        for _ in 0..4 {
            assert!(!server.get("/").expect(200).text().contains("never"));
        }
    });
    cases.case("a client that leaves does not end the worker", || {
        let before = state(&server);
        let mut conn = server.connect();
        conn.send("GET /abort?tag=a HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("sent");
        wait_until("it runs", SOON, || site.path("data/abort-a-start").exists());
        conn.head("GET").expect("a head");
        conn.reset();
        let after = site.path("data/abort-a-after");
        wait_until("the script sees it", SOON, || {
            fs::read_to_string(&after).is_ok_and(|text| text == "1")
        });
        let boots: BTreeSet<String> = (0..6).map(|_| state(&server).0).collect();
        assert!(boots.contains(&before.0), "the worker has ended");
        assert!(!server.log().contains("the worker ends"));
    });
    cases.finish();
}

#[test]
fn the_deadline_ends_the_request_and_the_script_starts_again() {
    let options = [DEADLINE_MS, "1500", KILL_GRACE_MS, "10000"];
    let (site, server) = serve_with("1", &options);
    for (name, target) in [
        ("asleep", "/hang?tag=asleep"),
        ("busy", "/hang?tag=busy&busy"),
    ] {
        let before = state(&server);
        server.get(target).expect(504);
        let after = state(&server);
        assert_eq!(after.2, before.2, "{name}: the process was killed");
        assert_ne!(after.0, before.0, "{name}: the script goes on");
        let file = site.path(&format!("data/hang-{name}"));
        assert_eq!(
            fs::read_to_string(file).expect("a shutdown function"),
            "shutdown"
        );
    }
}

#[test]
fn a_child_of_a_handler_says_nothing() {
    let (_site, server) = serve();
    let before = state(&server);
    assert_eq!(server.get("/fork").expect(200).text(), "from the parent 0");
    let after = state(&server);
    assert_eq!((after.0, after.1), (before.0, before.1 + 2));
}

#[test]
fn the_end_of_the_server_ends_the_loop() {
    let (site, server) = serve_with("2", &[]);
    wait_for_threads(&server, "/pid.php?ms=20", 2);
    let mut conn = server.connect();
    conn.send("GET /pid.php?ms=1000&mark&tag=last HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("sent");
    wait_until("it runs", SOON, || site.path("data/mark-last").exists());
    let stopping = std::thread::spawn(move || server.stop());
    let reply = conn.reply().expect("a reply").expect(200);
    assert!(reply.text().ends_with(" last"), "{}", reply.text());
    let log = stopping.join().expect("stopped");
    assert_eq!(log.matches("the worker ends after").count(), 2, "{log}");

    // A loop that does not look at what the function returns ends all the same, and not by a signal.
    let script = "<?php
        register_shutdown_function(fn () => touch(__DIR__ . '/data/ended'));
        while (true) { frankenphp_handle_request(function () { echo 'up'; }); }";
    let (site, server) = serve_script(script, &[THREADS, "1"]);
    assert_eq!(server.get("/").expect(200).text(), "up");
    server.stop();
    assert!(site.path("data/ended").exists());
}

#[test]
fn opcache_resets_ask_for_a_restart() {
    let (_site, server) = serve();
    let before = state(&server);
    assert_eq!(server.get("/reset").expect(200).text(), "true");
    server.wait_for_log("opcache_reset() was called");
    // Then the script is loaded anew, in another process.
    wait_until("another process serves", SOON, || {
        state(&server).2 != before.2
    });

    let script = "<?php var_dump(opcache_reset()); while (frankenphp_handle_request(function () { echo 'up'; }));";
    let (_site, server) = serve_script(script, &[THREADS, "1"]);
    assert_eq!(server.get("/").expect(200).text(), "up");
    server.wait_for_log("A worker that boots cannot ask for a restart");
}

const SMALL_OPCACHE: [&str; 4] = [
    INI_ADMIN,
    "opcache.memory_consumption=8",
    INI_ADMIN,
    "opcache.interned_strings_buffer=1",
];

/// With something to fill it with.
fn serve_with_small_opcache() -> (Site, Baton) {
    let site = Site::of_fixture("worker");
    let big: String = (0..20_000)
        .map(|n| format!("'key {n}' => [{n}, 'value {n}'],\n"))
        .collect();
    site.write("big.inc", format!("<?php return [{big}];"));
    let mut all = vec![WORKER, "worker.php", THREADS, "1"];
    all.extend(SMALL_OPCACHE);
    let server = Baton::with(site.root(), &all);
    (site, server)
}

#[track_caller]
fn fill_opcache(server: &Baton) {
    let filled = server.get("/fill").expect(200).text();
    let filled: u32 = filled.parse().expect("a count");
    assert!(filled < 200, "opcache's memory was not filled");
    // It is looked at once a second.
    wait_until("it is noticed", SOON, || {
        server.get("/").expect(200);
        server.log().contains("opcache's memory is full")
    });
}

#[test]
fn a_full_opcache_asks_for_a_restart() {
    let (_site, server) = serve_with_small_opcache();
    fill_opcache(&server);

    // The look is not the script's, so what the script may call makes no difference.
    let mut options = SMALL_OPCACHE.to_vec();
    options.extend([INI_ADMIN, "opcache.restrict_api=/nowhere"]);
    let (_site, server) = serve_with("1", &options);
    for _ in 0..3 {
        server.get("/").expect(200);
        std::thread::sleep(Duration::from_millis(600));
    }
    assert!(!server.log().contains("restrict_api"), "{}", server.log());
}

#[test]
fn a_full_opcache_asks_again_after_a_restart_that_failed() {
    let (site, server) = serve_with_small_opcache();
    let before = state(&server);
    let script = fs::read(site.path("worker.php")).expect("the worker");
    site.write("worker.php", "<?php exit(3);");
    fill_opcache(&server);
    server.wait_for_log("the restart failed");
    site.write("worker.php", script);
    // It asks each 30 s.
    wait_until("another process serves", Duration::from_secs(50), || {
        state(&server).2 != before.2
    });
}

/// What Symfony's runner does: a new handler on each turn, work after the reply, an own bound of turns.
#[test]
fn a_runner_with_a_bound_of_its_own() {
    let script = "<?php
        ignore_user_abort(true);
        $kernel = new class {
            public int $booted = 0;
            function handle(): string { $this->booted++; return $_SERVER['APP_MODE'] . ' ' . $_SERVER['REQUEST_URI'] . ' ' . $this->booted; }
            function terminate(string $last): void { error_log(\"terminated $last\"); }
        };
        $server = array_filter($_SERVER, fn (string $name) => !str_starts_with($name, 'HTTP_'), ARRAY_FILTER_USE_KEY);
        $server['APP_MODE'] = 'worker';
        $last = null;
        $handler = function () use ($kernel, $server, &$last): void {
            $_SERVER += $server;
            echo $last = $kernel->handle();
        };
        $turns = 0;
        do {
            $again = frankenphp_handle_request($handler);
            $last === null || $kernel->terminate($last);
            gc_collect_cycles();
        } while ($again && ++$turns < 5);";
    let (_site, server) = serve_script(script, &[THREADS, "1"]);
    for request in 0..12 {
        let reply = server.get(&format!("/page{request}")).expect(200);
        assert_eq!(
            reply.text(),
            format!("worker /page{request} {}", request % 5 + 1)
        );
    }
    server.wait_for_log("terminated worker /page11 2");
}

/// What Laravel's does: leaves at once where it is not in a worker, boots in the first request, reads its bound from the
/// environment and cleans up at the end.
#[test]
fn a_runner_that_boots_in_its_first_request() {
    let script = "<?php
        if (!($_SERVER['FRANKENPHP_WORKER'] ?? false) || !function_exists('frankenphp_handle_request')) {
            echo 'this is no worker';
            exit(1);
        }
        ignore_user_abort(true);
        $app = null;
        $max = $_ENV['MAX_REQUESTS'] ?? $_SERVER['MAX_REQUESTS'];
        set_time_limit((int) ($_ENV['REQUEST_TIME'] ?? $_SERVER['REQUEST_TIME_LIMIT']));
        $served = 0;
        try {
            $handler = static function () use (&$app) {
                try {
                    $app ??= new ArrayObject(['booted' => microtime(true)]);
                    $app[] = $_SERVER['REQUEST_URI'];
                    if (isset($_GET['spin'])) { while (true); }
                    if (isset($_GET['fail'])) { throw new LogicException('inside'); }
                    header('X-Count: ' . (count($app) - 1));
                    echo 'served';
                } catch (Throwable $e) {
                    http_response_code(500);
                    header('Status: 500 Internal Server Error');
                    echo 'Internal Server Error';
                }
            };
            while ($served < $max && frankenphp_handle_request($handler)) { $served++; }
        } finally {
            error_log('app terminated');
        }";
    let options = [THREADS, "1", MAX_REQUESTS, "4", ENV, "REQUEST_TIME_LIMIT=1"];
    let (_site, server) = serve_script(script, &options);
    for request in 0..8 {
        let reply = server.get("/").expect(200);
        assert_eq!(
            reply.header("X-Count"),
            Some(format!("{}", request % 4 + 1).as_str())
        );
    }
    server.wait_for_log("app terminated");
    assert_eq!(
        server.get("/?fail").expect(500).text(),
        "Internal Server Error"
    );
    assert_eq!(server.get("/").expect(200).header("X-Count"), Some("2"));
    // The limit that it set at the boot is that of each request.
    server.get("/?spin").expect(500);
    assert_eq!(server.get("/").expect(200).header("X-Count"), Some("1"));
}

#[test]
fn a_wrong_worker_is_told_at_the_start() {
    let site = Site::with_index("<?php");
    let ended = Baton::try_with(site.root(), &[WORKER, "nowhere.php"])
        .err()
        .expect("no start");
    assert!(!ended.status.success());
    assert!(
        ended.output.contains("nowhere.php") && ended.output.contains("No such file"),
        "{}",
        ended.output
    );
}

#[test]
fn a_boot_that_waits_in_vain_is_tried_again() {
    // All hang but one: the queue's bound holds for who waits meanwhile.
    let script = "<?php
        if (!file_exists(__DIR__ . '/data/go')) { usleep(4000000); exit; }
        while (frankenphp_handle_request(function () { echo 'up'; }));";
    let options = [THREADS, "2", QUEUE_WAIT_MS_MAX, "500"];
    let (site, server) = serve_script(script, &options);
    let start = Instant::now();
    server.get("/").expect(503);
    assert!(
        start.elapsed() < Duration::from_millis(3500),
        "{:?}",
        start.elapsed()
    );
    site.write("data/go", "");
    wait_until("it is up", Duration::from_secs(10), || {
        server.get("/").status() == 200
    });
}
