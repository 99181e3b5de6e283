//! `GET /status`, and the two that probes ask: `/healthz` and `/readyz`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::desk::apps_named;
use super::look::{Look, ThreadCounts};
use super::reply::Reply;
use super::{Inside, apps};
use crate::app::{App, Pool};

#[derive(Serialize)]
struct Status<'s> {
    version: &'static str,
    pid: u32,
    uptime_s: f64,
    state: State,
    io_threads: usize,
    connections: usize,
    requests: u64,
    replies: BTreeMap<&'static str, u64>,
    threads: ThreadCounts,
    waiting: usize,
    apps: Vec<apps::App<'s>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Serving,
    /// It finishes what is running, and ends.
    Draining,
}

impl State {
    fn of(inside: &Inside) -> Self {
        match inside.io_threads.is_draining() {
            true => State::Draining,
            false => State::Serving,
        }
    }
}

/// By the first digit of a status; 0 is none.
pub const CLASSES: [&str; 6] = ["other", "1xx", "2xx", "3xx", "4xx", "5xx"];

pub fn status(inside: &Inside) -> Reply {
    let sites = inside.live.sites();
    let look = Look::at(sites.pools().cloned().collect());
    let mut threads = ThreadCounts::default();
    for pool in &look.pools {
        threads += pool.counts();
    }
    let counters = &inside.counters;
    let sum_of = |class: usize| counters.iter().map(|io| io.replies[class].get()).sum();
    let replies = CLASSES.iter().enumerate();
    Reply::json(
        200,
        &Status {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            uptime_s: inside.started.elapsed().as_millis() as f64 / 1e3,
            state: State::of(inside),
            io_threads: inside.io_threads.io_threads(),
            connections: inside.io_threads.connections(),
            requests: counters.iter().map(|io| io.requests.get()).sum(),
            replies: replies.map(|(n, class)| (*class, sum_of(n))).collect(),
            threads,
            waiting: look.pools.iter().map(|pool| pool.waiting).sum(),
            apps: apps::all(&sites, &look),
        },
    )
}

/// The server answers; its applications may not.
pub fn health() -> Reply {
    #[derive(Serialize)]
    struct Health {
        status: &'static str,
    }
    Reply::json(200, &Health { status: "ok" })
}

/// Whether requests should be sent here: the app, or any app if none is named, has threads, and the server is not ending.
pub fn readiness(inside: &Inside, name: Option<&str>) -> Reply {
    #[derive(Serialize)]
    struct Readiness<'s> {
        status: &'static str,
        apps: BTreeMap<&'s str, bool>,
    }
    if State::of(inside) == State::Draining {
        return Reply::problem(503, "The server is draining.");
    }
    let sites = inside.live.sites();
    let apps = match apps_named(&sites, name) {
        Ok(apps) => apps,
        Err(reply) => return reply,
    };
    let names = apps.iter().map(|app| &*app.config.project.name);
    let apps: BTreeMap<&str, bool> = names.zip(apps.iter().map(|app| is_ready(app))).collect();
    if !apps.values().any(|is_ready| *is_ready) {
        let names: Vec<&str> = apps.keys().copied().collect();
        let detail = format!("No thread serves {}; GET /apps says why.", names.join(", "));
        return Reply::problem(503, &detail);
    }
    let status = "ready";
    Reply::json(200, &Readiness { status, apps })
}

/// All its pools that ever had work have threads.
fn is_ready(app: &App) -> bool {
    let has_threads = |pool: &Pool| pool.is_up() && pool.dispatcher().thread_count() > 0;
    let mut pools = app.pools().filter(|pool| !pool.is_dormant());
    pools.all(|pool| has_threads(pool))
}
