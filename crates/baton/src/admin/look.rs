//! One look at pools: what their supervisors say, and what their dispatchers know.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Instant;

use baton_dispatch::Listed;
use rustix::time::{ClockId, clock_gettime};

use super::{ANSWER_BOUND, Inside};
use crate::app::{Command, Message, Place, Pool, PoolState, Process, Work};

pub struct Look {
    /// By the monotonic clock.
    pub now_ms: u64,
    pub pools: Vec<PoolLook>,
}

pub struct PoolLook {
    pub pool: Arc<Pool>,
    /// `None`: the supervisor has not answered in time.
    pub state: Option<PoolState>,
    /// Processes from before a restart that is under way.
    older: HashSet<u64>,
    /// Those that the dispatcher knows.
    pub threads: Vec<Listed<Place>>,
    pub waiting: usize,
    pub oldest_wait_ms: u64,
}

/// How many threads are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ThreadCounts {
    pub idle: usize,
    pub busy: usize,
    pub starting: usize,
    pub stopping: usize,
}

impl std::ops::AddAssign for ThreadCounts {
    fn add_assign(&mut self, other: Self) {
        self.idle += other.idle;
        self.busy += other.busy;
        self.starting += other.starting;
        self.stopping += other.stopping;
    }
}

impl Look {
    /// Waits for supervisors at most [`ANSWER_BOUND`], all of them together.
    pub fn at(pools: Vec<Arc<Pool>>) -> Self {
        let asked: Vec<_> = pools.into_iter().map(|pool| (ask(&pool), pool)).collect();
        let until = Instant::now() + ANSWER_BOUND;
        let look = |(answer, pool): (Option<Receiver<PoolState>>, Arc<Pool>)| {
            let left = until.saturating_duration_since(Instant::now());
            let state = answer.and_then(|answer| answer.recv_timeout(left).ok());
            PoolLook::of(pool, state)
        };
        Self {
            pools: asked.into_iter().map(look).collect(),
            now_ms: now_ms(),
        }
    }
}

impl PoolLook {
    fn of(pool: Arc<Pool>, state: Option<PoolState>) -> Self {
        // Allocated before the lock is taken; a few may come meanwhile, and threads that leave do not count.
        let mut threads = Vec::with_capacity(pool.dispatcher().thread_count() + 16);
        let dispatcher = pool.dispatcher();
        dispatcher.list(&mut threads);
        let waiting = dispatcher.waiting_count();
        let expiry_ms = dispatcher.next_expiry_ms();
        drop(dispatcher);
        let members = state.iter().flat_map(|state| &state.members);
        let older = members.filter(|member| member.is_older);
        let oldest_since_ms =
            expiry_ms.map(|ms| ms.saturating_sub(pool.app.options.queue_wait_ms_max));
        Self {
            oldest_wait_ms: oldest_since_ms.map_or(0, |ms| now_ms().saturating_sub(ms)),
            older: older.map(|member| member.process.number).collect(),
            pool,
            state,
            threads,
            waiting,
        }
    }

    pub fn counts(&self) -> ThreadCounts {
        let mut counts = ThreadCounts::default();
        for thread in &self.threads {
            match (self.is_stopping(thread), thread.is_busy) {
                (true, _) => counts.stopping += 1,
                (false, true) => counts.busy += 1,
                (false, false) => counts.idle += 1,
            }
        }
        if let Some(state) = &self.state {
            let booting = state.members.iter().filter(|member| member.boots);
            let processes = booting.count() + state.asked.len();
            counts.starting = processes * self.pool.limits.threads_per_process as usize;
            counts.stopping += self.outside().count();
        }
        counts
    }

    /// It makes way for another when it is free, or has been told to end.
    pub fn is_stopping(&self, thread: &Listed<Place>) -> bool {
        let process = &thread.thread.process;
        process.is_leaving() || self.older.contains(&process.number)
    }

    /// Threads that serve no more, but whose process has not ended: it, and their index.
    pub fn outside(&self) -> impl Iterator<Item = (&Arc<Process>, u32)> {
        let listed = self.threads.iter().map(|listed| &listed.thread);
        let listed: HashSet<(u64, u32)> = listed
            .map(|place| (place.process.number, place.thread))
            .collect();
        let members = self.state.iter().flat_map(|state| &state.members);
        let serving = members.filter(|member| !member.boots);
        let threads = serving.flat_map(|member| {
            let process = &member.process;
            (0..process.thread_count()).map(move |thread| (process, thread))
        });
        threads.filter(move |(process, thread)| !listed.contains(&(process.number, *thread)))
    }
}

fn ask(pool: &Pool) -> Option<Receiver<PoolState>> {
    let (to, answer) = sync_channel(1);
    pool.supervisor()?.tell(Command::Describe { to });
    Some(answer)
}

/// What all I/O threads have under way, by process and thread. Those that do not answer in time are left out.
pub fn works(inside: &Inside) -> HashMap<(u64, u32), Work> {
    let count = inside.io_threads.io_threads();
    let (to, answers) = sync_channel(count);
    for io in 0..count {
        inside.io_threads.post(io, Message::Describe(to.clone()));
    }
    drop(to);
    let until = Instant::now() + ANSWER_BOUND;
    let answer = || {
        let left = until.saturating_duration_since(Instant::now());
        answers.recv_timeout(left).ok()
    };
    let all = std::iter::from_fn(answer).take(count).flatten();
    all.filter(|work| !work.stands_by)
        .map(|work| ((work.process, work.thread), work))
        .collect()
}

/// The clock that dispatchers and supervisors go by.
pub fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}
