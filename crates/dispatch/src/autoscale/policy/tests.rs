//! Single decisions. What comes of many of them, `tests/simulation` shows.

use proptest::prelude::*;

use super::super::observation::{Cpu, IdleThread, Memory, StartCost};
use super::*;
use crate::{Dispatcher, ThreadId};

const LIMITS: ScaleLimits = ScaleLimits {
    threads_min: 4,
    threads_max: 100,
    threads_per_process: 1,
    idle_ms_max: 60_000,
};
const NOW_MS: u64 = 1_000_000;

/// Four busy threads that mostly sleep, on two cores of which most is left, and 96 requests that wait.
fn sleepy() -> Observation {
    Observation {
        threads: 4,
        by_hand: 0,
        idle: Vec::new(),
        idle_least: 0,
        starting: 0,
        starting_young: 0,
        overdue: 0,
        start_not_before_ms: 0,
        waiting: 96,
        waiting_mean: 95.5,
        oldest_wait_ms: 50,
        thread_use: Some(0.05),
        cpu: Cpu {
            cores: 2.0,
            left: 1.8,
            ours: 0.2,
            busy: 4.0,
        },
        start: Some(StartCost {
            cpu_ms: 4.0,
            sleep_ms: 0.0,
        }),
        memory: None,
    }
}

/// `count` idle threads, and nothing to do.
fn quiet(count: u32) -> Observation {
    let mut dispatcher: Dispatcher<(), ()> = Dispatcher::new(crate::Limits {
        queue_len_max: 0,
        queue_wait_ms_max: 1,
        rotate_ms: 1,
        stand_by: false,
    });
    let idle = |_| IdleThread {
        id: dispatcher.add(()),
        by_hand: false,
    };
    Observation {
        threads: count,
        idle: (0..count).map(idle).collect(),
        idle_least: count,
        waiting: 0,
        waiting_mean: 0.0,
        ..sleepy()
    }
}

fn started(seen: &Observation) -> u32 {
    match decide(seen, &LIMITS, NOW_MS).action {
        Action::Start(count) => count,
        Action::Hold => 0,
        Action::Stop { .. } => panic!("nothing is idle"),
    }
}

fn stopped(seen: &Observation) -> Vec<ThreadId> {
    match decide(seen, &LIMITS, NOW_MS).action {
        Action::Stop { with, .. } => with,
        Action::Hold => Vec::new(),
        Action::Start(_) => panic!("nothing waits"),
    }
}

#[test]
fn as_many_start_as_fill_the_cores_but_at_most_twice_as_many() {
    assert_eq!(started(&sleepy()), 4);
    let later = Observation {
        threads: 30,
        cpu: Cpu {
            left: 1.0,
            ours: 1.0,
            busy: 20.0,
            ..sleepy().cpu
        },
        ..sleepy()
    };
    // 40 fill two cores.
    assert_eq!(started(&later), 10);
}

#[test]
fn not_more_start_than_wait_or_are_starting() {
    let few = Observation {
        waiting: 3,
        waiting_mean: 2.6,
        ..sleepy()
    };
    assert_eq!(started(&few), 3);
    let begun = Observation {
        waiting: 3,
        waiting_mean: 9.0,
        starting: 2,
        ..sleepy()
    };
    assert_eq!(started(&begun), 1);
    let calm = Observation {
        waiting_mean: 0.4,
        ..sleepy()
    };
    let decision = decide(&calm, &LIMITS, NOW_MS);
    assert!(matches!(decision.reason, Reason::WaitIsShort { .. }));
}

#[test]
fn when_the_cpu_is_full_nothing_starts() {
    let full = Observation {
        thread_use: Some(0.97),
        cpu: Cpu {
            left: 0.02,
            ours: 1.98,
            ..sleepy().cpu
        },
        ..sleepy()
    };
    let decision = decide(&full, &LIMITS, NOW_MS);
    assert_eq!(decision.action, Action::Hold);
    assert!(matches!(decision.reason, Reason::CpuFull { .. }));
}

#[test]
fn a_small_rest_of_the_cpu_is_no_reason_where_threads_are_ample() {
    let rest = |busy, left| Observation {
        threads: 20,
        thread_use: Some(0.9),
        cpu: Cpu {
            left,
            ours: 1.7,
            busy,
            ..sleepy().cpu
        },
        ..sleepy()
    };
    // By calculation 5.4 cores and 6.3.
    assert_eq!(
        started(&Observation {
            threads: 6,
            ..rest(6.0, 0.2)
        }),
        1
    );
    assert_eq!(
        started(&Observation {
            threads: 7,
            ..rest(7.0, 0.2)
        }),
        0
    );
    assert_eq!(started(&rest(20.0, 0.6)), 1, "whatever was calculated");
}

#[test]
fn others_cannot_keep_the_cpu_from_an_app_but_it_takes_no_more_than_it_needs() {
    let crowded = Observation {
        cpu: Cpu {
            left: 0.0,
            ours: 0.2,
            ..sleepy().cpu
        },
        ..sleepy()
    };
    assert_eq!(started(&crowded), 4);
    let enough = Observation {
        threads: 40,
        ..crowded.clone()
    };
    assert_eq!(started(&enough), 0);
    let computing = Observation {
        thread_use: Some(1.0),
        ..crowded.clone()
    };
    assert_eq!(started(&computing), 0);
    let unknown = Observation {
        thread_use: None,
        ..crowded
    };
    assert_eq!(started(&unknown), 0);
}

#[test]
fn what_is_starting_is_going_to_use_what_is_left() {
    let begun = |starting, busy| Observation {
        threads: 50,
        starting,
        cpu: Cpu {
            left: 0.46,
            ours: 1.54,
            busy,
            ..sleepy().cpu
        },
        ..sleepy()
    };
    assert_eq!(started(&begun(0, 50.0)), 8);
    assert_eq!(started(&begun(6, 50.0)), 2);
    assert_eq!(started(&begun(0, 44.0)), 2);
    assert_eq!(started(&begun(8, 50.0)), 0);
}

#[test]
fn starts_that_compute_keep_their_pace() {
    let slow = |starting, starting_young, sleep_ms| Observation {
        threads: 20,
        starting,
        starting_young,
        start: Some(StartCost {
            cpu_ms: 1_000.0,
            sleep_ms,
        }),
        ..sleepy()
    };
    assert_eq!(started(&slow(0, 0, 0.0)), 2);
    let decision = decide(&slow(2, 2, 0.0), &LIMITS, NOW_MS);
    assert!(matches!(
        decision.reason,
        Reason::Starting { starting: 2, .. }
    ));
    // The others are waiting for something.
    assert_eq!(started(&slow(4, 0, 4_000.0)), 2);
    assert_eq!(started(&slow(4, 1, 4_000.0)), 1);
    assert_eq!(started(&slow(10, 0, 4_000.0)), 0);
}

#[test]
fn lost_threads_are_made_up_for_at_once() {
    let lost = Observation {
        threads: 5,
        by_hand: 2,
        starting: 0,
        overdue: 0,
        ..quiet(0)
    };
    assert_eq!(started(&lost), 1);
    let failing = Observation {
        start_not_before_ms: NOW_MS + 300,
        ..lost
    };
    let decision = decide(&failing, &LIMITS, NOW_MS);
    assert_eq!(decision.action, Action::Hold);
    assert_eq!(decision.look_again_ms, Some(NOW_MS + 300));
    assert_eq!(
        decision.to_string(),
        "hold: no request waits, but threads fail to start; the next try is in 300 ms"
    );
}

#[test]
fn overdue_starts_are_not_counted_on_but_count() {
    let stuck = |overdue| Observation {
        overdue,
        waiting: 2,
        waiting_mean: 2.0,
        ..sleepy()
    };
    assert_eq!(started(&stuck(50)), 2);
    assert_eq!(started(&stuck(95)), 1);
    let decision = decide(&stuck(96), &LIMITS, NOW_MS);
    assert!(matches!(
        decision.reason,
        Reason::AtMost {
            threads_max: 100,
            ..
        }
    ));
}

#[test]
fn memory_is_kept() {
    let memory = |left_bytes| Observation {
        memory: Some(Memory {
            total_bytes: 1_000_000_000,
            left_bytes,
            thread_bytes: 20_000_000,
        }),
        ..sleepy()
    };
    assert_eq!(started(&memory(165_000_000)), 3);
    let decision = decide(&memory(110_000_000), &LIMITS, NOW_MS);
    assert_eq!(
        decision.to_string(),
        "hold: 96 requests wait, but memory is short: 110 MB are left, 100 MB of them are kept free, and a thread takes \
         20 MB"
    );
}

#[test]
fn idle_threads_go_a_quarter_at_a_time_the_longest_idle_first() {
    let seen = quiet(24);
    let ids: Vec<_> = seen.idle.iter().map(|thread| thread.id).collect();
    assert_eq!(stopped(&seen), ids[..6]);
    let one = Observation {
        idle_least: 1,
        ..quiet(24)
    };
    assert_eq!(stopped(&one).len(), 1);
    let needed_lately = Observation {
        idle_least: 0,
        ..quiet(24)
    };
    assert!(stopped(&needed_lately).is_empty());
    assert_eq!(stopped(&quiet(5)).len(), 1);
    assert!(stopped(&quiet(4)).is_empty());
    assert_eq!(decide(&quiet(4), &LIMITS, NOW_MS).look_again_ms, None);
}

#[test]
fn threads_added_by_hand_stay() {
    let mut seen = quiet(24);
    seen.by_hand = 19;
    for thread in &mut seen.idle[..19] {
        thread.by_hand = true;
    }
    let last: Vec<_> = seen.idle[19..20].iter().map(|thread| thread.id).collect();
    assert_eq!(stopped(&seen), last);
    seen.by_hand = 20;
    seen.idle[19].by_hand = true;
    assert!(stopped(&seen).is_empty());
}

#[test]
fn processes_with_several_threads_come_and_go_as_a_whole() {
    let limits = ScaleLimits {
        threads_per_process: 4,
        ..LIMITS
    };
    let action = |seen: &Observation| decide(seen, &limits, NOW_MS).action;
    let few = Observation {
        waiting: 1,
        waiting_mean: 1.0,
        ..sleepy()
    };
    assert_eq!(action(&few), Action::Start(4));
    let nearly_all = Observation {
        threads: 97,
        thread_use: Some(0.001),
        ..sleepy()
    };
    assert_eq!(action(&nearly_all), Action::Hold, "three more may be");
    let memory = |threads: u64| Observation {
        threads: 40,
        thread_use: Some(0.001),
        memory: Some(Memory {
            total_bytes: 1000,
            left_bytes: 100 + 10 * threads,
            thread_bytes: 10,
        }),
        ..sleepy()
    };
    assert_eq!(action(&memory(3)), Action::Hold);
    assert_eq!(action(&memory(11)), Action::Start(8));
    // Of each process one thread is told.
    let idle = |least| Observation {
        threads: 24,
        idle_least: least,
        ..quiet(6)
    };
    let stopped = |least| match action(&idle(least)) {
        Action::Stop { count, with } => (count, with.len()),
        _ => (0, 0),
    };
    assert_eq!(
        [stopped(3), stopped(4), stopped(20)],
        [(0, 0), (4, 1), (8, 2)]
    );
}

fn figure() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => 0.0..4.0f64,
        1 => Just(0.0),
        1 => Just(f64::MAX),
        1 => Just(f64::NAN),
        1 => Just(-1.0),
    ]
}

fn count() -> impl Strategy<Value = u32> {
    prop_oneof![6 => 0..200u32, 1 => Just(u32::MAX)]
}

prop_compose! {
    fn any_observation()(
        idle_count in 0..50u32,
        by_hand in 0..60u32,
        busy in count(),
        (starting, starting_young, overdue) in (count(), count(), count()),
        start_not_before_ms in NOW_MS - 1..NOW_MS + 1,
        (waiting, waiting_mean) in (count(), figure()),
        thread_use in proptest::option::of(figure()),
        (cores, left, ours, cpu_busy) in (figure(), figure(), figure(), figure()),
        (cpu_ms, sleep_ms) in (figure(), figure()),
        is_start_known in any::<bool>(),
        memory in proptest::option::of((any::<u64>(), any::<u64>(), 0..9u64)),
    ) -> Observation {
        let mut seen = quiet(idle_count);
        for thread in seen.idle.iter_mut().take(by_hand as usize) {
            thread.by_hand = true;
        }
        Observation {
            threads: idle_count.saturating_add(busy),
            by_hand,
            starting,
            starting_young,
            overdue,
            start_not_before_ms,
            waiting,
            waiting_mean,
            thread_use,
            cpu: Cpu { cores, left, ours, busy: cpu_busy },
            start: is_start_known.then_some(StartCost { cpu_ms, sleep_ms }),
            memory: memory.map(|(total_bytes, left_bytes, thread_bytes)| Memory {
                total_bytes,
                left_bytes,
                thread_bytes,
            }),
            ..seen
        }
    }
}

proptest! {
    /// Whatever is measured, and be it nonsense.
    #[test]
    fn limits_hold(
        seen in any_observation(),
        threads_min in 0..50u32,
        more in 0..100u32,
        threads_per_process in 1..9u32,
    ) {
        let limits = ScaleLimits {
            threads_min: threads_min * threads_per_process,
            threads_max: threads_min * threads_per_process + more,
            threads_per_process,
            idle_ms_max: 0,
        };
        let decision = decide(&seen, &limits, NOW_MS);
        prop_assert!(!decision.to_string().is_empty());
        prop_assert!(decision.look_again_ms.is_none_or(|at_ms| at_ms > NOW_MS));
        let all = super::all(&seen);
        let own = all.saturating_sub(seen.by_hand);
        match decision.action {
            Action::Start(count) => {
                prop_assert!(count > 0 && count.is_multiple_of(threads_per_process));
                let fills_up = own < limits.threads_min
                    && own + count < limits.threads_min + threads_per_process;
                prop_assert!(all + count <= limits.threads_max || fills_up);
            }
            Action::Stop { count, with } => {
                prop_assert!(!with.is_empty());
                prop_assert_eq!(count, with.len() as u32 * threads_per_process);
                prop_assert!(own - count >= limits.threads_min);
                let is_idle_and_own = |id: &ThreadId| seen
                    .idle
                    .iter()
                    .any(|thread| thread.id == *id && !thread.by_hand);
                prop_assert!(with.iter().all(is_idle_and_own));
            }
            Action::Hold => {}
        }
    }
}
