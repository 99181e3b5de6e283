//! `GET /apps`: the applications, their pools of threads, and what has happened to them.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::Inside;
use super::look::{Look, PoolLook, ThreadCounts};
use super::reply::Reply;
use crate::app::{Scaling, ZygotePhase};
use crate::gateway::Sites;

#[derive(Serialize)]
struct Apps<'l> {
    apps: Vec<App<'l>>,
}

#[derive(Serialize)]
pub struct App<'l> {
    name: &'l str,
    folder: &'l Path,
    user: Option<&'l str>,
    pools: Vec<Pool<'l>>,
}

#[derive(Serialize)]
struct Pool<'l> {
    worker: Option<&'l str>,
    script: Option<&'l str>,
    script_file: Option<&'l Path>,
    state: PoolState,
    threads: ThreadCounts,
    scaling: Scaling,
    queue: Queue,
    /// That a thread got.
    requests: u64,
    /// `None`: its supervisor has not answered in time.
    loading: Option<bool>,
    restarting: Option<bool>,
    restarts: u64,
    restarts_failed: u64,
    processes_ended: BTreeMap<String, u64>,
    last_failure: Option<Failure>,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum PoolState {
    Up,
    /// It starts with the first request for it.
    Dormant,
    /// It cannot start; it is tried again and again.
    Down,
}

#[derive(Serialize)]
struct Queue {
    waiting: usize,
    waiting_max: u32,
    oldest_wait_s: f64,
}

#[derive(Serialize)]
struct Failure {
    ago_s: f64,
    reason: String,
}

pub fn list(inside: &Inside) -> Reply {
    let sites = inside.live.sites();
    let look = Look::at(sites.pools().cloned().collect());
    let apps = all(&sites, &look);
    Reply::json(200, &Apps { apps })
}

/// `look` is at all pools of `sites`.
pub fn all<'l>(sites: &'l Sites, look: &'l Look) -> Vec<App<'l>> {
    let mut pools = look.pools.iter();
    let apps = sites.list.iter().map(|site| {
        let config = &site.app.config;
        // The look has them in the same order.
        let pools = pools.by_ref().take(site.app.pools().count());
        App {
            name: &config.project.name,
            folder: &config.project.folder,
            user: config.account.as_ref().map(|account| &*account.name),
            pools: pools.map(|pool| pool_of(pool, look.now_ms)).collect(),
        }
    });
    apps.collect()
}

fn pool_of(look: &PoolLook, now_ms: u64) -> Pool<'_> {
    let pool = &look.pool;
    let worker = pool.worker.as_ref();
    let lifecycle = pool.lifecycle().clone();
    let state = look.state.as_ref();
    let counters = pool.counters().iter();
    Pool {
        worker: worker.map(|worker| &*worker.name),
        script: worker.map(|worker| &*worker.script.name),
        script_file: worker.map(|worker| &*worker.script.file),
        state: match () {
            () if pool.is_dormant() => PoolState::Dormant,
            () if pool.is_up() => PoolState::Up,
            () => PoolState::Down,
        },
        threads: look.counts(),
        scaling: pool.scaling(),
        queue: Queue {
            waiting: look.waiting,
            waiting_max: pool.app.options.queue_len_max,
            oldest_wait_s: look.oldest_wait_ms as f64 / 1e3,
        },
        requests: counters.map(|counters| counters.queue_wait.count()).sum(),
        loading: state.map(|state| state.zygote == ZygotePhase::Loading),
        restarting: state.map(|state| state.is_restarting),
        restarts: lifecycle.restarts,
        restarts_failed: lifecycle.restarts_failed,
        processes_ended: lifecycle.ended,
        last_failure: lifecycle.failure.map(|failure| Failure {
            ago_s: now_ms.saturating_sub(failure.at_ms) as f64 / 1e3,
            reason: failure.reason,
        }),
    }
}
