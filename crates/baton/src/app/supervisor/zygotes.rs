//! The zygote: spawned, heard, replaced when it ends or hangs.

use std::os::fd::AsFd;

use baton_handoff::control::{self, Kind};
use rustix::event::epoll;

use super::super::Message;
use super::super::lines::Pipe;
use super::super::zygote::Zygote;
use super::{READY_MS_MIN, Supervisor, Token, ZygoteState};

impl Supervisor {
    pub(super) fn spawn_zygote(&mut self, now_ms: u64) {
        match Zygote::spawn(&self.pool) {
            Ok(zygote) => {
                let watched = self
                    .watch(zygote.control.as_fd(), Token::ZygoteControl)
                    .and_then(|()| self.watch(zygote.stderr.pipe(), Token::ZygoteStderr));
                self.zygote = ZygoteState::Loading {
                    zygote,
                    since_ms: now_ms,
                };
                if let Err(error) = watched {
                    self.zygote_failed(&format!("cannot be watched: {error}"));
                }
            }
            Err(reason) => self.zygote_failed(&reason),
        }
    }

    pub(super) fn hear_zygote(&mut self) {
        let (ZygoteState::Loading { zygote, .. } | ZygoteState::Ready(zygote)) = &self.zygote
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
                Kind::Ready => self.zygote_ready(),
                Kind::Failed => self.zygote_failed(&String::from_utf8_lossy(&message.text)),
                Kind::ForkFailed => {
                    self.nascent_failed(message.a, &String::from_utf8_lossy(&message.text));
                }
                _ => {}
            },
            Ok(None) => self.zygote_ended(),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            // Killed with messages unread.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                self.zygote_ended()
            }
            // Among them one too long to be received: it would lie there for ever.
            Err(error) => {
                tracing::error!(
                    app = self.pool.label,
                    "the zygote talks nonsense, killing it: {error}"
                );
                zygote.kill();
                self.zygote_ended();
            }
        }
    }

    pub(super) fn zygote_ready(&mut self) {
        let old = std::mem::replace(&mut self.zygote, ZygoteState::Wanted { not_before_ms: 0 });
        self.zygote = match old {
            ZygoteState::Loading { zygote, since_ms } => {
                let took_ms = self.now_ms() - since_ms;
                tracing::debug!(app = self.pool.label, took_ms, "the app is loaded");
                if let Some(first_start) = self.first_start.take() {
                    // The front waits for it, unless it is stopping.
                    let _ = first_start.send(Ok(()));
                }
                self.zygote_ready_ms = self.now_ms();
                ZygoteState::Ready(zygote)
            }
            other => other,
        };
    }

    /// The control socket is closed: it has ended, or will in a moment.
    pub(super) fn zygote_ended(&mut self) {
        if self.stopping.is_some() {
            let not_before_ms = self.now_ms();
            return self.replace_zygote(not_before_ms);
        }
        match &mut self.zygote {
            ZygoteState::Loading { zygote, .. } => {
                let mut last = None;
                zygote.stderr.read(|line| last = Some(line.to_owned()));
                let reason = last.unwrap_or_else(|| "it ended while it was loading".into());
                self.zygote_failed(&explain(&reason));
            }
            ZygoteState::Ready(zygote) => {
                tracing::warn!(
                    app = self.pool.label,
                    "the zygote has ended; starting another"
                );
                zygote.kill();
                let now_ms = self.now_ms();
                let not_before_ms = match now_ms < self.zygote_ready_ms + READY_MS_MIN {
                    true => self.zygote_backoff.failed(now_ms),
                    false => now_ms,
                };
                self.replace_zygote(not_before_ms);
            }
            ZygoteState::Wanted { .. } => {}
        }
    }

    /// It was asked for a process, and there is none.
    pub(super) fn zygote_stuck(&mut self) {
        if let ZygoteState::Ready(zygote) = &self.zygote {
            tracing::warn!(
                app = self.pool.label,
                "the zygote does not fork; starting another"
            );
            zygote.kill();
        }
        let not_before_ms = self.now_ms();
        self.replace_zygote(not_before_ms);
    }

    pub(super) fn zygote_failed(&mut self, reason: &str) {
        let now_ms = self.now_ms();
        let retry_ms = self.zygote_backoff.failed(now_ms);
        self.replace_zygote(retry_ms);
        if self.members.is_empty() {
            self.pool_down();
        }
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

    /// Nothing serves, and nothing is about to: who waits is told so. Over when a process is ready.
    pub(super) fn pool_down(&self) {
        self.pool.set_down(true);
        self.post_all(|| Message::PoolDown(self.pool.clone()));
    }

    pub(super) fn replace_zygote(&mut self, not_before_ms: u64) {
        let wanted = ZygoteState::Wanted { not_before_ms };
        if let ZygoteState::Loading { zygote, .. } | ZygoteState::Ready(zygote) =
            std::mem::replace(&mut self.zygote, wanted)
        {
            self.let_go(zygote.control, zygote.stderr);
        }
        self.abandon_nascent();
    }

    pub(super) fn read_zygote_stderr(&mut self) {
        let (ZygoteState::Loading { zygote, .. } | ZygoteState::Ready(zygote)) = &mut self.zygote
        else {
            return;
        };
        let (app, pid) = (&self.pool.label, zygote.pid.as_raw_nonzero().get());
        let pipe = zygote
            .stderr
            .read(|line| tracing::warn!(app, pid, "{line}"));
        if pipe == Pipe::Closed {
            let _ = epoll::delete(&self.epoll, zygote.stderr.pipe());
        }
    }
}

/// Adds the remedy to what the dynamic loader says.
fn explain(reason: &str) -> String {
    if reason.contains("error while loading shared libraries") && reason.contains("libphp") {
        return format!("{reason}; install PHP's embed library: apt-get install libphp8.2-embed");
    }
    reason.to_owned()
}
