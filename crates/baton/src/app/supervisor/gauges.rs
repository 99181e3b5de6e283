//! What the autoscaler is told beside the queue: the CPU and the memory that are left, what threads use of them, and what
//! it takes to start one.

use std::time::Instant;

use baton_dispatch::autoscale::{CpuCounters, Memory, StartCost, Work};

use super::Member;
use crate::machine::{self, CpuTaken, MemoryLeft};

/// Processes that are looked at in one look, at 5 us each, or 40 where they have several threads. Of more a part stands for all.
const SAMPLE_MAX: usize = 32;
/// The memory that is left is read again after this time, which takes some 50 us.
const MEMORY_MS: u64 = 100;
/// And that of a process, which takes a millisecond or more, after this.
const THREAD_MEMORY_MS: u64 = 5_000;
/// What a thread is assumed to take until one has worked and was measured: an assumption only, and rather too much, because
/// what is added by hand stays.
const THREAD_BYTES_ASSUMED: u64 = 16 << 20;
/// How much the last start counts against those before.
const START_WEIGHT: f64 = 0.25;

pub(super) struct Gauges {
    cpu: machine::Cpu,
    memory: machine::Memory,
    /// When threads were last looked at, and what all of them had used by then.
    read_ms: u64,
    busy_us: u64,
    cpu_us: f64,
    delay_us: f64,
    is_delay_known: bool,
    /// How long the zygote takes for a fork.
    fork_ms: f64,
    last_hello: Option<Instant>,
    start: Option<StartCost>,
    left: Option<(u64, MemoryLeft)>,
    thread_bytes: Option<(u64, u64)>,
}

/// What a process had used when it was last looked at.
#[derive(Clone, Copy)]
pub(super) struct Reading {
    taken: CpuTaken,
    at_ms: u64,
}

impl Gauges {
    pub(super) fn new() -> Self {
        Self {
            cpu: machine::Cpu::here(),
            memory: machine::Memory::here(),
            read_ms: 0,
            busy_us: 0,
            cpu_us: 0.0,
            delay_us: 0.0,
            is_delay_known: true,
            fork_ms: 0.0,
            last_hello: None,
            start: None,
            left: None,
            thread_bytes: None,
        }
    }

    /// A process says hello that was asked for then. The zygote forks one after the other: it began with this one when the
    /// one before was there.
    pub(super) fn forked(&mut self, asked: Instant) {
        let now = Instant::now();
        let begun = self.last_hello.map_or(asked, |last| last.max(asked));
        let turn_ms = now.duration_since(begun).as_secs_f64() * 1000.0;
        self.fork_ms = match self.last_hello {
            None => turn_ms,
            Some(_) => mean(self.fork_ms, turn_ms),
        };
        self.last_hello = Some(now);
    }

    /// A process boots from now on.
    pub(super) fn boots(&self, member: &mut Member, now_ms: u64) {
        member.reading = read(member, now_ms);
    }

    /// A process has started, with all its threads. What it used until now was its start.
    pub(super) fn started(&mut self, member: &mut Member, now_ms: u64) {
        let booted_from = member.reading.take();
        member.reading = read(member, now_ms);
        let Some(now) = member.reading else { return };
        let slept_ms = booted_from.map_or(0.0, |then| {
            let used = grown(now.taken.cpu_us, then.taken.cpu_us)
                + grown(
                    now.taken.delay_us.unwrap_or(0),
                    then.taken.delay_us.unwrap_or(0),
                );
            ((now_ms - then.at_ms) as f64 - used / 1000.0).max(0.0)
        });
        let cost = StartCost {
            cpu_ms: self.fork_ms + now.taken.cpu_us as f64 / 1000.0,
            sleep_ms: slept_ms,
        };
        self.start = Some(self.start.map_or(cost, |before| StartCost {
            cpu_ms: mean(before.cpu_ms, cost.cpu_ms),
            sleep_ms: mean(before.sleep_ms, cost.sleep_ms),
        }));
    }

    pub(super) fn start_cost(&self) -> Option<StartCost> {
        self.start
    }

    /// Looks at what threads have used since the last look.
    pub(super) fn count_work<'m>(
        &mut self,
        members: impl Iterator<Item = &'m mut Member>,
        now_ms: u64,
    ) {
        let members: Vec<&mut Member> = members.filter(|member| !member.boots()).collect();
        let count = members.len();
        let stride = count.div_ceil(SAMPLE_MAX).max(1) as u64;
        let passed_ms = now_ms.saturating_sub(self.read_ms) as f64;
        let (mut cpu_us, mut delay_us, mut sampled) = (0.0, 0.0, 0u32);
        for member in members {
            if !member.process.number.is_multiple_of(stride) {
                continue;
            }
            let Some(now) = read(member, now_ms) else {
                continue;
            };
            let Some(then) = member.reading.replace(now) else {
                continue;
            };
            // One that was left out before is read for a longer time than this look is about.
            let read_ms = now_ms.saturating_sub(then.at_ms).max(1) as f64;
            let share = (passed_ms / read_ms).min(1.0);
            cpu_us += share * grown(now.taken.cpu_us, then.taken.cpu_us);
            match (now.taken.delay_us, then.taken.delay_us) {
                (Some(now), Some(then)) => delay_us += share * grown(now, then),
                _ => self.is_delay_known = false,
            }
            sampled += 1;
        }
        let scale = count as f64 / f64::from(sampled.max(1));
        self.cpu_us += scale * cpu_us;
        self.delay_us += scale * delay_us;
        self.read_ms = now_ms;
    }

    /// `busy_ms`: of all threads, as the dispatcher counts it, from the offer to the release. `unseen_us`: how much of it
    /// they slept because the front had not seen that they had finished.
    pub(super) fn work(&mut self, busy_ms: u64, unseen_us: u64) -> Option<Work> {
        // One is counted, the other estimated: their difference may fall.
        let busy_us = (busy_ms * 1000).saturating_sub(unseen_us);
        self.busy_us = self.busy_us.max(busy_us);
        self.is_delay_known.then_some(Work {
            busy_us: self.busy_us,
            cpu_us: self.cpu_us as u64,
            delay_us: self.delay_us as u64,
        })
    }

    /// All that the front uses counts as ours: with several apps too much of it, and that only makes us hold sooner.
    pub(super) fn cpu(&mut self) -> CpuCounters {
        let ours_us = self.cpu_us as u64 + machine::own_cpu_us();
        match self.cpu.total() {
            Some(total) => CpuCounters {
                cores: total.cores,
                left_us: total.left_us,
                ours_us,
            },
            None => CpuCounters {
                cores: f64::from(crate::options::cores()),
                left_us: 0,
                ours_us,
            },
        }
    }

    pub(super) fn memory<'m>(
        &mut self,
        members: impl Iterator<Item = &'m mut Member>,
        now_ms: u64,
    ) -> Option<Memory> {
        let is_old = |at_ms: u64, ms| now_ms >= at_ms + ms;
        if self.left.is_none_or(|(at_ms, _)| is_old(at_ms, MEMORY_MS)) {
            self.left = Some((now_ms, self.memory.left()?));
        }
        if self
            .thread_bytes
            .is_none_or(|(at_ms, _)| is_old(at_ms, THREAD_MEMORY_MS))
        {
            self.measure_a_thread(members, now_ms);
        }
        let ((_, left), (_, thread_bytes)) = (self.left?, self.thread_bytes?);
        Some(Memory {
            total_bytes: left.total_bytes,
            left_bytes: left.left_bytes,
            thread_bytes,
        })
    }

    /// How many threads fit beside those that are starting, which have not yet taken their memory. `None`: what is left
    /// cannot be read.
    pub(super) fn room<'m>(
        &mut self,
        members: impl Iterator<Item = &'m mut Member>,
        starting: u32,
        now_ms: u64,
    ) -> Option<u32> {
        let measured = self.memory(members, now_ms);
        let memory = measured.or_else(|| {
            let (_, left) = self.left?;
            Some(Memory {
                total_bytes: left.total_bytes,
                left_bytes: left.left_bytes,
                thread_bytes: THREAD_BYTES_ASSUMED,
            })
        });
        Some(memory?.room(starting))
    }

    /// Of those that have worked, each in its turn. Largest counts: others will come to it.
    fn measure_a_thread<'m>(&mut self, members: impl Iterator<Item = &'m mut Member>, now_ms: u64) {
        let worked = members.filter(|member| !member.boots() && member.process.was_offered());
        let Some(member) = worked.min_by_key(|member| (member.measured_ms, member.process.number))
        else {
            return;
        };
        member.measured_ms = now_ms;
        // Its segment is the front's too, and so nobody's own.
        let segment_bytes = member.process.segment_bytes();
        if let Some(bytes) = machine::own_memory_bytes(member.process.pid) {
            let before = self.thread_bytes.map_or(0, |(_, bytes)| bytes);
            let bytes = (bytes + segment_bytes) / u64::from(member.process.thread_count());
            self.thread_bytes = Some((now_ms, bytes.max((3 * before + bytes) / 4)));
        }
    }
}

fn read(member: &Member, now_ms: u64) -> Option<Reading> {
    let process = &member.process;
    let taken = match process.thread_count() {
        1 => machine::cpu_taken(process.pid),
        _ => machine::cpu_taken_by_all(process.pid),
    }?;
    Some(Reading {
        taken,
        at_ms: now_ms,
    })
}

fn mean(before: f64, now: f64) -> f64 {
    before + START_WEIGHT * (now - before)
}

fn grown(now: u64, then: u64) -> f64 {
    now.saturating_sub(then) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_bound_before_any_thread_has_worked() {
        let mut gauges = Gauges::new();
        let left = MemoryLeft {
            total_bytes: 100 * THREAD_BYTES_ASSUMED,
            left_bytes: 50 * THREAD_BYTES_ASSUMED,
        };
        gauges.left = Some((0, left));
        let mut room = |starting| gauges.room(std::iter::empty(), starting, 0);
        assert_eq!(room(0), Some(40), "a tenth is kept");
        assert_eq!(room(30), Some(10));
        assert_eq!(room(50), Some(0));
        gauges.thread_bytes = Some((0, 2 * THREAD_BYTES_ASSUMED));
        assert_eq!(gauges.room(std::iter::empty(), 5, 0), Some(15));
    }
}
