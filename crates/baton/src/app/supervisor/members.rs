//! App processes: forked, greeted, read, reaped.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use baton_dispatch::{Released, ThreadId};
use baton_handoff::control::{self, BOOTS_FIRST, Kind, RESTART_REASON_BYTES_MAX};
use rustix::event::epoll;
use rustix::process::{Pid, PidfdFlags, Signal, WaitStatus};

use super::super::Message;
use super::super::lines::{Lines, Pipe};
use super::super::process::{Place, Process};
use super::super::running::Running;
use super::super::zygote::Nascent;
use super::{Member, NASCENT_MAX, Supervisor, Token, ZygoteState};

impl Supervisor {
    pub(super) fn missing(&self) -> usize {
        match self.stopping {
            Some(_) => 0,
            None => (self.pool.thread_count as usize)
                .saturating_sub(self.members.len() + self.nascent.len()),
        }
    }

    pub(super) fn fork_missing(&mut self, now_ms: u64) {
        let ZygoteState::Ready(zygote) = &self.zygote else {
            return;
        };
        let count = self
            .missing()
            .min(NASCENT_MAX - self.nascent.len().min(NASCENT_MAX));
        for _ in 0..count {
            let number = self.next_number;
            self.next_number += 1;
            let nascent = match zygote.fork(number, &self.flags, self.io_thread_count) {
                Ok(nascent) => nascent,
                Err(error) => {
                    self.fork_not_before_ms = self.process_backoff.failed(now_ms);
                    tracing::error!(app = self.pool.label, "cannot start a process: {error}");
                    return;
                }
            };
            let watched = self
                .watch(nascent.control.as_fd(), Token::Control(number))
                .and_then(|()| self.watch(nascent.stderr.pipe(), Token::Stderr(number)));
            self.nascent.insert(number, (nascent, now_ms));
            if let Err(error) = watched {
                self.nascent_failed(number, &format!("cannot be watched: {error}"));
                return;
            }
        }
    }

    /// Forks that a dead zygote was asked for may have come to nothing.
    pub(super) fn abandon_nascent(&mut self) {
        for (_, (nascent, _)) in std::mem::take(&mut self.nascent) {
            self.let_go(nascent.control, nascent.stderr);
        }
    }

    pub(super) fn nascent_failed(&mut self, number: u64, reason: &str) {
        if let Some((nascent, _)) = self.nascent.remove(&number) {
            self.let_go(nascent.control, nascent.stderr);
            self.start_failed();
            tracing::error!(app = self.pool.label, "a process could not start: {reason}");
        }
    }

    /// Backs off; returns for how long. Those that were started together, and fail together, count as one.
    fn start_failed(&mut self) -> u64 {
        let now_ms = self.now_ms();
        if now_ms >= self.fork_not_before_ms {
            self.fork_not_before_ms = self.process_backoff.failed(now_ms);
        }
        self.fork_not_before_ms - now_ms
    }

    pub(super) fn hear_process(&mut self, number: u64) {
        if let Some((nascent, _)) = self.nascent.get(&number) {
            match control::look(nascent.control.as_fd()) {
                Ok(Some(message)) if is_mere(&message, Kind::Hello) => match message.pid {
                    Some(pid) => self.process_up(number, pid, message.b == BOOTS_FIRST),
                    None => self.nascent_failed(number, "its hello had no sender"),
                },
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                _ => self.nascent_failed(number, "it ended before it said hello"),
            }
        } else {
            self.hear_member(number);
        }
    }

    /// A process says each thing once: that it has booted, and that it wants its app loaded anew. Whatever else it says,
    /// and a closed socket, mean that it has ended, or pretends to.
    fn hear_member(&mut self, number: u64) {
        let Some(member) = self.members.get_mut(&number) else {
            return;
        };
        let control = member.process.control();
        match control::look(control) {
            Ok(Some(message)) if is_mere(&message, Kind::Ready) && member.boots() => {
                let _ = control::receive(control, false);
                self.process_ready(number);
            }
            Ok(Some(message)) if is_mere(&message, Kind::Restart) && !member.boots() => {
                let _ = control::receive(control, false);
                member.is_heard = false;
                silence(&member.process);
                self.restart_wanted(&message.text);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            _ => {
                member.process.signal(Signal::KILL);
                let _ = epoll::delete(&self.epoll, control);
            }
        }
    }

    fn restart_wanted(&self, reason: &[u8]) {
        let len = reason.len().min(RESTART_REASON_BYTES_MAX);
        tracing::warn!(
            app = self.pool.label,
            "a process asks for a restart of its app: {}",
            String::from_utf8_lossy(&reason[..len])
        );
    }

    pub(super) fn process_up(&mut self, number: u64, pid: Pid, boots_first: bool) {
        let pidfd = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(error) => return self.nascent_failed(number, &format!("pid {pid:?}: {error}")),
        };
        if let Err(error) = self.children.claim(pid, pidfd.as_fd(), &self.pool, number) {
            let reason = format!("pid {pid:?} is no child of ours, or said hello twice: {error}");
            return self.nascent_failed(number, &reason);
        }
        let Some((nascent, _)) = self.nascent.get(&number) else {
            return;
        };
        // Application code runs from now on. If the process has nothing more to say it is not listened to: with nothing
        // in it, its socket can be closed on any thread.
        let control = nascent.control.as_fd();
        let is_silent = (boots_first || control::hear_no_more(control).is_ok())
            && control::receive(control, false).is_ok()
            && (boots_first || !matches!(control::look(control), Ok(Some(_))));
        if !is_silent {
            let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
            return self.nascent_failed(number, "it said more than hello; killed");
        }
        if self.stopping.is_some() {
            // It has come too late, and has nothing to finish.
            let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
        }
        let Some((nascent, _)) = self.nascent.remove(&number) else {
            return;
        };
        let Nascent {
            segment,
            control,
            stderr,
            knockers,
            ..
        } = nascent;
        let pool = self.pool.clone();
        let process = Process::new(pool, number, pid, pidfd, segment, control, knockers);
        let process = Arc::new(process);
        // Before the first offer: whoever offers hears the knocks.
        self.post_all(|| Message::ProcessUp(process.clone()));
        self.members.insert(
            number,
            Member {
                process,
                threads: Vec::new(),
                stderr,
                is_heard: boots_first,
            },
        );
        if !boots_first {
            self.process_ready(number);
        }
    }

    /// It takes requests from now on.
    fn process_ready(&mut self, number: u64) {
        let Some(process) = self.members.get(&number).map(|member| &member.process) else {
            return;
        };
        let threads = (0..process.segment().geometry().slots())
            .map(|slot| {
                self.add_thread(Place {
                    process: process.clone(),
                    slot,
                })
            })
            .collect();
        if let Some(member) = self.members.get_mut(&number) {
            member.threads = threads;
        }
        self.process_backoff.succeeded();
        self.pool.set_down(false);
    }

    pub(super) fn add_thread(&self, place: Place) -> ThreadId {
        let mut dispatcher = self.pool.dispatcher();
        let id = dispatcher.add(place);
        let now_ms = monotonic_ms();
        let released = dispatcher.release(id, 0, now_ms);
        drop(dispatcher);
        if let Released::Next(handoff) = released {
            Running::offer_elsewhere(handoff, now_ms);
        }
        id
    }

    pub(super) fn read_stderr(&mut self, number: u64) {
        let app = &self.pool.label;
        let (lines, pid, request) = if let Some(member) = self.members.get_mut(&number) {
            let process = &member.process;
            (
                &mut member.stderr,
                process.pid.as_raw_nonzero().get(),
                process.last_request(),
            )
        } else if let Some((nascent, _)) = self.nascent.get_mut(&number) {
            (&mut nascent.stderr, 0, 0)
        } else {
            return;
        };
        let request = format!("{request:016x}");
        let pipe = lines.read(|line| tracing::warn!(app, pid, request, "{line}"));
        if pipe == Pipe::Closed {
            let _ = epoll::delete(&self.epoll, lines.pipe());
        }
    }

    pub(super) fn process_gone(&mut self, number: u64, status: WaitStatus) {
        self.read_stderr(number);
        let Some(member) = self.members.remove(&number) else {
            return;
        };
        if member.is_heard {
            silence(&member.process);
        }
        member.process.mark_dead();
        let mut dispatcher = self.pool.dispatcher();
        for thread in &member.threads {
            dispatcher.remove(*thread);
        }
        drop(dispatcher);
        // Requests may keep the process's descriptors open for as long as their clients read, and this one would be
        // ready all that time.
        let _ = epoll::delete(&self.epoll, member.process.control());
        self.post_all(|| Message::ProcessGone(member.process.clone()));
        if self.stopping.is_some() {
            return;
        }
        let pid = member.process.pid.as_raw_nonzero().get();
        let how = how_it_ended(status);
        let again_ms = match member.process.was_offered() {
            true => 0,
            false => self.start_failed(),
        };
        let app = &self.pool.label;
        if again_ms > 0 {
            tracing::error!(
                app,
                pid,
                again_ms,
                "a process has ended before it served: {how}"
            );
        } else if status.exit_status() == Some(0) {
            // It has served as many requests as it may.
            tracing::debug!(app, pid, "a process has ended: {how}");
        } else {
            tracing::warn!(app, pid, "a process has ended: {how}");
        }
        if member.boots() && self.members.is_empty() && self.nascent.is_empty() {
            self.pool_down();
        }
    }

    /// Drops a control socket on a thread of its own. Closing it closes what lies in it unread, and that may be another
    /// socket that lingers: for minutes, if whoever sent it wants that.
    pub(super) fn let_go(&self, control: OwnedFd, stderr: Lines) {
        // Until it is closed it would be ready, with nobody to look.
        let _ = epoll::delete(&self.epoll, &control);
        let _ = epoll::delete(&self.epoll, stderr.pipe());
        spawn_closer(move || drop(control));
    }

    pub(super) fn post_all(&self, message: impl Fn() -> Message) {
        for io in 0..self.io_thread_count {
            self.pool.post(io, message());
        }
    }
}

/// Nothing that the process says arrives any more. What lies there unread is dropped on a thread of its own: it may hold
/// descriptors that are slow to close.
fn silence(process: &Process) {
    let _ = control::hear_no_more(process.control());
    if control::is_empty(process.control()) {
        return;
    }
    match process.control().try_clone_to_owned() {
        Ok(control) => spawn_closer(move || control::drain(control.as_fd())),
        // Whoever lets go of the process last may have to wait.
        Err(error) => tracing::error!("cannot copy a descriptor: {error}"),
    }
}

fn spawn_closer(close: impl FnOnce() + Send + 'static) {
    let closing = std::thread::Builder::new()
        .name("closer".into())
        .stack_size(64 * 1024)
        .spawn(close);
    if let Err(error) = closing {
        tracing::error!("cannot start a thread that closes a socket: {error}");
    }
}

/// The kind, and nothing sent along.
fn is_mere(message: &control::Message, kind: Kind) -> bool {
    message.kind == kind && message.descriptors.is_empty()
}

/// The clock that the I/O threads use, for the dispatcher's times.
fn monotonic_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

fn how_it_ended(status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (_, Some(signal)) => match Signal::from_named_raw(signal) {
            Some(named) => format!("signal {signal} ({named:?})"),
            None => format!("signal {signal}"),
        },
        _ => "for an unknown reason".into(),
    }
}
