//! `GET /threads`: each thread, and what it is doing.

use std::collections::HashMap;

use serde::Serialize;

use super::Inside;
use super::look::{Look, PoolLook, works};
use super::reply::Reply;
use super::usage::{Budget, Memory, Usage};
use crate::app::{Pool, Process, Work, process_id};

#[derive(Serialize)]
struct Threads<'l> {
    threads: Vec<Thread<'l>>,
}

#[derive(Serialize)]
struct Thread<'l> {
    id: String,
    app: &'l str,
    worker: Option<&'l str>,
    kind: &'static str,
    pid: Option<i32>,
    state: State,
    /// How long it is idle, has its request, or is starting; `None` once it has left.
    state_s: Option<f64>,
    request: Option<Request<'l>>,
    /// That it was given, the present one included.
    requests: u64,
    memory: Option<Memory>,
    cpu_share: Option<f64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Idle,
    Busy,
    Starting,
    Stopping,
}

#[derive(Serialize)]
struct Request<'l> {
    id: String,
    method: &'l str,
    uri: &'l str,
    client_gone: bool,
}

type Works = HashMap<(u64, u32), Work>;

pub fn list(inside: &Inside, look: &Look, usage: &mut Usage) -> Reply {
    let works = works(inside);
    let threads = all(look, usage, &works, |_| true);
    Reply::json(200, &Threads { threads })
}

pub fn one(inside: &Inside, look: &Look, usage: &mut Usage, id: &str) -> Option<Reply> {
    let works = works(inside);
    let mut found = all(look, usage, &works, |other| other == id);
    Some(Reply::json(200, &found.pop()?))
}

/// The number of the pool that a thread with this id belongs to.
pub fn pool_of(id: &str) -> Option<u32> {
    id.split_once('.')?.0.parse().ok()
}

fn all<'l>(
    look: &'l Look,
    usage: &mut Usage,
    works: &'l Works,
    is_wanted: impl Fn(&str) -> bool,
) -> Vec<Thread<'l>> {
    let mut all = Vec::new();
    let budget = Budget::new();
    for pool in &look.pools {
        let mut rows = rows_of(pool, look.now_ms, works);
        rows.retain(|row| is_wanted(&row.thread.id));
        rows.sort_by_key(|row| (row.number, row.index));
        let mut last = None;
        for row in rows {
            let measured = row.process.map(|process| match last {
                // Another thread of the same process.
                Some((number, measured)) if number == row.number => measured,
                _ => Measured::of(process, usage, &budget),
            });
            last = measured.map(|measured| (row.number, measured));
            all.push(row.with(measured));
        }
    }
    all
}

/// A thread with what is known of it without asking the system.
struct Row<'l> {
    number: u64,
    index: u32,
    /// `None`: it has not said hello.
    process: Option<&'l Process>,
    thread: Thread<'l>,
}

impl<'l> Row<'l> {
    fn new(pool: &'l Pool, number: u64, index: u32, process: Option<&'l Process>) -> Self {
        let worker = pool.worker.as_ref().map(|worker| &*worker.name);
        let thread = Thread {
            id: id_of(pool, number, index),
            app: &pool.app.project.name,
            worker,
            kind: if worker.is_some() {
                "worker"
            } else {
                "regular"
            },
            pid: process.map(|process| process.pid.as_raw_nonzero().get()),
            state: State::Starting,
            state_s: None,
            request: None,
            requests: process.map_or(0, |process| process.offer_count(index)),
            memory: None,
            cpu_share: None,
        };
        Self {
            number,
            index,
            process,
            thread,
        }
    }

    fn with(mut self, measured: Option<Measured>) -> Thread<'l> {
        self.thread.memory = measured.and_then(|measured| measured.memory);
        self.thread.cpu_share = measured.and_then(|measured| measured.cpu_share);
        self.thread
    }
}

/// What the kernel says of a process, an even part for each of its threads.
#[derive(Clone, Copy)]
struct Measured {
    memory: Option<Memory>,
    cpu_share: Option<f64>,
}

impl Measured {
    fn of(process: &Process, usage: &mut Usage, budget: &Budget) -> Self {
        let threads = process.thread_count();
        let memory = usage.memory(process, budget).map(|memory| Memory {
            bytes: memory.bytes / u64::from(threads),
            ..memory
        });
        let share = usage.cpu_share(process);
        Self {
            memory,
            cpu_share: share.map(|share| rounded(share / f64::from(threads))),
        }
    }
}

fn rows_of<'l>(look: &'l PoolLook, now_ms: u64, works: &'l Works) -> Vec<Row<'l>> {
    let pool = &look.pool;
    let since = |ms: u64| Some(now_ms.saturating_sub(ms) as f64 / 1e3);
    let mut rows = Vec::new();
    for listed in &look.threads {
        let (process, index) = (&listed.thread.process, listed.thread.thread);
        let mut row = Row::new(pool, process.number, index, Some(process));
        row.thread.state = match (look.is_stopping(listed), listed.is_busy) {
            (true, _) => State::Stopping,
            (false, true) => State::Busy,
            (false, false) => State::Idle,
        };
        row.thread.state_s = since(listed.since_ms);
        // It may have gone idle since.
        let work = works.get(&(process.number, index));
        let work = work.filter(|_| listed.is_busy);
        row.thread.request = work.map(|work| Request {
            id: format!("{:016x}", work.request),
            method: &work.method,
            uri: &work.target,
            client_gone: work.client_gone,
        });
        rows.push(row);
    }
    let Some(state) = &look.state else {
        return rows;
    };
    for (process, index) in look.outside() {
        let mut row = Row::new(pool, process.number, index, Some(process));
        row.thread.state = State::Stopping;
        rows.push(row);
    }
    let booting = state.members.iter().filter(|member| member.boots);
    let booting = booting.map(|member| (&member.process, member.since_ms));
    let booting = booting.map(|(process, since_ms)| (process.number, Some(&**process), since_ms));
    let asked = state.asked.iter();
    let asked = asked.map(|(number, since_ms)| (*number, None, *since_ms));
    for (number, process, since_ms) in booting.chain(asked) {
        for index in 0..pool.limits.threads_per_process {
            let mut row = Row::new(pool, number, index, process);
            row.thread.state_s = since(since_ms);
            rows.push(row);
        }
    }
    rows
}

/// With the thread's index, where a process has several.
fn id_of(pool: &Pool, number: u64, index: u32) -> String {
    match pool.limits.threads_per_process {
        1 => process_id(number),
        _ => format!("{}.{index}", process_id(number)),
    }
}

/// To thousandths.
fn rounded(share: f64) -> f64 {
    (share * 1e3).round() / 1e3
}
