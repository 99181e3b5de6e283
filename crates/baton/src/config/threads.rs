//! How many threads a pool may have: from what is said of it, and of its application.

use baton_dispatch::autoscale::ScaleLimits;

use crate::options::{AppOptions, WorkerOptions, cores};
use crate::values::ThreadsMax;

/// Threads for other scripts in an app that has workers, where nothing is said.
const THREADS_BESIDE_WORKERS: u32 = 2;

#[derive(Clone, Copy)]
pub struct Said {
    fixed: Option<u32>,
    least: Option<u32>,
    most: Option<ThreadsMax>,
}

impl Said {
    pub fn of_app(options: &AppOptions) -> Self {
        Self {
            fixed: options.threads,
            least: options.num_threads,
            most: options.max_threads,
        }
    }

    pub fn of_worker(options: &WorkerOptions) -> Self {
        Self {
            fixed: options.threads,
            least: options.num_threads,
            most: options.max_threads,
        }
    }

    pub fn is_silent(self) -> bool {
        self.fixed.is_none() && self.least.is_none() && self.most.is_none()
    }

    /// Where this says nothing, the other counts.
    pub fn or(self, other: Self) -> Self {
        match self.fixed {
            _ if self.is_silent() => other,
            Some(_) => self,
            None => Self {
                fixed: None,
                least: self.least.or(other.least),
                most: self.most.or(other.most),
            },
        }
    }

    /// Or why they cannot be.
    pub fn limits(
        self,
        options: &AppOptions,
        is_beside_workers: bool,
    ) -> Result<ScaleLimits, String> {
        let each = options.threads_per_process;
        let (threads_min, threads_max) = match (self.fixed, self.most) {
            (Some(threads), None) if self.least.is_none() => (threads, threads),
            (Some(_), _) => {
                return Err("`threads` fixes the number that `num_threads` and `max_threads` let move: give it, or them".into());
            }
            (None, most) => {
                let most = most.and_then(ThreadsMax::number);
                let most = most.unwrap_or(ScaleLimits::THREADS_AUTO_MAX);
                let usual = match is_beside_workers {
                    true => THREADS_BESIDE_WORKERS,
                    false => 2 * cores(),
                };
                // Whole processes, and no more than there may be.
                let usual = usual.next_multiple_of(each).min(most - most % each);
                (self.least.unwrap_or(usual), most)
            }
        };
        if threads_min > threads_max {
            return Err(format!(
                "`num_threads`, the least, is {threads_min}: more than `max_threads`, {threads_max}"
            ));
        }
        let said = [
            ("threads", self.fixed),
            ("num_threads", self.least),
            ("max_threads", self.most.and_then(ThreadsMax::number)),
        ];
        for (key, threads) in said {
            if let Some(threads) = threads.filter(|threads| !threads.is_multiple_of(each)) {
                return Err(format!(
                    "`{key}` is {threads}, no multiple of `threads_per_process`, {each}: processes start with all their threads"
                ));
            }
        }
        Ok(ScaleLimits {
            threads_min,
            threads_max,
            threads_per_process: each,
            idle_ms_max: options.idle_ms_max,
        })
    }
}
