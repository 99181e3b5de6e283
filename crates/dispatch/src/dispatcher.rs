//! One app's threads and queue.

use crate::fifo::{Fifo, Ticket};
use crate::gauge::{Gauge, Glance};
use crate::idle::IdleThreads;
use crate::processes::{ProcessIndex, Processes};

/// Requests that a thread may have with it: the one that it runs, and those that stand by. Beside two, eight cost PHP's hello
/// at 500 connections a fifth less CPU; sixteen, tried with made-up work, gave nothing more.
pub const SEATS: u32 = 8;

/// A thread whose last request took longer gets no standby, in milliseconds of a clock that is read once per tick.
pub(crate) const SHORT_MS_MAX: u64 = 1;

/// So many requests, and as many as there are threads, must have left the queue before their pace says when the next will.
const TAKEN_TO_KNOW: u64 = 8;

/// Bounds of an app's queue, and how its threads take turns.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests that may wait.
    pub queue_len_max: usize,
    /// How long each may wait, in milliseconds.
    pub queue_wait_ms_max: u64,
    /// A thread that was idle for longer goes first once, in milliseconds.
    pub rotate_ms: u64,
    /// A busy thread may have its next requests with it already: see [`Handoff::stands_by`].
    pub stand_by: bool,
}

/// Names a thread for as long as it lives; never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadId {
    index: u32,
    generation: u32,
}

/// `request` is for `thread`, which counts as busy from now on.
#[derive(Debug, PartialEq, Eq)]
pub struct Handoff<T, R> {
    pub id: ThreadId,
    pub thread: T,
    /// Which of the thread's [`SEATS`] the request takes. It looks at them in turn, from the one behind the last that it took.
    pub seat: u32,
    /// The thread is busy with others. Until it comes to this one, it can be taken back.
    pub stands_by: bool,
    pub request: R,
    /// Since when it waited; now, if it did not.
    pub queued_since_ms: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Submitted<T, R> {
    Handoff(Handoff<T, R>),
    Queued(Ticket),
    /// The queue is full, or so slow that the request would most likely wait for too long.
    Refused(R),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Idle,
    Busy { since_ms: u64 },
}

pub(crate) struct Thread<T> {
    pub(crate) thread: T,
    pub(crate) process: ProcessIndex,
    pub(crate) state: State,
    /// A bit for each seat that has a request.
    taken: u8,
    /// The seat that was given last.
    last_seat: u32,
    /// Its last request took at most [`SHORT_MS_MAX`].
    pub(crate) is_quick: bool,
    pub(crate) is_retired: bool,
}

const _: () = assert!(SEATS == u8::BITS);

impl<T> Thread<T> {
    /// Requests that it has beside the one that it runs.
    pub(crate) fn standby_count(&self) -> usize {
        (self.taken.count_ones() as usize).saturating_sub(1)
    }

    /// The next seat in turn that is free.
    pub(crate) fn take_seat(&mut self) -> Option<u32> {
        let seat = in_turn(self.last_seat).find(|seat| !self.has_taken(*seat))?;
        self.taken |= 1 << seat;
        self.last_seat = seat;
        Some(seat)
    }

    /// Whether it had a request.
    pub(crate) fn leave_seat(&mut self, seat: u32) -> bool {
        let had_one = self.has_taken(seat);
        self.taken &= !(1 << (seat % SEATS));
        had_one
    }

    /// The seat that it looks at first when it has finished that one.
    fn seat_after(&self, seat: u32) -> Option<u32> {
        in_turn(seat).find(|seat| self.has_taken(*seat))
    }

    fn has_taken(&self, seat: u32) -> bool {
        self.taken & 1 << (seat % SEATS) != 0
    }
}

/// All seats, from the one behind `seat`.
fn in_turn(seat: u32) -> impl Iterator<Item = u32> {
    (1..=SEATS).map(move |n| (seat + n) % SEATS)
}

/// `T` is what the caller needs to reach a thread; `R` is a request.
pub struct Dispatcher<T, R> {
    pub(crate) limits: Limits,
    pub(crate) threads: Vec<(u32, Option<Thread<T>>)>,
    free: Vec<u32>,
    pub(crate) processes: Processes,
    pub(crate) idle: IdleThreads,
    pub(crate) queue: Fifo<R>,
    pub(crate) count: usize,
    /// Requests that stand by.
    pub(crate) standing: usize,
    gauge: Gauge,
    pub(crate) retired: usize,
    /// Retired threads leave as long as so many stay.
    pub(crate) keep: usize,
}

impl<T: Clone, R> Dispatcher<T, R> {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            threads: Vec::new(),
            free: Vec::new(),
            processes: Processes::default(),
            idle: IdleThreads::new(limits.rotate_ms),
            queue: Fifo::new(),
            count: 0,
            standing: 0,
            gauge: Gauge::default(),
            retired: 0,
            keep: 0,
        }
    }

    /// A thread is ready to work, in a process of its own. It counts as busy until its first [`Dispatcher::release`].
    pub fn add(&mut self, thread: T) -> ThreadId {
        let process = self.processes.open();
        self.add_to(process, thread)
    }

    /// The same, in the process of another thread, if that is still there.
    pub fn add_beside(&mut self, other: ThreadId, thread: T) -> ThreadId {
        let Some(process) = self.get(other).map(|other| other.process) else {
            return self.add(thread);
        };
        self.processes.join(process);
        self.add_to(process, thread)
    }

    fn add_to(&mut self, process: ProcessIndex, thread: T) -> ThreadId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.threads.push((0, None));
            // Threads are processes or costlier: 2^32 of them do not fit a machine.
            (self.threads.len() - 1) as u32
        });
        let (generation, place) = &mut self.threads[index as usize];
        *generation = generation.wrapping_add(1);
        *place = Some(Thread {
            thread,
            process,
            state: State::Busy { since_ms: 0 },
            taken: 0,
            last_seat: SEATS - 1,
            is_quick: false,
            is_retired: false,
        });
        self.count += 1;
        ThreadId {
            index,
            generation: *generation,
        }
    }

    /// The thread is no more. Whether it was there.
    pub fn remove(&mut self, id: ThreadId) -> bool {
        self.take_out(id).is_some()
    }

    /// A request has arrived at I/O thread `near`, on a new connection.
    pub fn submit(&mut self, request: R, near: usize, now_ms: u64) -> Submitted<T, R> {
        self.submit_after(None, request, near, now_ms)
    }

    /// The same, on a connection whose request before was served by thread `last`.
    pub fn submit_after(
        &mut self,
        last: Option<ThreadId>,
        request: R,
        near: usize,
        now_ms: u64,
    ) -> Submitted<T, R> {
        self.count_until(now_ms);
        if let Some(id) = self.take_idle(last, near, now_ms) {
            return Submitted::Handoff(self.hand(id, request, now_ms, now_ms));
        }
        if self.queue.len() >= self.limits.queue_len_max || self.would_wait_too_long(now_ms) {
            return Submitted::Refused(request);
        }
        Submitted::Queued(self.queue.push_back(request, now_ms))
    }

    /// The thread has finished the request of that seat, or that was taken back: it gets the next one, goes on with one that
    /// it has, goes idle, or leaves. If it has work it may get more: see [`Dispatcher::stand_by`].
    pub fn release(&mut self, id: ThreadId, seat: u32, near: usize, now_ms: u64) -> Released<T, R> {
        self.count_until(now_ms);
        let Some(thread) = self.get_mut(id) else {
            return Released::Nothing;
        };
        let State::Busy { since_ms } = thread.state else {
            return Released::Nothing;
        };
        if thread.taken != 0 && !thread.has_taken(seat) {
            return Released::Nothing;
        }
        thread.is_quick = now_ms.saturating_sub(since_ms) <= SHORT_MS_MAX;
        thread.leave_seat(seat);
        if let Some(seat) = thread.seat_after(seat) {
            thread.state = State::Busy { since_ms: now_ms };
            self.standing -= 1;
            return Released::GoesOn(seat);
        }
        if self.has_leavers() && self.is_to_leave(id) {
            return self.let_go(id).map_or(Released::Nothing, Released::Left);
        }
        if let Some((request, since_ms)) = self.queue.take() {
            return Released::Next(self.hand(id, request, since_ms, now_ms));
        }
        if let Some(thread) = self.get_mut(id) {
            thread.state = State::Idle;
            let process = thread.process;
            self.processes.goes_idle(process);
            self.idle.put(id, near, now_ms);
        }
        Released::Idle {
            others_have_standby: self.standing > 0,
        }
    }

    /// A request that was handed over in vain goes before all that wait, or to an idle thread.
    pub fn resubmit(
        &mut self,
        request: R,
        since_ms: u64,
        near: usize,
        now_ms: u64,
    ) -> Submitted<T, R> {
        self.count_until(now_ms);
        match self.take_idle(None, near, now_ms) {
            Some(id) => Submitted::Handoff(self.hand(id, request, since_ms, now_ms)),
            None => Submitted::Queued(self.queue.push_front(request, since_ms)),
        }
    }

    /// The client of a waiting request has left. `None` if it waits no longer.
    pub fn cancel(&mut self, ticket: Ticket) -> Option<R> {
        self.queue.remove(ticket)
    }

    /// Takes out the requests that have waited too long.
    pub fn expire(&mut self, now_ms: u64) -> Option<R> {
        let since_ms = self.queue.oldest_since_ms()?;
        let waited_ms = now_ms.saturating_sub(since_ms);
        (waited_ms >= self.limits.queue_wait_ms_max)
            .then(|| self.queue.pop_front())
            .flatten()
            .map(|(r, _)| r)
    }

    /// When [`Dispatcher::expire`] will have something, if nothing changes.
    pub fn next_expiry_ms(&self) -> Option<u64> {
        Some(self.queue.oldest_since_ms()? + self.limits.queue_wait_ms_max)
    }

    /// Takes out any waiting request, oldest first: the app is going away.
    pub fn pop_waiting(&mut self) -> Option<R> {
        self.queue.pop_front().map(|(request, _)| request)
    }

    /// How things are, and what they were since the last time that this was asked.
    pub fn glance(&mut self, now_ms: u64) -> Glance {
        self.count_until(now_ms);
        let oldest_since_ms = self.queue.oldest_since_ms().unwrap_or(now_ms);
        self.gauge.glance(Glance {
            threads: self.thread_count(),
            idle: self.idle.len(),
            waiting: self.waiting_count(),
            oldest_wait_ms: now_ms.saturating_sub(oldest_since_ms),
            ..Glance::default()
        })
    }

    /// The idle threads, the one that has been idle for longest first, each with since when.
    pub fn idle_threads(&self) -> impl Iterator<Item = (ThreadId, u64)> {
        self.idle.iter()
    }

    /// An idle thread of each process that has one: the processes that run the fewest requests first, of these the one whose
    /// thread has been idle for longest.
    pub fn idle_processes(&self) -> Vec<ThreadId> {
        let mut is_listed = vec![false; self.processes.slots()];
        let mut first_of = |id: &ThreadId| {
            let Some(thread) = self.get(*id) else {
                return false;
            };
            !std::mem::replace(&mut is_listed[thread.process.slot()], true)
        };
        let idle = self.idle.iter().map(|(id, _)| id);
        let mut firsts: Vec<ThreadId> = idle.filter(|id| first_of(id)).collect();
        if self.processes.are_shared() {
            firsts.sort_by_key(|id| self.get(*id).map(|t| self.processes.running(t.process)));
        }
        firsts
    }

    /// Without those of processes that leave.
    pub fn thread_count(&self) -> usize {
        self.count - self.processes.leaving()
    }

    pub fn idle_count(&self) -> usize {
        self.idle.len()
    }

    /// In the queue, or standing by.
    pub fn waiting_count(&self) -> usize {
        self.queue.len() + self.standing
    }

    /// Whether a request that comes now would expire, if threads take those before it as fast as they did while the oldest waited.
    /// Better refused now than later. An eighth less, as a prediction on the edge is wrong as often as right.
    fn would_wait_too_long(&self, now_ms: u64) -> bool {
        let Some(since_ms) = self.queue.oldest_since_ms() else {
            return false;
        };
        let max_ms = self.limits.queue_wait_ms_max;
        let waited_ms = now_ms.saturating_sub(since_ms);
        let taken = self.queue.taken_since_oldest();
        // Before, threads may just be starting, or all of them be stuck for a while.
        let is_known = waited_ms >= max_ms / 4 && taken >= TAKEN_TO_KNOW.max(self.count as u64);
        let ahead = self.queue.len() as u64;
        is_known && ahead.saturating_mul(waited_ms) >= taken.saturating_mul(max_ms - max_ms / 8)
    }

    fn count_until(&mut self, now_ms: u64) {
        let busy = self.count - self.idle.len();
        self.gauge.advance(busy, self.waiting_count(), now_ms);
    }

    fn take_idle(&mut self, last: Option<ThreadId>, near: usize, now_ms: u64) -> Option<ThreadId> {
        let (threads, processes) = (&self.threads, &self.processes);
        // Idle threads are there.
        let process = |id: ThreadId| threads[id.index as usize].1.as_ref().map(|t| t.process);
        let running = |id| process(id).map_or(0, |process| processes.running(process));
        let running: Option<&dyn Fn(ThreadId) -> u32> = match processes.are_shared() {
            true => Some(&running),
            false => None,
        };
        let id = self.idle.take(last, near, now_ms, running)?;
        if let Some(process) = process(id) {
            self.processes.goes_to_work(process);
        }
        self.gauge.idle_fell_to(self.idle.len());
        Some(id)
    }

    fn hand(
        &mut self,
        id: ThreadId,
        request: R,
        queued_since_ms: u64,
        now_ms: u64,
    ) -> Handoff<T, R> {
        // Only threads that are there are in the idle list or released.
        let thread = self
            .get_mut(id)
            .expect("a thread that is handed a request exists");
        thread.state = State::Busy { since_ms: now_ms };
        // It has none, so there is one.
        let seat = thread.take_seat().unwrap_or_default();
        Handoff {
            id,
            thread: thread.thread.clone(),
            seat,
            stands_by: false,
            request,
            queued_since_ms,
        }
    }

    pub(crate) fn take_out(&mut self, id: ThreadId) -> Option<T> {
        let (_, place) = self
            .threads
            .get_mut(id.index as usize)
            .filter(|(generation, _)| *generation == id.generation)?;
        let thread = place.take()?;
        if thread.state == State::Idle {
            self.processes.goes_to_work(thread.process);
            self.idle.remove(id);
            self.gauge.idle_fell_to(self.idle.len());
        }
        self.processes.lose(thread.process);
        self.free.push(id.index);
        self.count -= 1;
        self.retired -= usize::from(thread.is_retired);
        self.standing -= thread.standby_count();
        Some(thread.thread)
    }

    pub(crate) fn get(&self, id: ThreadId) -> Option<&Thread<T>> {
        let (generation, thread) = self.threads.get(id.index as usize)?;
        thread.as_ref().filter(|_| *generation == id.generation)
    }

    pub(crate) fn get_mut(&mut self, id: ThreadId) -> Option<&mut Thread<T>> {
        let (generation, thread) = self.threads.get_mut(id.index as usize)?;
        thread.as_mut().filter(|_| *generation == id.generation)
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum Released<T, R> {
    Next(Handoff<T, R>),
    /// It has come to one that stood by, most likely that of this seat.
    GoesOn(u32),
    /// A request that stands by behind a busy thread is to be taken back for it.
    Idle {
        others_have_standby: bool,
    },
    /// It or its process was to leave: it is removed, and has no work any more.
    Left(T),
    /// It has its other requests still, or was idle, or thread or seat are not known.
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        queue_len_max: 4,
        queue_wait_ms_max: 100,
        rotate_ms: 1000,
        stand_by: false,
    };

    const IDLE: Released<&str, u32> = Released::Idle {
        others_have_standby: false,
    };

    type Small = Dispatcher<&'static str, u32>;

    fn with_threads(names: &[&'static str]) -> (Small, Vec<ThreadId>) {
        let mut dispatcher = Small::new(LIMITS);
        let ids: Vec<_> = names.iter().map(|name| dispatcher.add(name)).collect();
        for id in &ids {
            assert_eq!(dispatcher.release(*id, 0, 0, 0), IDLE);
        }
        (dispatcher, ids)
    }

    fn handed(submitted: Submitted<&'static str, u32>) -> &'static str {
        match submitted {
            Submitted::Handoff(handoff) => handoff.thread,
            other => panic!("not handed over: {other:?}"),
        }
    }

    #[test]
    fn the_last_to_go_idle_works_first() {
        let (mut dispatcher, ids) = with_threads(&["a", "b"]);
        assert_eq!(handed(dispatcher.submit(1, 0, 1)), "b");
        dispatcher.release(ids[1], 0, 0, 2);
        assert_eq!(handed(dispatcher.submit(2, 0, 3)), "b");
    }

    #[test]
    fn one_near_the_io_thread_is_preferred() {
        let (mut dispatcher, ids) = with_threads(&["a", "b"]);
        dispatcher.submit(1, 0, 1);
        dispatcher.submit(2, 0, 1);
        dispatcher.release(ids[0], 0, 1, 2);
        dispatcher.release(ids[1], 0, 0, 3);
        assert_eq!(handed(dispatcher.submit(3, 1, 4)), "a");
    }

    #[test]
    fn the_one_that_served_the_connection_before_is_preferred() {
        let (mut dispatcher, ids) = with_threads(&["a", "b", "c"]);
        assert_eq!(
            handed(dispatcher.submit_after(Some(ids[1]), 1, 0, 1)),
            "b",
            "neither the last to go idle nor the first"
        );
        assert_eq!(
            handed(dispatcher.submit_after(Some(ids[1]), 2, 0, 1)),
            "c",
            "it is busy"
        );
    }

    #[test]
    fn the_process_with_the_fewest_running_requests_is_preferred() {
        let mut dispatcher = Small::new(LIMITS);
        let first = ["a1", "b1"].map(|name| dispatcher.add(name));
        let second = [(0, "a2"), (1, "b2")].map(|(n, name)| dispatcher.add_beside(first[n], name));
        for id in first.into_iter().chain(second) {
            dispatcher.release(id, 0, 0, 0);
        }
        let last = Some(second[1]);
        let in_turn = [1, 2, 3, 4].map(|n| handed(dispatcher.submit_after(last, n, 0, 1)));
        assert_eq!(in_turn, ["b2", "a2", "b1", "a1"], "else as ever");
        assert!(dispatcher.remove(second[1]));
        dispatcher.release(first[1], 0, 0, 2);
        dispatcher.release(first[0], 0, 0, 2);
        assert_eq!(handed(dispatcher.submit(5, 0, 3)), "b1", "a2 is at work");
    }

    #[test]
    fn one_that_was_idle_for_long_goes_first_once() {
        let (mut dispatcher, ids) = with_threads(&["a", "b"]);
        let now_ms = LIMITS.rotate_ms + 1;
        let last = Some(ids[1]);
        assert_eq!(handed(dispatcher.submit_after(last, 1, 0, now_ms)), "a");
    }

    #[test]
    fn the_queue_is_bounded_in_length_and_age() {
        let (mut dispatcher, _) = with_threads(&[]);
        for n in 0..4 {
            assert!(matches!(
                dispatcher.submit(n, 0, u64::from(n)),
                Submitted::Queued(_)
            ));
        }
        assert_eq!(dispatcher.submit(9, 0, 5), Submitted::Refused(9));
        assert_eq!(dispatcher.next_expiry_ms(), Some(100));
        assert_eq!(dispatcher.expire(99), None);
        assert_eq!(dispatcher.expire(101), Some(0));
        assert_eq!(dispatcher.expire(101), Some(1));
        assert_eq!(dispatcher.expire(101), None);
    }

    /// A thread that takes 20 ms, five times as many requests as it can do, a queue with room for all of them.
    #[test]
    fn what_would_wait_for_too_long_is_refused_at_once() {
        let mut dispatcher = Small::new(Limits {
            queue_len_max: usize::MAX,
            queue_wait_ms_max: 10_000,
            ..LIMITS
        });
        let id = dispatcher.add("a");
        dispatcher.release(id, 0, 0, 0);
        dispatcher.submit(0, 0, 0);
        let mut seat = 0;
        let (mut done, mut expired, mut refused) = (0, 0, 0);
        // Once that its pace is known, and those that came before have left.
        let known_ms = 15_000;
        for now_ms in 1..=60_000 {
            let is_known = u32::from(now_ms > known_ms);
            while dispatcher.expire(now_ms).is_some() {
                expired += is_known;
            }
            if now_ms % 20 == 0
                && let Released::Next(next) = dispatcher.release(id, seat, 0, now_ms)
            {
                seat = next.seat;
                done += is_known;
            }
            if now_ms % 4 == 0
                && let Submitted::Refused(_) = dispatcher.submit(0, 0, now_ms)
            {
                refused += is_known;
            }
        }
        assert_eq!((done, expired), (2250, 0), "it is never without work");
        assert!((8900..9100).contains(&refused), "{refused} of 11,250");
    }

    #[test]
    fn a_queue_that_hardly_moved_refuses_nothing() {
        let (mut dispatcher, ids) = with_threads(&["a"]);
        dispatcher.limits.queue_len_max = 100;
        for request in 0..20 {
            dispatcher.submit(request, 0, 0);
        }
        let mut seat = 0;
        let mut take = |dispatcher: &mut Small| match dispatcher.release(ids[0], seat, 0, 1) {
            Released::Next(next) => seat = next.seat,
            other => panic!("{other:?}"),
        };
        for _ in 1..TAKEN_TO_KNOW {
            take(&mut dispatcher);
        }
        assert!(matches!(dispatcher.submit(20, 0, 99), Submitted::Queued(_)));
        take(&mut dispatcher);
        assert_eq!(dispatcher.submit(21, 0, 99), Submitted::Refused(21));
    }

    #[test]
    fn what_came_back_goes_before_the_others() {
        let (mut dispatcher, ids) = with_threads(&["a"]);
        let Submitted::Handoff(first) = dispatcher.submit(1, 0, 0) else {
            panic!("handed over")
        };
        dispatcher.submit(2, 0, 1);
        assert!(matches!(
            dispatcher.resubmit(first.request, first.queued_since_ms, 0, 2),
            Submitted::Queued(_)
        ));
        let Released::Next(next) = dispatcher.release(ids[0], 0, 0, 3) else {
            panic!("next")
        };
        assert_eq!((next.request, next.queued_since_ms), (1, 0));
    }

    #[test]
    fn a_glance_tells_what_was_missing_and_what_was_not_needed() {
        let (mut dispatcher, ids) = with_threads(&["a", "b", "c"]);
        dispatcher.glance(0);
        dispatcher.submit(1, 0, 10);
        dispatcher.submit(2, 0, 20);
        dispatcher.release(ids[2], 0, 0, 30);
        let glance = dispatcher.glance(40);
        assert_eq!((glance.idle, glance.idle_least), (2, 1));
        assert_eq!((glance.busy_ms, glance.waited_ms), (10 + 2 * 10 + 10, 0));

        for request in 3..7 {
            dispatcher.submit(request, 0, 50);
        }
        dispatcher.release(ids[1], 0, 0, 70);
        let glance = dispatcher.glance(80);
        assert_eq!((glance.idle, glance.idle_least), (0, 0));
        assert_eq!((glance.waiting, glance.oldest_wait_ms), (1, 30));
        assert_eq!(glance.busy_ms, 40 + 10 + 3 * 30);
        assert_eq!(glance.waited_ms, 2 * 20 + 10);
    }
}
