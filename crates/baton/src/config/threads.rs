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
    pub fn limits(self, idle_ms_max: u64, is_beside_workers: bool) -> Result<ScaleLimits, String> {
        let (threads_min, threads_max) = match (self.fixed, self.most) {
            (Some(threads), None) if self.least.is_none() => (threads, threads),
            (Some(_), _) => {
                return Err("`threads` fixes the number that `num_threads` and `max_threads` let move: give it, or them".into());
            }
            (None, most) => {
                let most = match most {
                    Some(ThreadsMax::Number(most)) => most,
                    Some(ThreadsMax::Auto) | None => ScaleLimits::THREADS_AUTO_MAX,
                };
                let usual = match is_beside_workers {
                    true => THREADS_BESIDE_WORKERS,
                    false => 2 * cores(),
                };
                (self.least.unwrap_or(usual.min(most)), most)
            }
        };
        if threads_min > threads_max {
            return Err(format!(
                "`num_threads`, the least, is {threads_min}: more than `max_threads`, {threads_max}"
            ));
        }
        Ok(ScaleLimits {
            threads_min,
            threads_max,
            idle_ms_max,
        })
    }
}
