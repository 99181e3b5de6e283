//! How many threads there are to be: the load moves that number between the least and the most.
//!
//! ```text
//!   a request waits ──rings──► look: queue, CPU, memory ──► decide ──► wanted + n ──► forks
//!                                ▲                            │         wanted - n ◄── these were idle
//!                                └────── look_again_ms ───────┘
//! ```
//!
//! The policy decides (`baton_dispatch::autoscale`); this room looks for it and obeys. While nothing waits, and no thread is
//! above the least, nobody looks. Forks and leavers follow [`Scaler::wanted`], whoever moved it: so does a restart, which
//! replaces as many threads as are wanted at the time. No idle thread is stopped meanwhile: its successor would have
//! to be started first.

use baton_dispatch::autoscale::{
    Action, Decision, IdleThread, LOOK_MS, Meter, ScaleLimits, Seen, decide,
};
use baton_dispatch::{Glance, ThreadId};

use super::gauges::Gauges;
use super::report::{Line, Report};
use super::{Member, Supervisor, ZygoteState};

pub(super) struct Scaler {
    /// Threads that are to be there, those added by hand included.
    wanted: u32,
    by_hand: u32,
    meter: Meter,
    pub(super) gauges: Gauges,
    looked_ms: u64,
    /// When to look again.
    look_ms: Option<u64>,
    /// Requests waited at the last look.
    is_watching: bool,
    report: Report,
}

impl Scaler {
    pub(super) fn new(threads_min: u32) -> Self {
        Self {
            wanted: threads_min,
            by_hand: 0,
            meter: Meter::new(),
            gauges: Gauges::new(),
            looked_ms: 0,
            // At once, so that it is known what the CPU did before the first request that has to wait.
            look_ms: Some(0),
            is_watching: false,
            report: Report::default(),
        }
    }

    pub(super) fn wanted(&self) -> u32 {
        self.wanted
    }

    fn look_by(&mut self, at_ms: u64) {
        self.look_ms = Some(self.look_ms.map_or(at_ms, |look_ms| look_ms.min(at_ms)));
    }

    /// Not sooner than one look may follow another.
    fn look_soon(&mut self, now_ms: u64) {
        self.look_by(now_ms.max(self.looked_ms + LOOK_MS));
    }
}

impl Supervisor {
    /// Looks if it is time to, and does what is decided.
    pub(super) fn advance_scaling(&mut self, now_ms: u64) -> Option<u64> {
        if self.stopping.is_some() || self.is_thinning_out() {
            return None;
        }
        if !self.scaler.is_watching && self.pool.is_watched() {
            // Somebody has rung.
            self.scaler.is_watching = true;
            self.scaler.look_soon(now_ms);
        }
        if self.scaler.look_ms.is_some_and(|look_ms| now_ms >= look_ms) {
            self.look(now_ms);
        }
        if let Some(Line { was, reason }) = self.scaler.report.take(now_ms) {
            let threads = self.scaler.wanted;
            tracing::info!(app = self.pool.label, was, threads, "{reason}");
        }
        let due_ms = [self.scaler.look_ms, self.scaler.report.due_ms()];
        due_ms.into_iter().flatten().min()
    }

    fn look(&mut self, now_ms: u64) {
        let (glance, idle) = self.glance(now_ms);
        let scaler = &mut self.scaler;
        scaler.looked_ms = now_ms;
        scaler.gauges.count_work(self.members.values_mut(), now_ms);
        let memory = match glance.waiting {
            0 => None,
            _ => scaler.gauges.memory(self.members.values_mut(), now_ms),
        };
        let starting_since_ms = self.starting_since_ms(glance.threads, now_ms);
        let start_not_before_ms = self.start_not_before_ms();
        let limits = self.limits_now();
        let scaler = &mut self.scaler;
        let counted = self.pool.counters().iter();
        let unseen_us = counted.map(|counters| counters.unseen_us.get()).sum();
        let seen = Seen {
            glance,
            idle,
            // Which of them it was does not matter, only that so many stay.
            by_hand: scaler.by_hand,
            starting_since_ms: &starting_since_ms,
            start_not_before_ms,
            work: scaler.gauges.work(glance.busy_ms, unseen_us),
            cpu: scaler.gauges.cpu(),
            start: scaler.gauges.start_cost(),
            memory,
        };
        let observation = scaler.meter.observe(seen, limits.idle_ms_max, now_ms);
        let decision = decide(&observation, &limits, now_ms);
        scaler.look_ms = decision.look_again_ms;
        self.obey(&decision, now_ms);
    }

    /// From now on the next request that has to wait rings, unless some do already.
    fn glance(&mut self, now_ms: u64) -> (Glance, Vec<IdleThread>) {
        self.pool.set_watched(false);
        let may_stop = self.scaler.wanted > self.floor();
        let mut dispatcher = self.pool.dispatcher();
        let glance = dispatcher.glance(now_ms);
        let idle = match glance.waiting == 0 && may_stop {
            true => dispatcher.idle_processes(),
            false => Vec::new(),
        };
        drop(dispatcher);
        self.scaler.is_watching = glance.waiting > 0;
        if self.scaler.is_watching {
            self.pool.set_watched(true);
        }
        let idle = idle.into_iter();
        let idle = idle.map(|id: ThreadId| IdleThread { id, by_hand: false });
        (glance, idle.collect())
    }

    /// For each thread that is wanted and not there, since when it starts: since now, if no zygote was asked for it so far.
    /// In a restart others start too, in the place of old ones.
    fn starting_since_ms(&self, threads: usize, now_ms: u64) -> Vec<u64> {
        let missing = (self.scaler.wanted as usize).saturating_sub(threads);
        let asked = self.nascent.values().map(|asked| asked.since_ms);
        let booting = self.members.values().filter(|member| member.boots());
        let booting = booting.map(|member| member.since_ms);
        let mut since_ms: Vec<u64> = asked.chain(booting).collect();
        since_ms.sort_unstable_by(|a, b| b.cmp(a));
        let each = self.threads_per_process();
        let since_ms = since_ms.into_iter();
        let since_ms = since_ms.flat_map(|since_ms| std::iter::repeat_n(since_ms, each));
        let never_asked = std::iter::repeat(now_ms);
        since_ms.chain(never_asked).take(missing).collect()
    }

    fn start_not_before_ms(&self) -> u64 {
        match self.current.zygote {
            ZygoteState::Wanted { not_before_ms } => not_before_ms.max(self.fork_not_before_ms),
            _ => self.fork_not_before_ms,
        }
    }

    /// The most is what the other pools leave.
    fn limits_now(&self) -> ScaleLimits {
        let limits = self.pool.limits;
        let shared = self.scaler.wanted + self.pool.budget.left();
        ScaleLimits {
            threads_max: limits.threads_max.min(shared),
            ..limits
        }
    }

    pub(super) fn threads_per_process(&self) -> usize {
        self.pool.limits.threads_per_process as usize
    }

    /// Not fewer, whatever the load.
    pub(super) fn floor(&self) -> u32 {
        self.pool.limits.threads_min + self.scaler.by_hand
    }

    fn obey(&mut self, decision: &Decision, now_ms: u64) {
        let was = self.scaler.wanted;
        match &decision.action {
            Action::Hold => {}
            Action::Start(count) => {
                let taken = self.pool.budget.take(*count);
                let whole = self.pool.limits.whole_down(taken);
                self.pool.budget.give_back(taken - whole);
                self.want_more(whole);
            }
            Action::Stop { .. } if self.is_restarting() => return,
            Action::Stop { with, .. } => {
                let stopped = with.iter().filter(|id| self.stop_idle(**id)).count() as u32;
                let stopped = stopped * self.pool.limits.threads_per_process;
                self.scaler.meter.stopped(stopped as usize);
                self.want_fewer(stopped);
            }
        }
        if self.pool.board.note(decision, now_ms) {
            tracing::debug!(app = self.pool.label, "{decision}");
        }
        if self.scaler.wanted != was {
            self.scaler.report.changed(was, decision.to_string());
        }
    }

    /// With its process. Whether it was idle still.
    fn stop_idle(&self, id: ThreadId) -> bool {
        // One at a time: nobody waits for the lock while another is told.
        let place = self.pool.dispatcher().dismiss(id);
        if let Some(place) = &place {
            place.leave();
            self.pool.let_idle_ones_leave();
        }
        place.is_some()
    }

    /// So many were taken from the budget.
    fn want_more(&mut self, count: u32) {
        self.set_wanted(self.scaler.wanted + count, self.scaler.by_hand);
    }

    fn want_fewer(&mut self, count: u32) {
        self.pool.budget.give_back(count);
        self.set_wanted(self.scaler.wanted - count, self.scaler.by_hand);
    }

    fn set_wanted(&mut self, wanted: u32, by_hand: u32) {
        (self.scaler.wanted, self.scaler.by_hand) = (wanted, by_hand);
        self.pool.board.set_counts(wanted, by_hand);
    }

    /// A process has died, or did not start. Above the least it is not replaced at once: that is decided anew.
    pub(super) fn lost_one(&mut self) {
        if self.scaler.wanted > self.floor() {
            self.want_fewer(self.pool.limits.threads_per_process);
        }
        if self.scaler.is_watching {
            self.scaler.look_soon(self.now_ms());
        }
    }

    /// Threads beyond those that are wanted leave: idle ones now, busy ones when they are free. First of all those whose process
    /// is to be replaced. In a restart it is the old ones that do.
    pub(super) fn advance_surplus(&mut self) {
        if self.is_replacing() || self.is_thinning_out() {
            return;
        }
        let keep = self.thread_count();
        let mut dispatcher = self.pool.dispatcher();
        let surplus = dispatcher.thread_count().saturating_sub(keep);
        if surplus == 0 {
            // What was said before, in a restart that failed, does not count any more.
            return dispatcher.retire_none();
        }
        let threads_of = |may: fn(&Member) -> bool| {
            let members = self.members.values().filter(move |member| may(member));
            members.flat_map(|member| &member.threads).copied()
        };
        let replaced = threads_of(|member| member.process.is_to_be_replaced());
        match replaced.clone().count() >= surplus {
            true => dispatcher.retire(replaced, keep),
            false => dispatcher.retire(threads_of(|_| true), keep),
        }
        drop(dispatcher);
        self.pool.let_idle_ones_leave();
    }

    /// Somebody wants more, whatever the load. Returns how many are wanted then.
    pub(super) fn add_by_hand(&mut self, count: u32, now_ms: u64) -> Result<u32, String> {
        let limits = self.pool.limits;
        let count = limits.whole_up(count);
        let wanted = self.may_change(count)?;
        if count > limits.threads_max.saturating_sub(wanted) {
            return Err(match limits.threads_min == limits.threads_max {
                true => format!(
                    "the number of threads is fixed at {wanted}: set num_threads and max_threads instead"
                ),
                false => format!(
                    "there are {wanted} threads, and {count} more would be over max_threads, {}",
                    limits.threads_max
                ),
            });
        }
        let members = self.members.values_mut();
        let starting = self.pool.scaling().starting;
        let fitting = self.scaler.gauges.room(members, starting, now_ms);
        if let Some(fitting) = fitting
            && count > fitting
        {
            return Err(format!("there is memory for only {fitting} more threads"));
        }
        let granted = self.pool.budget.take(count);
        if granted < count {
            self.pool.budget.give_back(granted);
            return Err(format!(
                "all applications together may have only {granted} more threads: threads_max"
            ));
        }
        self.scaler.by_hand += count;
        self.want_more(count);
        self.scaler
            .report
            .changed(wanted, format!("{count} added by hand"));
        Ok(self.scaler.wanted)
    }

    /// Those that were added by hand go first, in number: which threads leave is decided by who is free.
    pub(super) fn remove_by_hand(&mut self, count: u32) -> Result<u32, String> {
        let count = self.pool.limits.whole_up(count);
        let least = self.pool.limits.threads_min;
        let wanted = self.may_change(count)?;
        if count > wanted {
            return Err(format!("there are only {wanted} threads"));
        }
        if count > wanted - least {
            return Err(format!(
                "there are {wanted} threads, and {count} fewer would be less than num_threads, {least}"
            ));
        }
        self.scaler.by_hand -= count.min(self.scaler.by_hand);
        self.scaler.meter.stopped(count as usize);
        self.want_fewer(count);
        self.scaler
            .report
            .changed(wanted, format!("{count} removed by hand"));
        Ok(self.scaler.wanted)
    }

    /// Or why the number cannot be changed by hand now. Returns how many are wanted.
    fn may_change(&self, count: u32) -> Result<u32, String> {
        match count {
            _ if self.stopping.is_some() => Err("the server is stopping".into()),
            _ if self.pool.is_dormant() => {
                Err("no request has needed these threads so far, so there are none".into())
            }
            0 => Err("the count must be 1 at least".into()),
            _ => Ok(self.scaler.wanted),
        }
    }
}
