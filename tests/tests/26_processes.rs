//! Processes with several threads: they start and end as a whole, share the load, and what happens to one thread is bounded
//! by its process.
//!
//! The guest is `guests/threaded`, because PHP has one thread to a process.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use baton_journeys::baton::{binary, target_folder};
use baton_journeys::guest::{build, front_with};
use baton_journeys::options::{
    ADMIN, DEADLINE_MS, IDLE_MS_MAX, KILL_GRACE_MS, MAX_THREADS, NUM_THREADS, THREADS,
    THREADS_PER_PROCESS,
};
use baton_journeys::{Account, Admin, Baton, Cases, Site, alone, baton, proc, wait_until};
use rustix::process::Signal;
use serde_json::Value;

const SOON: Duration = Duration::from_secs(20);

struct Served {
    server: Baton,
    admin: Admin,
    _site: Site,
}

fn serve(options: &[&str]) -> Served {
    let target = target_folder();
    build(&target, "baton-threaded", &["--release"], "");
    let guest = target.join("release/baton-threaded");
    let front = front_with(&binary(), &guest, &target.join("threaded"));
    let site = Site::with_index("<?php // never run: the guest is another one");
    let socket = site.path("admin.sock");
    let place = format!("unix:{}", socket.display());
    let mut all = vec![ADMIN, &place];
    all.extend(options);
    let server = match Baton::start(Command::new(front), site.root(), &all) {
        Ok(server) => server,
        Err(ended) => panic!("it did not start: {}", ended.output),
    };
    Served {
        server,
        admin: Admin::at(&socket),
        _site: site,
    }
}

/// Who answered: the process, and which of its threads.
type Who = (u32, u32);

fn who(text: &str) -> Who {
    let mut numbers = text.split(' ').map(|number| number.parse().expect(text));
    let mut next = || numbers.next().expect("a number");
    (next(), next())
}

impl Served {
    fn ask(&self, query: &str) -> Who {
        who(&self.server.get(&format!("/?{query}")).expect(200).text())
    }

    /// All at once.
    fn ask_all(&self, count: usize, query: &str) -> Vec<Who> {
        std::thread::scope(|scope| {
            let asked: Vec<_> = (0..count)
                .map(|_| scope.spawn(|| self.ask(query)))
                .collect();
            let answers = asked.into_iter().map(|asked| asked.join());
            answers.map(|answer| answer.expect("an answer")).collect()
        })
    }

    fn scaling(&self) -> Value {
        self.admin.get("/apps")["apps"][0]["pools"][0]["scaling"].clone()
    }

    fn threads(&self) -> usize {
        self.scaling()["threads"].as_u64().expect("a number") as usize
    }

    fn states(&self) -> BTreeMap<String, usize> {
        let mut states = BTreeMap::new();
        let threads = self.admin.get("/threads");
        for thread in threads["threads"].as_array().expect("a list") {
            let state = thread["state"].as_str().expect("a state").to_owned();
            *states.entry(state).or_default() += 1;
        }
        states
    }

    /// All threads are there, idle, and no others.
    fn await_idle(&self, threads: usize) {
        let expected = BTreeMap::from([("idle".to_owned(), threads)]);
        wait_until("all threads are idle", SOON, || self.states() == expected);
    }

    fn processes(&self) -> usize {
        let processes = self.server.app_processes();
        // What is about to become a zygote has the front's name for a moment.
        let named = processes.iter().filter(|p| p.name == "baton-php");
        named.count()
    }
}

#[test]
fn threads_of_all_processes_work_and_those_of_idle_processes_first() {
    let _alone = alone();
    let served = serve(&[THREADS, "6", THREADS_PER_PROCESS, "3"]);
    served.await_idle(6);
    assert_eq!(served.processes(), 2);
    let all: BTreeSet<Who> = served.ask_all(6, "ms=500").into_iter().collect();
    assert_eq!(all.len(), 6, "each has one: {all:?}");
    let pids: BTreeSet<u32> = all.iter().map(|(pid, _)| *pid).collect();
    let indexes: BTreeSet<u32> = all.iter().map(|(_, thread)| *thread).collect();
    assert_eq!((pids.len(), indexes), (2, BTreeSet::from([0, 1, 2])));
    for _ in 0..12 {
        // Which thread goes idle last is a matter of luck.
        served.ask_all(6, "ms=20");
        std::thread::scope(|scope| {
            let busy = scope.spawn(|| served.ask("ms=150").0);
            wait_until("it is busy", SOON, || served.states().contains_key("busy"));
            let beside: BTreeSet<u32> = (0..5).map(|_| served.ask("").0).collect();
            let busy = busy.join().expect("an answer");
            assert!(!beside.contains(&busy), "the other process is idle");
        });
    }
    let list = served.admin.get("/threads");
    let list = list["threads"].as_array().expect("a list");
    let ids: BTreeSet<&str> = list.iter().filter_map(|t| t["id"].as_str()).collect();
    assert_eq!(
        ids,
        BTreeSet::from(["1.1.0", "1.1.1", "1.1.2", "1.2.0", "1.2.1", "1.2.2"])
    );
    let one = served.admin.get("/threads/1.2.1");
    assert_eq!(one["pid"], list.last().expect("six")["pid"]);
    let log = served.server.stop();
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
}

#[test]
fn they_come_and_go_by_processes() {
    let _alone = alone();
    let limits = [NUM_THREADS, "2", MAX_THREADS, "8", IDLE_MS_MAX, "800"];
    let served = serve(&[&limits[..], &[THREADS_PER_PROCESS, "2"]].concat());
    served.await_idle(2);
    let account = Account::new();
    let odd = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let _stop = account.stop_at_end();
        for number in 0..20 {
            let (account, addr) = (&account, served.server.addr());
            scope.spawn(move || account.client(addr, number, "ms=40"));
        }
        wait_until("as many as may be", SOON, || {
            let wanted = served.scaling()["wanted"].as_u64().expect("a number");
            odd.fetch_add(usize::from(wanted % 2 == 1), Ordering::Relaxed);
            served.threads() == 8
        });
        assert_eq!(served.processes(), 4);
        account.stop();
    });
    account.assert_nothing_wrong();
    assert_eq!((account.failures(), odd.into_inner()), (0, 0));
    served.await_idle(2);
    wait_until("one process", SOON, || served.processes() == 1);

    let change = |method, count: &str, status| {
        let answer = served.admin.ask(method, &format!("/threads?count={count}"));
        assert_eq!(answer.status, status, "{method} {count}: {answer:?}");
        answer.json()["wanted"].as_u64()
    };
    assert_eq!(change("PUT", "1", 200), Some(4), "a whole process");
    served.await_idle(4);
    assert_eq!(change("PUT", "4", 200), Some(8));
    assert_eq!(change("PUT", "1", 400), None);
    assert_eq!(change("DELETE", "5", 200), Some(2));
    assert_eq!(change("DELETE", "1", 400), None);
    served.await_idle(2);
    served.server.stop();
}

#[test]
fn a_restart_loses_nothing_and_no_thread_holds_up_the_others() {
    let _alone = alone();
    let served = serve(&[THREADS, "6", THREADS_PER_PROCESS, "2"]);
    served.await_idle(6);
    let account = Account::new();
    let restarts = || served.server.log().matches("\"restarted\"").count();
    let before = Instant::now();
    std::thread::scope(|scope| {
        let _stop = account.stop_at_end();
        for number in 0..8 {
            let (account, addr) = (&account, served.server.addr());
            scope.spawn(move || account.client(addr, number, "ms=3"));
        }
        // Each keeps one thread of another process busy.
        scope.spawn(|| served.ask_all(2, "ms=6000"));
        for round in 0..5 {
            std::thread::sleep(Duration::from_millis(100));
            served.server.signal(Signal::HUP);
            wait_until("a restart", SOON, || restarts() > round);
            assert_eq!(served.threads(), 6);
        }
        account.stop();
    });
    account.assert_nothing_wrong();
    assert_eq!(account.failures(), 0);
    println!(
        "{} answers, 5 restarts in {:?}",
        account.answered.load(Ordering::Relaxed),
        before.elapsed()
    );
    served.await_idle(6);
    assert_eq!(served.processes(), 3);
    served.server.stop();
}

#[test]
fn long_requests_in_all_processes_hold_up_no_restart() {
    let _alone = alone();
    let served = serve(&[THREADS, "8", THREADS_PER_PROCESS, "2"]);
    served.await_idle(8);
    let old: BTreeSet<u32> = served.ask_all(8, "ms=100").iter().map(|w| w.0).collect();
    assert_eq!(old.len(), 4);
    std::thread::scope(|scope| {
        let long = scope.spawn(|| served.ask_all(4, "ms=12000"));
        wait_until("all at work", SOON, || {
            served.states().get("busy") == Some(&4)
        });
        served.server.signal(Signal::HUP);
        wait_until("as many new ones", Duration::from_secs(8), || {
            served.states().get("idle") == Some(&8)
        });
        assert!(!long.is_finished(), "it has come too late");
        for who in served.ask_all(8, "ms=100") {
            assert!(!old.contains(&who.0), "{who:?} is of the old code");
        }
        let long = long.join().expect("answers");
        let finished: BTreeSet<u32> = long.iter().map(|who| who.0).collect();
        assert_eq!(finished, old, "what was begun is finished");
    });
    served.await_idle(8);
    assert_eq!(served.processes(), 4);
    served.server.stop();
}

#[test]
fn a_process_that_dies_is_replaced_with_all_its_threads() {
    let _alone = alone();
    let served = serve(&[THREADS, "4", THREADS_PER_PROCESS, "2"]);
    served.await_idle(4);
    let statuses = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let status = served.server.get("/?ms=1000").status();
                statuses.lock().expect("no panic here").push(status);
            });
        }
        wait_until("all at work", SOON, || {
            served.states().get("busy") == Some(&4)
        });
        proc::signal(served.server.app_processes()[0].pid, Signal::KILL);
    });
    let mut statuses = statuses.into_inner().expect("no panic here");
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 502, 502], "the other process's go on");
    served.await_idle(4);
    assert_eq!(served.processes(), 2);
    served.server.stop();
}

/// One thread hangs. Until its process is killed the other finishes what it has, and gets nothing new that would die with it.
#[test]
fn beside_a_thread_that_hangs_nothing_is_lost() {
    let _alone = alone();
    let bounds = [DEADLINE_MS, "3000", KILL_GRACE_MS, "5000"];
    let served = serve(&[&bounds[..], &[THREADS, "2", THREADS_PER_PROCESS, "2"]].concat());
    served.await_idle(2);
    let (hung, _) = served.ask("");
    std::thread::scope(|scope| {
        let begun = Instant::now();
        let hangs = scope.spawn(|| served.server.get("/?ms=60000").status());
        std::thread::sleep(Duration::from_millis(2000));
        let beside = scope.spawn(|| served.ask("ms=2000"));
        assert_eq!(hangs.join().expect("an answer"), 504);
        wait_until("another process", SOON, || served.processes() == 2);
        let mut answers = 0;
        while begun.elapsed() < Duration::from_millis(5000) {
            assert_ne!(served.ask("").0, hung, "it is to be killed");
            answers += 1;
        }
        assert!(answers > 20, "{answers} answers");
        assert!(proc::is_alive(hung), "within its grace");
        assert_eq!(beside.join().expect("an answer").0, hung);
    });
    wait_until("it is killed", SOON, || !proc::is_alive(hung));
    served.await_idle(2);
    assert_eq!(served.processes(), 1);
    served.server.stop();
}

#[test]
fn what_cannot_be_is_refused() {
    let _alone = alone();
    let site = Site::with_index("<?php echo 'a';");
    let mut cases = Cases::new();
    let root = site.root().display().to_string();
    for (options, reason) in [
        (&["0"][..], "0 is not in 1..=256"),
        (&["-1"], "-1 is not in 1..=256"),
        (&["257"], "257 is not in 1..=256"),
        (&["many"], "invalid digit"),
        (
            &["4", THREADS, "6"],
            "`threads` is 6, no multiple of `threads_per_process`, 4",
        ),
        (
            &["4", NUM_THREADS, "2"],
            "`num_threads` is 2, no multiple of `threads_per_process`, 4",
        ),
        (
            &["4", MAX_THREADS, "2"],
            "`max_threads` is 2, no multiple of `threads_per_process`, 4",
        ),
        (
            &["2"],
            "threads_per_process is 2, but a process of this PHP has 1 thread",
        ),
    ] {
        let mut arguments = vec!["serve", &root, THREADS_PER_PROCESS];
        arguments.extend(options);
        let ended = baton::run(&arguments, SOON);
        cases.case(&format!("{options:?}"), || {
            assert!(!ended.status.success());
            assert!(ended.output.contains(reason), "{}", ended.output);
        });
    }
    cases.finish();
}
