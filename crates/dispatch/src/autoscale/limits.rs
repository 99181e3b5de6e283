//! What an app's number of threads may be.

/// Bounds of an app's number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleLimits {
    /// Fewer are made up for at once; what was added by hand comes on top.
    pub threads_min: u32,
    /// Started and starting together. Memory may set a lower bound, see [`Memory`](super::Memory).
    pub threads_max: u32,
    /// At least 1: they start and stop by whole processes.
    pub threads_per_process: u32,
    /// Threads that nobody needed for so long are stopped, a few at a time; in milliseconds.
    pub idle_ms_max: u64,
}

impl ScaleLimits {
    /// `threads_max: auto`: as many as fit into memory, and never more than this.
    pub const THREADS_AUTO_MAX: u32 = 4096;
    /// Long enough that a load which comes in waves of a minute keeps its threads.
    pub const IDLE_MS_MAX_DEFAULT: u64 = 60_000;

    /// Between a least number and `auto`.
    pub fn auto(threads_min: u32) -> Self {
        Self {
            threads_min,
            threads_max: Self::THREADS_AUTO_MAX.max(threads_min),
            threads_per_process: 1,
            idle_ms_max: Self::IDLE_MS_MAX_DEFAULT,
        }
    }

    /// Always the same number.
    pub fn fixed(threads: u32) -> Self {
        Self {
            threads_min: threads,
            threads_max: threads,
            threads_per_process: 1,
            idle_ms_max: Self::IDLE_MS_MAX_DEFAULT,
        }
    }

    /// So many processes have at least `threads` threads.
    pub fn processes_for(&self, threads: u32) -> u32 {
        threads.div_ceil(self.threads_per_process.max(1))
    }

    /// The threads of as many processes as have at least `threads`.
    pub fn whole_up(&self, threads: u32) -> u32 {
        let step = self.threads_per_process.max(1);
        self.processes_for(threads).saturating_mul(step)
    }

    /// The threads of as many processes as have at most `threads`.
    pub fn whole_down(&self, threads: u32) -> u32 {
        threads - threads % self.threads_per_process.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_come_by_whole_processes() {
        let of_three = ScaleLimits {
            threads_per_process: 3,
            ..ScaleLimits::auto(3)
        };
        let up = [0, 1, 3, 4].map(|threads| of_three.whole_up(threads));
        let down = [0, 2, 3, 5].map(|threads| of_three.whole_down(threads));
        assert_eq!((up, down), ([0, 3, 3, 6], [0, 0, 3, 3]));
        assert_eq!(ScaleLimits::auto(1).whole_up(7), 7);
        assert_eq!(of_three.processes_for(7), 3);
    }
}
