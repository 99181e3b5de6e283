//! Clients, an app behind its real dispatcher, and a machine, in virtual time.
//!
//! A client sends its next request when it has the answer to the last. A thread sleeps and computes as the
//! request's script says. A zygote forks one thread after the other, each of which then boots. A request that is not
//! answered before its deadline is lost, and with it the thread that runs it.

mod clients;
mod site;
mod threads;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use baton_dispatch::{Dispatcher, Limits};

use crate::cores::Cores;
use crate::load::Load;
use crate::scaler::{Scaler, Waiting};
use crate::time::{MS, Time, US};
use clients::Client;
use threads::Thread;

/// What the front computes for a request.
const FRONT: Time = 20 * US;
/// How often the number of clients follows the load.
const CLIENTS_EVERY: Time = 10 * MS;

/// The machine, and what it takes to start a thread.
#[derive(Clone, Copy)]
pub struct Machine {
    pub cores: f64,
    /// The zygote's work for a thread, one after the other.
    pub fork: Time,
    /// What the thread then waits for, and computes, before it is ready.
    pub boot_sleep: Time,
    pub boot_compute: Time,
    /// One start in so many never comes to an end; 0: none.
    pub stuck_every: u32,
    /// What the client's side computes for a request, if it is on the same machine.
    pub generator: Time,
    /// How many others always want to compute, at a time.
    pub hogs: fn(Time) -> usize,
}

impl Machine {
    /// Two cores. 600 processes were measured to start in 2 s.
    pub const TWO_CORES: Self = Self {
        cores: 2.0,
        fork: 3_300 * US,
        boot_sleep: 0,
        boot_compute: 0,
        stuck_every: 0,
        generator: 0,
        hogs: |_| 0,
    };
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Requests answered with 200 before their deadline.
    pub handled: u64,
    /// The same, for each tenth of a second.
    pub handled_by_tenth: Vec<u64>,
    pub refused: u64,
    pub timed_out: u64,
    pub threads_max: u32,
    pub threads_last: u32,
    /// The most that were starting at once.
    pub starting_max: u32,
    pub started: u32,
    pub stopped: u32,
    /// Starts that made up for a stop before.
    pub restarted: u32,
    pub looks: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The thread has slept enough, in its so-and-so-many-th sleep.
    Wake(usize, u32),
    Send(usize),
    Clients,
}

/// The zygote's place among the cores' jobs; threads follow.
const ZYGOTE: usize = 0;

pub struct World<'a> {
    now: Time,
    load: &'a Load,
    machine: Machine,
    cores: Cores,
    dispatcher: Dispatcher<usize, usize>,
    clients: Vec<Client>,
    clients_wanted: usize,
    threads: Vec<Thread>,
    /// Asked of the zygote; the first is being forked.
    forks: VecDeque<usize>,
    /// Threads between order and readiness.
    starting: Vec<usize>,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    event_number: u64,
    deadlines: VecDeque<(Time, Waiting)>,
    /// Requests that were begun.
    begun: u64,
    outcome: Outcome,
}

pub fn run(load: &Load, machine: Machine, scaler: &mut dyn Scaler) -> Outcome {
    let mut world = World::new(load, machine);
    world.populate(scaler.threads_first());
    world.schedule(0, Event::Clients);
    let end = load.end();
    while let Some(next) = world.next(scaler) {
        if next >= end {
            break;
        }
        world.step(next.max(world.now), scaler);
    }
    world.outcome.threads_last = world.dispatcher.thread_count() as u32;
    world.outcome
}

impl<'a> World<'a> {
    fn new(load: &'a Load, machine: Machine) -> Self {
        let limits = Limits {
            queue_len_max: 1_000,
            queue_wait_ms_max: 10_000,
            rotate_ms: 10_000,
            stand_by: false,
        };
        let clients = (0..load.clients_max().into()).map(Client::new);
        Self {
            now: 0,
            load,
            machine,
            cores: Cores::new(machine.cores),
            dispatcher: Dispatcher::new(limits),
            clients: clients.collect(),
            clients_wanted: 0,
            threads: Vec::new(),
            forks: VecDeque::new(),
            starting: Vec::new(),
            events: BinaryHeap::new(),
            event_number: 0,
            deadlines: VecDeque::new(),
            begun: 0,
            outcome: Outcome {
                handled_by_tenth: vec![0; (load.end() / (100 * MS)) as usize + 1],
                ..Outcome::default()
            },
        }
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.event_number += 1;
        self.events.push(Reverse((at, self.event_number, event)));
    }

    fn next(&mut self, scaler: &dyn Scaler) -> Option<Time> {
        let event = self.events.peek().map(|Reverse((at, ..))| *at);
        let deadline = self.deadlines.front().map(|(at, _)| *at);
        let expiry = self.dispatcher.next_expiry_ms().map(|ms| ms * MS);
        let next = [
            event,
            deadline,
            expiry,
            self.cores.next_end(),
            scaler.next(),
        ];
        next.into_iter().flatten().min()
    }

    fn step(&mut self, now: Time, scaler: &mut dyn Scaler) {
        self.cores.advance(now);
        self.now = now;
        while let Some(job) = self.cores.pop_ended() {
            match job {
                ZYGOTE => self.forked(),
                job => self.proceed(job - 1, scaler),
            }
        }
        while let Some(Reverse((at, _, event))) = self.events.peek().copied()
            && at <= now
        {
            self.events.pop();
            self.happen(event, scaler);
        }
        while let Some((at, request)) = self.deadlines.front().copied()
            && at <= now
        {
            self.deadlines.pop_front();
            self.too_late(request, scaler);
        }
        while let Some(client) = self.dispatcher.expire(now / MS) {
            self.refuse(client);
        }
        if scaler.next().is_some_and(|at| at <= now) {
            self.outcome.looks += 1;
            for order in scaler.act(self, now) {
                self.obey(order);
            }
        }
    }

    fn happen(&mut self, event: Event, scaler: &mut dyn Scaler) {
        match event {
            Event::Wake(thread, sleep) => {
                let state = &self.threads[thread];
                if !state.is_gone && state.sleeps == sleep {
                    self.proceed(thread, scaler);
                }
            }
            Event::Send(client) => self.send(client, scaler),
            Event::Clients => {
                self.cores.set_hogs((self.machine.hogs)(self.now));
                self.admit(self.load.clients(self.now) as usize, scaler);
                self.schedule(self.now + CLIENTS_EVERY, Event::Clients);
            }
        }
    }
}
