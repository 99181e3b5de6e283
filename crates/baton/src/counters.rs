//! What the I/O threads count. Each has counters of its own, on cache lines that no other thread writes to, so counting
//! costs a request a few plain additions; they are summed up when somebody asks.

use std::sync::atomic::{AtomicU64, Ordering};

/// Written by one thread, read by all.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Without a locked instruction: only the owner calls this.
    #[inline]
    pub fn add(&self, n: u64) {
        let sum = self.0.load(Ordering::Relaxed).wrapping_add(n);
        self.0.store(sum, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

const BOUND_COUNT: usize = 16;

/// Upper bounds of a histogram's buckets, in microseconds; one bucket more is for what is over all of them.
pub type Bounds = [u64; BOUND_COUNT];

/// For requests.
pub const REQUEST_BOUNDS_US: Bounds = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 10_000_000, 60_000_000,
];
/// For ticks of an I/O thread.
pub const TICK_BOUNDS_US: Bounds = [
    2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000,
    1_000_000,
];

#[derive(Debug)]
pub struct Histogram {
    bounds_us: &'static Bounds,
    buckets: [Count; BOUND_COUNT + 1],
    sum_us: Count,
}

impl Histogram {
    pub fn new(bounds_us: &'static Bounds) -> Self {
        Self {
            bounds_us,
            buckets: Default::default(),
            sum_us: Count::default(),
        }
    }

    #[inline]
    pub fn record(&self, us: u64) {
        let bucket = self.bounds_us.partition_point(|bound| *bound < us);
        self.buckets[bucket].add(1);
        self.sum_us.add(us);
    }

    pub fn count(&self) -> u64 {
        self.buckets.iter().map(Count::get).sum()
    }
}

/// Histograms of all I/O threads together.
#[derive(Clone, Debug)]
pub struct Distribution {
    bounds_us: &'static Bounds,
    counts: [u64; BOUND_COUNT + 1],
    pub sum_us: u64,
}

impl Distribution {
    pub fn of<'h>(
        bounds_us: &'static Bounds,
        histograms: impl Iterator<Item = &'h Histogram>,
    ) -> Self {
        let mut all = Self {
            bounds_us,
            counts: Default::default(),
            sum_us: 0,
        };
        for one in histograms {
            for (sum, count) in all.counts.iter_mut().zip(&one.buckets) {
                *sum += count.get();
            }
            all.sum_us += one.sum_us.get();
        }
        all
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Each bucket's upper bound in seconds, and how many are in it; the last has none.
    pub fn buckets(&self) -> Vec<(f64, u64)> {
        let bounds = self.bounds_us.iter().map(|us| *us as f64 / 1e6);
        let bounds = bounds.chain([f64::INFINITY]);
        bounds.zip(self.counts.iter().copied()).collect()
    }
}

/// Of one I/O thread, whatever application a request is for.
#[derive(Debug)]
#[repr(align(128))]
pub struct IoCounters {
    pub requests: Count,
    /// By the first digit of their status; 0 is none.
    pub replies: [Count; 6],
    /// Replies that were broken off.
    pub cut: Count,
    pub request_body_bytes: Count,
    pub reply_body_bytes: Count,
    /// From a request's whole head to the end of its reply.
    pub duration: Histogram,
    pub ticks: Count,
    /// Of one tick in [`TICKS_PER_SAMPLE`].
    pub tick: Histogram,
}

/// Reading the clock at the end of each tick would cost as much as all other counting.
pub const TICKS_PER_SAMPLE: u64 = 16;

impl Default for IoCounters {
    fn default() -> Self {
        Self {
            requests: Count::default(),
            replies: Default::default(),
            cut: Count::default(),
            request_body_bytes: Count::default(),
            reply_body_bytes: Count::default(),
            duration: Histogram::new(&REQUEST_BOUNDS_US),
            ticks: Count::default(),
            tick: Histogram::new(&TICK_BOUNDS_US),
        }
    }
}

/// Of one I/O thread, for one pool.
#[derive(Debug)]
#[repr(align(128))]
pub struct PoolCounters {
    /// Until a thread got the request. The clock is that of the ticks, in whole milliseconds.
    pub queue_wait: Histogram,
    /// From then until the thread was free again, by the same clock.
    pub service: Histogram,
    /// Requests that threads were through with.
    pub released: Count,
    /// Part of the service time: the thread had finished and slept, and the front had not seen it. In microseconds, estimated.
    pub unseen_us: Count,
    pub queue_full: Count,
    pub waited_too_long: Count,
    /// Clients that left while their request waited.
    pub left_waiting: Count,
    pub process_ended: Count,
    pub over_deadline: Count,
    /// Offers that were taken back, for another thread.
    pub not_taken: Count,
}

impl Default for PoolCounters {
    fn default() -> Self {
        Self {
            queue_wait: Histogram::new(&REQUEST_BOUNDS_US),
            service: Histogram::new(&REQUEST_BOUNDS_US),
            released: Count::default(),
            unseen_us: Count::default(),
            queue_full: Count::default(),
            waited_too_long: Count::default(),
            left_waiting: Count::default(),
            process_ended: Count::default(),
            over_deadline: Count::default(),
            not_taken: Count::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_into_the_bucket_whose_bound_they_do_not_exceed() {
        let one = Histogram::new(&REQUEST_BOUNDS_US);
        let other = Histogram::new(&REQUEST_BOUNDS_US);
        for us in [0, 100, 101, 60_000_000] {
            one.record(us);
        }
        other.record(60_000_001);
        let all = Distribution::of(&REQUEST_BOUNDS_US, [&one, &other].into_iter());
        let buckets = all.buckets();
        assert_eq!(buckets[0], (0.0001, 2));
        assert_eq!(buckets[1], (0.00025, 1));
        assert_eq!(buckets[15], (60.0, 1));
        assert_eq!(buckets[16], (f64::INFINITY, 1));
        assert_eq!((all.count(), all.sum_us), (5, 120_000_202));
    }

    #[test]
    fn bounds_rise() {
        assert!(REQUEST_BOUNDS_US.is_sorted() && TICK_BOUNDS_US.is_sorted());
    }
}
