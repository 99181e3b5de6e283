//! The threads that all pools of the server share.

use std::sync::atomic::{AtomicU32, Ordering};

/// Counts the threads that pools want to have, whether they have them already or not.
pub struct ThreadBudget {
    threads_max: AtomicU32,
    taken: AtomicU32,
}

impl ThreadBudget {
    pub fn new(threads_max: u32) -> Self {
        Self {
            threads_max: AtomicU32::new(threads_max),
            taken: AtomicU32::new(0),
        }
    }

    /// Where more were taken than that nobody gets any until enough were given back.
    pub fn set_max(&self, threads_max: u32) {
        self.threads_max.store(threads_max, Ordering::Relaxed);
    }

    pub fn threads_max(&self) -> u32 {
        self.threads_max.load(Ordering::Relaxed)
    }

    /// A pool's least, which it has whatever the others have.
    pub fn claim(&self, count: u32) {
        self.taken.fetch_add(count, Ordering::Relaxed);
    }

    /// Takes as many as can be had, at most `count`; says how many.
    pub fn take(&self, count: u32) -> u32 {
        let mut granted = 0;
        let taken = self
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                granted = count.min(self.threads_max().saturating_sub(taken));
                Some(taken + granted)
            });
        // The closure never says no.
        taken.map_or(0, |_| granted)
    }

    pub fn give_back(&self, count: u32) {
        self.taken.fetch_sub(count, Ordering::Relaxed);
    }

    pub fn left(&self) -> u32 {
        let taken = self.taken.load(Ordering::Relaxed);
        self.threads_max().saturating_sub(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_there_are_can_be_had() {
        let budget = ThreadBudget::new(10);
        budget.claim(4);
        assert_eq!((budget.take(5), budget.left()), (5, 1));
        assert_eq!((budget.take(5), budget.left()), (1, 0));
        budget.give_back(2);
        assert_eq!((budget.take(1), budget.left()), (1, 1));
        budget.claim(3);
        assert_eq!((budget.take(1), budget.left()), (0, 0));
        budget.set_max(12);
        assert_eq!((budget.take(3), budget.left()), (0, 0));
        budget.set_max(14);
        assert_eq!((budget.take(3), budget.left()), (2, 0));
    }
}
