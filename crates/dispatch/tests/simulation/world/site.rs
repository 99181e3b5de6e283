//! What can be measured of it.

use baton_dispatch::autoscale::Work;
use baton_dispatch::{Glance, ThreadId};

use super::{FRONT, World};
use crate::scaler::{Site, Waiting};
use crate::time::{MS, Time, US};

/// `/proc/stat` counts in these.
const TICK_US: f64 = 10_000.0;

impl Site for World<'_> {
    fn glance(&mut self) -> Glance {
        self.dispatcher.glance(self.now / MS)
    }

    fn idle_since(&self) -> Vec<(ThreadId, Time)> {
        self.dispatcher
            .idle_threads()
            .map(|(id, since_ms)| (id, since_ms * MS))
            .collect()
    }

    fn is_waiting(&self, (client, number): Waiting) -> bool {
        self.clients[client].number == number && self.clients[client].ticket.is_some()
    }

    fn starting_since(&self) -> Vec<Time> {
        self.starting
            .iter()
            .map(|thread| self.threads[*thread].began)
            .collect()
    }

    fn thread_count(&self) -> u32 {
        (self.dispatcher.thread_count() + self.starting.len()) as u32
    }

    fn cores(&self) -> f64 {
        self.machine.cores
    }

    fn left_us(&self) -> u64 {
        let left_ns = self.machine.cores * self.now as f64 - self.cores.used().all;
        let ticks = left_ns / 1000.0 / TICK_US / self.machine.cores;
        (ticks.floor() * TICK_US * self.machine.cores) as u64
    }

    fn server_us(&self) -> u64 {
        let used = self.cores.used();
        us(used.all - used.hogs).saturating_sub(self.begun * self.machine.generator / US)
    }

    fn ours_us(&self) -> u64 {
        us(self.cores.used().serving).saturating_sub(self.begun * self.machine.generator / US)
    }

    fn work(&self, glance: &Glance) -> Work {
        let others = self.begun * (FRONT + self.machine.generator) / US;
        let used = self.cores.used();
        Work {
            busy_us: glance.busy_ms * 1000,
            cpu_us: us(used.serving).saturating_sub(others),
            delay_us: us(used.serving_delay) + others,
        }
    }

    fn start_ms(&self) -> (f64, f64) {
        let cpu = self.machine.fork + self.machine.boot_compute;
        (
            cpu as f64 / MS as f64,
            self.machine.boot_sleep as f64 / MS as f64,
        )
    }
}

fn us(ns: f64) -> u64 {
    (ns / 1000.0) as u64
}
