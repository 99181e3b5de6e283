//! Requests that stand by at busy threads, taken back: for a thread that is idle, because the one that has it is busy for
//! long, or because nobody waits for the answer.

use std::sync::Arc;

use baton_server::Io;

use super::Gateway;
use crate::app::{Pool, Running};

impl Gateway {
    /// A thread is idle while requests stand by at others. Not to be called while `running` is walked through.
    #[cold]
    pub(super) fn recall(&mut self, io: &mut Io, pool: &Arc<Pool>) {
        if !self.recall_one(io, pool) {
            pool.recall(Some(self.index));
        }
    }

    /// Takes back what has stood by for longest here, and gives it to the dispatcher again. Whether there was something.
    pub(super) fn recall_one(&mut self, io: &mut Io, pool: &Arc<Pool>) -> bool {
        let all = self.running.iter().enumerate();
        let standing = all.filter(|(_, running)| {
            running.stands_by && running.is_untaken() && Arc::ptr_eq(running.pool(), pool)
        });
        let oldest = standing.min_by_key(|(_, running)| running.queued_since_ms);
        let Some((at, _)) = oldest else {
            return false;
        };
        self.withdraw_and_resubmit(io, at)
    }

    /// Threads that are busy for longer than their last request told. The last to come goes back first: each goes to the
    /// front of the queue.
    pub(super) fn take_back_late_standbys(&mut self, io: &mut Io, now_ms: u64) {
        loop {
            let all = self.running.iter().enumerate();
            let late =
                all.filter(|(_, running)| running.stands_by && now_ms >= running.take_back_ms());
            let Some((at, running)) = late.max_by_key(|(_, running)| running.queued_since_ms)
            else {
                return;
            };
            let may =
                running.is_untaken() && running.pool().dispatcher().has_standby(running.thread);
            if !may || !self.withdraw_and_resubmit(io, at) {
                // The thread has come to it, or should: from now on it is an offer like any other.
                self.running[at].comes_up(now_ms);
            }
        }
    }

    /// Whether that could be done.
    pub(super) fn withdraw_and_resubmit(&mut self, io: &mut Io, at: usize) -> bool {
        let Some(running) = self.withdraw(io, at) else {
            return false;
        };
        let pool = &running.place.process.pool;
        self.resubmit(io, pool, running.pending, running.queued_since_ms);
        true
    }

    /// The client of a request has left: what stands by is never run, what runs is not waited for.
    pub(super) fn drop_or_forget(&mut self, io: &mut Io, at: usize) {
        if !self.drop_standby(io, at) {
            self.client_left(io, at);
        }
    }

    /// Whether it stood by, and will not be run.
    pub(super) fn drop_standby(&mut self, io: &mut Io, at: usize) -> bool {
        if self.running[at].stands_by
            && let Some(running) = self.withdraw(io, at)
        {
            self.count_trouble(running.pool(), |counters| &counters.left_waiting);
            self.recycle(running.pending.bytes);
            return true;
        }
        false
    }

    /// The request, if its thread has not come to it.
    pub(super) fn withdraw(&mut self, io: &mut Io, at: usize) -> Option<Running> {
        let running = &self.running[at];
        if !running.is_untaken() || !running.retract() {
            return None;
        }
        let running = self.running.swap_remove(at);
        let (index, now_ms) = (self.index, io.now().mono_ms());
        let (thread, seat) = (running.thread, running.seat);
        self.decide(&running.place, thread, now_ms, |dispatcher| {
            dispatcher.withdraw(thread, seat, index, now_ms)
        });
        Some(running)
    }
}
