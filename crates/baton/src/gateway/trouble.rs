//! When something goes wrong: processes that die, threads that do not answer, requests that wait too long.

use baton_server::Io;
use rustix::process::Signal;

use super::answers::{refuse, unavailable};
use super::follow::is_complete;
use super::{Followed, Gateway, STALLED_MS_MAX, Stalled};
use crate::app::{Client, Message, Pending, Pool, Process, Running, Stage};

impl Gateway {
    /// Answers for a thread that will not. The thread is not released: its process is ending.
    pub(super) fn fail(&mut self, io: &mut Io, at: usize) {
        let running = self.running.swap_remove(at);
        let may_retry = running.client == Client::There
            && running.stage == Stage::Head
            && running.pool().app.options.retry
            && running.pending.idempotent
            && !running.pending.retried;
        if may_retry {
            let pending = Pending {
                retried: true,
                ..running.pending
            };
            let pool = &running.place.process.pool;
            // What counts is how long it waited, not how long it ran.
            let waited_ms = running.offered_ms.saturating_sub(running.queued_since_ms);
            let since_ms = io.now().mono_ms().saturating_sub(waited_ms);
            return self.resubmit(io, pool, pending, since_ms);
        }
        if running.client == Client::There {
            self.count_trouble(running.pool(), |counters| &counters.process_ended);
            refuse_or_abort(io, &running, 502, "The application process ended.\n");
        }
        self.recycle(running.pending.bytes);
    }

    pub(super) fn resubmit(&mut self, io: &mut Io, pool: &Pool, pending: Pending, since_ms: u64) {
        let now_ms = io.now().mono_ms();
        let conn = pending.conn;
        let submitted = pool
            .dispatcher()
            .resubmit(pending, since_ms, self.index, now_ms);
        self.submitted(io, conn, pool, submitted, now_ms);
        // It is told once, and may have been while a thread had the request.
        if io.is_half_closed(conn) && self.cancel_queued(conn) {
            io.abort(conn);
        }
    }

    /// A process has ended: its last replies are delivered, untaken requests go back to the queue,
    /// the others fail.
    pub(super) fn process_gone(&mut self, io: &mut Io, process: &Process) {
        let number = process.number;
        if let Some(knocker) = process.knocker(self.index) {
            // A child of the process may hold the other end, and knock for as long as it lives. An error means that
            // it was never registered.
            let _ = io.deregister(knocker);
        }
        let mut at = 0;
        while at < self.running.len() {
            if self.running[at].place.process.number != number
                || self.settle(io, at) == Followed::Stays
            {
                at += 1;
            }
        }
        self.stalled
            .retain(|stalled| stalled.place.process.number != number);
    }

    /// For a running request whose process is dead.
    pub(super) fn settle(&mut self, io: &mut Io, at: usize) -> Followed {
        if self.follow(io, at) == Followed::Left {
            return Followed::Left;
        }
        if self.running[at].client == Client::There
            && self.running[at].seen().is_some_and(is_complete)
        {
            // All there; the client is slow. The segment stays until it has read it.
            self.running[at].freeze();
            return Followed::Stays;
        }
        // Whoever is gone may have been answered, and its connection be with another request by now.
        if self.running[at].client == Client::There
            && self.running[at].seen().is_none()
            && self.running[at].retract()
        {
            let running = self.running.swap_remove(at);
            let pool = &running.place.process.pool;
            self.resubmit(io, pool, running.pending, running.queued_since_ms);
        } else {
            self.fail(io, at);
        }
        Followed::Left
    }

    pub(super) fn check_by(&mut self, at_ms: u64) {
        self.next_check_ms = self.next_check_ms.min(at_ms);
    }

    /// Deadlines, offers that lie untaken, requests that have waited too long.
    pub(super) fn check_times(&mut self, io: &mut Io, now_ms: u64) {
        self.next_check_ms = u64::MAX;
        self.take_back_late_standbys(io, now_ms);
        let mut at = 0;
        while at < self.running.len() {
            if self.check_running(io, at, now_ms) == Followed::Stays {
                let due_ms = self.running[at].next_check_ms();
                self.check_by(due_ms.max(now_ms + 1));
                at += 1;
            }
        }
        self.check_stalled(now_ms);
        self.expire_queues(io, now_ms);
    }

    pub(super) fn check_running(&mut self, io: &mut Io, at: usize, now_ms: u64) -> Followed {
        let running = &mut self.running[at];
        let is_untaken = running.is_untaken();
        if running.stands_by && !is_untaken {
            running.comes_up(now_ms);
        }
        // Over its deadline and not taken: the process is not to blame.
        if is_untaken && now_ms >= running.take_back_ms().min(running.pending.deadline_ms) {
            let has_standby = running.pool().dispatcher().has_standby(running.thread);
            if has_standby && self.withdraw_and_resubmit(io, at) {
                return Followed::Left;
            }
            if !has_standby && self.running[at].retract() {
                return self.take_back(io, at, now_ms);
            }
        }
        let running = &mut self.running[at];
        match running.kill_at_ms {
            None if now_ms >= running.pending.deadline_ms => self.overdue(io, at, now_ms),
            Some(kill_at_ms) if now_ms >= kill_at_ms => {
                running.place.process.signal(Signal::KILL);
                // Once is enough; its end is told by the supervisor.
                running.kill_at_ms = Some(u64::MAX);
                Followed::Stays
            }
            _ => Followed::Stays,
        }
    }

    /// An offer lay too long: the process is stopped, or starved. Another thread gets the request.
    #[cold]
    pub(super) fn take_back(&mut self, io: &mut Io, at: usize, now_ms: u64) -> Followed {
        let running = self.running.swap_remove(at);
        // Each of its threads may have had an offer at the same time.
        let threads = u64::from(running.place.process.thread_count());
        let untaken_max = STALLED_MS_MAX / running.pool().app.options.offer_ms.max(1);
        if u64::from(running.place.process.count_untaken()) >= threads * untaken_max.max(2) {
            // It looks as if it went back to sleep each time, and never takes anything.
            self.kill_stalled(&running.place.process);
        }
        let pool = running.place.process.pool.clone();
        self.count_trouble(&pool, |counters| &counters.not_taken);
        let stalled = Stalled {
            place: running.place,
            thread: running.thread,
            seat: running.seat,
            kill_at_ms: now_ms + STALLED_MS_MAX,
        };
        self.stalled.push(stalled);
        if running.client == Client::There && now_ms < running.pending.deadline_ms {
            self.resubmit(io, &pool, running.pending, running.queued_since_ms);
        } else if running.client == Client::There {
            self.count_trouble(&pool, |counters| &counters.over_deadline);
            refuse(
                io,
                running.pending.conn,
                504,
                "The application took too long.\n",
            );
        }
        Followed::Left
    }

    /// The request took too long. The client hears so now; the thread has the grace to end.
    #[cold]
    pub(super) fn overdue(&mut self, io: &mut Io, at: usize, now_ms: u64) -> Followed {
        let running = &mut self.running[at];
        let process = running.place.process.clone();
        let options = &process.pool.app.options;
        running.kill_at_ms = Some(now_ms + options.kill_grace_ms);
        tracing::warn!(
            app = process.pool.label,
            pid = process.pid.as_raw_nonzero().get(),
            request = format!("{:016x}", running.pending.id),
            "a request is over its deadline of {} ms",
            options.deadline_ms
        );
        if running.client == Client::There {
            refuse_or_abort(io, running, 504, "The application took too long.\n");
        }
        self.count_trouble(&process.pool, |counters| &counters.over_deadline);
        process.signal(Signal::PROF);
        process.pool.replace(&process);
        self.client_left(io, at)
    }

    /// Threads that let an offer lie: back to work when they have looked, killed if they do not.
    pub(super) fn check_stalled(&mut self, now_ms: u64) {
        let mut at = 0;
        while at < self.stalled.len() {
            let stalled = &mut self.stalled[at];
            let process = &stalled.place.process;
            if stalled.place.is_asleep_again() {
                let stalled = self.stalled.swap_remove(at);
                self.release_seat(&stalled.place, stalled.thread, stalled.seat, now_ms);
                continue;
            }
            if now_ms >= stalled.kill_at_ms && process.pool.replace(process) {
                // What its other threads have may be finished before.
                stalled.kill_at_ms = now_ms + process.pool.app.options.kill_grace_ms;
            }
            if now_ms >= stalled.kill_at_ms {
                let process = process.clone();
                self.kill_stalled(&process);
                self.stalled.swap_remove(at);
                continue;
            }
            self.check_by(now_ms + 10);
            at += 1;
        }
    }

    #[cold]
    pub(super) fn kill_stalled(&self, process: &Process) {
        tracing::warn!(
            app = process.pool.label,
            pid = process.pid.as_raw_nonzero().get(),
            "a process does not take requests; killing it"
        );
        process.signal(Signal::KILL);
    }

    pub(super) fn expire_queues(&mut self, io: &mut Io, now_ms: u64) {
        let sites = self.sites.clone();
        for pool in sites.pools() {
            self.expire_queue(io, pool, now_ms);
        }
        for at in 0..self.leaving.len() {
            if let Some(pool) = self.leaving[at].upgrade() {
                self.expire_queue(io, &pool, now_ms);
            }
        }
    }

    fn expire_queue(&mut self, io: &mut Io, pool: &Pool, now_ms: u64) {
        loop {
            let mut dispatcher = pool.dispatcher();
            let Some(pending) = dispatcher.expire(now_ms) else {
                let next_ms = dispatcher.next_expiry_ms();
                drop(dispatcher);
                if let Some(next_ms) = next_ms {
                    self.check_by(next_ms.max(now_ms + 1));
                }
                return;
            };
            drop(dispatcher);
            self.count_trouble(pool, |counters| &counters.waited_too_long);
            self.refuse_waiting(io, pool, pending);
        }
    }

    pub(super) fn refuse_waiting(&mut self, io: &mut Io, pool: &Pool, pending: Pending) {
        if pending.io == self.index {
            unavailable(io, pending.conn, "The request waited too long.\n");
            self.recycle(pending.bytes);
        } else {
            pool.post(pending.io, Message::Refuse(pending.conn));
        }
    }
}

/// A reply of which nothing was sent can still be another; of one that has begun, only the end is left.
fn refuse_or_abort(io: &mut Io, running: &Running, status: u16, reason: &str) {
    match running.stage {
        Stage::Head => refuse(io, running.pending.conn, status, reason),
        Stage::Body => io.abort(running.pending.conn),
    }
}
