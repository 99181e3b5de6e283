//! App processes: forked, greeted, read, reaped.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use baton_dispatch::{Released, ThreadId};
use baton_handoff::control::{self, Kind};
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
            self.fork_not_before_ms = self.process_backoff.failed(self.now_ms());
            tracing::error!(app = self.pool.label, "a process could not start: {reason}");
        }
    }

    pub(super) fn hear_process(&mut self, number: u64) {
        if let Some((nascent, _)) = self.nascent.get(&number) {
            match control::look(nascent.control.as_fd()) {
                Ok(Some(message)) if is_mere(&message, Kind::Hello) => match message.pid {
                    Some(pid) => self.process_up(number, pid),
                    None => self.nascent_failed(number, "its hello had no sender"),
                },
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                _ => self.nascent_failed(number, "it ended before it said hello"),
            }
        } else if let Some(member) = self.members.get(&number) {
            // It has nothing more to say: a closed socket means that it has ended, or pretends to.
            let received = control::receive(member.process.control(), false);
            if !matches!(&received, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock) {
                member.process.signal(Signal::KILL);
                let _ = epoll::delete(&self.epoll, member.process.control());
            }
        }
    }

    pub(super) fn process_up(&mut self, number: u64, pid: Pid) {
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
        // It has nothing more to say, and application code runs from now on. With nothing in it, its socket can be
        // closed on any thread.
        let control = nascent.control.as_fd();
        let is_silent = control::hear_no_more(control).is_ok()
            && control::receive(control, false).is_ok()
            && !matches!(control::look(control), Ok(Some(_)));
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
        let threads = (0..process.segment().geometry().slots())
            .map(|slot| {
                self.add_thread(Place {
                    process: process.clone(),
                    slot,
                })
            })
            .collect();
        self.members.insert(
            number,
            Member {
                process,
                threads,
                stderr,
            },
        );
        self.process_backoff.succeeded();
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
        tracing::warn!(
            app = self.pool.label,
            pid,
            "a process has ended: {}",
            how_it_ended(status)
        );
        if !member.process.was_offered() {
            self.fork_not_before_ms = self.process_backoff.failed(self.now_ms());
        }
    }

    /// Drops a control socket on a thread of its own. Closing it closes what lies in it unread, and that may be another
    /// socket that lingers: for minutes, if whoever sent it wants that.
    pub(super) fn let_go(&self, control: OwnedFd, stderr: Lines) {
        // Until it is closed it would be ready, with nobody to look.
        let _ = epoll::delete(&self.epoll, &control);
        let _ = epoll::delete(&self.epoll, stderr.pipe());
        let closing = std::thread::Builder::new()
            .name("closer".into())
            .stack_size(64 * 1024)
            .spawn(move || drop(control));
        if let Err(error) = closing {
            tracing::error!("cannot start a thread that closes a socket: {error}");
        }
    }

    pub(super) fn post_all(&self, message: impl Fn() -> Message) {
        for io in 0..self.io_thread_count {
            self.pool.post(io, message());
        }
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
