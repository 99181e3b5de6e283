//! App processes that do whatever they can to the front: they write random words all over the shared memory, lie about
//! their replies, flood their sockets, die in the middle. The front, built with AddressSanitizer, neither crashes nor
//! hangs, and gives nobody what was meant for another.
//!
//! The guest is `guests/hostile`. `BATON_SEED` repeats a run's choices, `BATON_MISDEED` allows one misdeed only.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use baton_journeys::baton::target_folder;
use baton_journeys::client::request;
use baton_journeys::guest::{build, front_with};
use baton_journeys::options::{DEADLINE_MS, KILL_GRACE_MS, QUEUE_WAIT_MS_MAX, THREADS};
use baton_journeys::{Baton, Conn, Fault, Reply, Site, proc, wait_until};
use rustix::process::Signal;

const SEED: u64 = 20_260_101;
const ATTACK: Duration = Duration::from_secs(20);
/// It goes on for longer where few processes have lived so far.
const ATTACK_MAX: Duration = Duration::from_secs(60);
const MISDEEDS_MIN: usize = 18;
const PROCESSES: usize = 12;
/// Deadline, grace and what a queue may add, on a machine with other things to do. A slow reader takes longer.
const ANSWER_BOUND: Duration = Duration::from_secs(10);
const RECOVERY: Duration = Duration::from_secs(25);
/// Every token begins so. Hostile processes never write one.
const MARK: &str = "tok-";
const RESTARTED: &str = "\"restarted\"";

#[test]
fn a_hostile_app_costs_only_its_own_requests() {
    let seed = std::env::var("BATON_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(SEED);
    println!("BATON_SEED={seed}");
    let site = Site::with_index("<?php // never run: the guest is a hostile one");
    let server = start(site.root(), seed);
    let addr = server.addr();
    let tally = Tally::default();
    let begin = Instant::now();
    let mut third = (0, 0);
    std::thread::scope(|scope| {
        for number in 0..24 {
            let tally = &tally;
            scope.spawn(move || match number {
                0..14 => asker(addr, seed, number, tally),
                14..18 => poster(addr, seed, number, tally),
                18..20 => pipeliner(addr, seed, number, tally),
                20..22 => leaver(addr, seed, number, tally),
                _ => slow_reader(addr, seed, number, tally),
            });
        }
        let goes_on = |elapsed| {
            elapsed < ATTACK || (elapsed < ATTACK_MAX && misdeeds(&server.log()).len() < enough())
        };
        while goes_on(begin.elapsed()) {
            // Restarts as well, on top of those that hostile processes ask for.
            server.signal(Signal::HUP);
            std::thread::sleep(ATTACK / 12);
            if third == (0, 0) && begin.elapsed() > ATTACK / 3 {
                third = figures(&server);
            }
        }
        tally.stop.store(true, Ordering::Relaxed);
    });
    let last = figures(&server);
    println!("{:#?}", tally.counts());
    println!("descriptors and KiB of the front: {third:?}, then {last:?}");
    tally.assert_nothing_wrong();
    assert!(
        tally.count("own token") > 200,
        "hardly anything was answered"
    );
    assert!(
        last.0 < third.0 + 16 * PROCESSES + 64,
        "descriptors: {third:?}, then {last:?}: {:#?}",
        proc::descriptor_targets(server.pid())
    );
    assert!(
        last.1 < third.1 + 150 * 1024,
        "the front grew: {third:?}, then {last:?}"
    );

    site.write("peace", "");
    peace(&server, seed);
    // Those of the attack may all have been in vain; this one is not.
    let restarts = || server.log().matches(RESTARTED).count();
    let before = restarts();
    server.signal(Signal::HUP);
    wait_until("a restart", RECOVERY, || restarts() > before);
    let log = server.stop();
    check_log(&log);
}

fn figures(server: &Baton) -> (usize, u64) {
    (
        proc::descriptors(server.pid()),
        proc::anonymous_kib(server.pid()),
    )
}

/// The hostile ones end or are killed, honest ones replace them, and everybody is served.
fn peace(server: &Baton, seed: u64) {
    let start = Instant::now();
    let tally = Tally::default();
    let mut random = Random(seed ^ 77);
    let mut in_a_row = 0;
    while in_a_row < 200 {
        assert!(
            start.elapsed() < RECOVERY,
            "not served again: {:#?}",
            tally.counts()
        );
        let mut conn = Conn::open(server.addr());
        in_a_row = match ask(&mut conn, "GET", &random.token(99), 100, 0, &tally) {
            Some("own token") => in_a_row + 1,
            _ => 0,
        };
    }
    tally.assert_nothing_wrong();
    wait_until("the processes are back to their number", RECOVERY, || {
        server.app_processes().len() >= PROCESSES
    });
    println!("at peace after {:?}", start.elapsed());
    // Nothing is left that keeps a thread of the front busy. Children of hostile processes may still knock at first.
    let mut ticks = 0;
    for _ in 0..10 {
        ticks = proc::ticks_during(server.pid(), Duration::from_secs(1));
        if ticks <= 10 {
            break;
        }
    }
    assert!(ticks <= 10, "{ticks} ticks of CPU in a second of rest");
    let (descriptors, kib) = figures(server);
    println!("at rest: {descriptors} descriptors, {kib} KiB, {ticks} ticks in a second");
    assert!(
        descriptors < 12 * PROCESSES + 64,
        "{descriptors} descriptors: {:#?}",
        proc::descriptor_targets(server.pid())
    );
}

fn check_log(log: &str) {
    for bad in ["panicked", "AddressSanitizer", "BREACH", "runtime error"] {
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(bad)).collect();
        assert!(lines.is_empty(), "{bad} in the log: {:#?}", &lines[..1]);
    }
    let misdeeds = misdeeds(log);
    let nonsense = log.matches("written nonsense").count();
    let restarts = log.matches(RESTARTED).count();
    println!(
        "{nonsense} processes killed for nonsense, {restarts} restarts; misdeeds: {misdeeds:?}"
    );
    assert!(misdeeds.len() >= enough(), "too few misdeeds: {misdeeds:?}");
    if enough() > 1 {
        assert!(nonsense > 0, "no nonsense was noticed");
    }
}

/// The kinds that the hostile processes told of.
fn misdeeds(log: &str) -> BTreeSet<&str> {
    log.split("misdeed ")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect()
}

/// So many kinds a run has to see.
fn enough() -> usize {
    match std::env::var_os("BATON_MISDEED") {
        Some(_) => 1,
        None => MISDEEDS_MIN,
    }
}

// ---- the builds --------------------------------------------------------------------------------

/// The front with AddressSanitizer, and beside it the hostile guest under the name of PHP's.
fn start(root: &Path, seed: u64) -> Baton {
    let target = target_folder().join("asan");
    let triple = "x86_64-unknown-linux-gnu";
    build(
        &target,
        "baton",
        &["--target", triple],
        "-Zsanitizer=address",
    );
    build(&target, "baton-hostile", &[], "");
    let front = front_with(
        &target.join(triple).join("debug/baton"),
        &target.join("debug/baton-hostile"),
        &target.join("hostile"),
    );
    let mut command = Command::new(front);
    // What was freed is kept apart for long; the rest of the defaults stand, a report's exit code among them.
    command.env("ASAN_OPTIONS", "quarantine_size_mb=32:detect_leaks=0");
    let seed = format!("BATON_SEED={seed}");
    let only = std::env::var("BATON_MISDEED").map(|only| format!("BATON_MISDEED={only}"));
    let threads = PROCESSES.to_string();
    let mut options = vec![THREADS, &threads, "--io-threads", "2"];
    options.extend([DEADLINE_MS, "600", KILL_GRACE_MS, "50"]);
    options.extend(["--offer-ms", "50", QUEUE_WAIT_MS_MAX, "2000"]);
    options.extend(["--retry", "--env", &seed]);
    if let Ok(only) = &only {
        options.extend(["--env", only.as_str()]);
    }
    match Baton::start(command, root, &options) {
        Ok(server) => server,
        Err(ended) => panic!(
            "the front did not start ({}): {}",
            ended.status, ended.output
        ),
    }
}

// ---- the clients -------------------------------------------------------------------------------

/// What became of the requests, by kind; and what must not happen, in words.
#[derive(Default)]
struct Tally {
    stop: AtomicBool,
    counts: Mutex<BTreeMap<&'static str, u64>>,
    wrong: Mutex<Vec<String>>,
}

impl Tally {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn note(&self, what: &'static str) {
        *self
            .counts
            .lock()
            .expect("no panic here")
            .entry(what)
            .or_default() += 1;
    }

    fn wrong(&self, what: String) {
        self.wrong.lock().expect("no panic here").push(what);
    }

    fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.counts.lock().expect("no panic here").clone()
    }

    fn count(&self, what: &str) -> u64 {
        self.counts().get(what).copied().unwrap_or(0)
    }

    #[track_caller]
    fn assert_nothing_wrong(&self) {
        let wrong = self.wrong.lock().expect("no panic here");
        let first: Vec<&String> = wrong.iter().take(5).collect();
        assert!(
            wrong.is_empty(),
            "{} wrong answers, among them {first:#?}",
            wrong.len()
        );
    }
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn of<T: Copy>(&mut self, items: &[T]) -> T {
        items[(self.next() % items.len() as u64) as usize]
    }

    fn token(&mut self, client: u64) -> String {
        format!("{MARK}{client:02}-{:016x}", self.next())
    }
}

fn request_of(method: &str, token: &str, size: usize, body: usize) -> Vec<u8> {
    let body: Vec<u8> = token.bytes().cycle().take(body).collect();
    let target = format!("/index.php?token={token}&size={size}");
    request(method, &target, &[("X-Token", token)], &body)
}

/// Sends a request and judges what comes back. `None`: the connection cannot be used again.
fn ask(
    conn: &mut Conn,
    method: &str,
    token: &str,
    size: usize,
    body: usize,
    tally: &Tally,
) -> Option<&'static str> {
    let start = Instant::now();
    let result = conn.ask(request_of(method, token, size, body));
    if start.elapsed() > ANSWER_BOUND {
        tally.wrong(format!("{token}: an answer after {:?}", start.elapsed()));
    }
    judge(result, token, size, body, tally)
}

fn judge(
    result: Result<Reply, Fault>,
    token: &str,
    size: usize,
    body: usize,
    tally: &Tally,
) -> Option<&'static str> {
    let reply = match result {
        Ok(reply) => reply,
        Err(Fault::Closed | Fault::CutShort | Fault::Io(_)) => {
            tally.note("cut");
            return None;
        }
        Err(fault @ (Fault::Silent | Fault::Broken(_))) => {
            tally.wrong(format!("{token}: {fault}"));
            return None;
        }
    };
    let what = if reply.head.all("x-guest").any(|guest| guest == "honest") {
        match is_own(&reply, token, size, body) {
            true => "own token",
            false => {
                let start: String = reply.text().chars().take(200).collect();
                tally.wrong(format!("{token}: got {:?} {start:?}", reply.head));
                "wrong"
            }
        }
    } else {
        let heads = std::iter::once(&reply.head).chain(&reply.interim);
        let mut headers = heads.flat_map(|head| &head.headers);
        if reply.text().contains(MARK) || headers.any(|(_, value)| value.contains(MARK)) {
            tally.wrong(format!("{token}: a token from nowhere in {:?}", reply.head));
        }
        match reply.status() {
            500 => "500",
            502 => "502",
            503 => "503",
            504 => "504",
            _ => "a lie, well framed",
        }
    };
    tally.note(what);
    (!reply.head.says_close()).then_some(what)
}

fn is_own(reply: &Reply, token: &str, size: usize, body: usize) -> bool {
    let mut expected = format!("query={token}\nheader={token}\nbody={body} 0\n");
    for _ in 0..size / (token.len() + 1) {
        expected.push_str(token);
        expected.push('\n');
    }
    reply.status() == 200 && reply.body == expected.as_bytes() && {
        let mut tokens = reply.head.all("x-token");
        tokens.next() == Some(token) && tokens.next().is_none()
    }
}

fn connect(addr: std::net::SocketAddr, tally: &Tally) -> Option<Conn> {
    match Conn::try_open(addr) {
        Ok(conn) => Some(conn),
        Err(error) => {
            tally.wrong(format!("cannot connect: {error}"));
            std::thread::sleep(Duration::from_millis(100));
            None
        }
    }
}

/// One request after the other, on a connection for as long as it lasts: what an answer has too much is the next one's.
fn asker(addr: std::net::SocketAddr, seed: u64, number: u64, tally: &Tally) {
    let mut random = Random(seed ^ number << 32);
    let mut open = None;
    while tally.goes_on() {
        let Some(mut conn) = open.take().or_else(|| connect(addr, tally)) else {
            continue;
        };
        let size = random.of(&[0, 0, 300, 3000, 60_000, 400_000]);
        if ask(&mut conn, "GET", &random.token(number), size, 0, tally).is_some() {
            open = Some(conn);
        }
    }
}

/// Bodies in memory and in files.
fn poster(addr: std::net::SocketAddr, seed: u64, number: u64, tally: &Tally) {
    let mut random = Random(seed ^ number << 32);
    let mut open = None;
    while tally.goes_on() {
        let Some(mut conn) = open.take().or_else(|| connect(addr, tally)) else {
            continue;
        };
        let body = random.of(&[1, 500, 20_000, 64 * 1024, 64 * 1024 + 1, 300_000]);
        if ask(&mut conn, "POST", &random.token(number), 50, body, tally).is_some() {
            open = Some(conn);
        }
    }
}

/// Three requests at a time: the answers come in order, each to its own.
fn pipeliner(addr: std::net::SocketAddr, seed: u64, number: u64, tally: &Tally) {
    let mut random = Random(seed ^ number << 32);
    while tally.goes_on() {
        let Some(mut conn) = connect(addr, tally) else {
            continue;
        };
        let tokens: Vec<String> = (0..3).map(|_| random.token(number)).collect();
        let bytes: Vec<u8> = tokens
            .iter()
            .flat_map(|token| request_of("GET", token, 2000, 0))
            .collect();
        if conn.send(bytes).is_err() {
            continue;
        }
        for token in &tokens {
            if judge(conn.reply(), token, 2000, 0, tally).is_none() {
                break;
            }
        }
    }
}

/// Asks, and leaves at some moment: politely or not.
fn leaver(addr: std::net::SocketAddr, seed: u64, number: u64, tally: &Tally) {
    let mut random = Random(seed ^ number << 32);
    while tally.goes_on() {
        let Some(mut conn) = connect(addr, tally) else {
            continue;
        };
        let sent = conn.send(request_of("GET", &random.token(number), 400_000, 0));
        std::thread::sleep(Duration::from_micros(random.next() % 20_000));
        if sent.is_ok() && random.next().is_multiple_of(2) {
            conn.finish_sending();
            let _ = conn.head("GET");
        }
        conn.reset();
    }
}

/// Large replies, read in sips: the front has to keep or hold back what the app has written.
fn slow_reader(addr: std::net::SocketAddr, seed: u64, number: u64, tally: &Tally) {
    let mut random = Random(seed ^ number << 32);
    while tally.goes_on() {
        let Some(mut conn) = connect(addr, tally) else {
            continue;
        };
        rustix::net::sockopt::set_socket_recv_buffer_size(conn.stream(), 4096).expect("SO_RCVBUF");
        let (token, size) = (random.token(number), 700_000);
        if conn.send(request_of("GET", &token, size, 0)).is_err() {
            continue;
        }
        let result = conn.head("GET").and_then(|(head, interim)| {
            let mut body = Vec::new();
            while let Some(piece) = conn.piece(64 * 1024)? {
                body.extend_from_slice(&piece);
                if tally.goes_on() {
                    std::thread::sleep(Duration::from_millis(3));
                }
            }
            Ok(Reply {
                head,
                interim,
                body,
            })
        });
        judge(result, &token, size, 0, tally);
    }
}
