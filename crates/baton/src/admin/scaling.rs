//! `PUT` and `DELETE /threads`: more threads and fewer, by hand; `GET /decisions`: what the load made of their number.

use std::path::Path;
use std::sync::Arc;

use baton_dispatch::autoscale::Action;
use serde::Serialize;

use super::Inside;
use super::desk::pools_named;
use super::look::now_ms;
use super::reply::Reply;
use crate::app::{Change, Pool};
use crate::gateway::Sites;

#[derive(Serialize)]
struct Changed<'p> {
    app: &'p str,
    worker: Option<&'p str>,
    /// How many there are to be.
    wanted: u32,
}

/// Waits for the supervisor, which does not wait for threads.
pub fn change(inside: &Inside, change: Change, app: Option<&str>, worker: Option<&str>) -> Reply {
    let sites = inside.live.sites();
    let pool = match only_pool(&sites, app, worker) {
        Ok(pool) => pool,
        Err(reply) => return reply,
    };
    let Some(supervisor) = pool.supervisor() else {
        return Reply::problem(503, "The app is not started yet.").with("Retry-After", "1");
    };
    let changed = match change {
        Change::Add(count) => supervisor.add_threads(count),
        Change::Remove(count) => supervisor.remove_threads(count),
    };
    match changed {
        Ok(wanted) => Reply::json(
            200,
            &Changed {
                app: &pool.app.project.name,
                worker: pool.worker.as_ref().map(|worker| &*worker.name),
                wanted,
            },
        ),
        // Not now, or never with these limits.
        Err(reason) => Reply::problem(if is_over(pool, change) { 400 } else { 409 }, &reason),
    }
}

/// Whether the pool's own limits do not allow it. What other pools leave of the server's `threads_max` may change.
fn is_over(pool: &Pool, change: Change) -> bool {
    if pool.is_dormant() {
        return false;
    }
    let (limits, wanted) = (pool.limits, pool.scaling().wanted);
    match change {
        Change::Add(count) => limits.whole_up(count) > limits.threads_max.saturating_sub(wanted),
        Change::Remove(count) => limits.whole_up(count) > wanted.saturating_sub(limits.threads_min),
    }
}

/// # Errors
/// The answer that there is none, or several.
fn only_pool<'s>(
    sites: &'s Sites,
    app: Option<&str>,
    worker: Option<&str>,
) -> Result<&'s Arc<Pool>, Reply> {
    let pools = pools_named(sites, app)?;
    let mut fitting = pools.into_iter().filter(|pool| is_meant(pool, worker));
    match (fitting.next(), fitting.next(), worker) {
        (Some(pool), None, _) => Ok(pool),
        (Some(_), Some(_), _) => {
            let detail = format!(
                "Several apps have such threads: {}; app says which.",
                sites.names()
            );
            Err(Reply::problem(400, &detail))
        }
        (None, _, Some(worker)) => {
            let detail = format!("There is no worker {worker:?}; GET /apps lists them.");
            Err(Reply::problem(404, &detail))
        }
        (None, _, None) => Err(Reply::problem(404, "There is no app.")),
    }
}

fn is_meant(pool: &Pool, name: Option<&str>) -> bool {
    match (&pool.worker, name) {
        (None, None) => true,
        (Some(worker), Some(name)) => {
            let script = &worker.script;
            goes_by(name, &worker.name, &script.name, &script.file)
        }
        _ => false,
    }
}

/// A worker goes by its name, or by its script: its path in the web, or that of its file.
pub fn goes_by(name: &str, worker: &str, script: &str, file: &Path) -> bool {
    worker == name
        || script == name
        || script.strip_prefix('/') == Some(name)
        || file == Path::new(name)
}

#[derive(Serialize)]
struct Decisions<'p> {
    decisions: Vec<Decision<'p>>,
}

#[derive(Serialize)]
struct Decision<'p> {
    app: &'p str,
    worker: Option<&'p str>,
    ago_s: f64,
    action: &'static str,
    /// That are started or stopped.
    count: u32,
    reason: String,
}

/// The oldest first.
pub fn decisions(inside: &Inside, app: Option<&str>) -> Reply {
    let sites = inside.live.sites();
    let pools = match pools_named(&sites, app) {
        Ok(pools) => pools,
        Err(reply) => return reply,
    };
    let mut all: Vec<_> = pools
        .iter()
        .flat_map(|pool| {
            pool.decisions()
                .into_iter()
                .map(move |logged| (pool, logged))
        })
        .collect();
    all.sort_by_key(|(_, logged)| logged.at_ms);
    let now_ms = now_ms();
    let decisions = all.into_iter().map(|(pool, logged)| {
        let (action, count) = match &logged.decision.action {
            Action::Start(count) => ("start", *count),
            Action::Stop { count, .. } => ("stop", *count),
            Action::Hold => ("hold", 0),
        };
        Decision {
            app: &pool.app.project.name,
            worker: pool.worker.as_ref().map(|worker| &*worker.name),
            ago_s: now_ms.saturating_sub(logged.at_ms) as f64 / 1e3,
            action,
            count,
            reason: logged.decision.reason.to_string(),
        }
    });
    let decisions = decisions.collect();
    Reply::json(200, &Decisions { decisions })
}
