//! Zygotes: spawned, heard, replaced when they end or hang.

use std::os::fd::AsFd;

use baton_handoff::control::{self, Kind};
use rustix::event::epoll;

use super::super::Message;
use super::super::lines::Pipe;
use super::super::zygote::Zygote;
use super::{READY_MS_MIN, START_MS_MAX, Seat, Supervisor, Token, ZygoteState};

impl ZygoteState {
    pub(super) fn get(&self) -> Option<&Zygote> {
        match self {
            ZygoteState::Wanted { .. } => None,
            ZygoteState::Loading { zygote, .. } | ZygoteState::Ready(zygote) => Some(zygote),
        }
    }

    fn get_mut(&mut self) -> Option<&mut Zygote> {
        match self {
            ZygoteState::Wanted { .. } => None,
            ZygoteState::Loading { zygote, .. } | ZygoteState::Ready(zygote) => Some(zygote),
        }
    }
}

fn of_generation(seats: [Option<&mut Seat>; 2], generation: u64) -> Option<&mut Seat> {
    let mut seats = seats.into_iter().flatten();
    seats.find(|seat| seat.generation == generation)
}

impl Supervisor {
    /// `None` for a generation that has been replaced or given up.
    fn seat_mut(&mut self, generation: u64) -> Option<&mut Seat> {
        let seats = [Some(&mut self.current), self.successor.as_mut()];
        of_generation(seats, generation)
    }

    pub(super) fn is_successor(&self, generation: u64) -> bool {
        matches!(&self.successor, Some(seat) if seat.generation == generation)
    }

    /// Whether the restart has failed that this generation was for. Its processes have been killed.
    pub(super) fn is_given_up(&self, generation: u64) -> bool {
        generation > self.current.generation && !self.is_successor(generation)
    }

    /// Starts what is to be started, and gives up what takes too long.
    pub(super) fn advance_zygotes(&mut self, now_ms: u64) -> Option<u64> {
        if self.stopping.is_some() {
            return None;
        }
        let seats = [Some(&self.current), self.successor.as_ref()];
        let generations = seats.map(|seat| seat.map(|seat| seat.generation));
        let due_ms = generations.map(|generation| self.advance_zygote(generation?, now_ms));
        due_ms.into_iter().flatten().min()
    }

    fn advance_zygote(&mut self, generation: u64, now_ms: u64) -> Option<u64> {
        match &self.seat_mut(generation)?.zygote {
            ZygoteState::Wanted { not_before_ms } if now_ms >= *not_before_ms => {
                self.spawn_zygote(generation, now_ms);
            }
            ZygoteState::Loading { zygote, since_ms } if now_ms >= since_ms + START_MS_MAX => {
                zygote.kill();
                self.zygote_failed(generation, "it was not ready within 30 s");
            }
            _ => {}
        }
        match &self.seat_mut(generation)?.zygote {
            ZygoteState::Wanted { not_before_ms } => Some(*not_before_ms),
            ZygoteState::Loading { since_ms, .. } => Some(since_ms + START_MS_MAX),
            ZygoteState::Ready(_) => None,
        }
    }

    fn spawn_zygote(&mut self, generation: u64, now_ms: u64) {
        match Zygote::spawn(&self.pool) {
            Ok(zygote) => {
                let watched = self
                    .watch(zygote.control.as_fd(), Token::ZygoteControl(generation))
                    .and_then(|()| {
                        self.watch(zygote.stderr.pipe(), Token::ZygoteStderr(generation))
                    });
                if let Some(seat) = self.seat_mut(generation) {
                    seat.zygote = ZygoteState::Loading {
                        zygote,
                        since_ms: now_ms,
                    };
                }
                if let Err(error) = watched {
                    self.zygote_failed(generation, &format!("cannot be watched: {error}"));
                }
            }
            Err(reason) => self.zygote_failed(generation, &reason),
        }
    }

    pub(super) fn hear_zygote(&mut self, generation: u64) {
        let Some(zygote) = self
            .seat_mut(generation)
            .and_then(|seat| seat.zygote.get_mut())
        else {
            return;
        };
        let looked = control::look(zygote.control.as_fd()).and_then(|message| match message {
            Some(message) if !message.descriptors.is_empty() => {
                Err(std::io::ErrorKind::InvalidData.into())
            }
            _ => control::receive(zygote.control.as_fd(), false),
        });
        match looked {
            Ok(Some(message)) => match message.kind {
                Kind::Ready => self.zygote_ready(generation),
                Kind::Failed => {
                    self.zygote_failed(generation, &String::from_utf8_lossy(&message.text));
                }
                Kind::ForkFailed => {
                    self.nascent_failed(message.a, &String::from_utf8_lossy(&message.text));
                }
                _ => {}
            },
            Ok(None) => self.zygote_ended(generation),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            // Killed with messages unread.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                self.zygote_ended(generation);
            }
            // Among them one too long to be received: it would lie there for ever.
            Err(error) => {
                zygote.kill();
                tracing::error!(
                    app = self.pool.label,
                    "the zygote talks nonsense, killing it: {error}"
                );
                self.zygote_ended(generation);
            }
        }
    }

    fn zygote_ready(&mut self, generation: u64) {
        let now_ms = self.now_ms();
        let Some(seat) = self.seat_mut(generation) else {
            return;
        };
        let nothing = ZygoteState::Wanted { not_before_ms: 0 };
        let took_ms;
        (seat.zygote, took_ms) = match std::mem::replace(&mut seat.zygote, nothing) {
            ZygoteState::Loading { zygote, since_ms } => {
                (ZygoteState::Ready(zygote), Some(now_ms - since_ms))
            }
            other => (other, None),
        };
        let Some(took_ms) = took_ms else { return };
        tracing::debug!(
            app = self.pool.label,
            took_ms,
            generation,
            "the app is loaded"
        );
        if self.is_successor(generation) {
            return;
        }
        self.zygote_ready_ms = now_ms;
        if let Some(first_start) = self.first_start.take() {
            // The front waits for it, unless it is stopping.
            let _ = first_start.send(Ok(()));
        }
    }

    /// The control socket is closed: it has ended, or will in a moment.
    fn zygote_ended(&mut self, generation: u64) {
        let is_stopping = self.stopping.is_some();
        let now_ms = self.now_ms();
        let Some(seat) = self.seat_mut(generation) else {
            return;
        };
        match &mut seat.zygote {
            _ if is_stopping => self.remove_zygote(generation, now_ms),
            ZygoteState::Loading { zygote, .. } => {
                let mut last = None;
                zygote.stderr.read(|line| last = Some(line.to_owned()));
                let reason = last.unwrap_or_else(|| "it ended while it was loading".into());
                self.zygote_failed(generation, &reason);
            }
            ZygoteState::Ready(zygote) => {
                zygote.kill();
                if self.is_successor(generation) {
                    return self.restart_failed("its zygote has ended");
                }
                tracing::warn!(
                    app = self.pool.label,
                    "the zygote has ended; starting another"
                );
                let not_before_ms = match now_ms < self.zygote_ready_ms + READY_MS_MIN {
                    true => self.zygote_backoff.failed(now_ms),
                    false => now_ms,
                };
                self.remove_zygote(generation, not_before_ms);
            }
            ZygoteState::Wanted { .. } => {}
        }
    }

    /// It was asked for a process, and there is none.
    pub(super) fn zygote_stuck(&mut self, generation: u64) {
        if self.is_successor(generation) {
            return self.restart_failed("its zygote does not fork");
        }
        if let Some(zygote) = self.current.zygote.get() {
            tracing::warn!(
                app = self.pool.label,
                "the zygote does not fork; starting another"
            );
            zygote.kill();
        }
        let not_before_ms = self.now_ms();
        self.remove_zygote(generation, not_before_ms);
    }

    fn zygote_failed(&mut self, generation: u64, reason: &str) {
        if self.is_successor(generation) {
            return self.restart_failed(reason);
        }
        let now_ms = self.now_ms();
        let retry_ms = self.zygote_backoff.failed(now_ms);
        self.pool.lifecycle().failed(now_ms, reason);
        self.remove_zygote(generation, retry_ms);
        self.listen_again();
        if self.members.is_empty() {
            self.pool_down();
        }
        self.not_served(reason);
        if let Some(first_start) = self.first_start.take() {
            // The front says why, and gives up if no app can start.
            let _ = first_start.send(Err(reason.to_owned()));
            return;
        }
        let again_ms = retry_ms - now_ms;
        tracing::error!(
            app = self.pool.label,
            again_ms,
            "the app cannot start: {reason}"
        );
    }

    /// The pool's first process has come to nothing.
    pub(super) fn not_served(&mut self, reason: &str) {
        if let Some(first_served) = self.first_served.take() {
            let _ = first_served.send(Err(reason.to_owned()));
        }
    }

    /// Nothing serves, and nothing is about to: who waits is told so. Over when a process is ready.
    pub(super) fn pool_down(&self) {
        self.pool.set_down(true);
        self.post_all(|| Message::PoolDown(self.pool.clone()));
    }

    /// Lets go of the zygote, and of the processes that it was asked for. The current one is started again.
    pub(super) fn remove_zygote(&mut self, generation: u64, not_before_ms: u64) {
        let wanted = ZygoteState::Wanted { not_before_ms };
        let Some(seat) = self.seat_mut(generation) else {
            return;
        };
        let old = std::mem::replace(&mut seat.zygote, wanted);
        if self.is_successor(generation) {
            self.successor = None;
        }
        self.abandon(old, generation);
    }

    pub(super) fn abandon(&mut self, zygote: ZygoteState, generation: u64) {
        if let ZygoteState::Loading { zygote, .. } | ZygoteState::Ready(zygote) = zygote {
            self.let_go(zygote.control, zygote.stderr);
        }
        self.abandon_nascent(generation);
    }

    pub(super) fn read_zygote_stderr(&mut self, generation: u64) {
        let app = &self.pool.label;
        let seats = [Some(&mut self.current), self.successor.as_mut()];
        let Some(zygote) = of_generation(seats, generation).and_then(|seat| seat.zygote.get_mut())
        else {
            return;
        };
        let pid = zygote.pid.as_raw_nonzero().get();
        let pipe = zygote
            .stderr
            .read(|line| tracing::warn!(app, pid, "{line}"));
        if pipe == Pipe::Closed {
            let _ = epoll::delete(&self.epoll, zygote.stderr.pipe());
        }
    }
}
