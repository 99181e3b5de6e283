//! Threads that leave: those that make way for others, as in a restart, and those that nobody needs.
//!
//! Which of the old ones leaves for a new one is decided when one of them is free, not when the new
//! one comes: a thread with a long request stands in nobody's way, and there are never fewer
//! threads that take requests than were asked for.

use crate::dispatcher::{Dispatcher, State, ThreadId};

impl<T: Clone, R> Dispatcher<T, R> {
    /// From now on each of these threads leaves when it is free, as long as more than `keep`
    /// threads are there. Until then it works like any other. The last `keep` counts for all.
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

    /// A retired thread that is idle and leaves now: it is removed, and gets no request any more.
    pub fn leave(&mut self) -> Option<T> {
        if self.surplus() == 0 {
            return None;
        }
        let is_retired = |id: &ThreadId| self.get(*id).is_some_and(|thread| thread.is_retired);
        let id = self.idle.iter().map(|(id, _)| id).find(is_retired)?;
        self.take_out(id)
    }

    /// The thread leaves for good, if it is still idle: it is removed, and gets no request any more.
    pub fn dismiss(&mut self, id: ThreadId) -> Option<T> {
        let is_idle = self.get(id)?.state == State::Idle;
        is_idle.then(|| self.take_out(id)).flatten()
    }

    /// How many retired threads would leave if they were free.
    pub fn surplus(&self) -> usize {
        self.retired.min(self.count.saturating_sub(self.keep))
    }

    /// Retired threads that are busy, and since when with their present request.
    pub fn retired_at_work(&self) -> impl Iterator<Item = (&T, u64)> {
        let threads = self
            .threads
            .iter()
            .filter_map(|(_, thread)| thread.as_ref());
        threads.filter_map(|thread| match thread.state {
            State::Busy { since_ms } if thread.is_retired => Some((&thread.thread, since_ms)),
            _ => None,
        })
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
        assert_eq!((dispatcher.leave(), dispatcher.surplus()), (None, 1));
        let at_work: Vec<_> = dispatcher.retired_at_work().collect();
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
