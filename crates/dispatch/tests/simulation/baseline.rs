//! The policy to beat: FrankenPHP's first one (pull request 1266).
//!
//! A request that finds no thread waits 10 ms, then asks for one more thread, and asks again after 20 ms, 40 ms and so
//! on. Only one such wish is looked after at a time: for 40 ms the CPU is watched, and if less than 80 % of it is used
//! a thread is started. Every 5 s at most 10 threads that have been idle for 5 s are stopped.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::scaler::{Order, Scaler, Site, Waiting};
use crate::time::{MS, S, Time};

const STALL: Time = 10 * MS;
const PROBE: Time = 40 * MS;
const CPU_SHARE_MAX: f64 = 0.8;
const STOP_EVERY: Time = 5 * S;
const STOPPED_MAX: usize = 10;

pub struct Baseline {
    threads_min: u32,
    threads_max: u32,
    stalls: BinaryHeap<Reverse<(Time, Waiting, Time)>>,
    /// Until when the CPU is watched, and what was used when that began.
    probe: Option<(Time, u64)>,
    /// Until it is there, no other wish is heard.
    is_starting: bool,
    stop_at: Time,
}

impl Baseline {
    pub fn new(threads_min: u32, threads_max: u32) -> Self {
        Self {
            threads_min,
            threads_max,
            stalls: BinaryHeap::new(),
            probe: None,
            is_starting: false,
            stop_at: STOP_EVERY,
        }
    }

    fn end_probe(&mut self, site: &mut dyn Site, now: Time) -> Option<Order> {
        let (end, used_us) = self.probe?;
        if now < end {
            return None;
        }
        self.probe = None;
        let share = (site.server_us() - used_us) as f64 * 1000.0 / PROBE as f64 / site.cores();
        if share >= CPU_SHARE_MAX || site.thread_count() >= self.threads_max {
            return None;
        }
        self.is_starting = true;
        Some(Order::Start(1))
    }

    fn hear_stalls(&mut self, site: &mut dyn Site, now: Time) {
        while self
            .stalls
            .peek()
            .is_some_and(|Reverse((at, ..))| *at <= now)
        {
            let Some(Reverse((_, request, stall))) = self.stalls.pop() else {
                return;
            };
            if !site.is_waiting(request) {
                continue;
            }
            self.stalls
                .push(Reverse((now + 2 * stall, request, 2 * stall)));
            self.is_starting &= !site.starting_since().is_empty();
            if self.probe.is_none() && !self.is_starting {
                self.probe = Some((now + PROBE, site.server_us()));
            }
        }
    }

    fn stop_idle(&mut self, site: &mut dyn Site, now: Time) -> Option<Order> {
        if now < self.stop_at {
            return None;
        }
        self.stop_at = now + STOP_EVERY;
        let spare = site.thread_count().saturating_sub(self.threads_min) as usize;
        let threads: Vec<_> = site
            .idle_since()
            .into_iter()
            .filter(|(_, since)| now - since > STOP_EVERY)
            .map(|(id, _)| id)
            .take(STOPPED_MAX.min(spare))
            .collect();
        (!threads.is_empty()).then_some(Order::Stop(threads))
    }
}

impl Scaler for Baseline {
    fn threads_first(&self) -> u32 {
        self.threads_min
    }

    fn queued(&mut self, request: Waiting, now: Time) {
        self.stalls.push(Reverse((now + STALL, request, STALL)));
    }

    fn next(&self) -> Option<Time> {
        let stall = self.stalls.peek().map(|Reverse((at, ..))| *at);
        let probe = self.probe.map(|(end, _)| end);
        [Some(self.stop_at), stall, probe]
            .into_iter()
            .flatten()
            .min()
    }

    fn act(&mut self, site: &mut dyn Site, now: Time) -> Vec<Order> {
        let mut orders = Vec::new();
        orders.extend(self.end_probe(site, now));
        self.hear_stalls(site, now);
        orders.extend(self.stop_idle(site, now));
        orders
    }
}
