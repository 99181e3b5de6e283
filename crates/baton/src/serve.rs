//! `baton serve`: puts the parts together, and takes them apart in order.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use baton_handoff::front::IoFlags;
use baton_server::{Config, Handle, LocalAddress, Server};
use rustix::process::{Resource, Rlimit};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::access_log::AccessLogFile;
use crate::admin::{Admin, Inside};
use crate::app::{App, Children, Message, SupervisorHandle, ThreadBudget};
use crate::config::{AppConfig, Configuration, Given};
use crate::counters::IoCounters;
use crate::fleet::Fleet;
use crate::gateway::{Gateway, Sites};
use crate::listen;
use crate::live::Live;
use crate::logs::{self, Reopen};
use crate::reload::{Reload, Reloader, Running, Served};
use crate::server_config;
use crate::systemd::{self, Notifier};
use crate::terminal::Terminal;
use crate::watch;

/// Each line of an error is one problem.
pub fn run(given: Given) -> Result<(), Vec<String>> {
    let configuration = given.load()?;
    serve(given, configuration).map_err(|problem| vec![problem])
}

fn serve(given: Given, configuration: Configuration) -> Result<(), String> {
    let passed = systemd::take_sockets()?;
    let options = &configuration.server;
    let listeners = listen::resolve(&options.listen, &passed)?;
    let reopen = Reopen::default();
    let _log = logs::install(options, &reopen)?;
    let open_access_log = |path| AccessLogFile::open(path, options.access_log_format, &reopen);
    let access_log = options.access_log.as_deref().map(open_access_log);
    let access_log = access_log.transpose()?;
    raise_descriptor_limit();
    // App processes become our children although the zygotes fork them.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|error| format!("cannot become a subreaper: {error}"))?;
    let terminal = Terminal::find();
    // Before any thread starts: a signal must not find its default action.
    let signals = Signals::new([SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR1])
        .map_err(|error| format!("cannot handle signals: {error}"))?;

    let started = Instant::now();
    let notifier = Arc::new(Notifier::from_env());
    let mut next_pool = 0;
    let budget = Arc::new(ThreadBudget::new(options.threads_max));
    let new_app =
        |config: &Arc<AppConfig>| Arc::new(App::new(config.clone(), &mut next_pool, &budget));
    let apps: Vec<_> = configuration.apps.iter().map(new_app).collect();
    let sites = Sites::open(
        &configuration,
        apps.iter(),
        options.io_thread_count(),
        access_log.as_ref().map(AccessLogFile::writer),
    )?;
    let live = Arc::new(Live::new(Arc::new(sites)));
    let flags = Arc::new(
        IoFlags::create().map_err(|error| format!("cannot create shared memory: {error}"))?,
    );
    let config = server_config::of(options, listeners, access_log.is_some());
    let counters: Arc<[IoCounters]> = std::iter::repeat_with(IoCounters::default)
        .take(options.io_thread_count())
        .collect();
    let server = start_server(config, &live, &flags, &counters)?;
    let reload_hook = Arc::new(OnceLock::new());
    let admin = Admin::start(
        options,
        Inside {
            live: live.clone(),
            io_threads: server.handle(),
            counters,
            started,
            reload: once_started(reload_hook.clone()),
        },
    )?;
    let children = Arc::new(Children::default());
    let fleet = Arc::new(Fleet::new(server.handle(), flags, children.clone()));
    for app in &apps {
        fleet.start(app)?;
    }

    // Reaping begins before the first child does.
    let (wish, wishes) = sync_channel(1);
    let hearing = Signalled {
        handle: server.handle(),
        notifier: notifier.clone(),
        fleet: fleet.clone(),
        reopen: reopen.clone(),
        children,
        terminal,
        wish,
    };
    let signal_handle = signals.handle();
    let signal_thread = thread::Builder::new()
        .name("signals".into())
        .spawn(move || hearing.listen(signals))
        .map_err(|error| format!("cannot start a thread: {error}"))?;
    await_first_starts(&apps)?;
    let watched = |app: Arc<App>| -> Result<Running, String> {
        let watch = watch::start(&app)?.map(Arc::new);
        Ok(Running { app, watch })
    };
    let apps: Vec<_> = apps.into_iter().map(watched).collect::<Result<_, _>>()?;
    announce(&live.sites(), server.addresses(), started);
    if let Some(admin) = &admin {
        tracing::info!("admin API on {}", admin.address());
    }
    notifier.ready(&format!("serving {}", live.sites().names()));

    let reloader = Arc::new(Reloader {
        given,
        passed,
        reopen,
        notifier,
        io_threads: server.handle(),
        fleet: fleet.clone(),
        budget,
        live,
        served: Mutex::new(Served {
            addresses: server.addresses().to_vec(),
            configuration,
            apps,
            access_log,
            next_pool,
            leftovers: Vec::new(),
        }),
    });
    let reload = reloader.clone().into_hook();
    // Nobody else sets it.
    let _ = reload_hook.set(reload.clone());
    start_reloads(reload, wishes)?;

    let ended = server
        .join()
        .map_err(|error| format!("an I/O thread failed: {error}"));
    fleet.stop_and_wait();
    if let Some(admin) = admin {
        admin.stop();
    }
    signal_handle.close();
    // It only forwards signals: there is nothing in it that could fail.
    let _ = signal_thread.join();
    reloader.end();
    ended
}

/// What signals act upon.
struct Signalled {
    handle: Handle<Message>,
    notifier: Arc<Notifier>,
    fleet: Arc<Fleet>,
    reopen: Reopen,
    children: Arc<Children>,
    terminal: Terminal,
    wish: SyncSender<()>,
}

impl Signalled {
    fn listen(self, mut signals: Signals) {
        let mut is_draining = false;
        for signal in signals.forever() {
            match signal {
                SIGCHLD => self.children.reap(),
                SIGUSR1 => self.reopen.request(),
                // A terminal that closes says it, and so may the shell in it.
                SIGHUP if is_draining => {}
                SIGHUP if !self.terminal.is_gone() => {
                    self.reopen.request();
                    // One that waits already reads what there is by then.
                    let _ = self.wish.try_send(());
                }
                _ if is_draining => {
                    tracing::info!("stopping at once");
                    self.handle.stop_now();
                    // `serve` waits for it.
                    drop(self.fleet.stop(Duration::ZERO));
                }
                _ => {
                    is_draining = true;
                    tracing::info!("draining; a second signal stops at once");
                    self.notifier.stopping("finishing what is running");
                    self.handle.drain();
                }
            }
        }
    }
}

/// The applications are still loading when the admin API is there already.
fn once_started(hook: Arc<OnceLock<Reload>>) -> Reload {
    Arc::new(move || match hook.get() {
        Some(reload) => reload(),
        None => Err(vec!["the server is still starting; try again later".into()]),
    })
}

/// On a thread of their own: a reload takes as long as applications take to start, and these are reaped meanwhile.
fn start_reloads(reload: Reload, wishes: Receiver<()>) -> Result<(), String> {
    let run = move || {
        while let Ok(()) = wishes.recv() {
            // It has logged how it went.
            let _ = reload();
        }
    };
    let spawned = thread::Builder::new().name("reload".into()).spawn(run);
    spawned.map_err(|error| format!("cannot start a thread: {error}"))?;
    Ok(())
}

fn start_server(
    config: Config,
    live: &Arc<Live>,
    flags: &Arc<IoFlags>,
    counters: &Arc<[IoCounters]>,
) -> Result<Server<Message>, String> {
    let (live, flags, counters) = (live.clone(), flags.clone(), counters.clone());
    let make = move |index: usize, _io: &mut baton_server::Io| {
        baton_handoff::schedule::io_thread();
        Gateway::new(
            live.clone(),
            flags.clone(),
            index,
            counters.clone(),
            first_request_id(index),
        )
    };
    Server::start(config, make).map_err(|error| listen::explain(&error))
}

/// Waits until each pool has started for the first time, or cannot. One that cannot is tried again and again, and the
/// others serve; if none can start, neither can the server.
fn await_first_starts(apps: &[Arc<App>]) -> Result<(), String> {
    let mut any_started = false;
    let mut reasons = Vec::new();
    let pools = apps.iter().flat_map(|app| app.pools());
    for pool in pools.filter(|pool| !pool.is_dormant()) {
        match pool.supervisor().map(SupervisorHandle::await_first_start) {
            Some(Err(reason)) => reasons.push((pool, reason)),
            _ => any_started = true,
        }
    }
    match reasons.first() {
        Some((_, reason)) if !any_started => Err(reason.clone()),
        _ => {
            for (pool, reason) in reasons {
                tracing::error!(app = pool.label, "the app cannot start: {reason}");
            }
            Ok(())
        }
    }
}

/// Connections, and three descriptors for each app process, want more than the usual 1,024.
fn raise_descriptor_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = rustix::process::setrlimit(Resource::Nofile, raised) {
        tracing::warn!("cannot raise the limit of open files: {error}");
    }
}

/// Request ids of two runs should not be the same.
fn first_request_id(index: usize) -> u64 {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    (now.as_nanos() as u64).rotate_left(20) ^ ((index as u64) << 56) ^ u64::from(std::process::id())
}

/// For the person who started it, and for scripts that wait for it.
fn announce(sites: &Sites, addresses: &[LocalAddress], started: Instant) {
    let start_ms = started.elapsed().as_millis() as u64;
    let app = sites.names();
    let threads: u32 = sites
        .pools()
        .filter(|pool| !pool.is_dormant())
        .map(|pool| pool.limits.threads_min)
        .sum();
    for address in addresses {
        let url = listen::url(address);
        tracing::info!(app, threads, start_ms, "serving on {url}");
    }
}
