//! Threads: forked, booted, at work, stopped, killed.

use baton_dispatch::{Handoff, Released, ThreadId};

use super::{Event, FRONT, World, ZYGOTE};
use crate::cores::Kind;
use crate::load::{Step, Steps};
use crate::scaler::{Order, Scaler};
use crate::time::{MS, Time};

pub struct Thread {
    id: Option<ThreadId>,
    steps: Steps,
    pub sleeps: u32,
    client: Option<usize>,
    seat: u32,
    pub began: Time,
    computed: Time,
    pub is_gone: bool,
}

impl World<'_> {
    /// The threads that are there from the beginning.
    pub(super) fn populate(&mut self, count: u32) {
        for _ in 0..count {
            let thread = self.new_thread();
            self.enlist(thread);
        }
    }

    fn new_thread(&mut self) -> usize {
        self.threads.push(Thread {
            id: None,
            steps: Steps::default(),
            sleeps: 0,
            client: None,
            seat: 0,
            began: self.now,
            computed: 0,
            is_gone: false,
        });
        self.threads.len() - 1
    }

    pub(super) fn take(&mut self, handoff: Handoff<usize, usize>, scaler: &mut dyn Scaler) {
        let (thread, client) = (handoff.thread, handoff.request);
        self.clients[client].ticket = None;
        self.clients[client].thread = Some(thread);
        let steps = (self.load.script)(&mut self.clients[client].random, self.now);
        let state = &mut self.threads[thread];
        state.client = Some(client);
        state.seat = handoff.seat;
        state.steps = steps;
        state.began = self.now;
        state.computed = 0;
        self.begun += 1;
        self.proceed(thread, scaler);
    }

    /// The thread has done one step.
    pub(super) fn proceed(&mut self, thread: usize, scaler: &mut dyn Scaler) {
        let state = &mut self.threads[thread];
        match state.steps.next() {
            Some(Step::Sleep(time)) => {
                state.sleeps += 1;
                let wake = Event::Wake(thread, state.sleeps);
                self.schedule(self.now + time, wake);
            }
            Some(Step::Compute(time)) => {
                let (kind, others) = match (state.client, state.computed) {
                    (None, _) => (Kind::Starting, 0),
                    // The front and the client compute in the thread's time, to keep things simple.
                    (Some(_), 0) => (Kind::Serving, FRONT + self.machine.generator),
                    (Some(_), _) => (Kind::Serving, 0),
                };
                state.computed += time;
                self.cores.run(thread + 1, kind, time + others);
            }
            None => self.finish(thread, scaler),
        }
    }

    fn finish(&mut self, thread: usize, scaler: &mut dyn Scaler) {
        let Some(client) = self.threads[thread].client.take() else {
            self.ready(thread, scaler);
            return;
        };
        self.outcome.handled += 1;
        self.outcome.handled_by_tenth[(self.now / (100 * MS)) as usize] += 1;
        self.answered(client);
        self.release(thread, scaler);
    }

    fn release(&mut self, thread: usize, scaler: &mut dyn Scaler) {
        let Some(id) = self.threads[thread].id else {
            return;
        };
        let seat = self.threads[thread].seat;
        match self.dispatcher.release(id, seat, 0, self.now / MS) {
            Released::Next(handoff) => self.take(handoff, scaler),
            Released::Left(_) => self.threads[thread].is_gone = true,
            Released::Idle { .. } | Released::GoesOn(_) | Released::Nothing => {}
        }
    }

    pub(super) fn start(&mut self, count: u32) {
        for _ in 0..count {
            let thread = self.new_thread();
            self.starting.push(thread);
            self.forks.push_back(thread);
            self.outcome.started += 1;
            if self.outcome.restarted < self.outcome.stopped {
                self.outcome.restarted += 1;
            }
            self.outcome.starting_max = self.outcome.starting_max.max(self.starting.len() as u32);
            if self.forks.len() == 1 {
                self.cores.run(ZYGOTE, Kind::Starting, self.machine.fork);
            }
        }
    }

    /// The zygote has forked the first of those that it was asked for.
    pub(super) fn forked(&mut self) {
        let Some(thread) = self.forks.pop_front() else {
            return;
        };
        if !self.forks.is_empty() {
            self.cores.run(ZYGOTE, Kind::Starting, self.machine.fork);
        }
        let every = self.machine.stuck_every;
        if every > 0 && (thread as u32).is_multiple_of(every) {
            return;
        }
        self.threads[thread].sleeps += 1;
        self.threads[thread].steps =
            Steps::of_start(self.machine.boot_sleep, self.machine.boot_compute);
        self.schedule(self.now, Event::Wake(thread, 1));
    }

    fn ready(&mut self, thread: usize, scaler: &mut dyn Scaler) {
        self.starting.retain(|starting| *starting != thread);
        self.enlist(thread);
        self.release(thread, scaler);
    }

    fn enlist(&mut self, thread: usize) {
        let id = self.dispatcher.add(thread);
        self.threads[thread].id = Some(id);
        if self.now == 0 {
            self.dispatcher.release(id, 0, 0, 0);
        }
        let count = self.dispatcher.thread_count() as u32;
        self.outcome.threads_max = self.outcome.threads_max.max(count);
    }

    pub(super) fn kill(&mut self, thread: usize) {
        self.cores.cancel(thread + 1);
        let state = &mut self.threads[thread];
        state.is_gone = true;
        state.client = None;
        if let Some(id) = state.id.take() {
            self.dispatcher.remove(id);
        }
    }

    pub(super) fn obey(&mut self, order: Order) {
        match order {
            Order::Start(count) => self.start(count),
            Order::Stop(ids) => {
                for id in ids {
                    assert!(
                        self.dispatcher.dismiss(id).is_some(),
                        "only idle threads are stopped"
                    );
                    self.outcome.stopped += 1;
                }
            }
        }
    }
}
