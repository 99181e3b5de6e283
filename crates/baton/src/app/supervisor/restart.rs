//! Restart of the app, while it serves: new processes first, then an old one leaves for each.
//!
//! ```text
//!   wanted ──► a second zygote loads ──► it forks ──► the first is ready ──► old ones leave, one for one ──► over
//!                      │                   │               it is the current one, the old zygote ends
//!                      └─────── fails ─────┘
//!                  the old ones go on, unharmed
//! ```
//!
//! Which old one leaves is the dispatcher's to decide: that of the first free thread. So no request is
//! waited for by others, none is lost, and there are never fewer threads than before. While new
//! processes die, no more old ones leave. If the current zygote is not there, the next to be
//! started takes the place of the second one.

use rustix::process::Signal;

use super::{Member, START_MS_MAX, Seat, Supervisor, ZygoteState};

/// From the end of a restart to the next that the app itself asks for. More would be a loop.
const APP_PAUSE_MS: u64 = 2_000;
/// No old thread leaves so soon after a new process has died.
const CALM_MS: u64 = 1_000;
/// Where nothing has moved for so long, old threads are at long requests, and nobody waits for them any more.
const STUCK_MS: u64 = 1_000;

#[derive(Default)]
pub(super) struct Restart {
    /// Asked for and not begun.
    wanted: Option<Wanted>,
    /// When the one that is under way began.
    begun_ms: Option<u64>,
    /// Processes of earlier generations have been told to make way for those of this one.
    made_way_for: u64,
    /// When one last began or ended.
    last_ms: u64,
    /// When an old process last went, or the first of a generation came.
    moved_ms: u64,
    /// When a process of the newest generation last died.
    died_ms: Option<u64>,
}

struct Wanted {
    reason: String,
    /// The app wants it, and nobody else.
    only_by_app: bool,
}

impl Restart {
    /// When what is wanted may begin.
    fn not_before_ms(&self) -> Option<u64> {
        let wanted = self.wanted.as_ref()?;
        let pause_ms = if wanted.only_by_app { APP_PAUSE_MS } else { 0 };
        Some(self.last_ms + pause_ms)
    }

    fn stuck_from_ms(&self) -> u64 {
        self.moved_ms + STUCK_MS
    }
}

impl Supervisor {
    /// Whether it was not wanted already.
    pub(super) fn want_restart(&mut self, reason: String, only_by_app: bool) -> bool {
        match &mut self.restart.wanted {
            _ if self.stopping.is_some() || self.departure.is_some() => false,
            // Who sleeps wakes with the code that is there then.
            _ if self.pool.is_dormant() => false,
            Some(wanted) => {
                wanted.only_by_app &= only_by_app;
                false
            }
            None => {
                self.restart.wanted = Some(Wanted {
                    reason,
                    only_by_app,
                });
                true
            }
        }
    }

    /// From its beginning until all new threads are there, and no old ones.
    pub(super) fn is_restarting(&self) -> bool {
        self.restart.begun_ms.is_some() || self.is_replacing()
    }

    /// Old threads leave for new ones, or will.
    pub(super) fn is_replacing(&self) -> bool {
        self.successor.is_some() || self.has_older()
    }

    /// Another one is to begin.
    pub(super) fn is_restart_wanted(&self) -> bool {
        self.restart.wanted.is_some()
    }

    pub(super) fn has_older(&self) -> bool {
        let current = self.current.generation;
        let mut members = self.members.values();
        members.any(|member| member.generation < current)
    }

    /// Begins and ends restarts.
    pub(super) fn advance_restart(&mut self, now_ms: u64) -> Option<u64> {
        if self.stopping.is_some() {
            return None;
        }
        if self.restart.begun_ms.is_some() && self.is_over() {
            self.finish_restart(now_ms);
        }
        let begin_ms = self.may_begin_from_ms();
        if begin_ms.is_some_and(|begin_ms| now_ms >= begin_ms) {
            self.begin_restart(now_ms);
        }
        let begin_ms = begin_ms.filter(|begin_ms| now_ms < *begin_ms);
        let leave_ms = self.let_leave(now_ms);
        let room_ms = self.make_room(now_ms);
        let boot_ms = self.await_boot(now_ms);
        [begin_ms, leave_ms, room_ms, boot_ms]
            .into_iter()
            .flatten()
            .min()
    }

    /// `None`: not before something else has happened.
    fn may_begin_from_ms(&self) -> Option<u64> {
        let begin_ms = self.restart.not_before_ms()?;
        match self.current.zygote {
            _ if self.successor.is_some() => None,
            ZygoteState::Loading { .. } => None,
            ZygoteState::Ready(_) if self.has_older() => {
                Some(begin_ms.max(self.restart.stuck_from_ms()))
            }
            _ => Some(begin_ms),
        }
    }

    fn begin_restart(&mut self, now_ms: u64) {
        let Some(wanted) = self.restart.wanted.take() else {
            return;
        };
        tracing::info!(app = self.pool.label, "restarting: {}", wanted.reason);
        self.restart.begun_ms = Some(now_ms);
        self.restart.last_ms = now_ms;
        let seat = Seat {
            generation: self.next_generation,
            zygote: ZygoteState::Wanted {
                not_before_ms: now_ms,
            },
        };
        self.next_generation += 1;
        match self.current.zygote {
            // Nobody to go on if it fails: it is tried again until it works.
            ZygoteState::Wanted { .. } => self.current = seat,
            _ => self.successor = Some(seat),
        }
    }

    /// The app cannot be loaded as it is now. What was loaded before goes on.
    pub(super) fn restart_failed(&mut self, reason: &str) {
        let Some(seat) = self.successor.take() else {
            return;
        };
        if let Some(zygote) = seat.zygote.get() {
            zygote.kill();
        }
        self.abandon(seat.zygote, seat.generation);
        for member in self.members.values() {
            if member.generation == seat.generation {
                member.process.signal(Signal::KILL);
            }
        }
        self.restart.begun_ms = None;
        self.restart.last_ms = self.now_ms();
        self.listen_again();
        let mut lifecycle = self.pool.lifecycle();
        lifecycle.restarts_failed += 1;
        lifecycle.failed(self.restart.last_ms, reason);
        drop(lifecycle);
        tracing::error!(
            app = self.pool.label,
            "the restart failed, the old processes go on: {reason}"
        );
    }

    /// A process of this generation is ready: older ones make way.
    pub(super) fn make_way(&mut self, generation: u64) {
        if self.is_successor(generation) {
            self.take_over();
        }
        if generation <= self.restart.made_way_for {
            return;
        }
        self.restart.made_way_for = generation;
        self.restart.moved_ms = self.now_ms();
        self.restart.died_ms = None;
        let older = self.members.values();
        let older = older.filter(|member| member.generation < generation);
        let threads = older.flat_map(|member| &member.threads).copied();
        let keep = self.thread_count();
        self.pool.dispatcher().retire(threads, keep);
    }

    /// Old threads that are idle leave, as long as more are there than are asked for, and new processes live.
    fn let_leave(&mut self, now_ms: u64) -> Option<u64> {
        if !self.has_older() {
            return None;
        }
        let calm_ms = self.restart.died_ms.map_or(0, |died_ms| died_ms + CALM_MS);
        let is_calm = now_ms >= calm_ms;
        let keep = match is_calm {
            true => self.thread_count(),
            false => self.process_count_max() * self.threads_per_process(),
        };
        self.pool.dispatcher().retire([], keep);
        self.pool.let_idle_ones_leave();
        (!is_calm).then_some(calm_ms)
    }

    /// The successor serves: it is the current one from now on.
    fn take_over(&mut self) {
        let Some(seat) = self.successor.take() else {
            return;
        };
        let old = std::mem::replace(&mut self.current, seat);
        if let Some(zygote) = old.zygote.get() {
            zygote.kill();
        }
        self.abandon(old.zygote, old.generation);
        self.zygote_ready_ms = self.now_ms();
        self.fork_not_before_ms = 0;
    }

    /// A process of this generation has gone; or has it died?
    pub(super) fn has_gone(&mut self, generation: u64, has_died: bool) {
        let newest = self.successor.as_ref().unwrap_or(&self.current);
        if generation < newest.generation {
            self.restart.moved_ms = self.now_ms();
        } else if has_died {
            self.restart.died_ms = Some(self.now_ms());
        }
    }

    /// If old threads at long requests take up all the room for new processes, idle ones go before the new ones come:
    /// fewer threads for some milliseconds, but the new code is served.
    fn make_room(&mut self, now_ms: u64) -> Option<u64> {
        let is_ready = |seat: &&Seat| matches!(seat.zygote, ZygoteState::Ready(_));
        let successor = self.successor.as_ref().filter(is_ready)?;
        if self.is_thinning_out() {
            return None;
        }
        // While new ones boot it is they who take up the room: they may come to nothing, and old ones are to go on then.
        if self.room() > 0 || self.count_of(successor.generation) > 0 {
            return None;
        }
        let stuck_ms = self.restart.stuck_from_ms();
        if now_ms < stuck_ms {
            return Some(stuck_ms);
        }
        let older = self.members.values();
        let older = older.filter(|member| member.generation < successor.generation);
        let threads = older.flat_map(|member| &member.threads).copied();
        let keep = self
            .thread_count()
            .saturating_sub(self.threads_per_process());
        self.pool.dispatcher().retire(threads, keep);
        self.pool.let_idle_ones_leave();
        None
    }

    /// Where each process boots a script of its own, that may hang.
    fn await_boot(&mut self, now_ms: u64) -> Option<u64> {
        let successor = self.successor.as_ref()?.generation;
        let members = self.members.values();
        let of_successor = members.filter(|member| member.generation == successor);
        let late_ms = of_successor.map(|member| member.since_ms).min()? + START_MS_MAX;
        if now_ms >= late_ms {
            self.restart_failed("no process has booted within 30 s");
        }
        Some(late_ms)
    }

    /// Whether all that are wanted are there, and no others.
    fn is_over(&self) -> bool {
        let is_ready = matches!(self.current.zygote, ZygoteState::Ready(_));
        let stays = |member: &&Member| !member.boots() && !member.process.is_leaving();
        let ready = self.members.values().filter(stays);
        let are_all_there = ready.count() >= self.process_count();
        is_ready && self.successor.is_none() && !self.has_older() && are_all_there
    }

    fn finish_restart(&mut self, now_ms: u64) {
        if let Some(begun_ms) = self.restart.begun_ms.take() {
            let took_ms = now_ms - begun_ms;
            self.pool.lifecycle().restarts += 1;
            tracing::info!(app = self.pool.label, took_ms, "restarted");
        }
        self.restart.last_ms = now_ms;
    }
}
