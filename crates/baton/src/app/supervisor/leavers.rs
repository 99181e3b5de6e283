//! Old processes in a restart that do not leave: bounded as requests are, by the deadline and the grace.
//!
//! A request has its own deadline, which its I/O thread sees to. What is left for this room are scripts that go on after
//! their reply is complete, and processes that were told to end and do not.

use std::collections::HashMap;
use std::sync::Arc;

use rustix::process::Signal;

use super::Supervisor;
use crate::app::Process;

/// How often it is looked who is still there.
const LOOK_MS: u64 = 250;

#[derive(Default)]
pub(super) struct Leavers {
    /// When to look again.
    look_ms: u64,
    /// Since when there are old threads that would leave if they were free.
    surplus_since_ms: Option<u64>,
}

/// What is known of one process.
#[derive(Default)]
pub(super) struct Leaving {
    /// It was seen to have been told to end, at this time.
    told_ms: Option<u64>,
    /// It got a SIGPROF for the request that it has had since then.
    interrupted_ms: Option<u64>,
}

impl Supervisor {
    pub(super) fn advance_leavers(&mut self, now_ms: u64) -> Option<u64> {
        if self.stopping.is_some() {
            return None;
        }
        if now_ms < self.leavers.look_ms {
            return Some(self.leavers.look_ms);
        }
        let at_work = self.surplus_at_work(now_ms);
        let is_any_at_work = !at_work.is_empty();
        for (process, since_ms) in at_work {
            self.press(&process, since_ms, now_ms);
        }
        if !self.press_ending(now_ms) && !is_any_at_work {
            return None;
        }
        self.leavers.look_ms = now_ms + LOOK_MS;
        Some(self.leavers.look_ms)
    }

    /// Processes that would leave if they were not busy, and since when they are, and were in the way. As long as there
    /// are such, each of their threads leaves when it is free: so all have been at the same request since that began. Of a
    /// process the one counts that has been busy for longest.
    fn surplus_at_work(&mut self, now_ms: u64) -> Vec<(Arc<Process>, u64)> {
        let dispatcher = self.pool.dispatcher();
        let mut at_work = dispatcher.leavers_at_work().peekable();
        if at_work.peek().is_none() {
            self.leavers.surplus_since_ms = None;
            return Vec::new();
        }
        let surplus_since_ms = *self.leavers.surplus_since_ms.get_or_insert(now_ms);
        let mut processes = HashMap::new();
        for (place, busy_since_ms) in at_work {
            let since_ms = busy_since_ms.max(surplus_since_ms);
            let process = &place.process;
            let (_, longest_ms) = processes
                .entry(process.number)
                .or_insert_with(|| (process.clone(), since_ms));
            *longest_ms = since_ms.min(*longest_ms);
        }
        processes.into_values().collect()
    }

    /// As for a request over its deadline: a SIGPROF, and a SIGKILL after the grace. Later than that, so that no request
    /// gets the first one twice.
    fn press(&mut self, process: &Process, since_ms: u64, now_ms: u64) {
        let over_ms = since_ms + self.patience_ms();
        let kill_ms = over_ms + self.pool.app.options.kill_grace_ms;
        let Some(member) = self.members.get_mut(&process.number) else {
            return;
        };
        if now_ms < over_ms {
            return;
        }
        if member.leaving.interrupted_ms != Some(since_ms) {
            member.leaving.interrupted_ms = Some(since_ms);
            tracing::warn!(
                app = self.pool.label,
                pid = process.pid.as_raw_nonzero().get(),
                "an old process is still busy; interrupting it"
            );
            process.signal(Signal::PROF);
        } else if now_ms >= kill_ms {
            process.signal(Signal::KILL);
        }
    }

    /// Whether there are any.
    fn press_ending(&mut self, now_ms: u64) -> bool {
        let patience_ms = self.patience_ms();
        let mut is_any = false;
        let members = self.members.values_mut();
        for member in members.filter(|member| member.process.is_stopping()) {
            is_any = true;
            let told_ms = *member.leaving.told_ms.get_or_insert(now_ms);
            if now_ms >= told_ms + patience_ms {
                member.process.signal(Signal::KILL);
            }
        }
        is_any
    }

    fn patience_ms(&self) -> u64 {
        self.pool.app.options.deadline_ms + self.pool.app.options.kill_grace_ms
    }
}
