//! The supervisor of an app: one thread that starts its zygote, keeps its processes at their
//! number, reads what they write to standard error, and reaps them. It never ends before the
//! front does, because zygotes die with the thread that spawned them.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use baton_dispatch::{Backoff, Released, ThreadId};
use baton_handoff::control::{self, Kind};
use baton_handoff::front::IoFlags;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus};

use super::lines::Pipe;
use super::process::{Place, Process};
use super::zygote::{Nascent, Zygote};
use super::{App, Message};
use crate::gateway::Running;

/// A zygote that is not ready after this time is killed.
const START_MS_MAX: u64 = 30_000;
/// A zygote that ends sooner after it was ready is not started again at once.
const READY_MS_MIN: u64 = 100;
/// A zygote that was asked for a process is stopped or hangs if there is none after this time.
const FORK_MS_MAX: u64 = 5_000;
/// Forks under way at once: the zygote makes one after the other anyway.
const NASCENT_MAX: usize = 64;

/// What the supervisor is told by other threads.
pub enum Command {
    /// Some child has ended.
    Reap,
    /// End all processes, within the grace; answer when none is left.
    Stop { grace: Duration, done: Sender<()> },
}

/// How other threads reach the supervisor.
#[derive(Clone)]
pub struct SupervisorHandle {
    commands: Sender<Command>,
    bell: Arc<OwnedFd>,
    first_started: Arc<Mutex<Receiver<Result<(), String>>>>,
}

impl SupervisorHandle {
    pub fn tell(&self, command: Command) {
        // The supervisor ends only with the front.
        if self.commands.send(command).is_ok() {
            let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
        }
    }

    /// Waits until the app is loaded for the first time, or cannot be.
    pub fn await_first_start(&self) -> Result<(), String> {
        let first_started = self
            .first_started
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        // A closed channel: it was told already, or the supervisor is stopping.
        first_started.recv().unwrap_or(Ok(()))
    }

    /// As [`SupervisorHandle::stop_and_wait`], without waiting. The shortest grace counts.
    pub fn stop(&self, grace: Duration) -> Receiver<()> {
        let (done, is_done) = channel();
        self.tell(Command::Stop { grace, done });
        is_done
    }

    /// Ends all app processes; those that do not end by themselves within the grace are killed.
    pub fn stop_and_wait(&self, grace: Duration) {
        let is_done = self.stop(grace);
        // If it takes too long they die with the front.
        let _ = is_done.recv_timeout(grace + Duration::from_secs(5));
    }
}

enum ZygoteState {
    /// To be started, not before this.
    Wanted {
        not_before_ms: u64,
    },
    Loading {
        zygote: Zygote,
        since_ms: u64,
    },
    Ready(Zygote),
}

struct Member {
    process: Arc<Process>,
    threads: Vec<ThreadId>,
    stderr: super::lines::Lines,
}

struct Stopping {
    kill_at_ms: u64,
    done: Vec<Sender<()>>,
}

pub struct Supervisor {
    app: Arc<App>,
    flags: Arc<IoFlags>,
    io_thread_count: usize,
    epoll: OwnedFd,
    commands: Receiver<Command>,
    bell: Arc<OwnedFd>,
    started: Instant,
    zygote: ZygoteState,
    zygote_ready_ms: u64,
    nascent: HashMap<u64, (Nascent, u64)>,
    members: HashMap<u64, Member>,
    by_pid: HashMap<Pid, u64>,
    next_number: u64,
    zygote_backoff: Backoff,
    process_backoff: Backoff,
    fork_not_before_ms: u64,
    stopping: Option<Stopping>,
    /// Told once whether the first zygote got ready.
    first_start: Option<Sender<Result<(), String>>>,
}

/// What an epoll event is about.
#[derive(Clone, Copy)]
enum Token {
    Bell,
    ZygoteControl,
    ZygoteStderr,
    Control(u64),
    Stderr(u64),
}

impl Token {
    fn to_data(self) -> epoll::EventData {
        epoll::EventData::new_u64(match self {
            Token::Bell => 0,
            Token::ZygoteControl => 1,
            Token::ZygoteStderr => 2,
            Token::Control(number) => number << 2 | 1,
            Token::Stderr(number) => number << 2 | 2,
        })
    }

    fn from_data(data: epoll::EventData) -> Self {
        match (data.u64() >> 2, data.u64() & 3) {
            (0, 0) => Token::Bell,
            (0, 1) => Token::ZygoteControl,
            (0, _) => Token::ZygoteStderr,
            (number, 1) => Token::Control(number),
            (number, _) => Token::Stderr(number),
        }
    }
}

impl Supervisor {
    pub fn new(app: Arc<App>, flags: Arc<IoFlags>) -> std::io::Result<(Self, SupervisorHandle)> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (sender, commands) = channel();
        let (first_start, first_started) = channel();
        let handle = SupervisorHandle {
            commands: sender,
            bell: bell.clone(),
            first_started: Arc::new(Mutex::new(first_started)),
        };
        let io_thread_count = app.options.io_thread_count();
        let supervisor = Self {
            app,
            flags,
            io_thread_count,
            epoll,
            commands,
            bell,
            started: Instant::now(),
            zygote: ZygoteState::Wanted { not_before_ms: 0 },
            zygote_ready_ms: 0,
            nascent: HashMap::new(),
            members: HashMap::new(),
            by_pid: HashMap::new(),
            next_number: 1,
            zygote_backoff: Backoff::default(),
            process_backoff: Backoff::default(),
            fork_not_before_ms: 0,
            stopping: None,
            first_start: Some(first_start),
        };
        supervisor.watch(supervisor.bell.as_fd(), Token::Bell)?;
        Ok((supervisor, handle))
    }

    /// Never returns: zygotes die with the thread that spawned them.
    pub fn run(mut self) -> ! {
        let mut events = Vec::with_capacity(64);
        loop {
            let next_ms = self.advance();
            let timeout = next_ms.map(|at_ms| {
                let wait = Duration::from_millis(at_ms.saturating_sub(self.now_ms()).max(1));
                rustix::event::Timespec {
                    tv_sec: wait.as_secs() as i64,
                    tv_nsec: wait.subsec_nanos().into(),
                }
            });
            events.clear();
            // EINTR is one more look.
            let _ = epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                timeout.as_ref(),
            );
            for event in events.drain(..) {
                self.handle(Token::from_data(event.data));
            }
        }
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    fn watch(&self, fd: BorrowedFd<'_>, token: Token) -> std::io::Result<()> {
        Ok(epoll::add(
            &self.epoll,
            fd,
            token.to_data(),
            epoll::EventFlags::IN,
        )?)
    }

    fn handle(&mut self, token: Token) {
        match token {
            Token::Bell => self.take_commands(),
            Token::ZygoteControl => self.hear_zygote(),
            Token::ZygoteStderr => self.read_zygote_stderr(),
            Token::Control(number) => self.hear_process(number),
            Token::Stderr(number) => self.read_stderr(number),
        }
    }

    /// Does what is due, and says when the next thing will be.
    fn advance(&mut self) -> Option<u64> {
        let now_ms = self.now_ms();
        let mut next_ms = self.advance_stop(now_ms);
        let mut sooner =
            |at_ms: u64| next_ms = Some(next_ms.map_or(at_ms, |next: u64| next.min(at_ms)));
        if let ZygoteState::Wanted { not_before_ms } = self.zygote
            && self.stopping.is_none()
        {
            match now_ms >= not_before_ms {
                true => self.spawn_zygote(now_ms),
                false => sooner(not_before_ms),
            }
        }
        match &self.zygote {
            ZygoteState::Loading { zygote, since_ms } if now_ms >= since_ms + START_MS_MAX => {
                zygote.kill();
                self.zygote_failed("it was not ready within 30 s");
            }
            ZygoteState::Loading { since_ms, .. } => sooner(since_ms + START_MS_MAX),
            ZygoteState::Ready(_) if self.missing() > 0 => {
                match now_ms >= self.fork_not_before_ms {
                    true => self.fork_missing(now_ms),
                    false => sooner(self.fork_not_before_ms),
                }
            }
            _ => {}
        }
        if let ZygoteState::Wanted { not_before_ms } = self.zygote {
            sooner(not_before_ms);
        }
        let oldest_ms = self.nascent.values().map(|(_, since_ms)| *since_ms).min();
        match oldest_ms.map(|since_ms| since_ms + FORK_MS_MAX) {
            Some(late_ms) if now_ms >= late_ms => self.zygote_stuck(),
            Some(late_ms) => sooner(late_ms),
            None => {}
        }
        next_ms
    }

    // ---- the zygote --------------------------------------------------------------------------

    fn spawn_zygote(&mut self, now_ms: u64) {
        match Zygote::spawn(&self.app) {
            Ok(zygote) => {
                let watched = self
                    .watch(zygote.control.as_fd(), Token::ZygoteControl)
                    .and_then(|()| self.watch(zygote.stderr.pipe(), Token::ZygoteStderr));
                self.zygote = ZygoteState::Loading {
                    zygote,
                    since_ms: now_ms,
                };
                if let Err(error) = watched {
                    self.zygote_failed(&format!("cannot be watched: {error}"));
                }
            }
            Err(reason) => self.zygote_failed(&reason),
        }
    }

    fn hear_zygote(&mut self) {
        let (ZygoteState::Loading { zygote, .. } | ZygoteState::Ready(zygote)) = &self.zygote
        else {
            return;
        };
        let looked = control::look(zygote.control.as_fd()).and_then(|message| match message {
            Some(message) if !message.descriptors.is_empty() => {
                Err(std::io::ErrorKind::InvalidData.into())
            }
            _ => control::receive(zygote.control.as_fd(), false),
        });
        match looked {
            Ok(Some(message)) => match message.kind {
                Kind::Ready => self.zygote_ready(),
                Kind::Failed => self.zygote_failed(&String::from_utf8_lossy(&message.text)),
                Kind::ForkFailed => {
                    self.nascent_failed(message.a, &String::from_utf8_lossy(&message.text));
                }
                _ => {}
            },
            Ok(None) => self.zygote_ended(),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            // Killed with messages unread.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                self.zygote_ended()
            }
            // Among them one too long to be received: it would lie there for ever.
            Err(error) => {
                tracing::error!(
                    app = self.app.project.name,
                    "the zygote talks nonsense, killing it: {error}"
                );
                zygote.kill();
                self.zygote_ended();
            }
        }
    }

    fn zygote_ready(&mut self) {
        let old = std::mem::replace(&mut self.zygote, ZygoteState::Wanted { not_before_ms: 0 });
        self.zygote = match old {
            ZygoteState::Loading { zygote, since_ms } => {
                let took_ms = self.now_ms() - since_ms;
                tracing::debug!(app = self.app.project.name, took_ms, "the app is loaded");
                self.app.set_down(false);
                if let Some(first_start) = self.first_start.take() {
                    // The front waits for it, unless it is stopping.
                    let _ = first_start.send(Ok(()));
                }
                self.zygote_ready_ms = self.now_ms();
                ZygoteState::Ready(zygote)
            }
            other => other,
        };
    }

    /// The control socket is closed: it has ended, or will in a moment.
    fn zygote_ended(&mut self) {
        if self.stopping.is_some() {
            let not_before_ms = self.now_ms();
            return self.replace_zygote(not_before_ms);
        }
        match &mut self.zygote {
            ZygoteState::Loading { zygote, .. } => {
                let mut last = None;
                zygote.stderr.read(|line| last = Some(line.to_owned()));
                let reason = last.unwrap_or_else(|| "it ended while it was loading".into());
                self.zygote_failed(&explain(&reason));
            }
            ZygoteState::Ready(zygote) => {
                tracing::warn!(
                    app = self.app.project.name,
                    "the zygote has ended; starting another"
                );
                zygote.kill();
                let now_ms = self.now_ms();
                let not_before_ms = match now_ms < self.zygote_ready_ms + READY_MS_MIN {
                    true => self.zygote_backoff.failed(now_ms),
                    false => now_ms,
                };
                self.replace_zygote(not_before_ms);
            }
            ZygoteState::Wanted { .. } => {}
        }
    }

    /// It was asked for a process, and there is none.
    fn zygote_stuck(&mut self) {
        if let ZygoteState::Ready(zygote) = &self.zygote {
            tracing::warn!(
                app = self.app.project.name,
                "the zygote does not fork; starting another"
            );
            zygote.kill();
        }
        let not_before_ms = self.now_ms();
        self.replace_zygote(not_before_ms);
    }

    fn zygote_failed(&mut self, reason: &str) {
        let now_ms = self.now_ms();
        let retry_ms = self.zygote_backoff.failed(now_ms);
        self.replace_zygote(retry_ms);
        if let Some(first_start) = self.first_start.take() {
            // The front gives up, and says why.
            let _ = first_start.send(Err(reason.to_owned()));
            return;
        }
        let again_ms = retry_ms - now_ms;
        tracing::error!(
            app = self.app.project.name,
            again_ms,
            "the app cannot start: {reason}"
        );
        if self.members.is_empty() {
            self.app.set_down(true);
            self.post_all(|| Message::AppDown);
        }
    }

    fn replace_zygote(&mut self, not_before_ms: u64) {
        let wanted = ZygoteState::Wanted { not_before_ms };
        if let ZygoteState::Loading { zygote, .. } | ZygoteState::Ready(zygote) =
            std::mem::replace(&mut self.zygote, wanted)
        {
            self.let_go(zygote.control, zygote.stderr);
        }
        self.abandon_nascent();
    }

    fn read_zygote_stderr(&mut self) {
        let (ZygoteState::Loading { zygote, .. } | ZygoteState::Ready(zygote)) = &mut self.zygote
        else {
            return;
        };
        let (app, pid) = (&self.app.project.name, zygote.pid.as_raw_nonzero().get());
        let pipe = zygote
            .stderr
            .read(|line| tracing::warn!(app, pid, "{line}"));
        if pipe == Pipe::Closed {
            let _ = epoll::delete(&self.epoll, zygote.stderr.pipe());
        }
    }

    // ---- app processes -----------------------------------------------------------------------

    fn missing(&self) -> usize {
        match self.stopping {
            Some(_) => 0,
            None => (self.app.options.thread_count() as usize)
                .saturating_sub(self.members.len() + self.nascent.len()),
        }
    }

    fn fork_missing(&mut self, now_ms: u64) {
        let ZygoteState::Ready(zygote) = &self.zygote else {
            return;
        };
        let count = self
            .missing()
            .min(NASCENT_MAX - self.nascent.len().min(NASCENT_MAX));
        for _ in 0..count {
            let number = self.next_number;
            self.next_number += 1;
            let nascent = match zygote.fork(number, &self.flags, self.io_thread_count) {
                Ok(nascent) => nascent,
                Err(error) => {
                    self.fork_not_before_ms = self.process_backoff.failed(now_ms);
                    tracing::error!(
                        app = self.app.project.name,
                        "cannot start a process: {error}"
                    );
                    return;
                }
            };
            let watched = self
                .watch(nascent.control.as_fd(), Token::Control(number))
                .and_then(|()| self.watch(nascent.stderr.pipe(), Token::Stderr(number)));
            self.nascent.insert(number, (nascent, now_ms));
            if let Err(error) = watched {
                self.nascent_failed(number, &format!("cannot be watched: {error}"));
                return;
            }
        }
    }

    /// Forks that a dead zygote was asked for may have come to nothing.
    fn abandon_nascent(&mut self) {
        for (_, (nascent, _)) in std::mem::take(&mut self.nascent) {
            self.let_go(nascent.control, nascent.stderr);
        }
    }

    fn nascent_failed(&mut self, number: u64, reason: &str) {
        if let Some((nascent, _)) = self.nascent.remove(&number) {
            self.let_go(nascent.control, nascent.stderr);
            self.fork_not_before_ms = self.process_backoff.failed(self.now_ms());
            tracing::error!(
                app = self.app.project.name,
                "a process could not start: {reason}"
            );
        }
    }

    fn hear_process(&mut self, number: u64) {
        if let Some((nascent, _)) = self.nascent.get(&number) {
            match control::look(nascent.control.as_fd()) {
                Ok(Some(message)) if is_mere(&message, Kind::Hello) => match message.pid {
                    Some(pid) => self.process_up(number, pid),
                    None => self.nascent_failed(number, "its hello had no sender"),
                },
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                _ => self.nascent_failed(number, "it ended before it said hello"),
            }
        } else if let Some(member) = self.members.get(&number) {
            // It has nothing more to say: a closed socket means that it has ended, or pretends to.
            let received = control::receive(member.process.control(), false);
            if !matches!(&received, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock) {
                member.process.signal(Signal::KILL);
                let _ = epoll::delete(&self.epoll, member.process.control());
            }
        }
    }

    fn process_up(&mut self, number: u64, pid: Pid) {
        let pidfd = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(error) => return self.nascent_failed(number, &format!("pid {pid:?}: {error}")),
        };
        // Only a child of ours can be reaped, and only once: anybody else's end would never be heard of.
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if let Err(error) = rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), look) {
            return self.nascent_failed(number, &format!("pid {pid:?} is no child: {error}"));
        }
        if self.by_pid.contains_key(&pid) {
            return self.nascent_failed(number, &format!("pid {pid:?} said hello twice"));
        }
        let Some((nascent, _)) = self.nascent.get(&number) else {
            return;
        };
        // It has nothing more to say, and application code runs from now on. With nothing in it, its socket can be
        // closed on any thread.
        let control = nascent.control.as_fd();
        let is_silent = control::hear_no_more(control).is_ok()
            && control::receive(control, false).is_ok()
            && !matches!(control::look(control), Ok(Some(_)));
        if !is_silent {
            let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
            return self.nascent_failed(number, "it said more than hello; killed");
        }
        if self.stopping.is_some() {
            // It has come too late, and has nothing to finish.
            let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
        }
        let Some((nascent, _)) = self.nascent.remove(&number) else {
            return;
        };
        let Nascent {
            segment,
            control,
            stderr,
            knockers,
            ..
        } = nascent;
        let process = Arc::new(Process::new(number, pid, pidfd, segment, control, knockers));
        // Before the first offer: whoever offers hears the knocks.
        self.post_all(|| Message::ProcessUp(process.clone()));
        let threads = (0..process.segment().geometry().slots())
            .map(|slot| {
                self.add_thread(Place {
                    process: process.clone(),
                    slot,
                })
            })
            .collect();
        self.by_pid.insert(pid, number);
        self.members.insert(
            number,
            Member {
                process,
                threads,
                stderr,
            },
        );
        self.process_backoff.succeeded();
    }

    fn add_thread(&self, place: Place) -> ThreadId {
        let mut dispatcher = self.app.dispatcher();
        let id = dispatcher.add(place);
        let now_ms = monotonic_ms();
        let released = dispatcher.release(id, 0, now_ms);
        drop(dispatcher);
        if let Released::Next(handoff) = released {
            Running::offer_elsewhere(handoff, now_ms, &self.app);
        }
        id
    }

    fn read_stderr(&mut self, number: u64) {
        let app = &self.app.project.name;
        let (lines, pid, request) = if let Some(member) = self.members.get_mut(&number) {
            let process = &member.process;
            (
                &mut member.stderr,
                process.pid.as_raw_nonzero().get(),
                process.last_request(),
            )
        } else if let Some((nascent, _)) = self.nascent.get_mut(&number) {
            (&mut nascent.stderr, 0, 0)
        } else {
            return;
        };
        let request = format!("{request:016x}");
        let pipe = lines.read(|line| tracing::warn!(app, pid, request, "{line}"));
        if pipe == Pipe::Closed {
            let _ = epoll::delete(&self.epoll, lines.pipe());
        }
    }

    /// Reaps every child that has ended, whether it is ours or an orphan of the application's.
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            if let Some(number) = self.by_pid.remove(&pid) {
                self.process_gone(number, status);
            }
        }
    }

    fn process_gone(&mut self, number: u64, status: WaitStatus) {
        self.read_stderr(number);
        let Some(member) = self.members.remove(&number) else {
            return;
        };
        member.process.mark_dead();
        let mut dispatcher = self.app.dispatcher();
        for thread in &member.threads {
            dispatcher.remove(*thread);
        }
        drop(dispatcher);
        // Requests may keep the process's descriptors open for as long as their clients read, and this one would be
        // ready all that time.
        let _ = epoll::delete(&self.epoll, member.process.control());
        self.post_all(|| Message::ProcessGone(member.process.clone()));
        if self.stopping.is_some() {
            return;
        }
        let pid = member.process.pid.as_raw_nonzero().get();
        tracing::warn!(
            app = self.app.project.name,
            pid,
            "a process has ended: {}",
            how_it_ended(status)
        );
        if !member.process.was_offered() {
            self.fork_not_before_ms = self.process_backoff.failed(self.now_ms());
        }
    }

    /// Drops a control socket on a thread of its own. Closing it closes what lies in it unread, and that may be another
    /// socket that lingers: for minutes, if whoever sent it wants that.
    fn let_go(&self, control: OwnedFd, stderr: super::lines::Lines) {
        // Until it is closed it would be ready, with nobody to look.
        let _ = epoll::delete(&self.epoll, &control);
        let _ = epoll::delete(&self.epoll, stderr.pipe());
        let closing = std::thread::Builder::new()
            .name("closer".into())
            .stack_size(64 * 1024)
            .spawn(move || drop(control));
        if let Err(error) = closing {
            tracing::error!("cannot start a thread that closes a socket: {error}");
        }
    }

    fn post_all(&self, message: impl Fn() -> Message) {
        for io in 0..self.io_thread_count {
            self.app.post(io, message());
        }
    }

    // ---- the end -----------------------------------------------------------------------------

    fn take_commands(&mut self) {
        let _ = rustix::io::read(&*self.bell, &mut [0u8; 8]);
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Reap => self.reap(),
                Command::Stop { grace, done } => self.stop(grace, done),
            }
        }
    }

    fn stop(&mut self, grace: Duration, done: Sender<()>) {
        let kill_at_ms = self.now_ms() + grace.as_millis() as u64;
        let stopping = self.stopping.get_or_insert(Stopping {
            kill_at_ms,
            done: Vec::new(),
        });
        stopping.done.push(done);
        stopping.kill_at_ms = stopping.kill_at_ms.min(kill_at_ms);
        if let ZygoteState::Ready(zygote) | ZygoteState::Loading { zygote, .. } = &self.zygote {
            zygote.stop();
        }
        for member in self.members.values() {
            member.process.stop();
        }
        // The front may be waiting for a first start that will not be.
        self.first_start = None;
        self.reap();
    }

    /// Kills what has not ended in time; says so when nothing is left.
    fn advance_stop(&mut self, now_ms: u64) -> Option<u64> {
        let stopping = self.stopping.as_mut()?;
        if self.members.is_empty() {
            for done in stopping.done.drain(..) {
                // Whoever asked may have stopped waiting.
                let _ = done.send(());
            }
            return None;
        }
        if now_ms < stopping.kill_at_ms {
            return Some(stopping.kill_at_ms);
        }
        for member in self.members.values() {
            member.process.signal(Signal::KILL);
        }
        Some(now_ms + 100)
    }
}

/// The kind, and nothing sent along.
fn is_mere(message: &control::Message, kind: Kind) -> bool {
    message.kind == kind && message.descriptors.is_empty()
}

/// The clock that the I/O threads use, for the dispatcher's times.
fn monotonic_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

fn how_it_ended(status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (_, Some(signal)) => match Signal::from_named_raw(signal) {
            Some(named) => format!("signal {signal} ({named:?})"),
            None => format!("signal {signal}"),
        },
        _ => "for an unknown reason".into(),
    }
}

/// Adds the remedy to what the dynamic loader says.
fn explain(reason: &str) -> String {
    if reason.contains("error while loading shared libraries") && reason.contains("libphp") {
        return format!("{reason}; install PHP's embed library: apt-get install libphp8.2-embed");
    }
    reason.to_owned()
}
