//! The idle threads of an app, and which of them works next.
//!
//! The thread that last served the same connection knows its client, so it goes first; else the last to go idle, which has
//! the warmest caches. Where processes have several threads, which share a lock (Ruby, Python), that comes second to how many
//! requests the process runs already. But a thread that has been idle for long goes first once: otherwise some threads would
//! first be used at the peak, which is the worst time to find out that the database has no connection left for them.

use std::collections::VecDeque;

use crate::dispatcher::ThreadId;

/// How far back the connection's last thread, or one near the asking I/O thread, is looked for.
const LOOK_MAX: usize = 8;
/// How far back one of the process with the fewest running requests is looked for.
const LOOK_MAX_SHARED: usize = 512;

struct Idle {
    thread: ThreadId,
    since_ms: u64,
    near: usize,
}

pub(crate) struct IdleThreads {
    /// In the order in which they went idle.
    idle: VecDeque<Idle>,
    rotate_ms: u64,
}

impl IdleThreads {
    pub(crate) fn new(rotate_ms: u64) -> Self {
        Self {
            idle: VecDeque::new(),
            rotate_ms,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.idle.len()
    }

    pub(crate) fn put(&mut self, thread: ThreadId, near: usize, now_ms: u64) {
        self.idle.push_back(Idle {
            thread,
            since_ms: now_ms,
            near,
        });
    }

    /// `last`: which served the connection before, if that is known. `running`: how many requests a thread's process runs, if
    /// some process has several threads.
    pub(crate) fn take(
        &mut self,
        last: Option<ThreadId>,
        near: usize,
        now_ms: u64,
        running: Option<&dyn Fn(ThreadId) -> u32>,
    ) -> Option<ThreadId> {
        let longest = self.idle.front()?;
        if now_ms.saturating_sub(longest.since_ms) > self.rotate_ms {
            return self.idle.pop_front().map(|idle| idle.thread);
        }
        let len = self.idle.len();
        let look_max = running.map_or(LOOK_MAX, |_| LOOK_MAX_SHARED);
        let latest = (len.saturating_sub(look_max)..len).rev();
        let fewest = running.and_then(|of| {
            let latest = latest.clone();
            latest.map(|at| of(self.idle[at].thread)).min()
        });
        let runs_fewest = |at: &usize| running.map(|of| of(self.idle[*at].thread)) == fewest;
        let mut latest = latest.filter(runs_fewest);
        let at = last
            .and_then(|last| latest.clone().find(|at| self.idle[*at].thread == last))
            .or_else(|| latest.clone().find(|at| self.idle[*at].near == near))
            .or_else(|| latest.next())?;
        self.idle.remove(at).map(|idle| idle.thread)
    }

    /// Each with since when, the longest idle first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ThreadId, u64)> {
        self.idle.iter().map(|idle| (idle.thread, idle.since_ms))
    }

    pub(crate) fn remove(&mut self, thread: ThreadId) -> bool {
        let at = self.idle.iter().position(|idle| idle.thread == thread);
        at.and_then(|at| self.idle.remove(at)).is_some()
    }
}
