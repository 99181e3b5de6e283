//! What other threads tell: the end of processes, a wish for a restart or for more or fewer threads, and that all is to end,
//! now or when it is done.

use std::sync::mpsc::Sender;
use std::time::Duration;

use rustix::process::Signal;

use super::{Change, Command, Stopping, Supervisor, ZygoteState};

/// How often it is looked what is still to be done before the end.
const LOOK_MS: u64 = 20;
/// What processes with nothing to do get to end by themselves.
const GRACE: Duration = Duration::from_secs(5);

/// Nothing new comes any more.
pub(super) struct Departure {
    /// What is not finished then is cut.
    cut_at_ms: u64,
    /// Nothing waits any more, so that threads are needed only for what runs.
    is_queue_empty: bool,
}

impl Supervisor {
    pub(super) fn take_commands(&mut self) {
        let _ = rustix::io::read(&*self.bell, &mut [0u8; 8]);
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Ended { number, status } => self.process_gone(number, status),
                // The pool has said so already; it is looked at next.
                Command::Wake => {}
                Command::Restart {
                    reason,
                    only_by_app,
                } => {
                    // If it was wanted already, that one counts.
                    let _ = self.want_restart(reason, only_by_app);
                }
                Command::Threads { change, answer } => {
                    let changed = match change {
                        Change::Add(count) => self.add_by_hand(count, self.now_ms()),
                        Change::Remove(count) => self.remove_by_hand(count),
                    };
                    // Whoever asked may have stopped waiting.
                    let _ = answer.send(changed);
                }
                Command::Describe { to } => {
                    // Whoever asked may have stopped waiting.
                    let _ = to.try_send(self.describe());
                }
                Command::Leave { within } => {
                    let cut_at_ms = self.now_ms() + within.as_millis() as u64;
                    self.departure.get_or_insert(Departure {
                        cut_at_ms,
                        is_queue_empty: false,
                    });
                }
                Command::Stop { grace, done } => self.stop(grace, Some(done)),
            }
        }
    }

    fn stop(&mut self, grace: Duration, done: Option<Sender<()>>) {
        let kill_at_ms = self.now_ms() + grace.as_millis() as u64;
        let stopping = self.stopping.get_or_insert(Stopping {
            kill_at_ms,
            done: Vec::new(),
        });
        stopping.done.extend(done);
        stopping.kill_at_ms = stopping.kill_at_ms.min(kill_at_ms);
        for seat in std::iter::once(&self.current).chain(&self.successor) {
            if let Some(zygote) = seat.zygote.get() {
                zygote.stop();
            }
        }
        for member in self.members.values() {
            member.process.stop();
        }
        // The front may be waiting for a first start that will not be.
        self.first_start = None;
        self.first_served = None;
    }

    /// Whether threads that become free are not needed any more, but for one: an offer may come back untaken.
    pub(super) fn is_thinning_out(&self) -> bool {
        let departure = self.departure.as_ref();
        departure.is_some_and(|departure| departure.is_queue_empty)
    }

    /// Lets go of threads that have nothing to do, and stops when there is nothing left to do.
    pub(super) fn advance_departure(&mut self, now_ms: u64) -> Option<u64> {
        let departure = self.departure.as_mut()?;
        if self.stopping.is_some() {
            return None;
        }
        let begun = self.pool.begun_count();
        if begun == 0 {
            self.stop(GRACE, None);
            return None;
        }
        if now_ms >= departure.cut_at_ms {
            tracing::warn!(
                app = self.pool.label,
                requests = begun,
                "the old processes have not finished in time; ending them"
            );
            self.stop(Duration::ZERO, None);
            return None;
        }
        departure.is_queue_empty |= self.pool.dispatcher().waiting_count() == 0;
        if departure.is_queue_empty {
            let threads = self.members.values().flat_map(|member| &member.threads);
            self.pool.dispatcher().retire(threads.copied(), 1);
            self.pool.let_idle_ones_leave();
        }
        Some(now_ms + LOOK_MS)
    }

    /// Kills what has not ended in time; says so when nothing is left.
    pub(super) fn advance_stop(&mut self, now_ms: u64) -> Option<u64> {
        let stopping = self.stopping.as_mut()?;
        if self.members.is_empty() {
            for done in stopping.done.drain(..) {
                // Whoever asked may have stopped waiting.
                let _ = done.send(());
            }
            return None;
        }
        if now_ms < stopping.kill_at_ms {
            return Some(stopping.kill_at_ms);
        }
        for member in self.members.values() {
            member.process.signal(Signal::KILL);
        }
        Some(now_ms + 100)
    }

    pub(super) fn has_stopped(&self) -> bool {
        self.stopping.is_some() && self.members.is_empty()
    }

    /// No process is left but the zygotes, and what these are about to fork.
    pub(super) fn end(mut self) {
        let nothing = || ZygoteState::Wanted { not_before_ms: 0 };
        let seats = std::iter::once(&mut self.current).chain(&mut self.successor);
        let zygotes: Vec<_> = seats
            .map(|seat| {
                let zygote = std::mem::replace(&mut seat.zygote, nothing());
                (zygote, seat.generation)
            })
            .collect();
        for (zygote, generation) in zygotes {
            if let Some(zygote) = zygote.get() {
                zygote.kill();
            }
            self.abandon(zygote, generation);
        }
    }
}
