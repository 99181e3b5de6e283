//! How many processes there are to be, and the zygotes asked for those that are missing.

use std::os::fd::AsFd;
use std::time::Instant;

use baton_handoff::control::{self, Kind};
use rustix::net::Shutdown;
use rustix::process::{Pid, PidfdFlags, Signal};

use super::super::zygote::Nascent;
use super::members::is_mere;
use super::{
    Asked, FORK_MS_MAX, NASCENT_MAX, START_MS_MAX, SURGE_DIVISOR, Supervisor, Token, ZygoteState,
};

impl Supervisor {
    pub(super) fn thread_count(&self) -> usize {
        match self.is_thinning_out() {
            true => 1,
            false => self.scaler.wanted() as usize,
        }
    }

    pub(super) fn process_count(&self) -> usize {
        let threads = u32::try_from(self.thread_count()).unwrap_or(u32::MAX);
        self.pool.limits.processes_for(threads) as usize
    }

    pub(super) fn count_of(&self, generation: u64) -> usize {
        let members = self.members.values();
        // Who leaves makes room for another.
        let members = members.filter(|member| !member.process.is_leaving());
        let members = members.map(|member| member.generation);
        let asked = self.nascent.values().map(|asked| asked.generation);
        members.chain(asked).filter(|of| *of == generation).count()
    }

    /// Starts what is missing, and gives up what does not come.
    pub(super) fn advance_forks(&mut self, now_ms: u64) -> Option<u64> {
        if self.stopping.is_none() {
            if let Some(successor) = self.successor.as_ref().map(|seat| seat.generation) {
                self.fork(successor, self.missing_of_successor(), now_ms);
            }
            if now_ms >= self.fork_not_before_ms {
                self.fork(self.current.generation, self.missing(), now_ms);
            }
        }
        let boot_ms = self.bound_boots(now_ms);
        let oldest = self.nascent.values().min_by_key(|asked| asked.since_ms);
        let late = oldest.map(|asked| (asked.since_ms + FORK_MS_MAX, asked.generation));
        if let Some((late_ms, generation)) = late
            && now_ms >= late_ms
        {
            self.zygote_stuck(generation);
            return Some(now_ms);
        }
        let waits = self.missing() > 0 && now_ms < self.fork_not_before_ms;
        let fork_ms = waits.then_some(self.fork_not_before_ms);
        let late_ms = late.map(|(late_ms, _)| late_ms);
        [fork_ms, late_ms, boot_ms].into_iter().flatten().min()
    }

    /// A script that hangs before it asks for a request would keep its process for ever, and under load there would be more
    /// and more of them. Those of a successor are the restart's to judge.
    fn bound_boots(&mut self, now_ms: u64) -> Option<u64> {
        let successor = self.successor.as_ref().map(|seat| seat.generation);
        let members = self.members.values_mut();
        let booting = members
            .filter(|member| member.boots() && Some(member.generation) != successor)
            .filter(|member| !member.process.is_stopping());
        let mut due_ms = None;
        for member in booting {
            if now_ms >= member.since_ms + START_MS_MAX {
                tracing::warn!(
                    app = self.pool.label,
                    pid = member.process.pid.as_raw_nonzero().get(),
                    "a process has not booted within 30 s; killing it"
                );
                member.process.signal(Signal::KILL);
                // Once more then, if it is still there.
                member.since_ms = now_ms;
            }
            let late_ms = member.since_ms + START_MS_MAX;
            due_ms = Some(due_ms.map_or(late_ms, |due_ms: u64| due_ms.min(late_ms)));
        }
        due_ms
    }

    /// Processes of the current generation that are to be started.
    fn missing(&self) -> usize {
        if self.stopping.is_some() {
            return 0;
        }
        // A successor needs the room above them.
        let bound = match self.successor {
            Some(_) => self.process_count(),
            None => self.process_count_max(),
        };
        self.process_count()
            .saturating_sub(self.count_of(self.current.generation))
            .min(bound.saturating_sub(self.crowd()))
    }

    fn missing_of_successor(&self) -> usize {
        let Some(successor) = &self.successor else {
            return 0;
        };
        (self.process_count_max() - self.process_count())
            .saturating_sub(self.count_of(successor.generation))
            .min(self.room())
    }

    /// Processes that may be started before others have ended.
    pub(super) fn room(&self) -> usize {
        self.process_count_max().saturating_sub(self.crowd())
    }

    /// Processes that count against the room. One that leaves, and has threads at their last requests, holds nobody up, unless there
    /// are more of these than are wanted at all. (With one thread each they are told to end at once.)
    fn crowd(&self) -> usize {
        let members = self.members.values().map(|member| &member.process);
        let leave = members.filter(|process| process.is_leaving() && !process.is_stopping());
        let free = leave.count().min(self.process_count());
        self.members.len() - free + self.nascent.len()
    }

    /// Of all generations together, but for those that leave: in a restart, and only then, there are a few more than are wanted.
    pub(super) fn process_count_max(&self) -> usize {
        let processes = self.process_count();
        processes + (processes / SURGE_DIVISOR).max(1)
    }

    fn fork(&mut self, generation: u64, count: usize, now_ms: u64) {
        let seat = match &self.successor {
            Some(successor) if successor.generation == generation => successor,
            _ => &self.current,
        };
        let ZygoteState::Ready(zygote) = &seat.zygote else {
            return;
        };
        let count = count.min(NASCENT_MAX - self.nascent.len().min(NASCENT_MAX));
        let threads = self.pool.limits.threads_per_process;
        for _ in 0..count {
            let number = self.next_number;
            self.next_number += 1;
            let nascent = match zygote.fork(number, threads, &self.flags, self.io_thread_count) {
                Ok(nascent) => nascent,
                Err(error) => return self.fork_failed(generation, &error.to_string()),
            };
            let watched = self
                .watch(nascent.control.as_fd(), Token::Control(number))
                .and_then(|()| self.watch(nascent.stderr.pipe(), Token::Stderr(number)));
            let asked = Asked {
                nascent,
                generation,
                since_ms: now_ms,
                at: Instant::now(),
            };
            self.nascent.insert(number, asked);
            if let Err(error) = watched {
                return self.nascent_failed(number, &format!("cannot be watched: {error}"));
            }
        }
    }

    fn fork_failed(&mut self, generation: u64, reason: &str) {
        if self.is_successor(generation) {
            return self.restart_failed(&format!("a process could not start: {reason}"));
        }
        self.start_failed();
        self.lost_one();
        self.pool.lifecycle().failed(self.now_ms(), reason);
        tracing::error!(app = self.pool.label, "a process could not start: {reason}");
    }

    /// Backs off; returns for how long. Those that were started together, and fail together, count as one.
    pub(super) fn start_failed(&mut self) -> u64 {
        let now_ms = self.now_ms();
        if now_ms >= self.fork_not_before_ms {
            self.fork_not_before_ms = self.process_backoff.failed(now_ms);
        }
        self.fork_not_before_ms - now_ms
    }

    /// For a zygote that is no more.
    pub(super) fn abandon_nascent(&mut self, generation: u64) {
        let abandoned = self
            .nascent
            .extract_if(|_, asked| asked.generation == generation)
            .collect::<Vec<_>>();
        for (number, asked) in abandoned {
            self.give_up(number, asked.nascent);
        }
    }

    pub(super) fn nascent_failed(&mut self, number: u64, reason: &str) {
        if let Some(asked) = self.nascent.remove(&number) {
            self.give_up(number, asked.nascent);
            self.fork_failed(asked.generation, reason);
        }
    }

    /// Nobody waits for this process any more, which may have come to nothing. If it has said hello meanwhile it is killed,
    /// or it would wait for requests for ever; if it has not, it finds its socket closed and ends.
    fn give_up(&self, number: u64, nascent: Nascent) {
        let control = nascent.control.as_fd();
        let _ = rustix::net::shutdown(control, Shutdown::Read);
        if let Ok(Some(message)) = control::look(control)
            && is_mere(&message, Kind::Hello)
            && let Some(pid) = message.pid
        {
            self.kill_stranger(number, pid);
        }
        self.let_go(nascent.control, nascent.stderr);
    }

    /// If it is a child of ours, and nobody's member.
    fn kill_stranger(&self, number: u64, pid: Pid) {
        if let Ok(pidfd) = rustix::process::pidfd_open(pid, PidfdFlags::empty())
            && let Ok(()) = self.children.claim(pid, pidfd.as_fd(), &self.pool, number)
        {
            let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
        }
    }
}
