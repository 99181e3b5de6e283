//! Threads that leave: those that make way for others, as in a restart, and those that nobody needs.
//!
//! Which of the old ones leaves for a new one is decided when one of them is free, not when the new
//! one comes: a thread with a long request stands in nobody's way, and there are never fewer
//! threads that take requests than were asked for. With it goes its whole process, if that has several threads: the idle
//! ones at once, the others when they are free.

use crate::dispatcher::{Dispatcher, State, Thread, ThreadId};

impl<T: Clone, R> Dispatcher<T, R> {
    /// From now on each of these threads leaves when it is free, and its process with it, as long as
    /// `keep` others stay. Until then it works like any other. The last `keep` counts for all.
    ///
    /// Busy ones leave by [`Dispatcher::release`]; idle ones have to be asked for by
    /// [`Dispatcher::leave`], now and after each thread that is added.
    pub fn retire(&mut self, ids: impl IntoIterator<Item = ThreadId>, keep: usize) {
        self.keep = keep;
        for id in ids {
            if let Some(thread) = self.get_mut(id)
                && !thread.is_retired
            {
                thread.is_retired = true;
                self.retired += 1;
            }
        }
    }

    /// Nobody is to leave any more, but for those whose process already does.
    pub fn retire_none(&mut self) {
        if self.retired > 0 {
            let threads = self.threads.iter_mut();
            for thread in threads.filter_map(|(_, thread)| thread.as_mut()) {
                thread.is_retired = false;
            }
            self.retired = 0;
        }
    }

    /// An idle thread that leaves now, of the process that runs the fewest requests: it is removed, and gets no request any more.
    pub fn leave(&mut self) -> Option<T> {
        if !self.has_leavers() {
            return None;
        }
        let idle = self.idle.iter().filter_map(|(id, _)| {
            let thread = self.get(id)?;
            let leaves = self.leaves_when_free(thread);
            leaves.then_some((id, thread.process))
        });
        let (id, _) = match self.processes.are_shared() {
            true => idle.min_by_key(|(_, process)| self.processes.running(*process)),
            false => idle.into_iter().next(),
        }?;
        self.let_go(id)
    }

    /// The thread leaves for good, if it is still idle: it is removed, and gets no request any more. The others of its
    /// process leave as well, idle ones by [`Dispatcher::leave`].
    pub fn dismiss(&mut self, id: ThreadId) -> Option<T> {
        let is_idle = self.get(id)?.state == State::Idle;
        is_idle.then(|| self.let_go(id)).flatten()
    }

    /// Threads that are busy and leave when they are free, and since when they are with their present request.
    pub fn leavers_at_work(&self) -> impl Iterator<Item = (&T, u64)> {
        let threads = match self.has_leavers() {
            true => self.threads.as_slice(),
            false => &[],
        };
        let threads = threads.iter().filter_map(|(_, thread)| thread.as_ref());
        threads.filter_map(|thread| match thread.state {
            State::Busy { since_ms } if self.leaves_when_free(thread) => {
                Some((&thread.thread, since_ms))
            }
            _ => None,
        })
    }

    /// Whether there may be threads that leave when they are free.
    pub(crate) fn has_leavers(&self) -> bool {
        let is_any_retired = self.retired > 0 && self.thread_count() > self.keep;
        is_any_retired || self.processes.leaving() > 0
    }

    pub(crate) fn is_to_leave(&self, id: ThreadId) -> bool {
        self.get(id)
            .is_some_and(|thread| self.leaves_when_free(thread))
    }

    fn leaves_when_free(&self, thread: &Thread<T>) -> bool {
        if self.processes.is_leaving(thread.process) {
            return true;
        }
        let with_it = self.processes.threads(thread.process);
        thread.is_retired && self.thread_count() >= self.keep + with_it
    }

    pub(crate) fn let_go(&mut self, id: ThreadId) -> Option<T> {
        let process = self.get(id)?.process;
        self.processes.leave(process);
        self.take_out(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Released, Submitted};

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

    fn add(dispatcher: &mut Small, name: &'static str) -> ThreadId {
        let id = dispatcher.add(name);
        dispatcher.release(id, 0, 0, 0);
        id
    }

    fn with_threads(names: &[&'static str]) -> (Small, Vec<ThreadId>) {
        let mut dispatcher = Small::new(LIMITS);
        let ids = names
            .iter()
            .map(|name| add(&mut dispatcher, name))
            .collect();
        (dispatcher, ids)
    }

    #[test]
    fn one_leaves_for_each_that_comes() {
        let (mut dispatcher, ids) = with_threads(&["a", "b"]);
        dispatcher.retire(ids, 2);
        assert_eq!(dispatcher.leave(), None, "nobody has come");
        add(&mut dispatcher, "c");
        assert_eq!(dispatcher.leave(), Some("a"));
        assert_eq!(dispatcher.leave(), None);
        add(&mut dispatcher, "d");
        assert_eq!(dispatcher.leave(), Some("b"));
        add(&mut dispatcher, "e");
        assert_eq!(dispatcher.leave(), None, "new ones stay");
        assert_eq!(dispatcher.thread_count(), 3);
    }

    #[test]
    fn the_first_to_be_free_leaves_and_not_the_one_with_the_long_request() {
        let (mut dispatcher, ids) = with_threads(&["slow", "quick"]);
        dispatcher.submit(1, 0, 7);
        dispatcher.submit(2, 0, 8);
        dispatcher.retire(ids.clone(), 2);
        add(&mut dispatcher, "new");
        assert_eq!(dispatcher.leave(), None);
        let at_work: Vec<_> = dispatcher.leavers_at_work().collect();
        assert_eq!(at_work, [(&"slow", 8), (&"quick", 7)]);
        assert_eq!(dispatcher.release(ids[1], 0, 0, 9), Released::Left("quick"));
        assert_eq!(dispatcher.release(ids[1], 0, 0, 9), Released::Nothing);
        // There are two again: it works on.
        assert_eq!(dispatcher.release(ids[0], 0, 0, 9), IDLE);
        assert_eq!(dispatcher.idle_count(), 2);
    }

    #[test]
    fn one_that_leaves_takes_nothing_from_the_queue() {
        let (mut dispatcher, ids) = with_threads(&["a"]);
        dispatcher.submit(1, 0, 0);
        dispatcher.retire(ids.clone(), 0);
        dispatcher.submit(2, 0, 0);
        assert_eq!(dispatcher.release(ids[0], 0, 0, 1), Released::Left("a"));
        assert_eq!(dispatcher.waiting_count(), 1);
        let new = dispatcher.add("b");
        let Released::Next(next) = dispatcher.release(new, 0, 0, 2) else {
            panic!("what waits goes to the new one")
        };
        assert_eq!((next.thread, next.request), ("b", 2));
    }

    #[test]
    fn only_idle_ones_are_dismissed() {
        let (mut dispatcher, ids) = with_threads(&["a", "b"]);
        dispatcher.submit(1, 0, 0);
        assert_eq!(dispatcher.dismiss(ids[1]), None, "it is busy");
        assert_eq!(dispatcher.dismiss(ids[0]), Some("a"));
        assert_eq!(dispatcher.dismiss(ids[0]), None);
        assert_eq!(dispatcher.release(ids[1], 0, 0, 1), IDLE);
        assert_eq!(dispatcher.thread_count(), 1);
    }

    /// Two processes of two threads each.
    fn with_pairs() -> (Small, [ThreadId; 4]) {
        let mut dispatcher = Small::new(LIMITS);
        let (a1, b1) = (dispatcher.add("a1"), dispatcher.add("b1"));
        let ids = [
            a1,
            dispatcher.add_beside(a1, "a2"),
            b1,
            dispatcher.add_beside(b1, "b2"),
        ];
        for id in ids {
            dispatcher.release(id, 0, 0, 0);
        }
        (dispatcher, ids)
    }

    #[test]
    fn a_process_leaves_as_a_whole() {
        let (mut dispatcher, [a1, a2, b1, b2]) = with_pairs();
        dispatcher.submit_after(Some(a1), 1, 0, 0);
        dispatcher.submit_after(Some(b1), 2, 0, 0);
        dispatcher.retire([a1, a2, b1, b2], 3);
        assert_eq!(dispatcher.leave(), None, "two would leave, and not one");
        assert_eq!(dispatcher.leavers_at_work().count(), 0);
        dispatcher.retire([], 2);
        assert_eq!((dispatcher.leave(), dispatcher.leave()), (Some("a2"), None));
        let at_work: Vec<_> = dispatcher.leavers_at_work().collect();
        assert_eq!((at_work, dispatcher.thread_count()), (vec![(&"a1", 0)], 2));
        assert_eq!(dispatcher.release(b1, 0, 0, 9), IDLE, "enough have left");
        assert_eq!(dispatcher.release(a1, 0, 0, 9), Released::Left("a1"));
        assert_eq!(dispatcher.thread_count(), 2);
    }

    #[test]
    fn with_one_that_is_dismissed_goes_its_process() {
        let (mut dispatcher, [a1, a2, b1, _]) = with_pairs();
        dispatcher.submit_after(Some(a2), 1, 0, 0);
        assert_eq!(dispatcher.dismiss(a1), Some("a1"));
        assert_eq!((dispatcher.leave(), dispatcher.thread_count()), (None, 2));
        dispatcher.submit_after(Some(b1), 2, 0, 0);
        dispatcher.submit(3, 0, 0);
        dispatcher.submit(4, 0, 0);
        assert_eq!(dispatcher.release(a2, 0, 0, 1), Released::Left("a2"));
        assert_eq!(dispatcher.waiting_count(), 1);
    }

    #[test]
    fn the_process_that_runs_the_fewest_requests_leaves_first() {
        let (mut dispatcher, ids) = with_pairs();
        dispatcher.submit_after(Some(ids[0]), 1, 0, 0);
        dispatcher.retire(ids, 2);
        assert_eq!(dispatcher.leave(), Some("b1"), "a2 is idle for longer");
        assert_eq!((dispatcher.leave(), dispatcher.leave()), (Some("b2"), None));
    }

    #[test]
    fn one_that_died_makes_room_for_another_to_stay() {
        let (mut dispatcher, ids) = with_threads(&["a", "b", "c"]);
        dispatcher.retire(ids.clone(), 3);
        assert!(dispatcher.remove(ids[0]));
        add(&mut dispatcher, "d");
        assert_eq!(dispatcher.leave(), None);
        assert!(matches!(
            dispatcher.submit(1, 0, 2000),
            Submitted::Handoff(handoff) if handoff.thread == "b"
        ));
    }
}
