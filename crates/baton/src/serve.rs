//! `baton serve`: puts the parts together, and takes them apart in order.

use std::io::IsTerminal;
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
use crate::app::{App, Command, Message, Supervisor, SupervisorHandle};
use crate::gateway::{Gateway, Root};
use crate::logs::{self, Reopen};
use crate::options::ServeOptions;
use crate::systemd::{self, Notifier};
use crate::{account, listen, project};

/// What app processes get to end by themselves once nothing is running any more.
const STOP_GRACE: Duration = Duration::from_secs(5);

pub fn run(options: ServeOptions) -> Result<(), String> {
    let passed = systemd::take_sockets()?;
    let listeners = listen::resolve(&options.listen, &options.trusted_proxies, passed)?;
    let project = project::find(&options.path)?;
    let account = account::for_app_processes(&options.user)?;
    let reopen = Reopen::default();
    let _log = logs::install(&options, &reopen)?;
    let access_log = match &options.access_log {
        Some(path) => Some(logs::background_file(path, &reopen)?),
        None => None,
    };
    let access_log_format = options.access_log_format;
    let access_log_writer = access_log
        .as_ref()
        .map(|(writer, _guard)| AccessLog::new(writer.clone(), access_log_format));
    raise_descriptor_limit();
    // App processes become our children although the zygote forks them.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|error| format!("cannot become a subreaper: {error}"))?;
    // Before any thread starts: a signal must not find its default action.
    let mut signals = Signals::new([SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR1])
        .map_err(|error| format!("cannot handle signals: {error}"))?;

    let on_terminal = std::io::stderr().is_terminal();
    let started = Instant::now();
    let notifier = Arc::new(Notifier::from_env());
    let config = config_of(&options, listeners, access_log.is_some());
    let app = Arc::new(App::new(project, options, account));
    let flags = Arc::new(
        IoFlags::create().map_err(|error| format!("cannot create shared memory: {error}"))?,
    );
    let server = start_server(config, &app, &flags, access_log_writer)?;
    app.set_io_threads(server.handle());
    let supervisor = start_supervisor(&app, flags)?;

    // Reaping begins before the first child does.
    let handle = server.handle();
    let signal_supervisor = supervisor.clone();
    let signal_notifier = notifier.clone();
    let signal_thread = signals.handle();
    let addresses = server.addresses().to_vec();
    let listener = thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            let mut is_draining = false;
            for signal in signals.forever() {
                match signal {
                    SIGCHLD => signal_supervisor.tell(Command::Reap),
                    SIGUSR1 => reopen.request(),
                    // A terminal that closes says it, too.
                    SIGHUP if on_terminal == std::io::stderr().is_terminal() => {
                        if !is_draining {
                            signal_notifier.reload(|| reopen.request());
                        }
                    }
                    _ if is_draining => {
                        tracing::info!("stopping at once");
                        handle.stop_now();
                        // `run` waits for it.
                        drop(signal_supervisor.stop(Duration::ZERO));
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
    supervisor.await_first_start()?;
    announce(&app, &addresses, started);
    notifier.ready(&format!("serving {}", app.project.name));

    let ended = server
        .join()
        .map_err(|error| format!("an I/O thread failed: {error}"));
    supervisor.stop_and_wait(STOP_GRACE);
    signal_thread.close();
    // It only forwards signals: there is nothing in it that could fail.
    let _ = listener.join();
    ended
}

fn start_server(
    config: Config,
    app: &Arc<App>,
    flags: &Arc<IoFlags>,
    access_log: Option<AccessLog>,
) -> Result<Server<Message>, String> {
    let follow = app.options.follow_symlinks;
    let root = Root::open(&app.project.root, follow, app.account.as_ref())
        .map_err(|error| format!("cannot open {}: {error}", app.project.root.display()))?;
    let root = Arc::new(root);
    let (app, flags) = (app.clone(), flags.clone());
    let make = move |index: usize, _io: &mut baton_server::Io| {
        baton_handoff::schedule::io_thread();
        Gateway::new(
            app.clone(),
            flags.clone(),
            index,
            root.clone(),
            access_log.clone(),
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

fn start_supervisor(app: &Arc<App>, flags: Arc<IoFlags>) -> Result<SupervisorHandle, String> {
    let failed = |error: std::io::Error| format!("cannot start the supervisor: {error}");
    let (supervisor, handle) = Supervisor::new(app.clone(), flags).map_err(failed)?;
    thread::Builder::new()
        .name("supervisor".into())
        .spawn(move || supervisor.run())
        .map_err(failed)?;
    Ok(handle)
}

fn config_of(options: &ServeOptions, listeners: Vec<Listen>, log_requests: bool) -> Config {
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
        temp_dir: options.temp_dir.clone(),
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
fn announce(app: &App, addresses: &[LocalAddress], started: Instant) {
    let start_ms = started.elapsed().as_millis() as u64;
    let threads = app.options.thread_count();
    for address in addresses {
        let url = match address {
            LocalAddress::Tcp(address) => format!("http://{address}"),
            LocalAddress::Unix(path) => format!("unix:{}", path.display()),
        };
        tracing::info!(
            app = app.project.name,
            threads,
            start_ms,
            "serving on {url}"
        );
    }
}
