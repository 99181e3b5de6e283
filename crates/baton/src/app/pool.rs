//! A pool: the threads of an app that are of one kind, regular or of one worker script. It has its
//! own zygote, supervisor and queue: what one pool suffers, no other does.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use baton_dispatch::autoscale::{Logged, ScaleLimits};
use baton_dispatch::{Dispatcher, Limits};
use baton_server::Handle;

use super::lifecycle::Lifecycle;
use super::scaling::{Board, DecisionCounts, Scaling};
use super::supervisor::{Command, SupervisorHandle};
use super::{Message, Pending, Place, Process, ThreadBudget};
use crate::config::{AppConfig, WorkerConfig};
use crate::counters::PoolCounters;

pub struct Pool {
    /// Counts the pools of this server; never used again.
    pub number: u32,
    /// For logs: the app's name, with a worker's behind it.
    pub label: String,
    pub app: Arc<AppConfig>,
    /// `None`: regular threads.
    pub worker: Option<WorkerConfig>,
    /// Between which its threads' number may move.
    pub limits: ScaleLimits,
    pub(super) budget: Arc<ThreadBudget>,
    pub(super) board: Board,
    /// The supervisor knows that requests wait, or has been told.
    is_watched: AtomicBool,
    state: AtomicU8,
    dispatcher: Mutex<Dispatcher<Place, Pending>>,
    /// The I/O threads, once they run.
    io_threads: OnceLock<Handle<Message>>,
    supervisor: OnceLock<SupervisorHandle>,
    /// The app's other pools.
    siblings: OnceLock<Vec<Weak<Pool>>>,
    begun: Begun,
    /// One for each I/O thread, once they run.
    counters: OnceLock<Box<[PoolCounters]>>,
    lifecycle: Mutex<Lifecycle>,
}

impl Drop for Pool {
    fn drop(&mut self) {
        let (wanted, _) = self.board.counts();
        self.budget.give_back(wanted);
    }
}

/// Held for each request that is to be answered by a pool, until nothing is left to do for it.
#[derive(Clone, Default)]
pub struct Begun(Arc<()>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum State {
    /// Its threads are there, or will be.
    Up,
    /// Nobody has asked for its threads so far: it has not even a zygote.
    Dormant,
    /// Its zygote cannot start: requests are answered 503 at once.
    Down,
}

impl Pool {
    /// The threads that run any script afresh for each request. They start with the first request if the app has
    /// workers: many such apps have no other scripts.
    pub fn regular(number: u32, app: Arc<AppConfig>, budget: Arc<ThreadBudget>) -> Self {
        let label = app.project.name.clone();
        let state = match app.workers.is_empty() {
            true => State::Up,
            false => State::Dormant,
        };
        let limits = app.limits;
        Self::new(number, label, app, None, limits, budget, state)
    }

    pub fn of_worker(
        number: u32,
        app: Arc<AppConfig>,
        worker: WorkerConfig,
        budget: Arc<ThreadBudget>,
    ) -> Self {
        let label = format!("{}/{}", app.project.name, worker.name);
        let limits = worker.limits;
        Self::new(number, label, app, Some(worker), limits, budget, State::Up)
    }

    fn new(
        number: u32,
        label: String,
        app: Arc<AppConfig>,
        worker: Option<WorkerConfig>,
        limits: ScaleLimits,
        budget: Arc<ThreadBudget>,
        state: State,
    ) -> Self {
        budget.claim(limits.threads_min);
        let board = Board::default();
        board.set_counts(limits.threads_min, 0);
        let dispatcher = Mutex::new(Dispatcher::new(Limits {
            queue_len_max: app.options.queue_len_max as usize,
            queue_wait_ms_max: app.options.queue_wait_ms_max,
            rotate_ms: app.options.rotate_ms,
            stand_by: true,
        }));
        Self {
            number,
            label,
            app,
            worker,
            limits,
            budget,
            board,
            is_watched: AtomicBool::new(false),
            state: AtomicU8::new(state as u8),
            dispatcher,
            io_threads: OnceLock::new(),
            supervisor: OnceLock::new(),
            siblings: OnceLock::new(),
            begun: Begun::default(),
            counters: OnceLock::new(),
            lifecycle: Mutex::default(),
        }
    }

    /// The pool's threads and queue. Held for a decision, never across a system call.
    pub fn dispatcher(&self) -> MutexGuard<'_, Dispatcher<Place, Pending>> {
        // A panic while it was held leaves a consistent dispatcher: decisions do not unwind half-way.
        self.dispatcher
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// To be called once, before there are app processes.
    pub fn set_io_threads(&self, handle: Handle<Message>) {
        let counters = std::iter::repeat_with(PoolCounters::default);
        let counters = counters.take(handle.io_threads()).collect();
        // A second call would change nothing: there is one server.
        let _ = self.counters.set(counters);
        let _ = self.io_threads.set(handle);
    }

    /// For I/O thread `io` alone to write to. `None` before there can have been a request.
    #[inline]
    pub fn counters_of(&self, io: usize) -> Option<&PoolCounters> {
        self.counters.get()?.get(io)
    }

    /// Of all I/O threads.
    pub fn counters(&self) -> &[PoolCounters] {
        self.counters.get().map_or(&[], |counters| counters)
    }

    pub fn lifecycle(&self) -> MutexGuard<'_, Lifecycle> {
        // Whatever was being counted when a thread panicked, the rest is good.
        self.lifecycle
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Tells I/O thread `io` something.
    pub fn post(&self, io: usize, message: Message) {
        if let Some(io_threads) = self.io_threads.get() {
            io_threads.post(io, message);
        }
    }

    /// A thread is idle while requests stand by at others: whichever I/O threads have them take one back. `from` knows.
    #[cold]
    pub fn recall(self: &Arc<Self>, from: Option<usize>) {
        let count = self.io_threads.get().map_or(0, Handle::io_threads);
        for io in (0..count).filter(|io| Some(*io) != from) {
            self.post(io, Message::Recall(self.clone()));
        }
    }

    /// Idle threads that are to leave do.
    pub fn let_idle_ones_leave(&self) {
        loop {
            // One at a time: nobody waits for the lock while another is told.
            let Some(place) = self.dispatcher().leave() else {
                return;
            };
            place.leave();
        }
    }

    /// This process will most likely be killed for what one of its threads does. If it has others another process comes in its place,
    /// and when that is there they get no more requests, which would die with them. Whether that is news.
    #[cold]
    pub fn replace(&self, process: &Process) -> bool {
        let is_news = process.thread_count() > 1 && !process.is_leaving();
        if is_news {
            process.leave();
            if let Some(supervisor) = self.supervisor() {
                supervisor.ring();
            }
        }
        is_news
    }

    pub(super) fn set_supervisor(&self, handle: SupervisorHandle) {
        // Only its maker calls this.
        let _ = self.supervisor.set(handle);
    }

    pub fn supervisor(&self) -> Option<&SupervisorHandle> {
        self.supervisor.get()
    }

    pub(super) fn set_siblings(&self, siblings: Vec<Weak<Pool>>) {
        // Only their maker calls this.
        let _ = self.siblings.set(siblings);
    }

    /// The app's other pools.
    pub(super) fn siblings(&self) -> Vec<Arc<Pool>> {
        let siblings = self.siblings.get().into_iter().flatten();
        siblings.filter_map(Weak::upgrade).collect()
    }

    /// A request has to wait for a thread. It costs a system call only if none has waited since the supervisor last
    /// looked.
    #[cold]
    pub fn has_queued(&self) {
        // Relaxed, because the dispatcher's lock lies between: whoever queues after the supervisor's look sees what that
        // has written before it.
        if !self.is_watched.load(Ordering::Relaxed)
            && !self.is_watched.swap(true, Ordering::Relaxed)
            && let Some(supervisor) = self.supervisor()
        {
            supervisor.ring();
        }
    }

    /// To be said before the look at the queue if nobody need ring, and after it if somebody must.
    pub(super) fn set_watched(&self, is_watched: bool) {
        self.is_watched.store(is_watched, Ordering::Relaxed);
    }

    pub(super) fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Relaxed)
    }

    /// How many threads there are, are wanted and may be.
    pub fn scaling(&self) -> Scaling {
        let threads = u32::try_from(self.dispatcher().thread_count()).unwrap_or(u32::MAX);
        let (wanted, by_hand) = self.board.counts();
        let most = self.limits.threads_max.min(self.budget.threads_max());
        Scaling {
            threads,
            wanted,
            starting: wanted.saturating_sub(threads),
            by_hand,
            threads_min: self.limits.threads_min,
            threads_max: self
                .limits
                .whole_down(self.limits.threads_max.min(wanted + self.budget.left())),
            threads_per_process: self.limits.threads_per_process,
            auto: most >= ScaleLimits::THREADS_AUTO_MAX,
        }
    }

    /// The last decisions about the number of threads, with their reasons, the oldest first.
    pub fn decisions(&self) -> Vec<Logged> {
        self.board.decisions()
    }

    pub fn begin(&self) -> Begun {
        self.begun.clone()
    }

    /// Requests that wait or run, wherever they are. Once no I/O thread knows the pool any more it only falls.
    pub fn begun_count(&self) -> usize {
        Arc::strong_count(&self.begun.0) - 1
    }

    pub fn decision_counts(&self) -> DecisionCounts {
        self.board.decision_counts()
    }

    #[inline]
    pub fn is_up(&self) -> bool {
        self.is(State::Up)
    }

    pub fn is_dormant(&self) -> bool {
        self.is(State::Dormant)
    }

    fn is(&self, state: State) -> bool {
        self.state.load(Ordering::Relaxed) == state as u8
    }

    /// A request has come. `false`: it cannot be served.
    #[cold]
    pub fn wake(&self) -> bool {
        let (dormant, up) = (State::Dormant as u8, State::Up as u8);
        let woken = self
            .state
            .compare_exchange(dormant, up, Ordering::Relaxed, Ordering::Relaxed);
        if woken.is_ok()
            && let Some(supervisor) = self.supervisor()
        {
            supervisor.tell(Command::Wake);
        }
        self.is_up()
    }

    pub(super) fn set_down(&self, down: bool) {
        let state = if down { State::Down } else { State::Up };
        self.state.store(state as u8, Ordering::Relaxed);
    }
}
