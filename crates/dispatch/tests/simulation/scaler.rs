//! Who decides how many threads there are.

use baton_dispatch::autoscale::Work;
use baton_dispatch::{Glance, ThreadId};

use crate::time::Time;

/// Names a request that waits.
pub type Waiting = (usize, u64);

pub enum Order {
    Start(u32),
    Stop(Vec<ThreadId>),
}

/// What can be seen of the app and its machine.
pub trait Site {
    fn glance(&mut self) -> Glance;
    /// The idle threads and since when, the longest idle first.
    fn idle_since(&self) -> Vec<(ThreadId, Time)>;
    fn is_waiting(&self, request: Waiting) -> bool;
    fn starting_since(&self) -> Vec<Time>;
    /// Threads that are there, and threads that are starting.
    fn thread_count(&self) -> u32;
    fn cores(&self) -> f64;
    /// CPU time that was left so far, as coarse as `/proc/stat` tells it.
    fn left_us(&self) -> u64;
    /// CPU time that the server and the app used so far, all in all.
    fn server_us(&self) -> u64;
    /// CPU time that the app used so far, threads and front, starts left out.
    fn ours_us(&self) -> u64;
    /// Time that threads were busy, computed, and waited for a core.
    fn work(&self, glance: &Glance) -> Work;
    /// What a start takes, in milliseconds: of CPU, and of waiting.
    fn start_ms(&self) -> (f64, f64);
}

pub trait Scaler {
    fn threads_first(&self) -> u32;

    /// Whether a thread that was killed is started again without being asked.
    fn replaces(&self) -> bool {
        true
    }

    fn queued(&mut self, _request: Waiting, _now: Time) {}

    /// When it wants to act, if nothing happens before.
    fn next(&self) -> Option<Time> {
        None
    }

    fn act(&mut self, _site: &mut dyn Site, _now: Time) -> Vec<Order> {
        Vec::new()
    }
}

/// Always the same number.
pub struct Fixed(pub u32);

impl Scaler for Fixed {
    fn threads_first(&self) -> u32 {
        self.0
    }
}
