//! A reload: the configuration is read again, and what it says takes the place of what is served, without losing a request.
//!
//! ```text
//!   read ─► start new applications ─► open listeners ─► I/O threads go over ─► old ones finish what they have, and end
//!     └────────────────┴──────────────────────┴─ fails: nothing has changed
//! ```
//!
//! An application whose configuration is the same keeps its pools, and is restarted: a reload is how new code is put
//! to use. Any other is replaced: both are there until the old one has nothing left to do.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use baton_server::{Handle, LocalAddress};

use crate::access_log::AccessLogFile;
use crate::app::{App, Command, Message, Pool, SupervisorHandle, ThreadBudget};
use crate::config::{AppConfig, Configuration, Given};
use crate::fleet::Fleet;
use crate::gateway::Sites;
use crate::live::Live;
use crate::logs::Reopen;
use crate::options::ServerOptions;
use crate::systemd::{Notifier, Passed};
use crate::watch::{self, Watch};
use crate::{listen, server_config};

/// So many reloads may have left applications behind that still finish requests.
const LEFTOVERS_MAX: usize = 4;
/// How long the next one waits for them.
const LEFTOVERS_WAIT: Duration = Duration::from_secs(10);
/// Pools have numbers that are not used again, and begin those of their processes.
const POOLS_MAX: u32 = 1 << 20;
/// How often it is looked whether the server has ended meanwhile.
const LOOK: Duration = Duration::from_millis(50);

/// Reloads, and tells how that went: in one line, or what is wrong with each problem in one. Blocks until the new
/// configuration is served; one reload at a time, others wait.
pub type Reload = Arc<dyn Fn() -> Result<String, Vec<String>> + Send + Sync>;

pub struct Reloader {
    pub given: Given,
    pub passed: Vec<Passed>,
    pub reopen: Reopen,
    pub notifier: Arc<Notifier>,
    pub io_threads: Handle<Message>,
    pub fleet: Arc<Fleet>,
    pub budget: Arc<ThreadBudget>,
    pub live: Arc<Live>,
    pub served: Mutex<Served>,
}

/// What is served, and what it was made of.
pub struct Served {
    pub configuration: Configuration,
    pub apps: Vec<Running>,
    /// Kept open here: what waits to be written is written when it is dropped.
    pub access_log: Option<AccessLogFile>,
    pub addresses: Vec<LocalAddress>,
    pub next_pool: u32,
    /// Of each reload, the pools that it has replaced.
    pub leftovers: Vec<Vec<Weak<Pool>>>,
}

/// An application with its pools.
#[derive(Clone)]
pub struct Running {
    pub app: Arc<App>,
    pub watch: Option<Arc<Watch>>,
}

/// Applications that were started and serve nobody so far. Dropped, they end.
struct Starting<'r> {
    fleet: &'r Fleet,
    apps: Vec<Running>,
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        for running in &self.apps {
            self.fleet.discard(&running.app);
        }
    }
}

impl Reloader {
    pub fn into_hook(self: Arc<Self>) -> Reload {
        Arc::new(move || self.reload())
    }

    fn reload(&self) -> Result<String, Vec<String>> {
        let mut served = self.lock();
        let mut outcome = Ok(String::new());
        self.notifier.reload(|| {
            outcome = self.replace(&mut served);
            let serving = format!("serving {}", self.live.sites().names());
            match &outcome {
                Ok(done) => {
                    tracing::info!("reloaded: {done}");
                    serving
                }
                Err(problems) => {
                    for problem in problems {
                        tracing::error!("the reload changes nothing: {problem}");
                    }
                    let first = problems.first().map_or("", String::as_str);
                    format!("{serving}; the last reload failed: {first}")
                }
            }
        });
        outcome
    }

    /// Up to the point of no return nothing that is served is touched.
    fn replace(&self, served: &mut Served) -> Result<String, Vec<String>> {
        let mut wanted = self.given.load()?;
        let one = |problem: String| vec![problem];
        let later = keep_what_needs_a_restart(&mut wanted.server, &served.configuration.server);
        let listeners = listen::resolve(&wanted.server.listen, &self.passed).map_err(one)?;
        let access_log = self.access_log(served, &wanted.server).map_err(one)?;
        self.await_leftovers(served).map_err(one)?;

        let mut starting = Starting {
            fleet: &self.fleet,
            apps: Vec::new(),
        };
        let apps = self.apps(&wanted, served, &mut starting).map_err(one)?;
        let sites = Sites::open(
            &wanted,
            apps.iter().map(|running| &running.app),
            self.io_threads.io_threads(),
            access_log.as_ref().map(AccessLogFile::writer),
        )
        .map_err(one)?;
        await_first_processes(&starting.apps)?;
        let config = server_config::of(&wanted.server, listeners, access_log.is_some());
        let prepared = self.io_threads.prepare(config);
        let prepared = prepared.map_err(|error| one(listen::explain(&error)))?;

        starting.apps.clear();
        self.budget.set_max(wanted.server.threads_max);
        self.live.replace(Arc::new(sites));
        let is_over = self.send_new_sites();
        let addresses = self.io_threads.apply(prepared);
        // Where the server has ended meanwhile there is nothing to do but to forget the old.
        let _ = is_over();
        let before = std::mem::replace(&mut served.apps, apps);
        let changes = self.let_go(served, before);
        for address in &addresses {
            if !served.addresses.contains(address) {
                tracing::info!("serving on {}", listen::url(address));
            }
        }
        for option in &later {
            tracing::warn!("{option} has changed: that takes effect when the server is restarted");
        }
        served.addresses = addresses;
        served.access_log = access_log;
        served.configuration = wanted;
        Ok(match later.is_empty() {
            true => changes,
            false => format!(
                "{changes}; after a restart of the server: {}",
                later.join(", ")
            ),
        })
    }

    /// The file that is open, if it is still the one that is wanted.
    fn access_log(
        &self,
        served: &Served,
        wanted: &ServerOptions,
    ) -> Result<Option<AccessLogFile>, String> {
        let Some(path) = &wanted.access_log else {
            return Ok(None);
        };
        let open = served.access_log.as_ref();
        match open.filter(|_| served.configuration.server.access_log.as_ref() == Some(path)) {
            Some(file) => Ok(Some(file.with(wanted.access_log_format))),
            None => AccessLogFile::open(path, wanted.access_log_format, &self.reopen).map(Some),
        }
    }

    /// However often somebody reloads, what is still there of earlier times is bounded.
    fn await_leftovers(&self, served: &mut Served) -> Result<(), String> {
        let end = Instant::now() + LEFTOVERS_WAIT;
        loop {
            let is_any_left = |pools: &Vec<Weak<Pool>>| pools.iter().any(|p| p.strong_count() > 0);
            served.leftovers.retain(is_any_left);
            if served.leftovers.len() < LEFTOVERS_MAX {
                return Ok(());
            }
            if self.fleet.is_closed() || Instant::now() >= end {
                return Err(format!(
                    "applications of {LEFTOVERS_MAX} earlier configurations still finish long requests; try again later"
                ));
            }
            thread::sleep(LOOK);
        }
    }

    /// Those that are wanted, in their order; the new ones are on their way.
    fn apps(
        &self,
        wanted: &Configuration,
        served: &mut Served,
        starting: &mut Starting<'_>,
    ) -> Result<Vec<Running>, String> {
        let mut apps = Vec::new();
        for config in &wanted.apps {
            let same = |running: &&Running| *running.app.config == **config;
            let running = match served.apps.iter().find(same) {
                Some(running) => running.clone(),
                None => self.start(config, served, starting)?,
            };
            apps.push(running);
        }
        Ok(apps)
    }

    fn start(
        &self,
        config: &Arc<AppConfig>,
        served: &mut Served,
        starting: &mut Starting<'_>,
    ) -> Result<Running, String> {
        if served.next_pool >= POOLS_MAX {
            return Err("there were too many reloads; restart the server".into());
        }
        let app = App::new(config.clone(), &mut served.next_pool, &self.budget);
        let app = Arc::new(app);
        let mut running = Running { app, watch: None };
        starting.apps.push(running.clone());
        self.fleet.start(&running.app)?;
        running.watch = watch::start(&running.app)?.map(Arc::new);
        Ok(running)
    }

    /// Returns what waits until all I/O threads go by them. False: they have ended.
    fn send_new_sites(&self) -> impl FnOnce() -> bool {
        let (done, is_done) = channel();
        let count = self.io_threads.io_threads();
        for io in 0..count {
            self.io_threads.post(io, Message::NewSites(done.clone()));
        }
        move || {
            (0..count).all(|_| {
                loop {
                    match is_done.recv_timeout(LOOK) {
                        Ok(()) => return true,
                        Err(RecvTimeoutError::Timeout) if !self.fleet.is_closed() => {}
                        Err(_) => return false,
                    }
                }
            })
        }
    }

    /// No request is for the applications that are served no more: they end. The others load their code anew.
    fn let_go(&self, served: &mut Served, before: Vec<Running>) -> String {
        let is_in = |running: &Running, list: &[Running]| {
            list.iter()
                .any(|other| Arc::ptr_eq(&running.app, &other.app))
        };
        let has_name = |running: &Running, list: &[Running]| {
            list.iter().any(|other| name(other) == name(running))
        };
        let (kept, gone): (Vec<_>, Vec<_>) = before
            .into_iter()
            .partition(|running| is_in(running, &served.apps));
        let is_new = |running: &&Running| !is_in(running, &kept);
        let changes = [
            list("restarting", kept.iter()),
            list(
                "replaced",
                gone.iter().filter(|one| has_name(one, &served.apps)),
            ),
            list(
                "started",
                served
                    .apps
                    .iter()
                    .filter(is_new)
                    .filter(|one| !has_name(one, &gone)),
            ),
            list(
                "ended",
                gone.iter().filter(|one| !has_name(one, &served.apps)),
            ),
        ];
        for running in &kept {
            for supervisor in running.app.pools().filter_map(|pool| pool.supervisor()) {
                let reason = "the server was told to reload".into();
                supervisor.tell(Command::Restart {
                    reason,
                    only_by_app: false,
                });
            }
        }
        let mut leaving = Vec::new();
        for running in &gone {
            self.fleet.leave(&running.app);
            leaving.extend(running.app.pools().map(Arc::downgrade));
        }
        served.leftovers.push(leaving);
        changes.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// Writes what waits to be written.
    pub fn end(&self) {
        drop(self.lock().access_log.take());
    }

    fn lock(&self) -> MutexGuard<'_, Served> {
        // After a panic in a reload what was served before is still there.
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn await_first_processes(apps: &[Running]) -> Result<(), Vec<String>> {
    let pools = apps.iter().flat_map(|running| running.app.pools());
    let awaited = pools.filter(|pool| !pool.is_dormant());
    let problems: Vec<_> = awaited
        .filter_map(|pool| {
            let outcome = pool
                .supervisor()
                .map(SupervisorHandle::await_first_process)?;
            let reason = outcome.err()?;
            Some(format!("{} cannot start: {reason}", pool.label))
        })
        .collect();
    match problems.is_empty() {
        true => Ok(()),
        false => Err(problems),
    }
}

/// What cannot change while the server runs stays as it is; returns the options that were to change.
fn keep_what_needs_a_restart(
    wanted: &mut ServerOptions,
    current: &ServerOptions,
) -> Vec<&'static str> {
    let mut later = Vec::new();
    if wanted.io_thread_count() != current.io_thread_count() {
        later.push("io_threads");
    }
    if wanted.log != current.log {
        later.push("log");
    }
    if wanted.log_format != current.log_format {
        later.push("log_format");
    }
    if wanted.admin != current.admin {
        later.push("admin");
    }
    if wanted.admin_token_file != current.admin_token_file {
        later.push("admin_token_file");
    }
    wanted.io_threads = current.io_threads;
    wanted.log.clone_from(&current.log);
    wanted.log_format = current.log_format;
    wanted.admin.clone_from(&current.admin);
    wanted
        .admin_token_file
        .clone_from(&current.admin_token_file);
    later
}

fn name(running: &Running) -> &str {
    &running.app.config.project.name
}

/// For people: `started a, b`.
fn list<'r>(what: &str, apps: impl Iterator<Item = &'r Running>) -> Option<String> {
    let names: Vec<_> = apps.map(name).collect();
    (!names.is_empty()).then(|| format!("{what} {}", names.join(" and ")))
}
