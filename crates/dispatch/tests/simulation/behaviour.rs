//! What a policy does besides reaching a sum: how fast it is, whether it flaps, what it withstands.

use baton_dispatch::autoscale::{Reason, ScaleLimits};

use crate::load::{self, Load};
use crate::ours::Ours;
use crate::random::Random;
use crate::regret::{Ideal, baseline, ours, percent, threads_default};
use crate::scaler::Fixed;
use crate::time::{MS, S, US};
use crate::world::{Machine, run};

const TWO_CORES: Machine = Machine::TWO_CORES;
/// The best fixed number for the database load there, see [`crate::regret`].
const DATABASE_IDEAL: u32 = 53;

/// When, after the step, half a second has 90 % of what the best fixed number does in the end; in seconds.
fn reached_after_s(load: &Load, machine: Machine) -> f64 {
    let (_, ideal) = Ideal::find(load, machine);
    let step = (load::STEP_AT / (100 * MS)) as usize;
    let last = (load.end() / (100 * MS)) as usize;
    let ideal: u64 = ideal.handled_by_tenth[last - 20..last].iter().sum();
    let ours = ours(load, machine);
    let half_seconds = ours.handled_by_tenth[step..last].windows(5);
    let mut sums = half_seconds.map(|tenths| tenths.iter().sum::<u64>());
    let at = sums.position(|sum| sum * 20 >= ideal / 4 * 18);
    at.expect("it is reached") as f64 / 10.0
}

#[test]
fn a_step_is_followed_within_a_second() {
    let after_s = reached_after_s(&load::STEP, TWO_CORES);
    assert!(after_s <= 1.0, "{after_s} s");
}

#[test]
fn a_step_that_takes_hundreds_of_threads_is_followed_as_fast_as_they_can_be_forked() {
    let outcome = ours(&load::SLEEPY_STEP, TWO_CORES);
    let forks_s = f64::from(outcome.started) * TWO_CORES.fork as f64 / S as f64;
    let after_s = reached_after_s(&load::SLEEPY_STEP, TWO_CORES);
    assert!(
        after_s <= 1.0 + forks_s,
        "{after_s} s, {forks_s} s of them forks"
    );
    assert!(outcome.started > 400, "{outcome:?}");
}

#[test]
fn with_workers_within_a_second_and_their_boot_time() {
    for boot_ms in [20, 50, 100] {
        let machine = Machine {
            boot_compute: boot_ms * MS,
            ..TWO_CORES
        };
        let threads = f64::from(ours(&load::STEP, machine).threads_max);
        let boot_s = threads * (boot_ms as f64 / 1000.0) / machine.cores;
        let after_s = reached_after_s(&load::STEP, machine);
        assert!(
            after_s <= 1.0 + boot_s,
            "{boot_ms} ms: {after_s} s, {boot_s} s of them boot"
        );
    }
}

#[test]
fn everything_happens_again_in_the_same_way() {
    assert_eq!(ours(&load::LEAK, TWO_CORES), ours(&load::LEAK, TWO_CORES));
}

#[test]
fn waves_do_not_make_threads_come_and_go() {
    let outcome = ours(&load::WAVES, TWO_CORES);
    assert_eq!((outcome.stopped, outcome.restarted), (0, 0));
}

#[test]
fn chance_does_not_make_threads_come_and_go() {
    let outcome = ours(&load::VISITORS, TWO_CORES);
    assert!(outcome.threads_max <= 10, "{outcome:?}");
    assert_eq!(outcome.stopped, 0, "{outcome:?}");
}

#[test]
fn threads_that_nobody_needs_go() {
    let outcome = ours(&load::EVENING, TWO_CORES);
    assert!(outcome.threads_max > 40, "{outcome:?}");
    assert_eq!(
        outcome.threads_last,
        threads_default(TWO_CORES),
        "{outcome:?}"
    );
    assert_eq!(outcome.restarted, 0, "{outcome:?}");
}

#[test]
fn cpu_bound_threads_are_not_multiplied() {
    // Whatever the client computes on the same machine.
    for generator in [0, 60 * US, 300 * US] {
        let machine = Machine {
            generator,
            ..TWO_CORES
        };
        for load in [&load::HELLO, &load::COMPUTATION] {
            let outcome = ours(load, machine);
            assert!(outcome.started <= 1, "{} with {generator} ns", load.name);
        }
    }
}

#[test]
fn a_thousand_clients_that_hang() {
    let ideal = run(&load::HANGING_1000, TWO_CORES, &mut Fixed(1_000));
    let outcome = ours(&load::HANGING_1000, TWO_CORES);
    assert!(percent(&outcome, &ideal) >= 95.0, "{outcome:?}");
    assert!(outcome.threads_max <= 1_000, "{outcome:?}");
}

#[test]
fn others_who_want_the_cpu_do_not_keep_it() {
    let one = Machine {
        hogs: |_| 1,
        ..TWO_CORES
    };
    let now_and_then = Machine {
        hogs: |now| Random::new(now / (150 * MS)).range(0, 3) as usize,
        ..TWO_CORES
    };
    for machine in [one, now_and_then] {
        let outcome = ours(&load::DATABASE, machine);
        assert!(outcome.handled > baseline(&load::DATABASE, machine).handled);
        // Half as many again as the cores can carry: others are not crowded out by numbers.
        assert!(outcome.threads_max <= 64, "{outcome:?}");
        assert_eq!(outcome.stopped, 0, "{outcome:?}");
    }
}

#[test]
fn a_start_that_takes_five_seconds() {
    let machine = Machine {
        boot_sleep: 4_800 * MS,
        boot_compute: 200 * MS,
        ..TWO_CORES
    };
    // The best fixed number was started before.
    let ideal = run(&load::DATABASE, machine, &mut Fixed(DATABASE_IDEAL));
    let outcome = ours(&load::DATABASE, machine);
    assert!(percent(&outcome, &ideal) >= 85.0, "{outcome:?}");
    assert!(outcome.handled > 2 * baseline(&load::DATABASE, machine).handled);
    assert!(outcome.threads_max <= DATABASE_IDEAL * 5 / 4, "{outcome:?}");
}

#[test]
fn starts_that_compute_do_not_storm() {
    let machine = Machine {
        boot_compute: 500 * MS,
        ..TWO_CORES
    };
    for load in [&load::STEP, &load::HANGING] {
        let outcome = ours(load, machine);
        assert!(outcome.starting_max <= 3, "{outcome:?}");
        assert!(outcome.handled > baseline(load, machine).handled);
    }
}

#[test]
fn starts_that_never_end_do_not_block_others() {
    let machine = Machine {
        stuck_every: 5,
        ..TWO_CORES
    };
    let ideal = run(&load::DATABASE, TWO_CORES, &mut Fixed(DATABASE_IDEAL));
    let outcome = ours(&load::DATABASE, machine);
    assert!(percent(&outcome, &ideal) >= 90.0, "{outcome:?}");
}

#[test]
fn memory_sets_a_bound() {
    let mut scaler = Ours::new(ScaleLimits::auto(4));
    scaler.memory_bytes = Some((200_000_000, 2_000_000));
    let outcome = run(&load::EXTERNAL_API, TWO_CORES, &mut scaler);
    assert_eq!(outcome.threads_max, 90, "a tenth is kept free");
    let is_told = |reason: &Reason| matches!(reason, Reason::MemoryFull { .. });
    assert!(
        scaler
            .log
            .iter()
            .any(|logged| is_told(&logged.decision.reason))
    );
}

#[test]
fn without_knowing_what_threads_do_it_goes_by_the_cpu_that_is_left() {
    for load in [
        &load::EXTERNAL_API,
        &load::COMPUTATION,
        &load::HANGING,
        &load::TIMEOUTS,
    ] {
        let (_, ideal) = Ideal::find(load, TWO_CORES);
        let mut scaler = Ours::new(ScaleLimits::auto(4));
        scaler.knows_work = false;
        let outcome = run(load, TWO_CORES, &mut scaler);
        assert!(
            percent(&outcome, &ideal) >= 95.0,
            "{}: {outcome:?}",
            load.name
        );
    }
}

#[test]
fn other_machines() {
    for cores in [0.5, 4.0] {
        let machine = Machine { cores, ..TWO_CORES };
        for load in [&load::EXTERNAL_API, &load::COMPUTATION] {
            let (threads, ideal) = Ideal::find(load, machine);
            let percent = percent(&ours(load, machine), &ideal);
            assert!(
                percent >= 95.0,
                "{}, {cores} cores: {percent:.1} % of {threads} threads",
                load.name
            );
        }
    }
}

#[test]
fn looks_are_few() {
    let a_second = |load: &Load| ours(load, TWO_CORES).looks as f64 * S as f64 / load.end() as f64;
    for load in [&load::TIMEOUTS, &load::HANGING, &load::HELLO] {
        assert!(a_second(load) <= 40.0, "{}: {}", load.name, a_second(load));
    }
    let quiet = Load {
        stages: &[(S, 4), (20 * S, 4)],
        ..load::DATABASE
    };
    assert!(a_second(&quiet) < 0.1, "nothing to do, nothing done");
}
