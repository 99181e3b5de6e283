//! `baton serve`: puts the parts together, and takes them apart in order.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use baton_handoff::front::IoFlags;
use baton_server::http1::Limits;
use baton_server::{Config, Listen, LocalAddress, Server};
use rustix::process::{Resource, Rlimit};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::access_log::AccessLog;
use crate::admin::{Admin, Inside};
use crate::app::{
    App, Children, Command, Message, Pool, Supervisor, SupervisorHandle, ThreadBudget,
};
use crate::config::{AppConfig, Configuration};
use crate::counters::IoCounters;
use crate::gateway::{Gateway, Site, Sites};
use crate::listen;
use crate::live::Live;
use crate::logs::{self, Reopen};
use crate::options::ServerOptions;
use crate::systemd::{self, Notifier};
use crate::terminal::Terminal;
use crate::watch;

/// What app processes get to end by themselves once nothing is running any more.
const STOP_GRACE: Duration = Duration::from_secs(5);

pub fn run(configuration: &Configuration) -> Result<(), String> {
    let passed = systemd::take_sockets()?;
    let options = &configuration.server;
    let listeners = listen::resolve(&options.listen, passed)?;
    let reopen = Reopen::default();
    let _log = logs::install(options, &reopen)?;
    let access_log = match &options.access_log {
        Some(path) => Some(logs::background_file(path, &reopen)?),
        None => None,
    };
    let access_log_format = options.access_log_format;
    let access_log_writer = access_log
        .as_ref()
        .map(|(writer, _guard)| AccessLog::new(writer.clone(), access_log_format));
    raise_descriptor_limit();
    // App processes become our children although the zygotes fork them.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|error| format!("cannot become a subreaper: {error}"))?;
    let terminal = Terminal::find();
    // Before any thread starts: a signal must not find its default action.
    let mut signals = Signals::new([SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR1])
        .map_err(|error| format!("cannot handle signals: {error}"))?;

    let started = Instant::now();
    let notifier = Arc::new(Notifier::from_env());
    let sites = Arc::new(open_sites(configuration)?);
    let flags = Arc::new(
        IoFlags::create().map_err(|error| format!("cannot create shared memory: {error}"))?,
    );
    let config = config_of(options, listeners, access_log.is_some());
    let counters: Arc<[IoCounters]> = std::iter::repeat_with(IoCounters::default)
        .take(options.io_thread_count())
        .collect();
    let server = start_server(config, &sites, &flags, &counters, access_log_writer)?;
    let live = Arc::new(Live::new(sites.clone()));
    let admin = Admin::start(
        options,
        Inside {
            live: live.clone(),
            io_threads: server.handle(),
            counters,
            started,
            reload: Arc::new(|| Err(vec!["this is not supported yet".into()])),
        },
    )?;
    let children = Arc::new(Children::default());
    for pool in sites.pools() {
        pool.set_io_threads(server.handle());
        start_supervisor(pool, &flags, options.io_thread_count(), &children)?;
    }

    // Reaping begins before the first child does.
    let handle = server.handle();
    let signal_notifier = notifier.clone();
    let supervisors: Vec<_> = sites
        .pools()
        .filter_map(|pool| pool.supervisor().cloned())
        .collect();
    let signal_supervisors = supervisors.clone();
    let signal_thread = signals.handle();
    let addresses = server.addresses().to_vec();
    let listener = thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            let mut is_draining = false;
            for signal in signals.forever() {
                match signal {
                    SIGCHLD => children.reap(),
                    SIGUSR1 => reopen.request(),
                    // A terminal that closes says it, and so may the shell in it.
                    SIGHUP if is_draining => {}
                    SIGHUP if !terminal.is_gone() => signal_notifier.reload(|| {
                        reopen.request();
                        restart_all(&signal_supervisors);
                    }),
                    _ if is_draining => {
                        tracing::info!("stopping at once");
                        handle.stop_now();
                        for supervisor in &signal_supervisors {
                            // `run` waits for it.
                            drop(supervisor.stop(Duration::ZERO));
                        }
                    }
                    _ => {
                        is_draining = true;
                        tracing::info!("draining; a second signal stops at once");
                        signal_notifier.stopping("finishing what is running");
                        handle.drain();
                    }
                }
            }
        });
    let listener = listener.map_err(|error| format!("cannot start a thread: {error}"))?;
    await_first_starts(&sites)?;
    for site in &sites.list {
        watch::start(&site.app)?;
    }
    announce(&sites, &addresses, started);
    notifier.ready(&format!("serving {}", sites.names()));

    let ended = server
        .join()
        .map_err(|error| format!("an I/O thread failed: {error}"));
    stop_all(&supervisors);
    if let Some(admin) = admin {
        admin.stop();
    }
    signal_thread.close();
    // It only forwards signals: there is nothing in it that could fail.
    let _ = listener.join();
    ended
}

fn open_sites(configuration: &Configuration) -> Result<Sites, String> {
    let mut pools = 0;
    let budget = Arc::new(ThreadBudget::new(configuration.server.threads_max));
    let open = |config: &Arc<AppConfig>| Site::open(App::new(config.clone(), &mut pools, &budget));
    Ok(Sites {
        routes: configuration.routes.clone(),
        list: configuration
            .apps
            .iter()
            .map(open)
            .collect::<Result<_, _>>()?,
        io_thread_count: configuration.server.io_thread_count(),
        trusted_headers: configuration.server.trusted_headers.clone(),
    })
}

fn start_server(
    config: Config,
    sites: &Arc<Sites>,
    flags: &Arc<IoFlags>,
    counters: &Arc<[IoCounters]>,
    access_log: Option<AccessLog>,
) -> Result<Server<Message>, String> {
    let (sites, flags, counters) = (sites.clone(), flags.clone(), counters.clone());
    let make = move |index: usize, _io: &mut baton_server::Io| {
        baton_handoff::schedule::io_thread();
        Gateway::new(
            sites.clone(),
            flags.clone(),
            index,
            access_log.clone(),
            counters.clone(),
            first_request_id(index),
        )
    };
    Server::start(config, make).map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            format!("{error}; another server listens there, give another with --listen")
        }
        std::io::ErrorKind::PermissionDenied => {
            format!("{error}; ports below 1024 need root or CAP_NET_BIND_SERVICE")
        }
        _ => error.to_string(),
    })
}

fn start_supervisor(
    pool: &Arc<Pool>,
    flags: &Arc<IoFlags>,
    io_thread_count: usize,
    children: &Arc<Children>,
) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot start a supervisor: {error}");
    let supervisor = Supervisor::new(
        pool.clone(),
        flags.clone(),
        io_thread_count,
        children.clone(),
    )
    .map_err(failed)?;
    thread::Builder::new()
        .name("supervisor".into())
        .spawn(move || supervisor.run())
        .map_err(failed)?;
    Ok(())
}

/// Waits until each pool has started for the first time, or cannot. One that cannot is tried again and again, and the
/// others serve; if none can start, neither can the server.
fn await_first_starts(sites: &Sites) -> Result<(), String> {
    let mut any_started = false;
    let mut reasons = Vec::new();
    for pool in sites.pools().filter(|pool| !pool.is_dormant()) {
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

fn restart_all(supervisors: &[SupervisorHandle]) {
    for supervisor in supervisors {
        supervisor.tell(Command::Restart {
            reason: "SIGHUP".into(),
        });
    }
}

fn stop_all(supervisors: &[SupervisorHandle]) {
    let stopping: Vec<_> = supervisors
        .iter()
        .map(|supervisor| supervisor.stop(STOP_GRACE))
        .collect();
    // Those that take too long die with the front.
    let end = Instant::now() + STOP_GRACE + Duration::from_secs(5);
    for is_done in stopping {
        let _ = is_done.recv_timeout(end.saturating_duration_since(Instant::now()));
    }
}

fn config_of(options: &ServerOptions, listeners: Vec<Listen>, log_requests: bool) -> Config {
    let defaults = Config::default();
    Config {
        listeners,
        trusted_proxies: options.trusted_proxies.iter().copied().collect(),
        io_threads: options.io_thread_count(),
        limits: Limits {
            target_bytes_max: options.target_bytes_max as usize,
            head_bytes_max: options.head_bytes_max as usize,
            headers_max: options.headers_max as usize,
            body_bytes_max: options.body_bytes_max,
            ..Limits::default()
        },
        connections_max: options.connections_max as usize,
        requests_per_connection_max: options.requests_per_connection_max,
        header_ms: options.header_ms,
        body_ms: options.body_ms,
        keep_alive_ms: options.keep_alive_ms,
        write_ms: options.write_ms,
        temp_dir: options.temp_dir.clone().unwrap_or(defaults.temp_dir),
        reply_spill_bytes_max: options.reply_spill_bytes_max,
        shutdown_grace_ms: options.shutdown_grace_ms,
        log_requests,
        ..Config::default()
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
        let url = match address {
            LocalAddress::Tcp(address) => format!("http://{address}"),
            LocalAddress::Unix(path) => format!("unix:{}", path.display()),
        };
        tracing::info!(app, threads, start_ms, "serving on {url}");
    }
}
