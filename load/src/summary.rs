//! The report on a terminal.

use std::fmt::Write;

use crate::kind::Kind;
use crate::plan::Plan;
use crate::report::{Report, Times};
use crate::run::Progress;
use crate::tally::Stage;

/// What is about to be done.
pub fn intention(plan: &Plan) -> String {
    let what = &plan.load;
    let mut line = format!("{} with {} connections", plan.url, what.connections);
    if let Some(rate) = &what.rate {
        let _ = write!(line, ", {rate} requests per second");
    }
    if what.pipeline > 1 {
        let _ = write!(line, ", {} requests ahead on each", what.pipeline);
    }
    if !what.keep_alive {
        line += ", one request on each";
    }
    if let Some(requests) = what.requests {
        let _ = write!(line, ", {requests} requests");
    }
    if let Some(duration) = what.duration {
        let _ = write!(line, ", for {duration}");
    }
    if what.warm_up.ns() > 0 {
        let _ = write!(line, " of which {} warm up", what.warm_up);
    }
    let _ = write!(
        line,
        "; {} network thread{}",
        what.threads,
        plural(what.threads as u64)
    );
    line
}

/// One line for each second.
pub fn progress(progress: &Progress<'_>) -> String {
    let second = progress.second;
    let mut line = format!(
        "{:>5} s  {:>8}/s  {} connections",
        second.second + 1,
        second.requests,
        second.connections
    );
    if second.stage == Stage::WarmUp {
        line += "  warming up";
        return line;
    }
    let latency = &progress.so_far.latency;
    if !latency.is_empty() {
        let p99_us = latency.value_at_quantile(0.99) as f64 / 1e3;
        let _ = write!(line, "  P99 so far {}", time(p99_us));
    }
    let errors = progress.so_far.errors_total();
    if errors > 0 {
        let _ = write!(line, "  {errors} errors");
    }
    line
}

/// The report, as lines.
pub fn summary(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_summary(&mut out, report);
    out
}

fn write_summary(out: &mut String, report: &Report) -> std::fmt::Result {
    if let (Some(intended), Some(sent)) = (&report.latency_us, &report.latency_uncorrected_us) {
        writeln!(
            out,
            "  Latency   from intended sending   from sending (uncorrected)"
        )?;
        for ((name, intended), (_, sent)) in rows(intended).into_iter().zip(rows(sent)) {
            writeln!(out, "    {name:<7}{:>22}{:>29}", time(intended), time(sent))?;
        }
    }
    writeln!(
        out,
        "  {} requests in {:.2} s, {} read, {} written",
        report.requests,
        report.seconds,
        bytes(report.bytes_read),
        bytes(report.bytes_written)
    )?;
    write_errors(out, report)?;
    let generator = &report.generator;
    let shares = |shares: &[f64]| {
        let texts: Vec<_> = shares
            .iter()
            .map(|share| format!("{:.0} %", share * 100.0))
            .collect();
        texts.join(", ")
    };
    write!(out, "  Generator: busy {}", shares(&generator.cpu_shares))?;
    if let Some(cpu_us) = generator.cpu_us_per_request {
        write!(out, ", {cpu_us:.2} us of CPU a request")?;
    }
    if let Some(turn) = &generator.turn_us {
        write!(out, ", latencies exact to {}", time(turn.p99))?;
    }
    if let Some(late) = &generator.lateness_us {
        write!(
            out,
            ", late by {} (P99), {} (max)",
            time(late.p99),
            time(late.max)
        )?;
    }
    writeln!(out)?;
    if report.waited > 0 {
        writeln!(
            out,
            "  {} requests were due while no connection was free",
            report.waited
        )?;
    }
    if report.requests_late > 0 {
        writeln!(
            out,
            "  {} replies came after sending was over",
            report.requests_late
        )?;
    }
    writeln!(out, "Requests/s: {:>12.2}", report.requests_per_second)?;
    writeln!(
        out,
        "Transfer/s: {:>12}",
        bytes(report.bytes_per_second as u64)
    )?;
    report
        .warnings
        .iter()
        .try_for_each(|warning| writeln!(out, "WARNING: {warning}"))
}

fn rows(times: &Times) -> [(&'static str, f64); 9] {
    [
        ("mean", times.mean),
        ("P50", times.p50),
        ("P75", times.p75),
        ("P90", times.p90),
        ("P95", times.p95),
        ("P99", times.p99),
        ("P99.9", times.p99_9),
        ("P99.99", times.p99_99),
        ("max", times.max),
    ]
}

fn write_errors(out: &mut String, report: &Report) -> std::fmt::Result {
    let errors = &report.errors;
    if errors.total == 0 {
        return writeln!(out, "  Errors: none");
    }
    writeln!(out, "  Errors: {}", errors.total)?;
    for kind in Kind::ALL {
        let count = errors.kinds.get(kind.name()).copied().unwrap_or(0);
        if count > 0 {
            let example = errors.examples.get(kind.name()).map_or("", String::as_str);
            writeln!(
                out,
                "    {:<16}{count:>10}  such as: {example}",
                kind.name()
            )?;
        }
    }
    if report.statuses.keys().any(|status| *status > 399) {
        let texts: Vec<_> = report
            .statuses
            .iter()
            .map(|(status, count)| format!("{status}: {count}"))
            .collect();
        writeln!(out, "    statuses {}", texts.join(", "))?;
    }
    Ok(())
}

/// Three or four digits that matter.
fn time(us: f64) -> String {
    match us {
        us if us < 1_000.0 => format!("{us:.0} us"),
        us if us < 10_000.0 => format!("{:.2} ms", us / 1e3),
        us if us < 1_000_000.0 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

fn bytes(count: u64) -> String {
    let count = count as f64;
    match count {
        count if count < 1e3 => format!("{count:.0} B"),
        count if count < 1e6 => format!("{:.1} kB", count / 1e3),
        count if count < 1e9 => format!("{:.1} MB", count / 1e6),
        count => format!("{:.2} GB", count / 1e9),
    }
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_units() {
        assert_eq!(
            [0.4, 999.0, 1_500.0, 25_000.0, 2e6].map(time),
            ["0 us", "999 us", "1.50 ms", "25.0 ms", "2.00 s"]
        );
        assert_eq!(
            [0, 1_500, 2_000_000, 3_000_000_000].map(bytes),
            ["0 B", "1.5 kB", "2.0 MB", "3.00 GB"]
        );
    }
}
