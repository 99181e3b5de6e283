//! The supervisor of a pool: one thread that starts its zygote, keeps its processes at their
//! number, and reads what they write to standard error. It never ends before the front does,
//! because zygotes die with the thread that spawned them.

mod ending;
mod members;
mod zygotes;

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use baton_dispatch::{Backoff, ThreadId};
use baton_handoff::front::IoFlags;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::process::WaitStatus;

use super::process::Process;
use super::zygote::{Nascent, Zygote};
use super::{Children, Pool};

/// A zygote that is not ready after this time is killed.
const START_MS_MAX: u64 = 30_000;
/// A zygote that ends sooner after it was ready is not started again at once.
const READY_MS_MIN: u64 = 100;
/// A zygote that was asked for a process is stopped or hangs if there is none after this time.
const FORK_MS_MAX: u64 = 5_000;
/// Forks under way at once: the zygote makes one after the other anyway.
const NASCENT_MAX: usize = 64;
/// The numbers of a pool's processes begin with the pool's own, so that they differ from those of others.
const POOL_SHIFT: u32 = 40;

/// What the supervisor is told by other threads.
pub enum Command {
    /// A process has ended, and was reaped.
    Ended { number: u64, status: WaitStatus },
    /// The pool is dormant no more.
    Wake,
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

    /// Ends all app processes; those that do not end by themselves within the grace are killed. The shortest grace
    /// counts. Says so when none is left.
    pub fn stop(&self, grace: Duration) -> Receiver<()> {
        let (done, is_done) = channel();
        self.tell(Command::Stop { grace, done });
        is_done
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
    /// Those that the dispatcher knows: none while the process boots.
    threads: Vec<ThreadId>,
    stderr: super::lines::Lines,
    /// Since its hello it has run application code and may say something.
    is_heard: bool,
}

impl Member {
    fn boots(&self) -> bool {
        self.threads.is_empty()
    }
}

struct Stopping {
    kill_at_ms: u64,
    done: Vec<Sender<()>>,
}

pub struct Supervisor {
    pool: Arc<Pool>,
    children: Arc<Children>,
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
    /// The pool is told how to reach it.
    pub fn new(
        pool: Arc<Pool>,
        flags: Arc<IoFlags>,
        io_thread_count: usize,
        children: Arc<Children>,
    ) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (sender, commands) = channel();
        let (first_start, first_started) = channel();
        let handle = SupervisorHandle {
            commands: sender,
            bell: bell.clone(),
            first_started: Arc::new(Mutex::new(first_started)),
        };
        // Whoever wakes it later does not wait for its first start.
        let first_start = (!pool.is_dormant()).then_some(first_start);
        let first_number = u64::from(pool.number) << POOL_SHIFT | 1;
        let supervisor = Self {
            pool,
            children,
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
            next_number: first_number,
            zygote_backoff: Backoff::default(),
            process_backoff: Backoff::default(),
            fork_not_before_ms: 0,
            stopping: None,
            first_start,
        };
        supervisor.watch(supervisor.bell.as_fd(), Token::Bell)?;
        supervisor.pool.set_supervisor(handle);
        Ok(supervisor)
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
        if self.pool.is_dormant() {
            return next_ms;
        }
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
}
