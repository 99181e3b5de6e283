//! App processes and zygotes die, crash and hang under load: one request each at most, and never the server.

use std::fs;
use std::time::{Duration, Instant};

use baton_journeys::options::{DEADLINE_MS, KILL_GRACE_MS, THREADS, WORKER};
use baton_journeys::{Account, Baton, Conn, Fault, Site, alone, proc, wait_until};
use rustix::process::Signal;

const PROCESSES: usize = 4;
const CLIENTS: usize = 8;
/// Until all processes are there again, restart backoff included.
const RECOVERY: Duration = Duration::from_secs(20);

fn serve(deadline_ms: &str) -> (Site, Baton) {
    serve_fixture("php", deadline_ms, &[])
}

/// The same with threads whose script loops: it answers what `pid.php` does.
fn serve_worker(deadline_ms: &str) -> (Site, Baton) {
    serve_fixture("worker", deadline_ms, &[WORKER, "worker.php"])
}

fn serve_fixture(fixture: &str, deadline_ms: &str, more: &[&str]) -> (Site, Baton) {
    let site = Site::of_fixture(fixture);
    site.writable("data");
    let mut options = vec![THREADS, "4", DEADLINE_MS, deadline_ms, KILL_GRACE_MS, "100"];
    options.extend(more);
    let server = Baton::with(site.root(), &options);
    wait_until("all processes are there", RECOVERY, || {
        server.app_processes().len() == PROCESSES
    });
    (site, server)
}

fn recovered(server: &Baton) {
    wait_until("the processes are back to their number", RECOVERY, || {
        server.app_processes().len() == PROCESSES && server.zygotes().len() == 1
    });
    wait_until("the dead are reaped", RECOVERY, || {
        !proc::processes()
            .iter()
            .any(|p| p.parent == server.pid() && p.state == 'Z')
    });
    for _ in 0..PROCESSES * 2 {
        server.get("/pid.php").expect(200);
    }
}

/// Eight clients ask while `harm` is done `times` times, `pause` apart. `costs`: requests that each harm may cost.
/// Afterwards everything is as before: processes, descriptors, memory.
fn under_harm(
    (_site, server): (Site, Baton),
    times: usize,
    pause: Duration,
    costs: u64,
    mut harm: impl FnMut(&Baton, usize),
) {
    let account = Account::new();
    let mut first_half = (0, 0);
    std::thread::scope(|scope| {
        let _stop = account.stop_at_end();
        for number in 0..CLIENTS {
            let (account, addr) = (&account, server.addr());
            scope.spawn(move || account.client(addr, number, "busy=1"));
        }
        for turn in 0..times {
            std::thread::sleep(pause);
            harm(&server, turn);
            if turn == times / 2 {
                first_half = (proc::anonymous_kib(server.pid()), account.failures());
            }
        }
        wait_until("the processes are back to their number", RECOVERY, || {
            server.app_processes().len() == PROCESSES
        });
        // Everybody is served again.
        let answered = || account.answered.load(std::sync::atomic::Ordering::Relaxed);
        let before = answered();
        wait_until("requests are answered as before", RECOVERY, || {
            answered() > before + 50
        });
        account.stop();
    });
    account.assert_nothing_wrong();
    let failed = account.failures();
    assert!(
        failed <= times as u64 * costs,
        "{failed} requests failed for {times} harms"
    );
    recovered(&server);
    let grown = proc::anonymous_kib(server.pid()).saturating_sub(first_half.0);
    assert!(
        grown < 2048,
        "the front grew by {grown} KiB in the second half"
    );
    println!(
        "{times} harms: {:?} answered, {failed} failed",
        account.answered
    );

    // Descriptors: as many after another round of harm as before it.
    let settled = || {
        wait_until(
            "clients' connections are closed",
            Duration::from_secs(5),
            || {
                let now = proc::descriptors(server.pid());
                std::thread::sleep(Duration::from_millis(100));
                now == proc::descriptors(server.pid())
            },
        );
        proc::descriptors(server.pid())
    };
    let before = settled();
    for turn in 0..times.min(4) {
        harm(&server, turn);
        std::thread::sleep(pause);
    }
    recovered(&server);
    let after = settled();
    let targets = || proc::descriptor_targets(server.pid());
    assert!(
        after <= before + 2,
        "descriptors: {before}, then {after}: {:#?}",
        targets()
    );
    server.stop();
}

/// Signals one app process, each in its turn.
fn signal_one(signal: Signal) -> impl FnMut(&Baton, usize) {
    move |server, turn| {
        let processes = server.app_processes();
        if let Some(process) = processes.get(turn % processes.len().max(1)) {
            proc::signal(process.pid, signal);
        }
    }
}

/// Stops one, which is found out when its request is over its deadline, or, if it had none, when it does not take any. Until then
/// no other is stopped: with all of them stopped nobody is served.
fn stop_one(server: &Baton, turn: usize) {
    let processes = server.app_processes();
    let process = &processes[turn % processes.len()];
    proc::signal(process.pid, Signal::STOP);
    wait_until("the stopped process is killed", RECOVERY, || {
        // Without requests nobody would notice.
        server.get("/pid.php");
        !proc::is_alive(process.pid)
    });
}

fn kill_all(server: &Baton, _: usize) {
    for process in server.app_processes() {
        proc::signal(process.pid, Signal::KILL);
    }
}

/// Requests do not need the zygote. The process killed after it comes from a new one.
fn kill_the_zygote_and_one(server: &Baton, turn: usize) {
    for zygote in server.zygotes() {
        proc::signal(zygote.pid, Signal::KILL);
    }
    signal_one(Signal::KILL)(server, turn);
}

#[test]
fn sigkill_of_app_processes() {
    let _alone = alone();
    under_harm(
        serve("5000"),
        25,
        Duration::from_millis(120),
        1,
        signal_one(Signal::KILL),
    );
}

#[test]
fn sigkill_of_workers() {
    let _alone = alone();
    under_harm(
        serve_worker("5000"),
        25,
        Duration::from_millis(120),
        1,
        signal_one(Signal::KILL),
    );
}

#[test]
fn sigstop_of_workers() {
    let _alone = alone();
    under_harm(
        serve_worker("1000"),
        2,
        Duration::from_millis(300),
        1,
        stop_one,
    );
}

#[test]
fn sigkill_of_all_workers_at_once() {
    let _alone = alone();
    under_harm(
        serve_worker("5000"),
        5,
        Duration::from_millis(800),
        PROCESSES as u64,
        kill_all,
    );
}

#[test]
fn sigsegv_of_workers() {
    let _alone = alone();
    under_harm(
        serve_worker("5000"),
        20,
        Duration::from_millis(120),
        1,
        signal_one(Signal::SEGV),
    );
}

#[test]
fn sigkill_of_the_zygote_of_workers() {
    let _alone = alone();
    under_harm(
        serve_worker("5000"),
        8,
        Duration::from_millis(400),
        1,
        kill_the_zygote_and_one,
    );
}

#[test]
fn sigsegv_of_app_processes() {
    let _alone = alone();
    under_harm(
        serve("5000"),
        20,
        Duration::from_millis(120),
        1,
        signal_one(Signal::SEGV),
    );
}

#[test]
fn sigstop_of_app_processes() {
    // A stopped process costs the request that it holds, after its deadline; what it was offered goes to another.
    let _alone = alone();
    under_harm(serve("1000"), 2, Duration::from_millis(300), 1, stop_one);
}

#[test]
fn sigkill_of_all_app_processes_at_once() {
    let _alone = alone();
    under_harm(
        serve("5000"),
        5,
        Duration::from_millis(800),
        PROCESSES as u64,
        kill_all,
    );
}

#[test]
fn sigkill_of_the_zygote() {
    let _alone = alone();
    under_harm(
        serve("5000"),
        8,
        Duration::from_millis(400),
        1,
        kill_the_zygote_and_one,
    );
}

#[test]
fn a_stopped_or_dead_zygote_costs_no_request() {
    let _alone = alone();
    let (_site, server) = serve("5000");
    let account = Account::new();
    std::thread::scope(|scope| {
        let _stop = account.stop_at_end();
        for number in 0..CLIENTS {
            let (account, addr) = (&account, server.addr());
            scope.spawn(move || account.client(addr, number, "ms=1"));
        }
        for signal in [
            Signal::KILL,
            Signal::SEGV,
            Signal::STOP,
            Signal::CONT,
            Signal::STOP,
        ] {
            server
                .zygotes()
                .iter()
                .for_each(|p| proc::signal(p.pid, signal));
            std::thread::sleep(Duration::from_millis(600));
        }
        // With the zygote stopped, a new process is still to be had, from another zygote at the latest.
        let victim = server.app_processes()[0].clone();
        proc::signal(victim.pid, Signal::KILL);
        std::thread::sleep(Duration::from_millis(300));
        wait_until("the process is replaced", RECOVERY, || {
            server.app_processes().len() == PROCESSES
        });
        account.stop();
    });
    account.assert_nothing_wrong();
    assert!(
        account.failures() <= 1,
        "{} requests failed",
        account.failures()
    );
}

/// The pid that runs `victim.php` for this tag, once it runs.
fn running(site: &Site, tag: &str) -> u32 {
    let file = site.path(&format!("data/victim-{tag}"));
    wait_until("the request runs", Duration::from_secs(5), || file.exists());
    fs::read_to_string(file)
        .expect("the pid")
        .trim()
        .parse()
        .expect("a pid")
}

fn ask(server: &Baton, query: &str) -> Conn {
    let mut conn = server.connect();
    conn.send(format!(
        "GET /victim.php?{query} HTTP/1.1\r\nHost: a\r\n\r\n"
    ))
    .expect("sent");
    conn
}

#[test]
fn the_running_request_is_told_and_only_that_one() {
    let _alone = alone();
    let (site, server) = serve("3000");
    for (name, signal) in [
        ("kill", Signal::KILL),
        ("segv", Signal::SEGV),
        ("abort", Signal::ABORT),
    ] {
        let mut conn = ask(&server, &format!("tag={name}&ms=2500"));
        let mut other = ask(&server, &format!("tag=other-{name}&ms=700"));
        let pid = running(&site, name);
        running(&site, &format!("other-{name}"));
        let start = Instant::now();
        proc::signal(pid, signal);
        assert_eq!(conn.reply().expect("a reply").status(), 502, "{name}");
        assert!(
            start.elapsed() < Duration::from_millis(500),
            "{name}: told after {:?}",
            start.elapsed()
        );
        assert_eq!(
            other.reply().expect("a reply").expect(200).text(),
            "survived"
        );
        recovered(&server);
    }
    server.wait_for_log("SEGV");

    // A script that crashes its own process.
    assert_eq!(
        ask(&server, "tag=own&signal=11")
            .reply()
            .expect("a reply")
            .status(),
        502
    );
    recovered(&server);

    // One that was begun cannot be taken back: it is cut off, so that nobody takes it for whole.
    let mut conn = ask(&server, "tag=begun&begun&ms=2500");
    let (head, _) = conn.head("GET").expect("a head");
    assert_eq!(head.status, 200);
    proc::signal(running(&site, "begun"), Signal::KILL);
    assert!(
        matches!(conn.body(), Err(Fault::CutShort)),
        "the end was not cut off"
    );
    recovered(&server);

    // Stopped: 504 at the deadline, and the process is replaced.
    let start = Instant::now();
    let mut conn = ask(&server, "tag=stop&ms=100");
    let pid = running(&site, "stop");
    proc::signal(pid, Signal::STOP);
    assert_eq!(conn.reply().expect("a reply").status(), 504);
    let took = start.elapsed();
    assert!(
        took > Duration::from_millis(2500) && took < Duration::from_millis(6000),
        "{took:?}"
    );
    wait_until("the stopped process is gone", RECOVERY, || {
        !proc::is_alive(pid)
    });
    recovered(&server);

    // Stopped while idle, all but one: what is offered to them goes on to the one.
    let processes = server.app_processes();
    processes[1..]
        .iter()
        .for_each(|p| proc::signal(p.pid, Signal::STOP));
    for _ in 0..8 {
        server.get("/pid.php?tag=x").expect(200);
    }
    recovered(&server);
}
