//! Requests that stand by: a busy thread has its next ones with it, and goes on without waiting for the front.
//!
//! A thread that finishes a request of ten microseconds would otherwise have to sleep or to yield until the front has
//! seen that, and handed it the next: with eight threads on two cores that is a context switch or two for each request.
//! Where requests are long that is nothing, and a request is not to stand behind a long one: so only a thread whose last
//! one was short gets a standby, only while others wait for all threads to take, and no more than its share of what waits;
//! and the front takes it back when some thread is idle, or this one does not come to it soon.

use crate::dispatcher::{Dispatcher, Handoff, Released, State, ThreadId};

impl<T: Clone, R> Dispatcher<T, R> {
    /// The oldest request that waits, to stand by at a thread that has just got to another. To be asked for until there
    /// is none.
    pub fn stand_by(&mut self, id: ThreadId) -> Option<Handoff<T, R>> {
        let threads = self.count.max(1);
        // With fewer in the queue the next thread to be free may find it empty, and have to ask for this one.
        if !self.limits.stand_by || self.queue.len() < threads {
            return None;
        }
        let share = self.waiting_count() / threads;
        let is_to_leave = self.has_leavers() && self.is_to_leave(id);
        let thread = self.get_mut(id)?;
        let may = thread.is_quick && thread.standby_count() < share && !is_to_leave;
        if thread.state == State::Idle || !may {
            return None;
        }
        let seat = thread.take_seat()?;
        let place = thread.thread.clone();
        // There is one: it was just counted.
        let (request, queued_since_ms) = self.queue.take()?;
        self.standing += 1;
        Some(Handoff {
            id,
            thread: place,
            seat,
            stands_by: true,
            request,
            queued_since_ms,
        })
    }

    /// Whether the thread has more than one request. Which of them it is at is known for sure only when one is finished: two
    /// I/O threads may have offered them in the wrong order.
    pub fn has_standby(&self, id: ThreadId) -> bool {
        self.get(id)
            .is_some_and(|thread| thread.standby_count() > 0)
    }

    /// That seat's request was taken back, untaken. If the thread has finished all others meanwhile, it is free now.
    pub fn withdraw(
        &mut self,
        id: ThreadId,
        seat: u32,
        near: usize,
        now_ms: u64,
    ) -> Released<T, R> {
        if !self.has_standby(id) {
            return self.release(id, seat, near, now_ms);
        }
        if let Some(thread) = self.get_mut(id)
            && thread.leave_seat(seat)
        {
            self.standing -= 1;
        }
        Released::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatcher::SHORT_MS_MAX;
    use crate::{Limits, Submitted};

    type Small = Dispatcher<&'static str, u32>;

    const IDLE: Released<&str, u32> = Released::Idle {
        others_have_standby: false,
    };

    /// One thread, which runs request 0 at 0 ms, and as many more as are to wait.
    fn one_thread(waiting: u32) -> (Small, ThreadId) {
        let mut dispatcher = Small::new(Limits {
            queue_len_max: 9,
            queue_wait_ms_max: 100,
            rotate_ms: 1000,
            stand_by: true,
        });
        let id = dispatcher.add("a");
        dispatcher.release(id, 0, 0, 0);
        for request in 0..=waiting {
            dispatcher.submit(request, 0, 0);
        }
        (dispatcher, id)
    }

    /// What the thread gets, with seat and whether it stands by.
    fn requests(
        dispatcher: &mut Small,
        id: ThreadId,
        released: Released<&'static str, u32>,
    ) -> Vec<(u32, u32, bool)> {
        let next = match released {
            Released::Next(next) => Some(next),
            Released::GoesOn(_) => None,
            other => panic!("{other:?}"),
        };
        let standbys = std::iter::from_fn(|| dispatcher.stand_by(id));
        next.into_iter()
            .chain(standbys)
            .map(|handoff| (handoff.request, handoff.seat, handoff.stands_by))
            .collect()
    }

    fn release(
        dispatcher: &mut Small,
        id: ThreadId,
        seat: u32,
        now_ms: u64,
    ) -> Vec<(u32, u32, bool)> {
        let released = dispatcher.release(id, seat, 0, now_ms);
        requests(dispatcher, id, released)
    }

    #[test]
    fn a_quick_thread_has_its_next_requests_with_it() {
        let (mut dispatcher, id) = one_thread(5);
        // Request 0 took the first seat.
        let first = release(&mut dispatcher, id, 0, 1);
        let standing = |request, seat| (request, seat, true);
        assert_eq!(
            first,
            [
                (1, 1, false),
                standing(2, 2),
                standing(3, 3),
                standing(4, 4),
                standing(5, 5)
            ]
        );
        assert_eq!(dispatcher.waiting_count(), 4);
        assert_eq!(dispatcher.release(id, 1, 0, 1), Released::GoesOn(2));
        dispatcher.submit(6, 0, 1);
        assert_eq!(release(&mut dispatcher, id, 2, 1), [standing(6, 6)]);
        for seat in 3..6 {
            assert_eq!(
                dispatcher.release(id, seat, 0, 1),
                Released::GoesOn(seat + 1)
            );
        }
        assert_eq!(dispatcher.release(id, 6, 0, 1), IDLE);
    }

    #[test]
    fn it_has_no_more_than_its_seats_and_they_come_round() {
        let (mut dispatcher, id) = one_thread(30);
        let first = release(&mut dispatcher, id, 0, 1);
        let seats: Vec<_> = first.iter().map(|(_, seat, _)| *seat).collect();
        assert_eq!(seats, [1, 2, 3, 4, 5, 6, 7, 0]);
        assert_eq!(release(&mut dispatcher, id, 1, 1), [(9, 1, true)]);
    }

    #[test]
    fn each_gets_its_share_of_what_waits() {
        let (mut dispatcher, first) = one_thread(0);
        let second = dispatcher.add("b");
        dispatcher.release(second, 0, 0, 0);
        for request in 1..=8 {
            dispatcher.submit(request, 0, 0);
        }
        // One runs at each, 7 wait.
        assert_eq!(release(&mut dispatcher, first, 0, 0).len(), 1 + 3);
        assert_eq!(
            release(&mut dispatcher, second, 0, 0).len(),
            1 + 1,
            "one stays for who is free first"
        );
    }

    #[test]
    fn after_a_long_request_nobody_stands_by() {
        let (mut dispatcher, id) = one_thread(4);
        let first = release(&mut dispatcher, id, 0, SHORT_MS_MAX + 1);
        assert_eq!(first, [(1, 1, false)]);
    }

    #[test]
    fn what_stands_behind_a_long_request_goes_to_a_thread_that_is_idle() {
        let (mut dispatcher, id) = one_thread(2);
        assert_eq!(
            release(&mut dispatcher, id, 0, 0),
            [(1, 1, false), (2, 2, true)]
        );
        let other = dispatcher.add("b");
        let idle = dispatcher.release(other, 0, 0, 5);
        assert_eq!(
            idle,
            Released::Idle {
                others_have_standby: true
            }
        );
        assert_eq!(dispatcher.stand_by(other), None, "it is idle");
        assert!(dispatcher.has_standby(id) && !dispatcher.has_standby(other));
        assert_eq!(dispatcher.withdraw(id, 2, 0, 5), Released::Nothing);
        let Submitted::Handoff(handoff) = dispatcher.resubmit(2, 0, 0, 5) else {
            panic!("one is idle")
        };
        assert_eq!((handoff.id, handoff.stands_by), (other, false));
    }

    #[test]
    fn any_of_them_can_be_taken_back() {
        let (mut dispatcher, id) = one_thread(3);
        assert_eq!(release(&mut dispatcher, id, 0, 0).len(), 3);
        // The thread has come to the one in seat 2 first.
        assert_eq!(dispatcher.withdraw(id, 1, 0, 0), Released::Nothing);
        assert_eq!(dispatcher.release(id, 2, 0, 0), Released::GoesOn(3));
        assert!(!dispatcher.has_standby(id));
        assert_eq!(dispatcher.release(id, 3, 0, 9), IDLE);
    }

    #[test]
    fn a_seat_is_given_back_once() {
        let (mut dispatcher, id) = one_thread(4);
        assert_eq!(release(&mut dispatcher, id, 0, 0).len(), 4);
        for _ in 0..2 {
            assert_eq!(dispatcher.withdraw(id, 2, 0, 0), Released::Nothing);
            assert_eq!(dispatcher.waiting_count(), 2);
        }
    }

    #[test]
    fn one_taken_back_just_when_its_thread_came_to_it_leaves_that_free() {
        let (mut dispatcher, id) = one_thread(2);
        dispatcher.release(id, 0, 0, 0);
        dispatcher.stand_by(id);
        dispatcher.release(id, 1, 0, 0);
        assert!(!dispatcher.has_standby(id));
        assert_eq!(dispatcher.withdraw(id, 2, 0, 0), IDLE);
    }

    #[test]
    fn who_ends_takes_its_standbys_with_it() {
        let (mut dispatcher, id) = one_thread(6);
        assert_eq!(release(&mut dispatcher, id, 0, 0).len(), 6);
        assert_eq!(dispatcher.waiting_count(), 5);
        assert!(dispatcher.remove(id));
        assert_eq!(dispatcher.waiting_count(), 0);
    }
}
