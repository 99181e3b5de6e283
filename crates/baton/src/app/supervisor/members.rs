//! App processes: greeted, read, and what their end means.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use baton_dispatch::{Released, ThreadId};
use baton_handoff::control::{self, BOOTS_FIRST, Kind};
use rustix::event::epoll;
use rustix::process::{Pid, PidfdFlags, Signal, WaitStatus};

use super::super::Message;
use super::super::lines::{Lines, Pipe};
use super::super::process::{Place, Process};
use super::super::running::Running;
use super::super::zygote::Nascent;
use super::hearing::listen;
use super::leavers::Leaving;
use super::{Member, Supervisor};

impl Supervisor {
    pub(super) fn hear_process(&mut self, number: u64) {
        let Some(asked) = self.nascent.get(&number) else {
            return self.hear_member(number);
        };
        match control::look(asked.nascent.control.as_fd()) {
            Ok(Some(message)) if is_mere(&message, Kind::Hello) => match message.pid {
                Some(pid) => self.process_up(number, pid, message.b == BOOTS_FIRST),
                None => self.nascent_failed(number, "its hello had no sender"),
            },
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            _ => self.nascent_failed(number, "it ended before it said hello"),
        }
    }

    fn process_up(&mut self, number: u64, pid: Pid, boots_first: bool) {
        let pidfd = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(error) => return self.nascent_failed(number, &format!("pid {pid:?}: {error}")),
        };
        if let Err(error) = self.children.claim(pid, pidfd.as_fd(), &self.pool, number) {
            let reason = format!("pid {pid:?} is no child of ours, or said hello twice: {error}");
            return self.nascent_failed(number, &reason);
        }
        let Some(asked) = self.nascent.get(&number) else {
            return;
        };
        let control = asked.nascent.control.as_fd();
        let is_fit = listen(control, boots_first, &self.slow)
            && control::receive(control, false).is_ok()
            && match control::look(control) {
                Ok(Some(message)) => {
                    is_mere(&message, Kind::Ready) || is_mere(&message, Kind::Restart)
                }
                Ok(None) => true,
                Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
            };
        if !is_fit {
            let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
            return self.nascent_failed(number, "it said more than hello; killed");
        }
        if self.stopping.is_some() {
            // It has come too late, and has nothing to finish.
            let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
        }
        let Some(asked) = self.nascent.remove(&number) else {
            return;
        };
        let Nascent {
            segment,
            control,
            stderr,
            knockers,
        } = asked.nascent;
        let pool = self.pool.clone();
        let process = Process::new(pool, number, pid, pidfd, segment, control, knockers);
        let process = Arc::new(process);
        // Before the first offer: whoever offers hears the knocks.
        self.post_all(|| Message::ProcessUp(process.clone()));
        self.scaler.gauges.forked(asked.at);
        let mut member = Member {
            process,
            generation: asked.generation,
            since_ms: self.now_ms(),
            threads: Vec::new(),
            stderr,
            reading: None,
            measured_ms: 0,
            has_asked: false,
            leaving: Leaving::default(),
        };
        if boots_first {
            self.scaler.gauges.boots(&mut member, self.now_ms());
        }
        self.members.insert(number, member);
        if !boots_first {
            self.process_ready(number);
        }
    }

    /// It takes requests from now on.
    pub(super) fn process_ready(&mut self, number: u64) {
        let Some(member) = self.members.get(&number) else {
            return;
        };
        let (process, generation) = (&member.process, member.generation);
        if self.is_given_up(generation) {
            return;
        }
        let now_ms = self.now_ms();
        let mut threads = Vec::new();
        for thread in 0..process.thread_count() {
            let process = process.clone();
            threads.push(self.add_thread(Place { process, thread }, threads.first()));
        }
        if let Some(member) = self.members.get_mut(&number) {
            member.threads = threads;
            self.scaler.gauges.started(member, now_ms);
        }
        self.process_backoff.succeeded();
        self.pool.set_down(false);
        if let Some(first_served) = self.first_served.take() {
            // Most pools are not waited for so long.
            let _ = first_served.send(Ok(()));
        }
        self.make_way(generation);
    }

    /// `beside`: another of the same process.
    fn add_thread(&self, place: Place, beside: Option<&ThreadId>) -> ThreadId {
        let now_ms = self.now_ms();
        let mut dispatcher = self.pool.dispatcher();
        let id = match beside {
            Some(other) => dispatcher.add_beside(*other, place),
            None => dispatcher.add(place),
        };
        let released = dispatcher.release(id, 0, 0, now_ms);
        drop(dispatcher);
        match released {
            Released::Next(next) => Running::offer_elsewhere(next, now_ms),
            Released::Idle {
                others_have_standby: true,
            } => self.pool.recall(None),
            // Its process leaves already.
            Released::Left(place) => place.leave(),
            _ => {}
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
        } else if let Some(asked) = self.nascent.get_mut(&number) {
            (&mut asked.nascent.stderr, 0, 0)
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
        self.silence(&member.process);
        self.post_all(|| Message::ProcessGone(member.process.clone()));
        if self.stopping.is_some() {
            return;
        }
        self.look_into(&member, status);
        if member.boots()
            && self.members.is_empty()
            && self.nascent.is_empty()
            && self.successor.is_none()
        {
            self.pool_down();
            let how = how_it_ended(status);
            self.not_served(&format!("a process has ended before it served: {how}"));
        }
    }

    /// Why a process has ended, and what follows from it.
    fn look_into(&mut self, member: &Member, status: WaitStatus) {
        let pid = member.process.pid.as_raw_nonzero().get();
        let how = how_it_ended(status);
        let is_told = member.process.is_leaving();
        let has_worked = member.process.was_offered() || is_told;
        let is_clean = status.exit_status() == Some(0) && has_worked;
        self.pool.lifecycle().count_end(status, is_clean);
        if self.is_given_up(member.generation) {
            return;
        }
        if self.is_successor(member.generation) {
            return self.restart_failed(&format!("a process has ended before it served: {how}"));
        }
        self.has_gone(member.generation, !is_clean);
        if !is_clean && !is_told && member.generation == self.current.generation {
            self.lost_one();
        }
        let again_ms = match has_worked || member.generation < self.current.generation {
            true => 0,
            false => self.start_failed(),
        };
        let app = &self.pool.label;
        if again_ms > 0 {
            let reason = format!("a process has ended before it served: {how}");
            self.pool.lifecycle().failed(self.now_ms(), &reason);
            tracing::error!(
                app,
                pid,
                again_ms,
                "a process has ended before it served: {how}"
            );
        } else if is_clean {
            // It was told to leave, or has served as many requests as it may.
            tracing::debug!(app, pid, "a process has ended: {how}");
        } else {
            tracing::warn!(app, pid, "a process has ended: {how}");
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

/// A thread for closing what may be slow to close.
pub(super) fn spawn_closer(close: impl FnOnce() + Send + 'static) {
    let closing = std::thread::Builder::new()
        .name("closer".into())
        .stack_size(64 * 1024)
        .spawn(close);
    if let Err(error) = closing {
        tracing::error!("cannot start a thread that closes a socket: {error}");
    }
}

/// The kind, and nothing sent along.
pub(super) fn is_mere(message: &control::Message, kind: Kind) -> bool {
    message.kind == kind && message.descriptors.is_empty()
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
