//! The zygote of a pool, from outside: spawning it and telling it to fork.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use baton_guest::settings;
use baton_handoff::control::{self, Kind};
use baton_handoff::front::{IoFlags, Segment};
use baton_handoff::layout::Geometry;
use rustix::event::{EventfdFlags, eventfd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal};

use super::Pool;
use super::lines::Lines;
use crate::values::Pair;
use baton_dispatch::SEATS;

/// The guest program for PHP.
const GUEST: &str = "baton-php";

pub struct Zygote {
    pub pid: Pid,
    /// Names the process even when its number has been given to another.
    pidfd: OwnedFd,
    pub control: OwnedFd,
    pub stderr: Lines,
}

impl Zygote {
    /// To be called on the supervisor's thread: the zygote dies with it.
    pub fn spawn(pool: &Pool) -> Result<Self, String> {
        let program = find_guest()?;
        let failed = |error: io::Error| format!("cannot start {}: {error}", program.display());
        let (control, other) = control::pair().map_err(failed)?;
        let (reader, writer) = stderr_pipe().map_err(failed)?;
        let child = Command::new(&program)
            .env_clear()
            .envs(environment_of(pool))
            .current_dir(&pool.app.project.root)
            .stdin(Stdio::from(other))
            .stdout(Stdio::from(writer.try_clone().map_err(failed)?))
            .stderr(Stdio::from(writer))
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let settings = settings_of(pool);
        control::send(
            control.as_fd(),
            Kind::Settings,
            (0, 0),
            &settings,
            &[],
            true,
        )
        .map_err(failed)?;
        // The supervisor reaps it with all other children; `child` is only a number here.
        let pid = Pid::from_child(&child);
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())
            .map_err(|error| failed(error.into()))?;
        Ok(Self {
            pid,
            pidfd,
            control,
            stderr: Lines::new(reader),
        })
    }

    /// Asks for an app process. It says hello on its own control socket.
    pub fn fork(
        &self,
        number: u64,
        threads: u32,
        flags: &IoFlags,
        io_threads: usize,
    ) -> io::Result<Nascent> {
        let geometry = Geometry::new(threads, SEATS).ok_or(io::ErrorKind::InvalidInput)?;
        let segment = Segment::create(geometry, false)?;
        let (control, other) = control::pair()?;
        let (reader, writer) = stderr_pipe()?;
        let knockers = (0..io_threads)
            .map(|_| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK))
            .collect::<Result<Vec<_>, _>>()?;
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![
            segment.down_file(),
            segment.up_file(),
            flags.file(),
            other.as_fd(),
            writer.as_fd(),
        ];
        descriptors.extend(segment.doorbell());
        descriptors.extend(knockers.iter().map(AsFd::as_fd));
        let with_doorbell = u64::from(segment.doorbell().is_some());
        control::send(
            self.control.as_fd(),
            Kind::Fork,
            (number, with_doorbell),
            &[],
            &descriptors,
            false,
        )?;
        Ok(Nascent {
            segment,
            control,
            stderr: Lines::new(reader),
            knockers,
        })
    }

    pub fn kill(&self) {
        // It may have ended already: then there is nothing to kill.
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    pub fn stop(&self) {
        // If it cannot be told, it is dead or will be killed.
        let _ = control::send(self.control.as_fd(), Kind::Stop, (0, 0), &[], &[], false);
    }
}

/// An app process that has been asked for and has not said hello.
pub struct Nascent {
    pub segment: Segment,
    pub control: OwnedFd,
    pub stderr: Lines,
    pub knockers: Vec<OwnedFd>,
}

fn stderr_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    // Only our end: an application must not find that its standard error does not block.
    rustix::fs::fcntl_setfl(&reader, rustix::fs::OFlags::NONBLOCK)?;
    Ok((reader, writer))
}

/// Beside this program (a build), or in `../lib/baton` (an installation).
fn find_guest() -> Result<PathBuf, String> {
    let this =
        std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let folder = this.parent().unwrap_or(Path::new("/"));
    let beside = folder.join(GUEST);
    let installed = folder.join("../lib/baton").join(GUEST);
    [beside, installed]
        .into_iter()
        .find(|path| path.is_file())
        .ok_or_else(|| {
            format!(
                "{GUEST} is neither in {0} nor in {0}/../lib/baton; run `make build`",
                folder.display()
            )
        })
}

/// What the front was started with is not the application's business, but for these.
const ENVIRONMENT_KEPT: [&str; 8] = [
    "PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "RUST_BACKTRACE",
];

/// Worker scripts may end their loop by it. Some loop for ever without it, others not at all, and for 0 the same: a
/// number that is never reached is right for both.
const MAX_REQUESTS: &str = "MAX_REQUESTS";
const MAX_REQUESTS_UNLIMITED: i64 = i64::MAX;

/// Of two values of one name the later one counts.
fn environment_of(pool: &Pool) -> Vec<(OsString, OsString)> {
    let app = &pool.app;
    let kept = ENVIRONMENT_KEPT.iter().chain(match app.account {
        Some(_) => [].iter(),
        None => ["HOME", "USER"].iter(),
    });
    let mut environment: Vec<(OsString, OsString)> = kept
        .filter_map(|name| Some((name.into(), std::env::var_os(name)?)))
        .collect();
    if let Some(account) = &app.account {
        environment.push(("HOME".into(), account.home.clone().into()));
        environment.push(("USER".into(), account.name.clone().into()));
    }
    if let Some(worker) = &pool.worker {
        let max = worker
            .max_requests
            .map_or(MAX_REQUESTS_UNLIMITED, i64::from);
        environment.push((MAX_REQUESTS.into(), max.to_string().into()));
    }
    let given = app.options.env.iter();
    environment.extend(given.map(|pair| (pair.name.clone().into(), pair.value.clone().into())));
    environment
}

fn settings_of(pool: &Pool) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    let app = &pool.app;
    let mut wire = Vec::new();
    let mut set = |name, value: &[u8]| settings::append(&mut wire, name, value);
    set("name", pool.label.as_bytes());
    set("root", app.project.root.as_os_str().as_bytes());
    set("index", app.project.index.as_bytes());
    let threads = pool.limits.threads_per_process.to_string();
    set("threads_per_process", threads.as_bytes());
    match &pool.worker {
        None => {
            set("sapi_name", b"fpm-fcgi");
            if !app.workers.is_empty() {
                set("beside_workers", b"1");
            }
        }
        Some(worker) => {
            // What worker scripts look for.
            set("sapi_name", b"frankenphp");
            set("worker", worker.script.file.as_os_str().as_bytes());
            set("worker_name", worker.script.name.as_bytes());
        }
    }
    let worker = pool.worker.as_ref();
    if let Some(max) = worker.map_or(app.options.max_requests, |worker| worker.max_requests) {
        set("max_requests", max.to_string().as_bytes());
    }
    if let Some(file) = &app.options.ini_file {
        set("ini_file", file.as_os_str().as_bytes());
    }
    set("ini", ini_lines(&app.options.ini).as_bytes());
    set("ini_admin", ini_lines(&app.options.ini_admin).as_bytes());
    if let Some(account) = &app.account {
        set("user", account.name.as_bytes());
        set("uid", account.uid.to_string().as_bytes());
        set("gid", account.gid.to_string().as_bytes());
    }
    wire
}

fn ini_lines(pairs: &[Pair]) -> String {
    let line = |pair: &Pair| format!("{}={}\n", pair.name, pair.value);
    pairs.iter().map(line).collect()
}
