//! One app's threads and queue.

use crate::fifo::{Fifo, Ticket};
use crate::gauge::{Gauge, Glance};
use crate::idle::IdleThreads;

/// Bounds of an app's queue, and how its threads take turns.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests that may wait.
    pub queue_len_max: usize,
    /// How long each may wait, in milliseconds.
    pub queue_wait_ms_max: u64,
    /// A thread that was idle for longer goes first once, in milliseconds.
    pub rotate_ms: u64,
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
    pub request: R,
    /// Since when it waited; now, if it did not.
    pub queued_since_ms: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Submitted<T, R> {
    Handoff(Handoff<T, R>),
    Queued(Ticket),
    Refused(R, Refusal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    QueueFull,
    WaitedTooLong,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Busy,
    /// Busy, and to be removed when it is released.
    Leaving,
}

struct Thread<T> {
    thread: T,
    state: State,
}

/// `T` is what the caller needs to reach a thread; `R` is a request.
pub struct Dispatcher<T, R> {
    limits: Limits,
    threads: Vec<(u32, Option<Thread<T>>)>,
    free: Vec<u32>,
    idle: IdleThreads,
    queue: Fifo<R>,
    count: usize,
    gauge: Gauge,
}

impl<T: Clone, R> Dispatcher<T, R> {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            threads: Vec::new(),
            free: Vec::new(),
            idle: IdleThreads::new(limits.rotate_ms),
            queue: Fifo::new(),
            count: 0,
            gauge: Gauge::default(),
        }
    }

    /// A thread is ready to work. It counts as busy until its first [`Dispatcher::release`].
    pub fn add(&mut self, thread: T) -> ThreadId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.threads.push((0, None));
            // Threads are processes or costlier: 2^32 of them do not fit a machine.
            (self.threads.len() - 1) as u32
        });
        let (generation, place) = &mut self.threads[index as usize];
        *generation = generation.wrapping_add(1);
        *place = Some(Thread {
            thread,
            state: State::Busy,
        });
        self.count += 1;
        ThreadId {
            index,
            generation: *generation,
        }
    }

    /// The thread is no more. Whether it was there.
    pub fn remove(&mut self, id: ThreadId) -> bool {
        let Some(thread) = self.get(id) else {
            return false;
        };
        if thread.state == State::Idle {
            self.idle.remove(id);
            self.gauge.idle_fell_to(self.idle.len());
        }
        self.threads[id.index as usize].1 = None;
        self.free.push(id.index);
        self.count -= 1;
        true
    }

    /// The thread is to stop: an idle one is removed now (`true`), a busy one when it is released.
    pub fn retire(&mut self, id: ThreadId) -> bool {
        match self.get(id).map(|thread| thread.state) {
            Some(State::Idle) => self.remove(id),
            Some(State::Busy | State::Leaving) => {
                self.set_state(id, State::Leaving);
                false
            }
            None => false,
        }
    }

    /// A request has arrived at I/O thread `near`.
    pub fn submit(&mut self, request: R, near: usize, now_ms: u64) -> Submitted<T, R> {
        self.count_until(now_ms);
        if let Some(id) = self.take_idle(near, now_ms) {
            return Submitted::Handoff(self.hand(id, request, now_ms));
        }
        if self.queue.len() >= self.limits.queue_len_max {
            return Submitted::Refused(request, Refusal::QueueFull);
        }
        Submitted::Queued(self.queue.push_back(request, now_ms))
    }

    /// The thread has finished its request: it gets the next one, goes idle, or leaves.
    pub fn release(&mut self, id: ThreadId, near: usize, now_ms: u64) -> Released<T, R> {
        self.count_until(now_ms);
        match self.get(id).map(|thread| thread.state) {
            None | Some(State::Idle) => Released::Nothing,
            Some(State::Leaving) => {
                self.remove(id);
                Released::Left
            }
            Some(State::Busy) => match self.queue.pop_front() {
                Some((request, since_ms)) => Released::Next(self.hand(id, request, since_ms)),
                None => {
                    self.set_state(id, State::Idle);
                    self.idle.put(id, near, now_ms);
                    Released::Nothing
                }
            },
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
        match self.take_idle(near, now_ms) {
            Some(id) => Submitted::Handoff(self.hand(id, request, since_ms)),
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
            threads: self.count,
            idle: self.idle.len(),
            waiting: self.queue.len(),
            oldest_wait_ms: now_ms.saturating_sub(oldest_since_ms),
            ..Glance::default()
        })
    }

    /// The idle threads, the one that has been idle for longest first, each with since when.
    pub fn idle_threads(&self) -> impl Iterator<Item = (ThreadId, u64)> {
        self.idle.iter()
    }

    pub fn thread_count(&self) -> usize {
        self.count
    }

    pub fn idle_count(&self) -> usize {
        self.idle.len()
    }

    pub fn waiting_count(&self) -> usize {
        self.queue.len()
    }

    fn count_until(&mut self, now_ms: u64) {
        let busy = self.count - self.idle.len();
        self.gauge.advance(busy, self.queue.len(), now_ms);
    }

    fn take_idle(&mut self, near: usize, now_ms: u64) -> Option<ThreadId> {
        let id = self.idle.take(near, now_ms)?;
        self.gauge.idle_fell_to(self.idle.len());
        Some(id)
    }

    fn hand(&mut self, id: ThreadId, request: R, queued_since_ms: u64) -> Handoff<T, R> {
        self.set_state(id, State::Busy);
        let thread = self.threads[id.index as usize]
            .1
            .as_ref()
            .map(|thread| thread.thread.clone());
        // Only threads that are there are in the idle list or released.
        let thread = thread.expect("a thread that is handed a request exists");
        Handoff {
            id,
            thread,
            request,
            queued_since_ms,
        }
    }

    fn get(&self, id: ThreadId) -> Option<&Thread<T>> {
        let (generation, thread) = self.threads.get(id.index as usize)?;
        thread.as_ref().filter(|_| *generation == id.generation)
    }

    fn set_state(&mut self, id: ThreadId, state: State) {
        if let Some((generation, Some(thread))) = self.threads.get_mut(id.index as usize)
            && *generation == id.generation
        {
            thread.state = state;
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum Released<T, R> {
    Next(Handoff<T, R>),
    /// It is idle, or was not known.
    Nothing,
    /// It was to stop, and has no work any more.
    Left,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits {
        queue_len_max: 4,
        queue_wait_ms_max: 100,
        rotate_ms: 1000,
    };

    type Small = Dispatcher<&'static str, u32>;

    fn with_threads(names: &[&'static str]) -> (Small, Vec<ThreadId>) {
        let mut dispatcher = Small::new(LIMITS);
        let ids: Vec<_> = names.iter().map(|name| dispatcher.add(name)).collect();
        for id in &ids {
            assert_eq!(dispatcher.release(*id, 0, 0), Released::Nothing);
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
        dispatcher.release(ids[1], 0, 2);
        assert_eq!(handed(dispatcher.submit(2, 0, 3)), "b");
    }

    #[test]
    fn one_near_the_io_thread_is_preferred() {
        let (mut dispatcher, ids) = with_threads(&["a", "b"]);
        dispatcher.submit(1, 0, 1);
        dispatcher.submit(2, 0, 1);
        dispatcher.release(ids[0], 1, 2);
        dispatcher.release(ids[1], 0, 3);
        assert_eq!(handed(dispatcher.submit(3, 1, 4)), "a");
    }

    #[test]
    fn one_that_was_idle_for_long_goes_first_once() {
        let (mut dispatcher, _) = with_threads(&["a", "b"]);
        let now_ms = LIMITS.rotate_ms + 1;
        assert_eq!(handed(dispatcher.submit(1, 0, now_ms)), "a");
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
        assert_eq!(
            dispatcher.submit(9, 0, 5),
            Submitted::Refused(9, Refusal::QueueFull)
        );
        assert_eq!(dispatcher.next_expiry_ms(), Some(100));
        assert_eq!(dispatcher.expire(99), None);
        assert_eq!(dispatcher.expire(101), Some(0));
        assert_eq!(dispatcher.expire(101), Some(1));
        assert_eq!(dispatcher.expire(101), None);
    }

    #[test]
    fn a_leaving_thread_finishes_and_goes() {
        let (mut dispatcher, ids) = with_threads(&["a"]);
        dispatcher.submit(1, 0, 0);
        assert!(!dispatcher.retire(ids[0]));
        dispatcher.submit(2, 0, 0);
        assert_eq!(dispatcher.release(ids[0], 0, 1), Released::Left);
        assert_eq!(dispatcher.thread_count(), 0);
        assert_eq!(dispatcher.waiting_count(), 1);
        assert_eq!(dispatcher.release(ids[0], 0, 1), Released::Nothing);
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
        let Released::Next(next) = dispatcher.release(ids[0], 0, 3) else {
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
        dispatcher.release(ids[2], 0, 30);
        let glance = dispatcher.glance(40);
        assert_eq!((glance.idle, glance.idle_least), (2, 1));
        assert_eq!((glance.busy_ms, glance.waited_ms), (10 + 2 * 10 + 10, 0));

        for request in 3..7 {
            dispatcher.submit(request, 0, 50);
        }
        dispatcher.release(ids[1], 0, 70);
        let glance = dispatcher.glance(80);
        assert_eq!((glance.idle, glance.idle_least), (0, 0));
        assert_eq!((glance.waiting, glance.oldest_wait_ms), (1, 30));
        assert_eq!(glance.busy_ms, 40 + 10 + 3 * 30);
        assert_eq!(glance.waited_ms, 2 * 20 + 10);
    }

    #[derive(Clone, Debug)]
    enum Event {
        Submit,
        Finish(usize),
        Add,
        Kill(usize),
        Leave(usize),
        Cancel(usize),
        Wait(u8),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            6 => Just(Event::Submit),
            5 => (0..8usize).prop_map(Event::Finish),
            1 => Just(Event::Add),
            1 => (0..8usize).prop_map(Event::Kill),
            1 => (0..8usize).prop_map(Event::Leave),
            1 => (0..8usize).prop_map(Event::Cancel),
            1 => any::<u8>().prop_map(Event::Wait),
        ]
    }

    /// The caller's view of a schedule, against which the dispatcher is checked.
    #[derive(Default)]
    struct Model {
        now_ms: u64,
        next: u32,
        running: Vec<(ThreadId, u32)>,
        threads: Vec<ThreadId>,
        tickets: Vec<(Ticket, u32)>,
        ended: Vec<u32>,
        last_from_queue: Option<u32>,
    }

    proptest! {
        #[test]
        fn over_random_schedules(events in prop::collection::vec(event(), 0..200)) {
            let mut dispatcher: Dispatcher<(), u32> = Dispatcher::new(LIMITS);
            let mut model = Model::default();
            for event in events {
                step(&mut dispatcher, &mut model, event)?;
                prop_assert!(dispatcher.waiting_count() == 0 || dispatcher.idle_count() == 0);
                prop_assert!(dispatcher.waiting_count() <= LIMITS.queue_len_max);
                let known = model.running.len() + dispatcher.waiting_count() + model.ended.len();
                prop_assert_eq!(known, model.next as usize);
            }
        }
    }

    fn step(
        dispatcher: &mut Dispatcher<(), u32>,
        model: &mut Model,
        event: Event,
    ) -> Result<(), TestCaseError> {
        let now_ms = model.now_ms;
        match event {
            Event::Submit => {
                let request = model.next;
                model.next += 1;
                match dispatcher.submit(request, 0, now_ms) {
                    Submitted::Handoff(handoff) => {
                        model.running.push((handoff.id, handoff.request))
                    }
                    Submitted::Queued(ticket) => model.tickets.push((ticket, request)),
                    Submitted::Refused(request, _) => model.ended.push(request),
                }
            }
            Event::Finish(at) if at < model.running.len() => {
                let (id, request) = model.running.remove(at);
                model.ended.push(request);
                take_released(dispatcher.release(id, 0, now_ms), model)?;
            }
            Event::Add => {
                let id = dispatcher.add(());
                model.threads.push(id);
                take_released(dispatcher.release(id, 0, now_ms), model)?;
            }
            Event::Kill(at) if at < model.threads.len() => {
                let id = model.threads.remove(at);
                dispatcher.remove(id);
                if let Some(at) = model.running.iter().position(|(running, _)| *running == id) {
                    model.ended.push(model.running.remove(at).1);
                }
            }
            Event::Leave(at) if at < model.threads.len() => {
                dispatcher.retire(model.threads[at]);
            }
            Event::Cancel(at) if at < model.tickets.len() => {
                let (ticket, request) = model.tickets.remove(at);
                if let Some(cancelled) = dispatcher.cancel(ticket) {
                    prop_assert_eq!(cancelled, request);
                    model.ended.push(request);
                }
            }
            Event::Wait(ms) => {
                model.now_ms += u64::from(ms);
                while let Some(request) = dispatcher.expire(model.now_ms) {
                    model.ended.push(request);
                }
                let oldest_ms = dispatcher.next_expiry_ms();
                prop_assert!(oldest_ms.is_none_or(|at| at > model.now_ms));
            }
            _ => {}
        }
        Ok(())
    }

    fn take_released(released: Released<(), u32>, model: &mut Model) -> Result<(), TestCaseError> {
        if let Released::Next(handoff) = released {
            // Nothing comes back in this schedule, so requests leave the queue as they came.
            prop_assert!(
                model
                    .last_from_queue
                    .is_none_or(|last| last < handoff.request)
            );
            model.last_from_queue = Some(handoff.request);
            model.running.push((handoff.id, handoff.request));
        }
        Ok(())
    }
}
