//! `baton load`: a load tester for HTTP/1.1 over TCP and unix sockets.
//!
//! It shares no code with the server, or it would share its bugs. In the order in which a run goes: [`options`] and
//! scenario files become a [`plan`]; [`run`] starts network threads ([`worker`]), which send prepared requests
//! ([`request`], [`template`], [`mix`]) when they are due ([`profile`]), read replies ([`reply`]), check them ([`check`]) and count
//! ([`tally`], [`kind`]); [`report`] and [`summary`] say what came of it.

#![forbid(unsafe_code)]

mod check;
mod field;
mod file;
mod kind;
mod load;
mod mix;
pub mod options;
pub mod plan;
mod profile;
mod reply;
pub mod report;
mod request;
pub mod run;
mod span;
mod summary;
pub mod tally;
mod template;
mod url;
mod usage;
mod worker;

use std::io::{ErrorKind, IsTerminal, Write, stderr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};

pub use options::LoadOptions;
use plan::Plan;
use report::Report;
use run::Progress;

/// 0: there are figures; 1: nothing could be measured, or no request had a good reply; 2: the options are wrong.
pub fn run(options: &LoadOptions) -> ExitCode {
    let plan = match Plan::new(options) {
        Ok(plan) => plan,
        Err(wrong) => {
            eprintln!("baton load: {wrong}");
            return ExitCode::from(2);
        }
    };
    match measure(options, &plan) {
        Ok(report) if report.failed() => ExitCode::FAILURE,
        Ok(_) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("baton load: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn measure(options: &LoadOptions, plan: &Plan) -> Result<Report, String> {
    if !options.quiet {
        eprintln!("{}", summary::intention(plan));
    }
    let save = options
        .save
        .as_deref()
        .map(file::Output::open)
        .transpose()?;
    let address = run::reach(plan)?;
    // From here on an interrupt ends the load, within a moment and with a report.
    let interrupt = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupt))
            .map_err(|error| format!("cannot catch signals: {error}"))?;
    }
    let mut shown = Shown::default();
    let outcome = run::run(plan, &address, &interrupt, &mut |progress| {
        if !options.quiet {
            shown.show(progress);
        }
    });
    shown.end();
    let report = Report::new(plan, outcome?);
    let text = match options.json {
        true => report.json() + "\n",
        false => summary::summary(&report),
    };
    let printed = print(&text);
    if let Some(file) = save {
        file.write(report.json().as_bytes())?;
    }
    printed?;
    Ok(report)
}

/// On standard output, whose reader may have gone; a full disk is said.
fn print(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("cannot write to standard output: {error}"))
        }
        _ => Ok(()),
    }
}

/// Progress on standard error: one line that changes on a terminal, and one each 10 s elsewhere.
#[derive(Default)]
struct Shown {
    width: usize,
}

impl Shown {
    fn show(&mut self, progress: &Progress<'_>) {
        let line = summary::progress(progress);
        if stderr().is_terminal() {
            let width = self.width.max(line.len());
            self.width = line.len();
            let _ = write!(stderr(), "\r{line:<width$}");
        } else if (progress.second.second + 1).is_multiple_of(10) {
            let _ = writeln!(stderr(), "{line}");
        }
    }

    fn end(&mut self) {
        if self.width > 0 {
            let _ = writeln!(stderr());
        }
    }
}
