//! The app is restarted while it serves: new code and settings, new processes, and not one request lost.
//!
//! `BATON_RESTART_REQUESTS` sets how many requests go through the load, 4,000 by default.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use baton_journeys::options::{DEADLINE_MS, INI_ADMIN, KILL_GRACE_MS, THREADS, WATCH, WORKER};
use baton_journeys::{Account, Baton, Conn, Site, alone, proc, wait_until};
use rustix::process::Signal;
use rustix::pty::OpenptFlags;

/// Until a restart is over, on a machine with other things to do.
const RESTART: Duration = Duration::from_secs(20);

fn serve(site: &Site, threads: usize, more: &[&str]) -> Baton {
    let threads_text = threads.to_string();
    let mut options = vec![THREADS, &threads_text];
    options.extend(more);
    let server = Baton::with(site.root(), &options);
    wait_until("all processes are there", RESTART, || {
        server.app_processes().len() == threads
    });
    server
}

fn count(server: &Baton, line: &str) -> usize {
    server.log().matches(line).count()
}

const BEGUN: &str = "restarting: ";
const OVER: &str = "\"restarted\"";
const FAILED: &str = "the restart failed";

/// Asks for a restart and waits until no old process is left.
#[track_caller]
fn restart(server: &Baton) {
    let before = count(server, OVER);
    server.signal(Signal::HUP);
    wait_until("a restart", RESTART, || count(server, OVER) > before);
}

fn pids(server: &Baton) -> BTreeSet<u32> {
    let processes = server.app_processes();
    // What is about to become a zygote has the front's name, and its group, for a moment.
    let processes = processes
        .iter()
        .filter(|process| process.name == "baton-php");
    processes.map(|process| process.pid).collect()
}

/// The processes, once none has come or gone for a while.
fn still(server: &Baton) -> BTreeSet<u32> {
    loop {
        let before = pids(server);
        std::thread::sleep(Duration::from_millis(300));
        if pids(server) == before {
            return before;
        }
    }
}

fn threads_of(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).map_or(0, |entries| entries.count())
}

/// Processes are back to their number, the dead are reaped, and the front holds no more than `before`.
#[track_caller]
fn settled(server: &Baton, threads: usize, before: (usize, usize)) {
    wait_until("processes are back to their number", RESTART, || {
        server.app_processes().len() == threads && server.zygotes().len() == 1
    });
    wait_until("the dead are reaped", RESTART, || {
        let all = proc::processes();
        !all.iter()
            .any(|p| p.parent == server.pid() && p.state == 'Z')
    });
    let now = || (proc::descriptors(server.pid()), threads_of(server.pid()));
    wait_until("descriptors and threads are as before", RESTART, || {
        now().0 <= before.0 && now().1 <= before.1
    });
}

#[test]
fn under_load_no_request_fails() {
    const PROCESSES: usize = 8;
    let _alone = alone();
    let site = Site::of_fixture("php");
    let server = serve(&site, PROCESSES, &[]);
    // Once before, so that whatever is made only once is there.
    restart(&server);
    let before = (proc::descriptors(server.pid()), threads_of(server.pid()));
    let wanted = std::env::var("BATON_RESTART_REQUESTS")
        .ok()
        .and_then(|wanted| wanted.parse().ok())
        .unwrap_or(4_000);
    let account = Account::new();
    let mut seen = BTreeSet::new();
    std::thread::scope(|scope| {
        let _stop = account.stop_at_end();
        for number in 0..24 {
            let (account, addr) = (&account, server.addr());
            let query = ["busy=1", "ms=0", "ms=3", "ms=60"][number % 4];
            scope.spawn(move || account.client(addr, number, query));
        }
        let mut most = 0;
        for turn in 0.. {
            let begun = count(&server, BEGUN);
            // Some at once are one, and one more after it.
            for _ in 0..=turn % 3 {
                server.signal(Signal::HUP);
            }
            wait_until("restarts begin and end", RESTART, || {
                let processes = pids(&server);
                most = most.max(processes.len());
                seen.extend(processes);
                count(&server, OVER) == count(&server, BEGUN) && count(&server, BEGUN) > begun
            });
            if turn >= 8 && account.answered.load(Ordering::Relaxed) >= wanted {
                break;
            }
        }
        account.stop();
        // Two may be seen that were never there together: /proc is read one by one.
        assert!(most <= PROCESSES + PROCESSES / 4 + 2, "{most} at once");
    });
    account.assert_nothing_wrong();
    assert_eq!(account.failures(), 0);
    println!(
        "{:?} requests, {} restarts, {} processes",
        account.answered,
        count(&server, OVER),
        seen.len()
    );
    assert!(seen.len() >= 8 * PROCESSES / 2, "{} processes", seen.len());
    settled(&server, PROCESSES, before);
    let log = server.stop();
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
}

#[test]
fn what_waits_in_the_queue_is_served() {
    let _alone = alone();
    let site = Site::of_fixture("php");
    let server = serve(&site, 1, &[]);
    let mut asked: Vec<Conn> = (0..30)
        .map(|number| {
            let mut conn = server.connect();
            conn.send(format!(
                "GET /pid.php?ms=30&tag=t{number} HTTP/1.1\r\nHost: a\r\n\r\n"
            ))
            .expect("sent");
            conn
        })
        .collect();
    server.signal(Signal::HUP);
    for (number, conn) in asked.iter_mut().enumerate() {
        let reply = conn.reply().expect("a reply").expect(200);
        assert!(reply.text().ends_with(&format!(" t{number}")));
    }
    wait_until("it is over", RESTART, || count(&server, OVER) == 1);
    server.stop();
}

#[test]
fn new_code_and_settings_are_served_afterwards() {
    let _alone = alone();
    let site = Site::new();
    let version = |version: &str| {
        site.write(
            "lib.inc",
            format!("<?php function v() {{ return '{version}'; }}"),
        );
        site.write("index.php", format!("<?php echo '{version} ', v();"));
    };
    version("one");
    let preload = format!("opcache.preload={}", site.path("lib.inc").display());
    let options = [
        "opcache.validate_timestamps=0",
        &preload,
        "opcache.preload_user=www-data",
    ]
    .map(|ini| [INI_ADMIN, ini]);
    let server = serve(&site, 4, options.as_flattened());
    let answers = || -> BTreeSet<String> { (0..12).map(|_| server.get("/").text()).collect() };
    assert_eq!(answers(), BTreeSet::from(["one one".to_owned()]));
    version("two");
    assert_eq!(answers(), BTreeSet::from(["one one".to_owned()]));
    restart(&server);
    assert_eq!(answers(), BTreeSet::from(["two two".to_owned()]));
    server.stop();
}

#[test]
fn one_that_cannot_start_leaves_the_old_processes_serving() {
    let _alone = alone();
    let site = Site::of_fixture("php");
    site.write("boot.inc", "<?php");
    let preload = format!("opcache.preload={}", site.path("boot.inc").display());
    let options = [
        INI_ADMIN,
        &preload,
        INI_ADMIN,
        "opcache.preload_user=www-data",
    ];
    let server = serve(&site, 4, &options);
    let before = (pids(&server), server.zygotes());
    let account = Account::new();
    std::thread::scope(|scope| {
        let _stop = account.stop_at_end();
        for number in 0..6 {
            let (account, addr) = (&account, server.addr());
            scope.spawn(move || account.client(addr, number, "busy=1"));
        }
        site.write("boot.inc", "<?php\n$a = ;\n");
        server.signal(Signal::HUP);
        server.wait_for_log(FAILED);
        server.wait_for_log("boot.inc on line 2");
        fs::remove_file(site.path("boot.inc")).expect("removed");
        server.signal(Signal::HUP);
        wait_until("the second fails too", RESTART, || {
            count(&server, FAILED) == 2
        });
        // Nobody tries again until it is asked for.
        std::thread::sleep(Duration::from_millis(1500));
        account.stop();
    });
    account.assert_nothing_wrong();
    assert_eq!(account.failures(), 0);
    assert_eq!(count(&server, BEGUN), 2);
    assert_eq!((pids(&server), server.zygotes()), before);
    // The old generation still makes up for what it loses.
    proc::signal(*before.0.first().expect("a process"), Signal::KILL);
    wait_until("the process is replaced", RESTART, || {
        server.app_processes().len() == 4
    });
    site.write("boot.inc", "<?php");
    restart(&server);
    assert!(pids(&server).is_disjoint(&before.0));
    server.stop();
}

#[test]
fn each_application_restarts_for_itself() {
    let _alone = alone();
    let site = Site::new();
    for app in ["good", "broken"] {
        site.write(
            &format!("{app}/index.php"),
            "<?php echo v(), ' ', getmypid();",
        );
        site.write(
            &format!("{app}/boot.inc"),
            "<?php function v() { return 1; }",
        );
    }
    let app = |name: &str| {
        let boot = site.path(&format!("{name}/boot.inc"));
        format!(
            "[apps.{name}]\nroot = '{name}'\nthreads = 2\n\
             ini_admin = ['opcache.preload={}', 'opcache.preload_user=www-data']\n\
             [[routes]]\nhost = '{name}'\napp = '{name}'\n",
            boot.display()
        )
    };
    let file = site.write("baton.toml", app("good") + &app("broken"));
    let server = Baton::configured(&file);
    let answer = |app: &str| {
        let reply = server.send(format!("GET / HTTP/1.1\r\nHost: {app}\r\n\r\n"));
        reply.expect(200).text()
    };
    let before = answer("broken");
    assert!(answer("good").starts_with("1 ") && before.starts_with("1 "));
    site.write("good/boot.inc", "<?php function v() { return 2; }");
    site.write("broken/boot.inc", "<?php function v() {");
    server.signal(Signal::HUP);
    wait_until("one is restarted", RESTART, || {
        count(&server, OVER) == 1 && count(&server, FAILED) == 1
    });
    for _ in 0..6 {
        assert!(answer("good").starts_with("2 "));
        assert!(answer("broken").starts_with("1 "));
    }
    server.stop();
}

/// A worker that takes its time to boot, keeps what it was booted with, and answers as clients under load ask for it.
fn worker(version: &str) -> String {
    format!(
        "<?php
        usleep(50000);
        $handler = function () {{
            if (isset($_GET['reset'])) {{ opcache_reset(); }}
            usleep(1000 * (int) ($_GET['ms'] ?? 0));
            echo '{version} ', getmypid(), ' ', $_GET['tag'] ?? '';
        }};
        while (frankenphp_handle_request($handler));"
    )
}

fn version(server: &Baton) -> String {
    let text = server.get("/pid.php").expect(200).text();
    text.split(' ').next().unwrap_or_default().to_owned()
}

#[test]
fn workers_are_restarted_when_the_new_ones_have_booted() {
    let _alone = alone();
    let site = Site::new();
    site.write("worker.php", worker("one"));
    // Beside a worker the regular threads sleep until they are wanted, so all processes are workers.
    let server = serve(&site, 4, &[WORKER, "worker.php"]);
    wait_until("it serves", RESTART, || version(&server) == "one");
    let account = Account::new();
    std::thread::scope(|scope| {
        let _stop = account.stop_at_end();
        for number in 0..10 {
            let (account, addr) = (&account, server.addr());
            scope.spawn(move || account.client(addr, number, ["ms=0", "ms=30"][number % 2]));
        }
        for version_now in ["two", "three"] {
            site.write("worker.php", worker(version_now));
            restart(&server);
            assert_eq!(version(&server), version_now);
        }
        // By opcache_reset(), as a hook of a deployment calls it.
        site.write("worker.php", worker("four"));
        server.get("/pid.php?reset=1").expect(200);
        wait_until("a restart", RESTART, || count(&server, OVER) == 3);
        assert_eq!(version(&server), "four");

        // Those that do not boot do not serve.
        let before = pids(&server);
        for (failures, script) in [
            "<?php exit(3);",
            "<?php throw new Exception('no database');",
        ]
        .into_iter()
        .enumerate()
        {
            site.write("worker.php", script);
            server.signal(Signal::HUP);
            wait_until("it fails", RESTART, || {
                count(&server, FAILED) == failures + 1
            });
        }
        assert_eq!(version(&server), "four");
        wait_until("the others are gone", RESTART, || pids(&server) == before);
        site.write("worker.php", worker("five"));
        restart(&server);
        assert_eq!(version(&server), "five");
        account.stop();
    });
    account.assert_nothing_wrong();
    assert_eq!(account.failures(), 0);
    assert!(server.log().contains("no database"), "{}", server.log());
    server.stop();
}

/// The only thread there is makes room for none that boots.
#[test]
fn a_single_worker_goes_on_when_the_new_one_does_not_boot() {
    let _alone = alone();
    let site = Site::new();
    site.write("worker.php", worker("one"));
    let server = serve(&site, 1, &[WORKER, "worker.php"]);
    wait_until("it serves", RESTART, || version(&server) == "one");
    let before = pids(&server);
    site.write("worker.php", "<?php usleep(1500000); exit(3);");
    server.signal(Signal::HUP);
    wait_until("it fails", RESTART, || count(&server, FAILED) == 1);
    assert_eq!(version(&server), "one");
    wait_until("the other is gone", RESTART, || pids(&server) == before);
    server.stop();
}

/// A hook of a deployment may be a regular script, or run in any of the workers.
#[test]
fn opcache_resets_are_for_the_whole_application() {
    let _alone = alone();
    let site = Site::new();
    site.write("public/index.php", "<?php // a folder to serve");
    site.write(
        "public/hook.php",
        "<?php var_dump(opcache_reset()); echo getmypid();",
    );
    let deploy = |version: &str| {
        site.write("public/first.php", worker(version));
        site.write("public/second.php", worker(version));
        site.write("public/page.php", format!("<?php echo '{version} ';"));
    };
    deploy("one");
    let file = site.write(
        "baton.toml",
        "threads = 2\nini_admin = { 'opcache.validate_timestamps' = '0' }\n\
         [[workers]]\nfile = 'public/first.php'\n[[workers]]\nfile = 'public/second.php'\n",
    );
    let server = Baton::configured(&file);
    let serves = |version: &str| {
        ["/first.php", "/second.php", "/page.php"].map(|script| {
            let text = server.get(script).expect(200).text();
            text.starts_with(&format!("{version} "))
        })
    };
    wait_until("all serve", RESTART, || serves("one") == [true; 3]);

    deploy("two");
    assert_eq!(serves("one"), [true; 3], "nobody has asked so far");
    let hook = server.get("/hook.php").expect(200).text();
    assert!(hook.starts_with("bool(true)"), "{hook}");
    // A script that starts afresh need not wait for a restart.
    assert!(serves("two")[2]);
    wait_until("all restart", RESTART, || count(&server, OVER) == 3);
    assert_eq!(serves("two"), [true; 3]);
    let pid = hook.split_whitespace().last().expect("a pid");
    assert!(!pids(&server).contains(&pid.parse().expect("a pid")));

    deploy("three");
    server.get("/second.php?reset=1").expect(200);
    wait_until("all restart again", RESTART, || count(&server, OVER) == 6);
    assert_eq!(serves("three"), [true; 3]);
    assert_eq!(count(&server, BEGUN), 6);
    server.stop();
}

fn ask(server: &Baton, target: &str) -> Conn {
    let mut conn = server.connect();
    conn.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"))
        .expect("sent");
    conn
}

fn pid_of(text: &str) -> u32 {
    let number = text.split(' ').next().expect("a word");
    number.parse().unwrap_or_else(|_| panic!("no pid: {text}"))
}

#[test]
fn long_requests_finish_where_they_are_and_hold_nobody_up() {
    let _alone = alone();
    let site = Site::of_fixture("php");
    let server = serve(&site, 4, &[]);
    // Three of four threads are busy for longer than all else in this journey takes.
    let mut long: Vec<Conn> = (0..2).map(|_| ask(&server, "/pid.php?ms=9000")).collect();
    let mut stream = ask(&server, "/stream.php?gap=4500");
    stream.head("GET").expect("a head");
    let start = Instant::now();
    // There may be one process more than threads: with three that stay, new ones are soon short of room. Still each
    // restart is soon served from.
    for turn in 1..=3 {
        let old = still(&server);
        server.signal(Signal::HUP);
        wait_until("new processes serve", RESTART, || {
            let pid = pid_of(&server.get("/pid.php").text());
            !old.contains(&pid)
        });
        assert_eq!(count(&server, BEGUN), turn);
        assert!(pids(&server).len() <= 6, "{:?}", pids(&server));
    }
    println!("three restarts in {:?}", start.elapsed());
    let mut by = BTreeSet::new();
    for conn in &mut long {
        by.insert(pid_of(&conn.reply().expect("a reply").expect(200).text()));
    }
    assert_eq!(stream.body().expect("the stream"), b"one\ntwo\nthree\n");
    wait_until("the last one is over", RESTART, || {
        count(&server, OVER) == 1
    });
    assert!(pids(&server).is_disjoint(&by), "the old ones have left");
    assert_eq!(server.app_processes().len(), 4);
    let log = server.stop();
    assert!(!log.contains("WARN"), "{log}");
}

#[test]
fn what_does_not_leave_is_ended() {
    let _alone = alone();
    let site = Site::of_fixture("php");
    site.write(
        "on.php",
        "<?php echo getmypid(); fastcgi_finish_request(); for (;;) { usleep(10000); }",
    );
    site.write(
        "stubborn.php",
        "<?php echo getmypid(); fastcgi_finish_request();
         pcntl_signal(SIGPROF, SIG_IGN); for (;;) { sleep(100); }",
    );
    let options = [DEADLINE_MS, "1000", KILL_GRACE_MS, "300"];
    let server = serve(&site, 4, &options);
    let on = pid_of(&server.get("/on.php").text());
    let stubborn = pid_of(&server.get("/stubborn.php").text());
    let stopped = *pids(&server)
        .difference(&BTreeSet::from([on, stubborn]))
        .next()
        .expect("another");
    // Idle, and it will not hear that it is to leave.
    proc::signal(stopped, Signal::STOP);
    let start = Instant::now();
    restart(&server);
    assert!(start.elapsed() > Duration::from_millis(1000));
    let log = server.stop();
    assert_eq!(log.matches("interrupting it").count(), 2, "{log}");
    for pid in [on, stubborn, stopped] {
        assert!(!proc::is_alive(pid), "{pid} is still there");
    }
}

#[test]
fn where_new_processes_die_the_old_ones_go_on() {
    let _alone = alone();
    let site = Site::of_fixture("php");
    let server = serve(&site, 4, &[]);
    let old = pids(&server);
    let account = Account::new();
    std::thread::scope(|scope| {
        let _stop = account.stop_at_end();
        for number in 0..4 {
            let (account, addr) = (&account, server.addr());
            scope.spawn(move || account.client(addr, number, "busy=1"));
        }
        server.signal(Signal::HUP);
        let start = Instant::now();
        let (mut killed, mut is_mended) = (BTreeSet::new(), false);
        while count(&server, BEGUN) < 2 {
            for pid in pids(&server).difference(&old) {
                proc::signal(*pid, Signal::KILL);
                killed.insert(*pid);
            }
            // The mended code, say. It need not wait for a restart that comes to no end.
            if killed.len() >= 6 && !is_mended {
                is_mended = true;
                server.signal(Signal::HUP);
            }
            assert!(start.elapsed() < RESTART, "after {} kills", killed.len());
            std::thread::sleep(Duration::from_millis(1));
        }
        let left = pids(&server).intersection(&old).count();
        // How many depends on how soon this journey kills; without a pause after each death all of them had left.
        assert!(left >= 1, "none of {old:?} is left");
        wait_until("a restart", RESTART, || count(&server, OVER) == 1);
        account.stop();
        // Some were killed with a request that they had been given.
        assert!(account.failures() <= killed.len() as u64);
    });
    account.assert_nothing_wrong();
    assert!(pids(&server).is_disjoint(&old));
    server.stop();
}

#[test]
fn while_processes_and_zygotes_are_killed() {
    const PROCESSES: usize = 4;
    let _alone = alone();
    let site = Site::of_fixture("php");
    let options = [DEADLINE_MS, "5000", KILL_GRACE_MS, "100"];
    let server = serve(&site, PROCESSES, &options);
    restart(&server);
    let before = (proc::descriptors(server.pid()), threads_of(server.pid()));
    let account = Account::new();
    let mut kills = 0;
    std::thread::scope(|scope| {
        let _stop = account.stop_at_end();
        for number in 0..8 {
            let (account, addr) = (&account, server.addr());
            scope.spawn(move || account.client(addr, number, "busy=1"));
        }
        for turn in 0..60 {
            if turn % 5 == 0 {
                server.signal(Signal::HUP);
            }
            std::thread::sleep(Duration::from_millis(7 * (turn % 9)));
            // With none left, and a zygote that is killed while it loads, it could not go on.
            wait_until("most are there", RESTART, || {
                server.app_processes().len() >= PROCESSES - 1
            });
            let victims = match turn % 7 {
                6 => server.zygotes(),
                _ => server.app_processes(),
            };
            // The oldest, the youngest, and those between.
            if let Some(victim) = victims.get(turn as usize * 5 % victims.len().max(1)) {
                proc::signal(victim.pid, Signal::KILL);
                kills += u64::from(turn % 7 != 6);
            }
        }
        wait_until("all are served again", RESTART, || {
            server.app_processes().len() == PROCESSES
        });
        account.stop();
    });
    account.assert_nothing_wrong();
    let failed = account.failures();
    println!(
        "{:?} answered, {failed} failed of {kills} kills",
        account.answered
    );
    assert!(failed <= kills, "{failed} failed of {kills} kills");
    // A last one brings everything to one generation.
    restart(&server);
    settled(&server, PROCESSES, before);
    server.stop();
}

/// The seconds in the time stamps of the lines with this in them.
fn seconds_of(log: &str, part: &str) -> Vec<f64> {
    let lines = log.lines().filter(|line| line.contains(part));
    let seconds = lines.filter_map(|line| line.split(':').nth(3)?.split('Z').next()?.parse().ok());
    seconds.collect()
}

/// Asks over the control socket as the guest's library does, by PHP's FFI: one message per `write`.
const ASK: &str = r#"<?php
$c = FFI::cdef('long write(int fd, const char *bytes, unsigned long count);');
foreach (scandir('/proc/self/fd') as $fd) {
    if (str_starts_with((string) @readlink("/proc/self/fd/$fd"), 'socket:')) {
        for ($i = (int) ($_GET['times'] ?? 1); $i > 0; $i--) {
            $message = chr(9) . str_repeat("\0", 16) . $_GET['reason'];
            $sent = $c->write((int) $fd, $message, strlen($message));
        }
    }
}
echo getmypid(), ' ', $sent ?? 'no socket';
"#;

#[test]
fn the_app_asks_for_it() {
    let _alone = alone();
    let site = Site::of_fixture("php");
    site.write("ask.php", ASK);
    let server = serve(&site, 4, &[INI_ADMIN, "ffi.enable=1"]);
    let before = pids(&server);
    let reply = server
        .get("/ask.php?reason=opcache%20is%20full")
        .expect(200);
    let pid = pid_of(&reply.text());
    assert!(reply.text().ends_with(" 32"), "{}", reply.text());
    wait_until("a restart", RESTART, || count(&server, OVER) == 1);
    assert!(pids(&server).is_disjoint(&before));
    let log = server.log();
    let line = log
        .lines()
        .find(|line| line.contains("the app asks for a restart: opcache is full"));
    assert!(
        line.expect("a line").contains(&format!("\"pid\":{pid}")),
        "{log}"
    );
    assert!(log.contains("restarting: asked for by the app: opcache is full"));

    // However often all processes ask, it is one restart, some time after the last.
    let asking = Instant::now();
    let account = Account::new();
    std::thread::scope(|scope| {
        let _stop = account.stop_at_end();
        for number in 0..4 {
            let (account, addr) = (&account, server.addr());
            scope.spawn(move || account.client(addr, number, "busy=1"));
        }
        while asking.elapsed() < Duration::from_millis(1200) {
            let long = format!("/ask.php?times=200&reason=%0a%1b{}", "x".repeat(3000));
            server.get(&long).expect(200);
        }
        account.stop();
    });
    account.assert_nothing_wrong();
    assert_eq!(account.failures(), 0);
    wait_until("another restart", RESTART, || count(&server, OVER) == 2);
    assert_eq!(count(&server, BEGUN), 2);
    let log = server.stop();
    let over: Vec<f64> = seconds_of(&log, OVER);
    let begun: Vec<f64> = seconds_of(&log, BEGUN);
    let pause = (begun[1] - over[0]).rem_euclid(60.0);
    assert!((1.99..30.0).contains(&pause), "{begun:?} {over:?}");
    let asked = log.matches("the app asks for a restart").count();
    assert_eq!(asked, 2, "{log}");
    assert!(log.contains(&format!(" {}\"", "x".repeat(198))), "{log}");
}

#[test]
fn files_are_watched() {
    let _alone = alone();
    let site = Site::of_fixture("php");
    site.write("src/lib/a.php", "<?php");
    site.write("node_modules/x/a.php", "<?php");
    let server = serve(&site, 2, &[WATCH]);
    let restarted = |file: &str| {
        server.wait_for_log(&format!("restarting: {file}"));
        wait_until("restarts are over", RESTART, || {
            count(&server, OVER) == count(&server, BEGUN)
        });
    };
    let before = pids(&server);
    site.write("src/lib/a.php", "<?php // changed");
    restarted("src/lib/a.php has changed");
    assert!(pids(&server).is_disjoint(&before));
    site.write("notes.txt", "x");
    site.write("node_modules/x/a.php", "<?php // changed");
    for number in 0..50 {
        site.write(&format!("new/{number}/x.twig"), "x");
    }
    restarted("new/");
    fs::write(site.path(".env"), "A=1").expect("written");
    restarted(".env has changed");
    // Many changes are one restart, or a few if they take their time.
    assert!(count(&server, BEGUN) < 30, "{}", server.log());
    let log = server.stop();
    assert!(
        !log.contains("node_modules") && !log.contains("notes.txt"),
        "{log}"
    );

    let server = serve(
        &site,
        2,
        &["--watch=src", "--watch=*.lock", "--watch=!src/cache"],
    );
    site.write("index.php", "<?php // changed");
    site.write("src/cache/a.php", "<?php");
    site.write("composer.lock", "{}");
    server.wait_for_log("restarting: composer.lock has changed");
    server.stop();

    for (pattern, reason) in [
        ("../x", "outside of"),
        ("!src", "only patterns with !"),
        ("{a", "{a"),
    ] {
        let option = format!("{WATCH}={pattern}");
        let ended = Baton::try_with(site.root(), &[&option])
            .err()
            .expect("refused");
        assert!(!ended.status.success());
        assert!(ended.output.contains(reason), "{}", ended.output);
    }
}

#[test]
fn files_of_a_worker_are_watched() {
    let _alone = alone();
    let site = Site::new();
    site.write("worker.php", worker("one"));
    let server = serve(&site, 2, &[WORKER, "worker.php", WATCH]);
    wait_until("it serves", RESTART, || version(&server) == "one");
    site.write("worker.php", worker("two"));
    server.wait_for_log("restarting: worker.php has changed");
    wait_until("the restart is over", RESTART, || count(&server, OVER) == 1);
    assert_eq!(version(&server), "two");
    server.stop();
}

/// SIGHUP is also what comes when a terminal is closed: nobody is there any more to end the server.
#[test]
fn a_server_ends_with_its_terminal() {
    let _alone = alone();
    let site = Site::of_fixture("php");
    // Not inherited: it is to be closed when the journey closes it.
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let terminal = rustix::pty::openpt(flags).expect("a terminal");
    rustix::pty::grantpt(&terminal).expect("granted");
    rustix::pty::unlockpt(&terminal).expect("unlocked");
    let name = rustix::pty::ptsname(&terminal, Vec::new()).expect("a name");
    let other = fs::File::options()
        .read(true)
        .write(true)
        .open(std::ffi::OsStr::from_bytes(name.to_bytes()))
        .expect("the other end");
    // A session of its own, of which this is the terminal.
    let mut command = std::process::Command::new("env");
    // The journeys may have been started by nohup, and what is ignored stays so (signal(7)).
    command.args(["--default-signal=HUP", "setsid", "--ctty"]);
    command.arg(baton_journeys::baton::binary());
    let mut server =
        Baton::start_with_stdin(command, other.into(), site.root(), &[]).expect("started");
    server.get("/pid.php").expect(200);
    // As long as it is open, SIGHUP means a restart.
    restart(&server);
    let mut asked = ask(&server, "/pid.php?ms=1000");
    std::thread::sleep(Duration::from_millis(200));
    drop(terminal);
    asked
        .reply()
        .expect("what was running is finished")
        .expect(200);
    let status = server.wait(RESTART);
    let status = status.unwrap_or_else(|| panic!("still running: {}", server.log()));
    assert!(status.success(), "{status}");
}
