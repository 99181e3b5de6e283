//! The queue of an app: first in, first out, bounded in length and in age.

use std::collections::VecDeque;

/// Names a waiting request, so that it can be dropped when its client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    place: u64,
    /// A place is used again for a request that comes back to the front; this number is not.
    number: u64,
}

struct Waiting<R> {
    number: u64,
    /// `None`: its client left.
    request: Option<R>,
    since_ms: u64,
    /// [`Fifo::taken`] when it came.
    taken_before: u64,
}

/// Requests in order of arrival. Dropping one from the middle leaves a hole, which costs nothing
/// until it reaches the front.
pub(crate) struct Fifo<R> {
    waiting: VecDeque<Waiting<R>>,
    /// The place of `waiting[0]`.
    first: u64,
    next_number: u64,
    len: usize,
    /// How many threads have taken.
    taken: u64,
}

impl<R> Fifo<R> {
    pub(crate) fn new() -> Self {
        // In the middle, because requests may also come back to the front.
        Self {
            waiting: VecDeque::new(),
            first: 1 << 63,
            next_number: 0,
            len: 0,
            taken: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn push_back(&mut self, request: R, since_ms: u64) -> Ticket {
        let place = self.first + self.waiting.len() as u64;
        let (waiting, ticket) = self.enter(request, since_ms, place);
        self.waiting.push_back(waiting);
        ticket
    }

    /// For a request that was handed over in vain: it goes before all others.
    pub(crate) fn push_front(&mut self, request: R, since_ms: u64) -> Ticket {
        self.first -= 1;
        let (waiting, ticket) = self.enter(request, since_ms, self.first);
        self.waiting.push_front(waiting);
        ticket
    }

    fn enter(&mut self, request: R, since_ms: u64, place: u64) -> (Waiting<R>, Ticket) {
        let number = self.next_number;
        self.next_number += 1;
        self.len += 1;
        let waiting = Waiting {
            number,
            request: Some(request),
            since_ms,
            taken_before: self.taken,
        };
        (waiting, Ticket { place, number })
    }

    /// The oldest, for a thread.
    pub(crate) fn take(&mut self) -> Option<(R, u64)> {
        let oldest = self.pop_front();
        self.taken += u64::from(oldest.is_some());
        oldest
    }

    pub(crate) fn pop_front(&mut self) -> Option<(R, u64)> {
        let waiting = self.waiting.pop_front()?;
        self.first += 1;
        self.drop_holes();
        let request = waiting.request?;
        self.len -= 1;
        Some((request, waiting.since_ms))
    }

    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<R> {
        let at = usize::try_from(ticket.place.checked_sub(self.first)?).ok()?;
        let waiting = self.waiting.get_mut(at)?;
        if waiting.number != ticket.number {
            return None;
        }
        let request = waiting.request.take()?;
        self.len -= 1;
        self.drop_holes();
        Some(request)
    }

    /// Since when the oldest request waits. There is never a hole at the front.
    pub(crate) fn oldest_since_ms(&self) -> Option<u64> {
        self.waiting.front().map(|waiting| waiting.since_ms)
    }

    /// How many were taken by threads while the oldest waited.
    pub(crate) fn taken_since_oldest(&self) -> u64 {
        let oldest = self.waiting.front();
        oldest.map_or(0, |waiting| self.taken - waiting.taken_before)
    }

    fn drop_holes(&mut self) {
        while self
            .waiting
            .front()
            .is_some_and(|waiting| waiting.request.is_none())
        {
            self.waiting.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_in_first_out() {
        let mut fifo = Fifo::new();
        for n in 0..3 {
            fifo.push_back(n, n);
        }
        assert_eq!(fifo.oldest_since_ms(), Some(0));
        assert_eq!(
            std::iter::from_fn(|| fifo.pop_front()).collect::<Vec<_>>(),
            [(0, 0), (1, 1), (2, 2)]
        );
        assert_eq!(fifo.len(), 0);
    }

    #[test]
    fn an_old_ticket_does_not_drop_what_came_back_to_its_place() {
        let mut fifo = Fifo::new();
        let old = fifo.push_back("handed over", 0);
        assert_eq!(fifo.pop_front(), Some(("handed over", 0)));
        let new = fifo.push_front("came back", 0);
        assert_eq!(fifo.remove(old), None);
        assert_eq!(fifo.remove(new), Some("came back"));
    }

    #[test]
    fn a_dropped_request_leaves_the_others_in_order() {
        let mut fifo = Fifo::new();
        let tickets: Vec<_> = (0..4).map(|n| fifo.push_back(n, 0)).collect();
        assert_eq!(fifo.remove(tickets[2]), Some(2));
        assert_eq!(fifo.remove(tickets[2]), None);
        assert_eq!(fifo.remove(tickets[0]), Some(0));
        assert_eq!(fifo.len(), 2);
        assert_eq!(fifo.pop_front(), Some((1, 0)));
        assert_eq!(fifo.remove(tickets[1]), None);
        assert_eq!(fifo.waiting.len(), 1, "the hole is gone");
        assert_eq!(fifo.pop_front(), Some((3, 0)));
        assert_eq!(fifo.pop_front(), None);
        assert_eq!(fifo.remove(tickets[3]), None);
    }

    #[test]
    fn counts_what_threads_took_before_the_oldest() {
        let mut fifo = Fifo::new();
        for n in 0..4 {
            fifo.push_back(n, 0);
        }
        assert_eq!(fifo.taken_since_oldest(), 0);
        fifo.take();
        fifo.pop_front();
        assert_eq!(fifo.taken_since_oldest(), 1, "no thread took the second");
        fifo.push_front(0, 0);
        assert_eq!(fifo.taken_since_oldest(), 0, "it came now");
    }

    #[test]
    fn what_comes_back_goes_first() {
        let mut fifo = Fifo::new();
        let later = fifo.push_back("later", 7);
        let back = fifo.push_front("back", 3);
        assert_ne!(later, back);
        assert_eq!(fifo.oldest_since_ms(), Some(3));
        assert_eq!(fifo.remove(back), Some("back"));
        assert_eq!(fifo.pop_front(), Some(("later", 7)));
    }
}
