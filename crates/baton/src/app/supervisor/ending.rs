//! What other threads tell: the end of processes, a wish for a restart or for more or fewer threads, and that all of them
//! are to end.

use std::sync::mpsc::Sender;
use std::time::Duration;

use rustix::process::Signal;

use super::{Change, Command, Stopping, Supervisor};

impl Supervisor {
    pub(super) fn take_commands(&mut self) {
        let _ = rustix::io::read(&*self.bell, &mut [0u8; 8]);
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Ended { number, status } => self.process_gone(number, status),
                // The pool has said so already; it is looked at next.
                Command::Wake => {}
                Command::Restart { reason } => {
                    // If it was wanted already, that one counts.
                    let _ = self.want_restart(reason, false);
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
                Command::Stop { grace, done } => self.stop(grace, done),
            }
        }
    }

    pub(super) fn stop(&mut self, grace: Duration, done: Sender<()>) {
        let kill_at_ms = self.now_ms() + grace.as_millis() as u64;
        let stopping = self.stopping.get_or_insert(Stopping {
            kill_at_ms,
            done: Vec::new(),
        });
        stopping.done.push(done);
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
}
