//! The figures of a run, as they are printed and saved.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use serde::Serialize;

use crate::kind::Kind;
use crate::plan::{Configuration, Plan};
use crate::run::{Outcome, Second};
use crate::span::SECOND_NS;
use crate::tally::Tally;

/// A network thread above this share of a core is what is being measured.
const BUSY: f64 = 0.95;
/// Above this share of the time, the machine had too few CPUs for what ran on it.
const STARVED: f64 = 0.20;
/// Requests that were sent later than this, at the 99th percentile, were not sent as asked for.
const LATE_US: f64 = 1_000.0;

/// Times in microseconds, counts in requests, unless a name says otherwise.
#[derive(Serialize)]
pub struct Report {
    pub tester: &'static str,
    pub version: &'static str,
    pub configuration: Configuration,
    /// Where it really went.
    pub address: String,
    pub interrupted: bool,
    /// What was measured, in seconds: warm-up and the wait for the last replies left out.
    pub seconds: f64,
    /// Good replies per second: those that passed every check.
    pub requests_per_second: f64,
    pub requests: u64,
    /// Good replies that came after sending was over; in the latencies, not in the rate.
    pub requests_late: u64,
    pub errors: Errors,
    pub statuses: BTreeMap<u16, u64>,
    pub sent: u64,
    /// Sent again, as their connection ended before their turn came.
    pub resent: u64,
    /// Due, but without a free connection at that time.
    pub waited: u64,
    /// Due, and never sent.
    pub unsent: u64,
    /// Without a reply at the end.
    pub unfinished: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub bytes_per_second: f64,
    pub connects: u64,
    /// From when a request was meant to be sent.
    pub latency_us: Option<Times>,
    /// From when it was sent: what a tester reports that stops asking while the server does not answer.
    pub latency_uncorrected_us: Option<Times>,
    pub connect_us: Option<Times>,
    pub generator: Generator,
    /// In words: what makes these figures less than they seem.
    pub warnings: Vec<String>,
    pub series: Vec<Second>,
    pub histograms: Histograms,
}

#[derive(Serialize)]
pub struct Errors {
    pub total: u64,
    #[serde(flatten)]
    pub kinds: BTreeMap<&'static str, u64>,
    /// The first of each kind.
    pub examples: BTreeMap<&'static str, String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Times {
    pub count: u64,
    pub mean: f64,
    pub stdev: f64,
    pub min: f64,
    pub p50: f64,
    pub p75: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    pub p99_9: f64,
    pub p99_99: f64,
    pub max: f64,
}

/// What the tester itself needed, and whether it kept up.
#[derive(Serialize)]
pub struct Generator {
    /// More of it would, or might, have sent more.
    pub saturated: bool,
    /// None: there were no replies.
    pub cpu_us_per_request: Option<f64>,
    /// Of each thread: the share of the time that it ran.
    pub cpu_shares: Vec<f64>,
    /// Of each thread: the share of the time that it could have run, and had no CPU.
    pub cpu_wait_shares: Vec<f64>,
    /// How late it sent what it could have sent. Open loop only.
    pub lateness_us: Option<Times>,
    /// How long it took for the events of one reading of the clock: latencies are that exact.
    pub turn_us: Option<Times>,
}

/// HdrHistogram's own format (V2, compressed, base64), of values in nanoseconds.
#[derive(Serialize)]
pub struct Histograms {
    pub latency: String,
    pub latency_uncorrected: String,
}

impl Report {
    pub fn new(plan: &Plan, outcome: Outcome) -> Report {
        let Outcome {
            mut measured,
            drain,
            opening,
            ..
        } = outcome;
        let (good, bytes_read) = (measured.good, measured.bytes_read);
        let generator = generator(&measured, &outcome.threads, outcome.seconds);
        measured.add(&drain);
        // Of the time before the load, only what went wrong.
        for (sum, count) in measured.errors.iter_mut().zip(&opening.errors) {
            *sum += count;
        }
        for (mine, theirs) in measured.examples.iter_mut().zip(&opening.examples) {
            *mine = mine.take().or_else(|| theirs.clone());
        }
        measured
            .connecting
            .add(&opening.connecting)
            .expect("all have the same bounds");
        measured.connects += opening.connects;
        let per_second = |count: u64| match outcome.seconds > 0.0 {
            true => count as f64 / outcome.seconds,
            false => 0.0,
        };
        let statuses = measured
            .statuses
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0);
        let mut report = Report {
            tester: "baton load",
            version: env!("CARGO_PKG_VERSION"),
            configuration: plan.configuration.clone(),
            address: outcome.address.to_string(),
            interrupted: outcome.interrupted,
            seconds: outcome.seconds,
            requests_per_second: per_second(good),
            requests: good,
            requests_late: drain.good,
            errors: errors(&measured),
            statuses: statuses
                .map(|(status, count)| (status as u16, *count))
                .collect(),
            sent: measured.sent,
            resent: measured.resent,
            waited: measured.waited,
            unsent: measured.unsent,
            unfinished: measured.unfinished,
            bytes_read: measured.bytes_read,
            bytes_written: measured.bytes_written,
            bytes_per_second: per_second(bytes_read),
            connects: measured.connects,
            latency_us: Times::of(&measured.latency),
            latency_uncorrected_us: Times::of(&measured.from_sending),
            connect_us: Times::of(&measured.connecting),
            generator,
            warnings: vec![],
            series: outcome.series,
            histograms: Histograms {
                latency: encoded(&measured.latency),
                latency_uncorrected: encoded(&measured.from_sending),
            },
        };
        report.warnings = warnings(&report);
        report
    }

    /// Nothing that was asked for came.
    pub fn failed(&self) -> bool {
        self.requests + self.requests_late == 0
    }

    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("maps have texts as keys, and numbers are finite")
    }
}

fn errors(tally: &Tally) -> Errors {
    let examples = Kind::ALL.into_iter().filter_map(|kind| {
        let example = tally.examples[kind as usize].clone()?;
        Some((kind.name(), example))
    });
    Errors {
        total: tally.errors_total(),
        kinds: Kind::ALL
            .into_iter()
            .map(|kind| (kind.name(), tally.errors[kind as usize]))
            .collect(),
        examples: examples.collect(),
    }
}

fn generator(tally: &Tally, threads: &[crate::usage::Usage], seconds: f64) -> Generator {
    let share = |ns: u64| match seconds > 0.0 {
        true => ns as f64 / SECOND_NS as f64 / seconds,
        false => 0.0,
    };
    let cpu_ns: u64 = threads.iter().map(|usage| usage.cpu_ns).sum();
    let cpu_shares: Vec<f64> = threads.iter().map(|usage| share(usage.cpu_ns)).collect();
    let lateness_us = Times::of(&tally.lateness);
    let late = lateness_us
        .as_ref()
        .is_some_and(|times| times.p99 > LATE_US);
    Generator {
        saturated: late || cpu_shares.iter().any(|share| *share > BUSY),
        cpu_us_per_request: (tally.replies > 0).then(|| cpu_ns as f64 / 1e3 / tally.replies as f64),
        cpu_shares,
        cpu_wait_shares: threads.iter().map(|usage| share(usage.wait_ns)).collect(),
        lateness_us,
        turn_us: Times::of(&tally.turn),
    }
}

fn warnings(report: &Report) -> Vec<String> {
    let mut warnings = Vec::new();
    let generator = &report.generator;
    let most = |shares: &[f64]| shares.iter().copied().fold(0.0, f64::max);
    let (busy, starved) = (
        most(&generator.cpu_shares),
        most(&generator.cpu_wait_shares),
    );
    if busy > BUSY {
        warnings.push(format!(
            "the generator was saturated: a network thread was busy {:.0} % of the time. The figures may be its limit, \
             not the server's; give it more --threads, or another machine",
            busy * 100.0
        ));
    }
    if let Some(late) = generator
        .lateness_us
        .as_ref()
        .filter(|times| times.p99 > LATE_US)
    {
        warnings.push(format!(
            "the generator was saturated: 1 % of the requests were sent more than {:.1} ms late, by its own fault; \
             give it more --threads, or another machine",
            late.p99 / 1e3
        ));
    }
    if starved > STARVED {
        warnings.push(format!(
            "the generator waited {:.0} % of the time for a CPU: others on this machine, perhaps the server, took them",
            starved * 100.0
        ));
    }
    if report.unsent > 0 {
        warnings.push(format!(
            "{} requests were due and never sent, as all connections waited for replies: the latencies do not have them",
            report.unsent
        ));
    }
    if report.unfinished > 0 && !report.interrupted {
        warnings.push(format!(
            "{} requests had no reply when the load was over",
            report.unfinished
        ));
    }
    if report.requests > 0 && report.latency_us.is_none() {
        warnings.push(
            "all good replies are to requests of the warm-up: it leaves nothing to measure".into(),
        );
    }
    warnings
}

impl Times {
    /// None: nothing was counted.
    fn of(histogram: &Histogram<u64>) -> Option<Times> {
        if histogram.is_empty() {
            return None;
        }
        let us = |ns: u64| ns as f64 / 1e3;
        let at = |quantile| us(histogram.value_at_quantile(quantile));
        Some(Times {
            count: histogram.len(),
            mean: histogram.mean() / 1e3,
            stdev: histogram.stdev() / 1e3,
            min: us(histogram.min()),
            p50: at(0.5),
            p75: at(0.75),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.9999),
            max: us(histogram.max()),
        })
    }
}

fn encoded(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    let written = V2DeflateSerializer::new().serialize(histogram, &mut bytes);
    // Nothing that is written to memory, and was counted by a histogram of its own making, fails.
    written.map_or_else(|_| String::new(), |_| STANDARD.encode(&bytes))
}
