//! A run: network threads that send, and the main thread that adds up what they count.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::kind::Kind;
use crate::plan::Plan;
use crate::span::SECOND_NS;
use crate::tally::{Stage, Tally};
use crate::url::Address;
use crate::usage::Usage;
use crate::worker::{Lines, Message, NOT_YET, Shared, Worker};

/// How often the main thread looks for an interrupt.
const LOOK: Duration = Duration::from_millis(50);
/// The start is announced so long before, so that all threads know of it by then.
const AHEAD_NS: u64 = 3_000_000;
/// A server that is just starting has so long to take its first connection.
const FIRST_CONNECTION: Duration = Duration::from_secs(1);
/// Descriptors beside the connections: epoll, timers, files.
const DESCRIPTORS_BESIDE: u64 = 64;

/// What came of it.
pub struct Outcome {
    pub address: Address,
    /// Without the warm-up and without the replies that came when sending was over.
    pub measured: Tally,
    pub drain: Tally,
    pub opening: Tally,
    /// What `measured` lasted.
    pub seconds: f64,
    pub series: Vec<Second>,
    /// What each network thread used of the CPU while it measured.
    pub threads: Vec<Usage>,
    pub interrupted: bool,
}

/// One second of the load, all threads together.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Second {
    /// From 0; the last one may be shorter.
    pub second: u64,
    /// At its end.
    pub stage: Stage,
    pub requests: u64,
    pub errors: u64,
    /// Open at its end.
    pub connections: u64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
}

/// What there is to see while it runs.
pub struct Progress<'a> {
    pub second: &'a Second,
    /// All that was measured so far.
    pub so_far: &'a Tally,
}

/// The first address of the host that takes a connection; a single one is taken on trust. Blocks while names are
/// resolved and connections tried.
pub fn reach(plan: &Plan) -> Result<Address, String> {
    let mut addresses = plan.url.server.resolve()?;
    if addresses.len() == 1 {
        return Ok(addresses.remove(0));
    }
    let timeout = Duration::from_nanos(plan.load.connect_timeout.ns());
    let mut why = Vec::new();
    for address in addresses {
        let Address::Tcp(socket_address) = &address else {
            return Ok(address);
        };
        match TcpStream::connect_timeout(socket_address, timeout) {
            Ok(_) => return Ok(address),
            Err(error) => why.push(format!("{address}: {error}")),
        }
    }
    Err(format!(
        "no connection to {} could be made: {}",
        plan.url,
        why.join("; ")
    ))
}

/// Blocks until the load is over, or was interrupted.
pub fn run(
    plan: &Plan,
    address: &Address,
    interrupt: &AtomicBool,
    watch: &mut dyn FnMut(&Progress<'_>),
) -> Result<Outcome, String> {
    allow_descriptors(plan)?;
    let shared = Shared {
        base: Instant::now(),
        start_ns: AtomicU64::new(NOT_YET),
        stop: AtomicBool::new(false),
        connected: AtomicBool::new(false),
    };
    let (to_main, messages) = channel();
    thread::scope(|scope| {
        let mut used_lines = Vec::new();
        let mut threads = Vec::new();
        for index in 0..plan.load.threads {
            let (used_line, used) = channel();
            used_lines.push(used_line);
            let lines = Lines {
                to_main: to_main.clone(),
                used,
            };
            let shared = &shared;
            let body = move || Worker::new(plan, address, shared, index, lines)?.run();
            let thread = thread::Builder::new()
                .name(format!("load-{index}"))
                .spawn_scoped(scope, body);
            match thread {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    shared.stop.store(true, Ordering::Relaxed);
                    return Err(format!("cannot start a network thread: {error}"));
                }
            }
        }
        drop(to_main);
        let mut book = Book::new(plan, used_lines);
        let mut ready = 0;
        let mut stopped_ns = None;
        let mut hopeless = false;
        loop {
            match messages.recv_timeout(LOOK) {
                Ok(Message::Ready) => {
                    ready += 1;
                    if ready == plan.load.threads {
                        let start_ns = now_ns(&shared) + AHEAD_NS;
                        shared.start_ns.store(start_ns, Ordering::Release);
                    }
                }
                Ok(Message::Tally(tally)) => book.enter(tally, watch),
                Err(RecvTimeoutError::Timeout) => {}
                // All threads have ended.
                Err(RecvTimeoutError::Disconnected) => break,
            }
            hopeless = !shared.connected.load(Ordering::Relaxed)
                && shared.base.elapsed() >= FIRST_CONNECTION
                && book.errors_total() > 0;
            if stopped_ns.is_none() && (hopeless || interrupt.load(Ordering::Relaxed)) {
                shared.stop.store(true, Ordering::Relaxed);
                stopped_ns = Some(now_ns(&shared));
            }
        }
        for thread in threads {
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(errno)) => return Err(format!("a network thread failed: {errno}")),
                Err(_) => {
                    return Err(
                        "a network thread panicked: this is a defect of the load tester".into(),
                    );
                }
            }
        }
        if hopeless {
            return Err(format!(
                "no connection to {address} could be made: {}",
                book.why()
            ));
        }
        let start_ns = shared.start_ns.load(Ordering::Relaxed);
        let stopped_ns = stopped_ns.map(|ns| ns.saturating_sub(start_ns));
        Ok(book.close(plan, address.clone(), stopped_ns))
    })
}

fn now_ns(shared: &Shared) -> u64 {
    shared.base.elapsed().as_nanos() as u64
}

/// The sums, and the seconds that not all threads have ended yet.
struct Book {
    measured: Tally,
    drain: Tally,
    opening: Tally,
    warm_up_errors: u64,
    threads: Vec<Usage>,
    /// The second that each thread is in.
    at: Vec<u64>,
    pending: BTreeMap<u64, Box<Tally>>,
    series: Vec<Second>,
    used_lines: Vec<Sender<Box<Tally>>>,
}

impl Book {
    fn new(plan: &Plan, used_lines: Vec<Sender<Box<Tally>>>) -> Book {
        Book {
            measured: Tally::new(0),
            drain: Tally::new(0),
            opening: Tally::new(0),
            warm_up_errors: 0,
            threads: vec![Usage::default(); plan.load.threads],
            at: vec![0; plan.load.threads],
            pending: BTreeMap::new(),
            series: Vec::new(),
            used_lines,
        }
    }

    fn enter(&mut self, mut tally: Box<Tally>, watch: &mut dyn FnMut(&Progress<'_>)) {
        match tally.stage {
            Stage::Opening => self.opening.add(&tally),
            Stage::WarmUp => self.warm_up_errors += tally.errors_total(),
            Stage::Measured => {
                self.measured.add(&tally);
                self.threads[tally.thread].add(&tally.usage);
            }
            Stage::Drain => self.drain.add(&tally),
        }
        let thread = tally.thread;
        if tally.stage != Stage::Opening {
            let second = self
                .pending
                .entry(tally.second)
                .or_insert_with(|| Box::new(Tally::new(0)));
            second.add(&tally);
            second.open += tally.open;
            second.stage = tally.stage;
            self.at[thread] = tally.second;
        }
        tally.clear();
        // The thread may have ended.
        let _ = self.used_lines[thread].send(tally);
        while let Some(entry) = self.pending.first_entry()
            && self.at.iter().all(|at| at > entry.key())
        {
            let (number, tally) = entry.remove_entry();
            self.end_second(number, &tally);
            if let Some(second) = self.series.last() {
                watch(&Progress {
                    second,
                    so_far: &self.measured,
                });
            }
        }
    }

    fn end_second(&mut self, number: u64, tally: &Tally) {
        let us = |quantile| tally.latency.value_at_quantile(quantile) as f64 / 1e3;
        self.series.push(Second {
            second: number,
            stage: tally.stage,
            requests: tally.good,
            errors: tally.errors_total(),
            connections: tally.open,
            p50_us: us(0.5),
            p99_us: us(0.99),
            max_us: us(1.0),
        });
    }

    fn errors_total(&self) -> u64 {
        let tallies = [&self.opening, &self.measured, &self.drain];
        self.warm_up_errors
            + tallies
                .iter()
                .map(|tally| tally.errors_total())
                .sum::<u64>()
    }

    /// Why no connection could be made.
    fn why(&self) -> String {
        let tallies = [&self.opening, &self.measured, &self.drain];
        let examples = tallies.iter().flat_map(|tally| {
            let kinds = [Kind::Connect, Kind::ConnectTimeout, Kind::Local];
            kinds
                .into_iter()
                .filter_map(|kind| tally.examples[kind as usize].clone())
        });
        examples
            .into_iter()
            .next()
            .unwrap_or_else(|| "for an unknown reason".into())
    }

    fn close(mut self, plan: &Plan, address: Address, stopped_ns: Option<u64>) -> Outcome {
        for (number, tally) in std::mem::take(&mut self.pending) {
            self.end_second(number, &tally);
        }
        let ended_ns = match (stopped_ns, plan.load.duration) {
            (Some(stopped_ns), _) => stopped_ns,
            (None, Some(duration)) if plan.load.requests.is_none() => duration.ns(),
            // A number of requests ends with the last reply.
            _ => self.measured.last_reply_ns,
        };
        Outcome {
            address,
            seconds: ended_ns.saturating_sub(plan.load.warm_up.ns()) as f64 / SECOND_NS as f64,
            measured: self.measured,
            drain: self.drain,
            opening: self.opening,
            series: self.series,
            threads: self.threads,
            interrupted: stopped_ns.is_some(),
        }
    }
}

/// Raises the soft limit of open files to the hard one if it has to be.
fn allow_descriptors(plan: &Plan) -> Result<(), String> {
    let needed =
        plan.load.connections_max() as u64 + 4 * plan.load.threads as u64 + DESCRIPTORS_BESIDE;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if limit.maximum.is_some_and(|maximum| maximum < needed) {
        return Err(format!(
            "{} connections need {needed} open files, and {} are allowed: see `ulimit -Hn`",
            plan.load.connections_max(),
            limit.maximum.unwrap_or(0)
        ));
    }
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, raised)
        .map_err(|error| format!("cannot raise the limit of open files: {error}"))
}
