//! How much a policy loses against the best fixed number of threads, which nobody knows beforehand.

use std::collections::HashMap;

use baton_dispatch::autoscale::ScaleLimits;

use crate::baseline::Baseline;
use crate::load::{self, Load};
use crate::ours::Ours;
use crate::scaler::Fixed;
use crate::world::{Machine, Outcome, run};

/// What both policies may use; memory sets no other bound here.
const THREADS_MAX: u32 = 1_000;

pub fn threads_default(machine: Machine) -> u32 {
    (2.0 * machine.cores).ceil() as u32
}

pub fn ours(load: &Load, machine: Machine) -> Outcome {
    let mut limits = ScaleLimits::auto(threads_default(machine));
    limits.threads_max = THREADS_MAX;
    run(load, machine, &mut Ours::new(limits))
}

pub fn baseline(load: &Load, machine: Machine) -> Outcome {
    let mut baseline = Baseline::new(threads_default(machine), THREADS_MAX);
    run(load, machine, &mut baseline)
}

/// The best fixed number of threads, to a sixth: more threads do more up to some number, and less from there on.
pub struct Ideal<'a> {
    load: &'a Load,
    machine: Machine,
    tried: HashMap<u32, Outcome>,
}

impl<'a> Ideal<'a> {
    pub fn find(load: &'a Load, machine: Machine) -> (u32, Outcome) {
        let mut ideal = Self {
            load,
            machine,
            tried: HashMap::new(),
        };
        let mut threads = threads_default(machine);
        for (up, down) in [((2, 1), (1, 2)), ((4, 3), (3, 4)), ((6, 5), (5, 6))] {
            let before = threads;
            threads = ideal.climb(threads, up);
            if threads == before {
                threads = ideal.climb(threads, down);
            }
        }
        (threads, ideal.outcome(threads).clone())
    }

    fn climb(&mut self, from: u32, (factor, divisor): (u32, u32)) -> u32 {
        let mut threads = from;
        loop {
            let next = match factor > divisor {
                true => (threads * factor).div_ceil(divisor),
                false => threads * factor / divisor,
            };
            let next = next.clamp(1, THREADS_MAX);
            if self.outcome(next).handled <= self.outcome(threads).handled {
                return threads;
            }
            threads = next;
        }
    }

    fn outcome(&mut self, threads: u32) -> &Outcome {
        let (load, machine) = (self.load, self.machine);
        self.tried
            .entry(threads)
            .or_insert_with(|| run(load, machine, &mut Fixed(threads)))
    }
}

pub fn percent(outcome: &Outcome, ideal: &Outcome) -> f64 {
    100.0 * outcome.handled as f64 / ideal.handled as f64
}

/// At least 95 % of the ideal, and more than the baseline.
#[track_caller]
fn judge(load: &Load) {
    judge_by(load, 95.0);
}

/// Where neither starts a thread they are the same.
#[track_caller]
fn judge_by(load: &Load, percent_min: f64) {
    let machine = Machine::TWO_CORES;
    let (threads, ideal) = Ideal::find(load, machine);
    let (ours, baseline) = (ours(load, machine), baseline(load, machine));
    let percent = percent(&ours, &ideal);
    assert!(
        percent >= percent_min,
        "{percent:.1} % of the {} with {threads} threads",
        ideal.handled
    );
    let is_idle = ours.started == 0 && baseline.started == 0;
    assert!(
        ours.handled > baseline.handled || is_idle && ours.handled == baseline.handled,
        "{} of the baseline's {}",
        ours.handled,
        baseline.handled
    );
}

#[test]
fn hello() {
    judge(&load::HELLO);
}

#[test]
fn database() {
    judge(&load::DATABASE);
}

#[test]
fn external_api() {
    judge(&load::EXTERNAL_API);
}

#[test]
fn computation() {
    judge(&load::COMPUTATION);
}

#[test]
fn hanging() {
    judge(&load::HANGING);
}

#[test]
fn timeouts() {
    judge(&load::TIMEOUTS);
}

#[test]
fn sawtooth() {
    judge(&load::SAWTOOTH);
}

#[test]
fn leak() {
    judge(&load::LEAK);
}

#[test]
fn step() {
    judge(&load::STEP);
}

/// The best number was started beforehand; here hundreds are forked in the ten seconds.
#[test]
fn sleepy_step() {
    judge_by(&load::SLEEPY_STEP, 85.0);
}

/// Not a test: prints the table of `ARCHITECTURE.md`.
#[test]
#[ignore = "prints a table"]
fn table() {
    println!("| load | best fixed number | default, 2 per core | baseline | ours |");
    println!("|---|---|---|---|---|");
    let others = [
        &load::STEP,
        &load::SLEEPY_STEP,
        &load::SAWTOOTH,
        &load::LEAK,
    ];
    let loads = load::SIX.iter().chain(others);
    for load in loads {
        let machine = Machine::TWO_CORES;
        let (threads, ideal) = Ideal::find(load, machine);
        let default = run(load, machine, &mut Fixed(threads_default(machine)));
        let shown = |outcome: &Outcome| {
            let percent = percent(outcome, &ideal);
            format!("{percent:.1} %, {} threads", outcome.threads_max)
        };
        println!(
            "| {} | {} with {threads} | {:.1} % | {} | {} |",
            load.name,
            ideal.handled,
            percent(&default, &ideal),
            shown(&baseline(load, machine)),
            shown(&ours(load, machine)),
        );
    }
}
