//! The zygote: loads the app once, serves nothing, forks app processes on command.
//!
//! An app process must be a child of the front, so that the front can reap it and it dies with
//! the front. So the zygote forks twice: the process in between ends at once, and the kernel
//! gives the orphan to the nearest subreaper, the front. The first of the two forks copies nothing
//! (`csrc/fork.c`).
//!
//! ```text
//!   front ──spawns──► zygote ──vfork──► in between ──fork──► app process
//!     ▲                                 (exits)                   │
//!     └───────────────── becomes the parent ──────────────────────┘
//! ```

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use baton_handoff::app::Segment;
use baton_handoff::control::{self, Kind, Message};
use rustix::process::{Pid, Signal};

use crate::process::Process;
use crate::settings::Settings;

/// How long an app process waits for the front to become its parent.
const ADOPTION_WAIT_MS_MAX: u64 = 5_000;
/// Where the front puts the control socket of a zygote: its standard input.
const CONTROL_FD: i32 = 0;

pub struct Zygote {
    /// Closed in app processes: one of them could take its siblings' descriptors from it.
    control: Mutex<Option<OwnedFd>>,
    settings: Settings,
    front: Option<Pid>,
}

impl Zygote {
    /// Takes the control socket from standard input and waits for the settings.
    pub fn open() -> io::Result<Self> {
        // SAFETY: standard input is open for the life of the process and nobody closes it.
        let inherited = unsafe { BorrowedFd::borrow_raw(CONTROL_FD) };
        let control = rustix::io::fcntl_dupfd_cloexec(inherited, 3)?;
        close_standard_input()?;
        let front = rustix::process::getppid();
        die_with_parent(front)?;
        match control::receive(control.as_fd(), true) {
            Ok(Some(Message {
                kind: Kind::Settings,
                text,
                ..
            })) => Ok(Self {
                control: Mutex::new(Some(control)),
                settings: Settings::new(text),
                front,
            }),
            _ => Err(io::Error::other(
                "this program is started by `baton serve`, not by hand",
            )),
        }
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Tells the front in one line why the app cannot start.
    pub fn report_failure(&self, reason: &[u8]) {
        let reason = &reason[..reason.len().min(4096)];
        // If the front is gone there is nobody to tell.
        let _ = self.send(Kind::Failed, (0, 0), reason);
    }

    /// Becomes the account named in the settings, for good.
    pub fn drop_privileges(&self) -> io::Result<()> {
        let number = |name| {
            self.settings
                .get_str(name)
                .and_then(|text| text.parse::<u32>().ok())
        };
        let (Some(uid), Some(gid)) = (number("uid"), number("gid")) else {
            return Ok(());
        };
        if !rustix::process::geteuid().is_root() {
            return Ok(());
        }
        let user = self.settings.get("user").unwrap_or_default();
        // SAFETY: `user` is a NUL-terminated string; the process has one thread.
        check(unsafe { libc::initgroups(user.as_ptr(), gid) })?;
        // SAFETY: plain numbers.
        check(unsafe { libc::setresgid(gid, gid, gid) })?;
        // SAFETY: plain numbers.
        check(unsafe { libc::setresuid(uid, uid, uid) })?;
        // Changing the account clears both.
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable)?;
        die_with_parent(self.front)
    }

    /// Reports readiness and forks on command. Returns `Some` in each app process, `None` in the
    /// zygote when its work is over.
    pub fn serve(&self) -> io::Result<Option<Process>> {
        self.send(Kind::Ready, (0, 0), &[])?;
        loop {
            match self.receive()? {
                None
                | Some(Message {
                    kind: Kind::Stop, ..
                }) => return Ok(None),
                Some(message) if message.kind == Kind::Fork => match self.fork_process(message) {
                    Ok(None) => {}
                    Ok(Some(process)) => return Ok(Some(process)),
                    Err((number, error)) => {
                        let errno = error.raw_os_error().unwrap_or(0) as u64;
                        let text = error.to_string();
                        self.send(Kind::ForkFailed, (number, errno), text.as_bytes())?;
                    }
                },
                Some(_) => {}
            }
        }
    }

    /// A worker script has to boot in each process before it can serve.
    fn boots_first(&self) -> bool {
        let worker = self.settings.get("worker");
        worker.is_some_and(|script| !script.is_empty())
    }

    fn send(&self, kind: Kind, numbers: (u64, u64), text: &[u8]) -> io::Result<()> {
        match &*self.lock_control() {
            Some(control) => control::send(control.as_fd(), kind, numbers, text, &[], true),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn receive(&self) -> io::Result<Option<Message>> {
        match &*self.lock_control() {
            Some(control) => control::receive(control.as_fd(), true),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// The zygote has one thread: the lock is never waited for.
    fn lock_control(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.control
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// `Some` in the app process, `None` in the zygote.
    fn fork_process(&self, message: Message) -> Result<Option<Process>, (u64, io::Error)> {
        let number = message.a;
        let between = match fork_orphan().map_err(|error| (number, error))? {
            Forked::New { parent } => return Ok(Some(self.become_process(message, parent))),
            Forked::Caller { between } => between,
        };
        drop(message);
        let status = rustix::io::retry_on_intr(|| {
            rustix::process::waitpid(Some(between), rustix::process::WaitOptions::empty())
        });
        match status.map_err(io::Error::from) {
            Ok(Some((_, status))) => match status.exit_status() {
                Some(0) => Ok(None),
                Some(errno) => Err((number, io::Error::from_raw_os_error(errno))),
                None => Err((number, io::Error::other("killed while forking"))),
            },
            Ok(None) => Ok(None),
            Err(error) => Err((number, error)),
        }
    }

    /// In the new process. Whatever goes wrong ends it: the front sees it end.
    fn become_process(&self, message: Message, between: Option<Pid>) -> Process {
        match self.try_become_process(message, between) {
            Ok(process) => process,
            Err(error) => {
                eprintln!("baton: a forked app process could not start: {error}");
                exit_now(1)
            }
        }
    }

    fn try_become_process(&self, message: Message, between: Option<Pid>) -> io::Result<Process> {
        self.lock_control().take();
        let with_doorbell = message.b & 1 == 1;
        let mut descriptors = message.descriptors.into_iter();
        let mut next = || {
            descriptors
                .next()
                .ok_or_else(|| io::Error::other("a descriptor is missing"))
        };
        let (down, up, flags) = (next()?, next()?, next()?);
        let (control, log) = (next()?, next()?);
        let doorbell = if with_doorbell { Some(next()?) } else { None };
        let knockers: Vec<OwnedFd> = descriptors.collect();

        rustix::stdio::dup2_stdout(&log)?;
        rustix::stdio::dup2_stderr(&log)?;
        let segment = Segment::map(down.as_fd(), up.as_fd(), flags.as_fd(), knockers, doorbell)?;
        wait_for_adoption(between, self.front)?;
        die_with_parent(self.front)?;
        let boots_first = self.boots_first();
        let how = if boots_first { control::BOOTS_FIRST } else { 0 };
        let numbers = (message.a, how);
        control::send(control.as_fd(), Kind::Hello, numbers, &[], &[], true)?;
        Ok(Process::new(segment, control, boots_first))
    }
}

/// Until the process in between has ended, it is the parent. If the front is no more, somebody else
/// becomes the parent.
fn wait_for_adoption(between: Option<Pid>, front: Option<Pid>) -> io::Result<()> {
    for _ in 0..ADOPTION_WAIT_MS_MAX * 10 {
        match rustix::process::getppid() {
            parent if parent == front => return Ok(()),
            parent if parent != between => break,
            _ => std::thread::sleep(Duration::from_micros(100)),
        }
    }
    Err(io::Error::other("the front did not become the parent"))
}

/// Die when the parent does; and at once, if it already has.
fn die_with_parent(parent: Option<Pid>) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid() != parent {
        exit_now(1);
    }
    Ok(())
}

/// The application must not find the control socket there.
fn close_standard_input() -> io::Result<()> {
    let null = std::fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    Ok(())
}

enum Forked {
    /// In the new process: the parent that it begins with, which is about to end.
    New { parent: Option<Pid> },
    /// In the caller: the process in between, to be waited for.
    Caller { between: Pid },
}

unsafe extern "C" {
    /// `csrc/fork.c`.
    fn baton_fork_orphan(between: *mut libc::pid_t) -> libc::pid_t;
}

/// Forks a process whose parent the front becomes.
fn fork_orphan() -> io::Result<Forked> {
    let mut parent = 0;
    // SAFETY: the zygote has one thread, so the new process has everything that the zygote had and
    // no lock is held by a thread that is not there. The process in between uses this memory only
    // while the zygote is held up, and ends without returning here: on each memory, this returns
    // once.
    match unsafe { baton_fork_orphan(&mut parent) } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::New {
            parent: Pid::from_raw(parent),
        }),
        between => match Pid::from_raw(between) {
            Some(between) => Ok(Forked::Caller { between }),
            None => Err(io::ErrorKind::InvalidData.into()),
        },
    }
}

/// Without the exit handlers, which belong to the zygote.
fn exit_now(status: i32) -> ! {
    // SAFETY: ends the process; nothing of it runs on.
    unsafe { libc::_exit(status) }
}

fn check(result: i32) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
