//! What is looked after now and then: stages of the load, timeouts, connections to make again, and the
//! tally that goes to the main thread each second.

use std::sync::atomic::Ordering;

use super::conn::State;
use super::pace::Pace;
use super::{Message, NOT_YET, Worker, share};
use crate::span::SECOND_NS;
use crate::tally::{Stage, Tally};

/// How often, where something may be due at any time.
const SOON_NS: u64 = 5_000_000;
const OPENING_NS: u64 = 1_000_000;

impl Worker<'_> {
    /// True when all is done.
    pub(super) fn chores(&mut self) -> bool {
        if self.stop_asked() && self.stage != Stage::Drain {
            if self.stage == Stage::Opening {
                return true;
            }
            self.end_ns = self.now_ns;
            self.rotate();
            self.drain_end_ns = self.now_ns;
        }
        let starting = self.stage == Stage::Opening && self.look_for_start();
        if self.sending() {
            self.adjust();
        }
        let waiting = self.look_at_all();
        if self.all_sent() && self.finish() {
            return true;
        }
        let staged = self.plan.load.connections.length_ns().is_some();
        let every_ns = match self.stage {
            _ if starting => 0,
            Stage::Opening => OPENING_NS,
            _ if waiting || staged || self.all_sent() => SOON_NS,
            _ => self.chores_every_ns,
        };
        self.chores_ns = self.now_ns + every_ns.min(self.chores_every_ns);
        false
    }

    /// True just before the start, which is awaited without sleep: the first requests are to be in time.
    fn look_for_start(&mut self) -> bool {
        if self.opening_left == 0 && !self.ready_told {
            self.ready_told = true;
            // The main thread is there as long as we are.
            let _ = self.lines.to_main.send(Message::Ready);
        }
        let start_ns = self.shared.start_ns.load(Ordering::Acquire);
        if start_ns > self.now_ns {
            return start_ns != NOT_YET;
        }
        self.start_ns = start_ns;
        self.measured_from_ns = start_ns + self.plan.load.warm_up.ns();
        self.end_ns = self
            .plan
            .load
            .sending_ns()
            .map_or(NOT_YET, |ns| start_ns + ns);
        self.rotate();
        self.adjust();
        for index in 0..self.conns.len() {
            if self.conns[index].state == State::Open {
                self.conns[index].ready_ns = start_ns;
                self.ready(index);
            }
        }
        false
    }

    /// As many connections as the stage asks for.
    fn adjust(&mut self) {
        let level = self
            .plan
            .load
            .connections
            .level(self.now_ns - self.start_ns);
        let all = level.round().max(0.0) as u64;
        let wanted =
            (share(all, self.plan.load.threads, self.index) as usize).min(self.conns.len());
        let before = std::mem::replace(&mut self.wanted, wanted);
        for index in before..wanted {
            if self.conns[index].state == State::Off {
                self.conns[index].ready_ns = self.now_ns;
                self.begin(index);
            }
        }
        for index in wanted..before {
            self.retire(index);
        }
    }

    /// Timeouts, and connections to make again. True if some wait for that.
    fn look_at_all(&mut self) -> bool {
        let mut waiting = false;
        let now_ns = self.now_ns;
        for index in 0..self.conns.len() {
            let conn = &self.conns[index];
            match conn.state {
                State::Open => {
                    let oldest = conn.sent.front();
                    if oldest
                        .is_some_and(|sent| sent.sent_ns + self.plan.load.timeout.ns() <= now_ns)
                    {
                        self.timed_out(index);
                    }
                }
                State::Connecting
                    if conn.since_ns + self.plan.load.connect_timeout.ns() <= now_ns =>
                {
                    self.connect_timed_out(index);
                }
                State::Backlog { until_ns } if until_ns <= now_ns => self.attempt(index),
                State::Waiting { until_ns } if until_ns <= now_ns => self.begin_again(index),
                _ => {}
            }
            waiting |= matches!(
                self.conns[index].state,
                State::Backlog { .. } | State::Waiting { .. }
            );
        }
        waiting
    }

    /// Nothing more is sent: true when nothing is waited for either.
    fn finish(&mut self) -> bool {
        let late = self.now_ns >= self.drain_end_ns;
        let mut under_way = 0;
        for index in 0..self.conns.len() {
            let conn = &self.conns[index];
            let here = conn.sent.len() + usize::from(conn.job_ns.is_some());
            if here == 0 || late {
                self.shut(index);
            }
            under_way += here;
        }
        if under_way > 0 && !late {
            return false;
        }
        self.tally.unfinished += (under_way + self.owed.len()) as u64;
        true
    }

    /// A new tally, and perhaps a new stage.
    #[cold]
    pub(super) fn rotate(&mut self) {
        self.hand_over();
        let before = self.stage;
        self.stage = match self.now_ns {
            _ if before == Stage::Drain => before,
            now_ns if now_ns >= self.end_ns => Stage::Drain,
            now_ns if now_ns >= self.measured_from_ns => Stage::Measured,
            _ => Stage::WarmUp,
        };
        let second = (self.now_ns - self.start_ns) / SECOND_NS;
        let next_second_ns = self.start_ns + (second + 1) * SECOND_NS;
        self.rotate_ns = [next_second_ns, self.measured_from_ns, self.end_ns]
            .into_iter()
            .filter(|ns| *ns > self.now_ns)
            .min()
            .unwrap_or(next_second_ns);
        self.tally.stage = self.stage;
        self.tally.second = second;
        if self.stage == Stage::Drain && before != Stage::Drain {
            self.drain_end_ns = self.now_ns + self.plan.load.drain.ns();
            if let Pace::Open(schedule) = &mut self.pace {
                self.tally.unsent = schedule.end(self.end_ns - self.start_ns);
            }
            self.chores_ns = self.now_ns;
        }
    }

    pub(super) fn hand_over(&mut self) {
        let fresh = self.lines.used.try_recv();
        let fresh = fresh.unwrap_or_else(|_| Box::new(Tally::new(self.index)));
        let mut full = std::mem::replace(&mut self.tally, fresh);
        full.usage = self.meter.read();
        full.open = self.open;
        full.thread = self.index;
        let _ = self.lines.to_main.send(Message::Tally(full));
    }
}
