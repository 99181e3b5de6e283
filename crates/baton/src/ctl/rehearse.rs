//! `baton rehearse`: as many threads as there may ever be, and a request for each of them, on a quiet day. What breaks then
//! (connections of a database, memory) would have broken at the peak.
//!
//! ```text
//!   add threads, fewer if refused ─► wait for them ─► as many requests at once ─► look, again if some had none ─► take them away
//! ```

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use baton_load::LoadOptions;
use baton_load::plan::Plan;
use baton_load::report::Report;
use clap::{Args, Command, FromArgMatches};
use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::client::Client;
use super::table::readable;
use super::{connect, pools};
use crate::admin::scaling::goes_by;
use crate::options::RehearseOptions;

/// All threads have to be there within this time, and gone again.
const CHANGE_BOUND: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(100);
/// Threads that have had no request are given another chance so often. Which of the idle ones gets a request is the server's choice.
const ROUNDS_MAX: usize = 10;
/// Threads are asked for in steps, so that what is refused does not take the rest with it.
const STEP: u64 = 64;

/// # Errors
/// Something broke: all of it, a line each.
pub fn rehearse(options: &RehearseOptions) -> Result<(), String> {
    let interrupt = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, interrupt.clone())
            .map_err(|error| format!("cannot catch signals: {error}"))?;
    }
    let client = connect(&options.reach)?;
    let mut stage = Stage {
        client: &client,
        options,
        interrupt: &interrupt,
        added: 0,
        broken: Vec::new(),
    };
    let outcome = stage.play();
    let mut broken = std::mem::take(&mut stage.broken);
    broken.extend(outcome.err());
    broken.extend(stage.go_back().err());
    match broken.is_empty() {
        true => Ok(()),
        false => Err(broken.join("\nbaton: ")),
    }
}

struct Stage<'o> {
    client: &'o Client,
    options: &'o RehearseOptions,
    interrupt: &'o Arc<AtomicBool>,
    added: u64,
    broken: Vec<String>,
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        // Also when something panics; what can be told was told before.
        let _ = self.go_back();
    }
}

impl Stage<'_> {
    fn play(&mut self) -> Result<(), String> {
        let before = self.pool()?;
        let goal = self.goal(&before)?;
        let had = self.requests_by_thread()?;
        let began = Instant::now();
        self.add(&before["scaling"], goal)?;
        let threads = self.await_threads()?;
        println!(
            "{threads} threads after {:.1} s, {} of them for this rehearsal",
            began.elapsed().as_secs_f64(),
            self.added
        );
        self.ask_all(threads, &had)?;
        self.look_at_memory()?;
        self.look_for_dead(&before)
    }

    fn goal(&self, pool: &Value) -> Result<u64, String> {
        let scaling = &pool["scaling"];
        match self.options.threads {
            Some(threads) => Ok(threads.into()),
            // Nobody wants to find out by accident how many that are.
            None if scaling["auto"] == true => Err(
                "max_threads is auto, so only memory is a bound: say how many threads, such as --threads 100".into(),
            ),
            None => Ok(number(&scaling["threads_max"])),
        }
    }

    /// Fewer at a time where they are refused: what can be had is had, and the reason told.
    fn add(&mut self, scaling: &Value, goal: u64) -> Result<(), String> {
        let per_process = number(&scaling["threads_per_process"]).max(1);
        let missing = goal.saturating_sub(number(&scaling["wanted"]));
        let mut missing = missing.next_multiple_of(per_process);
        let mut step = STEP.next_multiple_of(per_process);
        while missing > 0 {
            self.go_on()?;
            let count = step.min(missing);
            match self.change("PUT", count) {
                Ok(()) => {
                    self.added += count;
                    missing -= count;
                }
                Err(reason) if count <= per_process => {
                    self.broken
                        .push(format!("{missing} threads cannot be added: {reason}"));
                    return Ok(());
                }
                Err(_) => step = (count / 2).next_multiple_of(per_process),
            }
        }
        Ok(())
    }

    /// Returns how many there are.
    fn await_threads(&mut self) -> Result<u64, String> {
        let until = Instant::now() + CHANGE_BOUND;
        loop {
            self.go_on()?;
            let pool = self.pool()?;
            let scaling = &pool["scaling"];
            let (threads, wanted) = (number(&scaling["threads"]), number(&scaling["wanted"]));
            if threads >= wanted {
                return Ok(threads);
            }
            if Instant::now() >= until {
                let seconds = CHANGE_BOUND.as_secs();
                let reason = pool["last_failure"]["reason"]
                    .as_str()
                    .unwrap_or("no reason is known");
                self.broken.push(format!(
                    "only {threads} of {wanted} threads have started within {seconds} s: {}",
                    readable(reason)
                ));
                return Ok(threads);
            }
            thread::sleep(LOOK);
        }
    }

    /// As many requests at once as there are threads, until each has had one.
    fn ask_all(&mut self, threads: u64, had: &HashMap<String, u64>) -> Result<(), String> {
        let url = &self.options.url;
        let (mut statuses, mut errors) = (BTreeMap::new(), BTreeMap::new());
        let mut without = 0;
        for _ in 0..ROUNDS_MAX {
            self.go_on()?;
            let report = ask(url, threads, self.interrupt)?;
            for (status, count) in report.statuses {
                *statuses.entry(status).or_insert(0) += count;
            }
            for (kind, count) in report.errors.kinds.into_iter().filter(|(_, n)| *n > 0) {
                *errors.entry(kind).or_insert(0) += count;
            }
            let has = self.requests_by_thread()?;
            let is_idle = |(id, count): &(&String, &u64)| *count <= had.get(*id).unwrap_or(&0);
            without = has.iter().filter(is_idle).count();
            if without == 0 {
                break;
            }
        }
        for (status, count) in &statuses {
            println!("{count} replies with status {status}");
        }
        let bad = statuses.iter().filter(|(status, _)| **status >= 400);
        let bad = bad.map(|(status, count)| format!("{count} replies had status {status}"));
        // A bad status is an error of that kind, too.
        let lost = errors.iter().filter(|(kind, _)| **kind != "status");
        let lost = lost.map(|(kind, count)| format!("{count} requests failed: {kind}"));
        self.broken.extend(bad.chain(lost));
        if without > 0 {
            self.broken.push(format!(
                "{without} threads had no request: is {url} this application?"
            ));
        }
        Ok(())
    }

    fn look_at_memory(&self) -> Result<(), String> {
        let threads = self.threads()?;
        let bytes = threads
            .iter()
            .filter_map(|thread| thread["memory"]["bytes"].as_f64());
        let (count, sum) = bytes.fold((0, 0.0), |(count, sum), bytes| (count + 1, sum + bytes));
        if count > 0 {
            let mib = sum / 1024.0 / 1024.0;
            println!(
                "{mib:.0} MiB of memory, {:.1} MiB a thread",
                mib / f64::from(count)
            );
        }
        Ok(())
    }

    fn look_for_dead(&mut self, before: &Value) -> Result<(), String> {
        let now = self.pool()?;
        let ended = now["processes_ended"].as_object().into_iter().flatten();
        for (reason, count) in ended.filter(|(reason, _)| *reason != "done") {
            // After a reload the pool may be another, which counts from 0.
            let died = number(count).saturating_sub(number(&before["processes_ended"][reason]));
            if died > 0 {
                self.broken
                    .push(format!("{died} processes died: {}", readable(reason)));
            }
        }
        Ok(())
    }

    fn go_back(&mut self) -> Result<(), String> {
        let added = std::mem::take(&mut self.added);
        if added == 0 {
            return Ok(());
        }
        self.change("DELETE", added)?;
        let until = Instant::now() + CHANGE_BOUND;
        loop {
            let pool = self.pool()?;
            let scaling = &pool["scaling"];
            if number(&scaling["threads"]) <= number(&scaling["wanted"]) {
                println!("back to {} threads", scaling["wanted"]);
                return Ok(());
            }
            if Instant::now() >= until {
                return Err("some threads are still busy; they leave when they are free".into());
            }
            thread::sleep(LOOK);
        }
    }

    fn go_on(&self) -> Result<(), String> {
        match self.interrupt.load(Ordering::Relaxed) {
            true => Err("interrupted".into()),
            false => Ok(()),
        }
    }

    fn change(&self, method: &str, count: u64) -> Result<(), String> {
        let count = count.to_string();
        let mut parameters = self.named();
        parameters.push(("count", &count));
        self.client.ask(method, "/threads", &parameters).map(|_| ())
    }

    fn named(&self) -> Vec<(&'static str, &str)> {
        let app = self.options.app.iter().map(|app| ("app", &**app));
        let worker = self.options.worker.iter();
        app.chain(worker.map(|worker| ("worker", &**worker)))
            .collect()
    }

    /// The pool that is meant, as `/apps` has it.
    fn pool(&self) -> Result<Value, String> {
        let apps = self.client.ask("GET", "/apps", &[])?.value;
        let worker = self.options.worker.as_deref();
        let mut fitting = pools(&apps, self.options.app.as_deref()).filter(|pool| match worker {
            None => pool["worker"].is_null(),
            Some(name) => is_worker(pool, name),
        });
        match (fitting.next(), fitting.next()) {
            (Some(pool), None) => Ok(pool.clone()),
            (None, _) => Err("there are no such threads; `baton status` lists them".into()),
            (Some(_), Some(_)) => Err("there are several applications; say which by --app".into()),
        }
    }

    fn threads(&self) -> Result<Vec<Value>, String> {
        let app = self.options.app.iter().map(|app| ("app", &**app));
        let reply = self
            .client
            .ask("GET", "/threads", &app.collect::<Vec<_>>())?;
        let pool = self.pool()?;
        let threads = reply.value["threads"].as_array().into_iter().flatten();
        let of_pool = threads.filter(|thread| thread["worker"] == pool["worker"]);
        Ok(of_pool
            .filter(|thread| thread["state"] != "stopping")
            .cloned()
            .collect())
    }

    fn requests_by_thread(&self) -> Result<HashMap<String, u64>, String> {
        let threads = self.threads()?;
        let id_of = |thread: &Value| thread["id"].as_str().unwrap_or_default().to_owned();
        let counted = threads
            .iter()
            .map(|thread| (id_of(thread), number(&thread["requests"])));
        Ok(counted.collect())
    }
}

fn is_worker(pool: &Value, name: &str) -> bool {
    let [worker, script, file] = ["worker", "script", "script_file"].map(|key| pool[key].as_str());
    match (worker, script, file) {
        (Some(worker), Some(script), Some(file)) => goes_by(name, worker, script, file.as_ref()),
        _ => false,
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// One request on each of so many connections, all at once.
fn ask(url: &str, connections: u64, interrupt: &Arc<AtomicBool>) -> Result<Report, String> {
    let count = connections.to_string();
    let arguments = ["load", url, "--connections", &count, "--requests", &count];
    let command = LoadOptions::augment_args(Command::new("load"));
    let matches = command.try_get_matches_from(arguments.iter().chain(&["--timeout", "60s"]));
    let options = matches.and_then(|matches| LoadOptions::from_arg_matches(&matches));
    let options = options.map_err(|error| crate::config::one_line(&error))?;
    let plan = Plan::new(&options)?;
    let address = baton_load::run::reach(&plan)?;
    let outcome = baton_load::run::run(&plan, &address, interrupt, &mut |_| {})?;
    Ok(Report::new(&plan, outcome))
}
