//! The decision itself.

use super::decision::{Action, CpuView, Decision, Reason};
use super::limits::ScaleLimits;
use super::observation::Observation;

/// How often to look while requests wait, in milliseconds.
pub const LOOK_MS: u64 = 25;
/// How often to look while they wait for CPU.
const LOOK_FULL_MS: u64 = 100;
/// How often to look while nothing can be done for them.
const LOOK_IN_VAIN_MS: u64 = 1_000;
/// In how many steps idle threads go.
const IDLE_LOOKS: u64 = 8;
const IDLE_STEPS: u32 = 4;

/// The CPU is full when less than this share is left.
const LEFT_SHARE_MIN: f64 = 0.03;
/// As long as an app uses less than this share, it may start threads although the CPU is full.
const OWN_SHARE: f64 = 0.8;
/// Where threads need so many times the cores, calculated, a small rest of the CPU is no reason for one more.
const AMPLE_FACTOR: f64 = 3.0;
/// No thread counts for less than this share of a core.
const THREAD_USE_MIN: f64 = 0.001;
/// Before it is known what a start costs: so many at once for each core.
const STARTS_UNKNOWN_MAX: f64 = 4.0;

/// What to do about the number of an app's threads.
///
/// One look at most doubles it, so that a measurement that deceives is found out before it did harm.
pub fn decide(seen: &Observation, limits: &ScaleLimits, now_ms: u64) -> Decision {
    let own = all(seen).saturating_sub(seen.by_hand);
    if own < limits.threads_min {
        return too_few(seen, limits, own, now_ms);
    }
    if seen.waiting > 0 {
        return when_requests_wait(seen, limits, now_ms);
    }
    when_nothing_waits(seen, limits, own, now_ms)
}

/// Threads that are there and that are to be.
fn all(seen: &Observation) -> u32 {
    let starting = seen.starting.saturating_add(seen.overdue);
    seen.threads.saturating_add(starting)
}

fn too_few(seen: &Observation, limits: &ScaleLimits, own: u32, now_ms: u64) -> Decision {
    match fails(seen, now_ms) {
        Some(hold) => hold,
        None => Decision {
            action: Action::Start(limits.whole_up(limits.threads_min - own)),
            reason: Reason::TooFew {
                threads: own,
                threads_min: limits.threads_min,
            },
            look_again_ms: Some(now_ms + LOOK_MS),
        },
    }
}

fn when_requests_wait(seen: &Observation, limits: &ScaleLimits, now_ms: u64) -> Decision {
    let waiting = seen.waiting;
    let all = all(seen);
    let allowed = limits.whole_down(limits.threads_max.saturating_sub(all));
    if allowed == 0 {
        let threads_max = limits.threads_max;
        return hold(
            Reason::AtMost {
                waiting,
                threads_max,
            },
            now_ms + LOOK_IN_VAIN_MS,
        );
    }
    if let Some(hold) = fails(seen, now_ms) {
        return hold;
    }

    // Each that waits wants a thread. The mean, because a moment of calm or of hurry says little; but not more than are
    // waiting now, because the mean does not know of threads that have got ready since.
    let wanted = (seen.waiting_mean.round() as u32).min(waiting);
    if wanted == 0 {
        return hold(
            Reason::WaitIsShort {
                waiting,
                oldest_wait_ms: seen.oldest_wait_ms,
            },
            now_ms + LOOK_MS,
        );
    }
    let starting = seen.starting;
    let wanted = wanted.saturating_sub(starting);
    let wanted = wanted.min(starts_now(seen, limits)).min(all.max(1));
    if wanted == 0 {
        return hold(Reason::Starting { waiting, starting }, now_ms + LOOK_MS);
    }

    let cpu = CpuView {
        cores: seen.cpu.cores,
        ours: seen.cpu.ours,
        left: seen.cpu.left,
        thread_use: thread_use(seen),
    };
    let useful = missing_to_fill(seen).max(useful_for_the_rest(seen));
    if useful == 0 {
        return hold(Reason::CpuFull { waiting, cpu }, now_ms + LOOK_FULL_MS);
    }
    let fitting = seen
        .memory
        .map_or(u32::MAX, |memory| memory.room(seen.starting + seen.overdue));
    let allowed = allowed.min(limits.whole_down(fitting));
    let count = limits.whole_up(wanted.min(useful)).min(allowed);
    if count == 0 {
        let reason = out_of_memory(seen);
        return hold(reason, now_ms + LOOK_IN_VAIN_MS);
    }
    Decision {
        action: Action::Start(count),
        reason: Reason::ThreadsSleep {
            waiting,
            oldest_wait_ms: seen.oldest_wait_ms,
            cpu,
        },
        look_again_ms: Some(now_ms + LOOK_MS),
    }
}

fn when_nothing_waits(seen: &Observation, limits: &ScaleLimits, own: u32, now_ms: u64) -> Decision {
    let surplus = limits.whole_down(own.saturating_sub(limits.threads_min));
    if surplus == 0 {
        return Decision {
            action: Action::Hold,
            reason: Reason::NothingWaits,
            look_again_ms: None,
        };
    }
    let again_ms = now_ms + (limits.idle_ms_max / IDLE_LOOKS).max(1);
    let per_process = limits.threads_per_process.max(1);
    let processes = (seen.idle_least / per_process).div_ceil(IDLE_STEPS);
    let processes = processes.min(surplus / per_process);
    let with: Vec<_> = seen
        .idle
        .iter()
        .filter(|thread| !thread.by_hand)
        .map(|thread| thread.id)
        .take(processes as usize)
        .collect();
    if with.is_empty() || seen.starting > 0 {
        return hold(Reason::NothingWaits, again_ms);
    }
    Decision {
        action: Action::Stop {
            count: with.len() as u32 * per_process,
            with,
        },
        reason: Reason::Idle {
            idle_least: seen.idle_least,
            idle_ms_max: limits.idle_ms_max,
        },
        look_again_ms: Some(again_ms),
    }
}

fn thread_use(seen: &Observation) -> f64 {
    // If nothing is known of them: at most what the app used, spread over its busy threads.
    let at_most = || match seen.cpu.busy >= 0.5 {
        true => seen.cpu.ours / seen.cpu.busy,
        false => 1.0,
    };
    let thread_use = seen.thread_use.unwrap_or_else(at_most);
    thread_use.clamp(THREAD_USE_MIN, 1.0)
}

fn busy(seen: &Observation) -> f64 {
    f64::from(seen.threads) - seen.idle.len() as f64
}

/// How many are missing until the app could fill the cores by itself, if it has less than its share of them. Whoever
/// else uses them has to give way: an app that waited until others are done could be held up by any of them.
fn missing_to_fill(seen: &Observation) -> u32 {
    // Without knowing how long threads wait for a core, those that compute look as if they slept.
    if seen.thread_use.is_none() || seen.cpu.ours > OWN_SHARE * seen.cpu.cores {
        return 0;
    }
    let filling = seen.cpu.cores / thread_use(seen);
    (filling - busy(seen) - f64::from(seen.starting)).max(0.0) as u32
}

/// How many have work to do on the cores that were left, whatever was calculated.
fn useful_for_the_rest(seen: &Observation) -> u32 {
    let cpu = &seen.cpu;
    // What is starting, or was idle or not there for a part of the window, has yet to show what it uses.
    let coming = f64::from(seen.starting) + (busy(seen) - cpu.busy).max(0.0);
    let left = cpu.left - LEFT_SHARE_MIN * cpu.cores - coming * thread_use(seen);
    let useful = (left / thread_use(seen)).max(0.0);
    match cpu.busy * thread_use(seen) < AMPLE_FACTOR * cpu.cores {
        true => useful.ceil() as u32,
        // That little is left because threads wait for the front, or for each other: none of them would fill it.
        false => useful.round() as u32,
    }
}

/// How many may start now, by processes: these are what costs. Those that wait for something, or are done soon, may be many.
fn starts_now(seen: &Observation, limits: &ScaleLimits) -> u32 {
    let cores = seen.cpu.cores;
    // A cast saturates; what cannot be computed becomes 0.
    let per_process = limits.threads_per_process.max(1);
    let at_least_one = |count: f64| (count.ceil() as u32).max(1).saturating_mul(per_process);
    let Some(start) = seen.start else {
        return at_least_one(cores * STARTS_UNKNOWN_MAX).saturating_sub(seen.starting);
    };
    let pace_ms = start.pace_ms();
    let in_pace = at_least_one(cores * pace_ms / start.cpu_ms);
    let at_once = at_least_one(cores * pace_ms.max(start.least_ms()) / start.cpu_ms);
    let in_pace = in_pace.saturating_sub(seen.starting_young);
    at_once.saturating_sub(seen.starting).min(in_pace)
}

fn fails(seen: &Observation, now_ms: u64) -> Option<Decision> {
    (now_ms < seen.start_not_before_ms).then(|| {
        let reason = Reason::StartsFail {
            waiting: seen.waiting,
            again_in_ms: seen.start_not_before_ms - now_ms,
        };
        hold(reason, seen.start_not_before_ms)
    })
}

fn out_of_memory(seen: &Observation) -> Reason {
    let waiting = seen.waiting;
    let memory = seen.memory.unwrap_or(super::Memory {
        total_bytes: 0,
        left_bytes: 0,
        thread_bytes: 0,
    });
    Reason::MemoryFull {
        waiting,
        left_bytes: memory.left_bytes,
        kept_bytes: memory.kept_bytes(),
        thread_bytes: memory.thread_bytes,
    }
}

fn hold(reason: Reason, look_again_ms: u64) -> Decision {
    Decision {
        action: Action::Hold,
        reason,
        look_again_ms: Some(look_again_ms),
    }
}

#[cfg(test)]
mod tests;
