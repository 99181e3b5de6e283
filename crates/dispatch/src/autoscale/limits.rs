//! What an app's number of threads may be.

/// Bounds of an app's number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleLimits {
    /// Fewer are made up for at once; what was added by hand comes on top.
    pub threads_min: u32,
    /// Started and starting together. Memory may set a lower bound, see [`Memory`](super::Memory).
    pub threads_max: u32,
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
            idle_ms_max: Self::IDLE_MS_MAX_DEFAULT,
        }
    }

    /// Always the same number.
    pub fn fixed(threads: u32) -> Self {
        Self {
            threads_min: threads,
            threads_max: threads,
            idle_ms_max: Self::IDLE_MS_MAX_DEFAULT,
        }
    }
}
