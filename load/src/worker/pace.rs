//! When requests are due.

use crate::profile::{Inverse, Profile};

pub enum Pace {
    /// Whenever a connection can send; so many more.
    Closed { left: u64 },
    /// At their times, whatever became of those before.
    Open(Schedule),
}

/// One thread's share of a rate: every `step`th request, so that the threads' take turns.
pub struct Schedule {
    rate: Profile,
    inverse: Inverse,
    /// Number of the next one among those of all threads.
    next: u64,
    step: u64,
    /// There are no more than these.
    total: u64,
    due_ns: Option<u64>,
}

impl Schedule {
    pub fn new(rate: &Profile, thread: usize, threads: usize, total: u64) -> Schedule {
        let mut schedule = Schedule {
            rate: rate.clone(),
            inverse: rate.inverse(),
            next: thread as u64,
            step: threads as u64,
            total,
            due_ns: None,
        };
        schedule.look();
        schedule
    }

    /// When the next request is due, since the start of the load. None: there are no more.
    #[inline]
    pub fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    #[inline]
    pub fn advance(&mut self) {
        self.next += self.step;
        self.look();
    }

    fn look(&mut self) {
        self.due_ns = match self.next < self.total {
            true => self.inverse.when(self.next as f64),
            false => None,
        };
    }

    /// No more; returns how many that were due before `end_ns` have not been taken.
    pub fn end(&mut self, end_ns: u64) -> u64 {
        let due = self.rate.area(end_ns).min(self.total as f64) - self.next as f64;
        let left = match self.due_ns {
            Some(_) => (due / self.step as f64).ceil().max(0.0) as u64,
            None => 0,
        };
        self.due_ns = None;
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(schedule: &mut Schedule, end_ns: u64) -> Vec<u64> {
        let mut taken = vec![];
        while let Some(due) = schedule.due_ns().filter(|due| *due < end_ns) {
            taken.push(due);
            schedule.advance();
        }
        taken
    }

    #[test]
    fn threads_take_turns_and_leave_none_out() {
        let rate: Profile = "2s:300,3s:300,1s:0".parse().expect("good");
        let mut alone = taken(&mut Schedule::new(&rate, 0, 1, u64::MAX), u64::MAX);
        let shared = (0..3)
            .flat_map(|thread| taken(&mut Schedule::new(&rate, thread, 3, u64::MAX), u64::MAX));
        let mut shared: Vec<_> = shared.collect();
        shared.sort_unstable();
        alone.sort_unstable();
        assert_eq!(alone.len(), 1350);
        assert_eq!(shared, alone);
    }

    #[test]
    fn counts_end_a_schedule() {
        let rate = Profile::constant(1000);
        let counts =
            (0..3).map(|thread| taken(&mut Schedule::new(&rate, thread, 3, 100), u64::MAX).len());
        assert_eq!(counts.sum::<usize>(), 100);
    }

    #[test]
    fn what_was_not_taken_is_known_without_counting() {
        let rate: Profile = "2s:300,3s:300,1s:0".parse().expect("good");
        for end_ns in [
            0,
            1,
            1_500_000_000,
            4_000_000_001,
            5_900_000_000,
            6_000_000_000,
            9_000_000_000,
        ] {
            for stop in [0, 7, 100, 400] {
                let mut counted = Schedule::new(&rate, 1, 3, 1_200);
                (0..stop).for_each(|_| counted.advance());
                let mut asked = Schedule::new(&rate, 1, 3, 1_200);
                (0..stop).for_each(|_| asked.advance());
                assert_eq!(
                    asked.end(end_ns),
                    taken(&mut counted, end_ns).len() as u64,
                    "{end_ns} {stop}"
                );
                assert_eq!(asked.due_ns(), None);
            }
        }
    }
}
