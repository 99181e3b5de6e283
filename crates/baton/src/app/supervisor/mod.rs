//! The supervisor of a pool: one thread that starts its zygote, keeps its processes at their
//! number, and reads what they write to standard error. It ends after its last process, because
//! zygotes die with the thread that spawned them.
//!
//! [`scaling`] says how many there are to be, by what the [`gauges`] tell, and [`report`]s it. [`zygotes`]
//! load the app, [`forks`] are asked of them, [`members`] are its processes, [`hearing`] is what these
//! may say, [`restart`] replaces them all while they serve, [`leavers`] sees to it that the old ones do
//! leave, [`describing`] is for who asks how things are, [`ending`] is the end of all, at once or when
//! nothing is left to do.

mod describing;
mod ending;
mod forks;
mod gauges;
mod hearing;
mod leavers;
mod members;
mod report;
mod restart;
mod scaling;
mod zygotes;

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use baton_dispatch::{Backoff, ThreadId};
use baton_handoff::front::IoFlags;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::process::WaitStatus;

use super::process::{POOL_SHIFT, Process};
use super::zygote::{Nascent, Zygote};
use super::{Children, Pool};
pub use describing::{PoolState, ZygotePhase};
use ending::Departure;
use gauges::Reading;
use leavers::{Leavers, Leaving};
use restart::Restart;
use scaling::Scaler;

/// A zygote that is not ready after this time is killed, and so is a process that has not booted.
const START_MS_MAX: u64 = 30_000;
/// A zygote that ends sooner after it was ready is not started again at once.
const READY_MS_MIN: u64 = 100;
/// A zygote that was asked for a process is stopped or hangs if there is none after this time.
const FORK_MS_MAX: u64 = 5_000;
/// A pool that is new has so long until its first process takes requests: to load, and to boot.
const SERVE_MS_MAX: u64 = 2 * START_MS_MAX;
/// Forks under way at once: the zygote makes one after the other anyway.
const NASCENT_MAX: usize = 64;
/// The supervisor is never busy for so long.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// In a restart there may be more processes than are wanted, by that number divided by this, and at least by one.
const SURGE_DIVISOR: usize = 4;

/// What the supervisor is told by other threads.
pub enum Command {
    /// A process has ended, and was reaped.
    Ended { number: u64, status: WaitStatus },
    /// The pool is dormant no more.
    Wake,
    /// Load the app anew and put new processes in the place of all that are there, without losing a request. If a
    /// restart is under way, there is one more after it. One that only the app wants comes no sooner than some time after
    /// the last.
    Restart { reason: String, only_by_app: bool },
    /// So many threads more, or fewer, whatever the load; answer how many are wanted then, or why not.
    Threads {
        change: Change,
        answer: Sender<Result<u32, String>>,
    },
    /// Say how things are. The channel must have room.
    Describe { to: SyncSender<PoolState> },
    /// Nothing new will come: finish what waits and what runs, then end. After this time what is left is cut.
    Leave { within: Duration },
    /// End all processes, within the grace; answer when none is left. Then the supervisor ends.
    Stop { grace: Duration, done: Sender<()> },
}

/// Of the number of threads, by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Add(u32),
    Remove(u32),
}

/// How other threads reach the supervisor.
#[derive(Clone)]
pub struct SupervisorHandle {
    commands: Sender<Command>,
    bell: Arc<OwnedFd>,
    first_started: Arc<Mutex<Receiver<Result<(), String>>>>,
    first_served: Arc<Mutex<Receiver<Result<(), String>>>>,
}

impl SupervisorHandle {
    pub fn tell(&self, command: Command) {
        // One that has ended has nothing to do any more.
        if self.commands.send(command).is_ok() {
            let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
        }
    }

    /// Has it look at what waits.
    pub(super) fn ring(&self) {
        // It cannot overflow: the supervisor reads it each time.
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
    }

    /// Adds threads, by whole processes, which the load does not take away again. Returns how many there are to be, or why
    /// they cannot be added: over a limit, no memory, count 0, or the pool is dormant or stopping. Waits for the supervisor,
    /// at most [`ANSWER_MAX`].
    pub fn add_threads(&self, count: u32) -> Result<u32, String> {
        self.change_threads(Change::Add(count))
    }

    /// Removes threads, by whole processes: idle ones at once, busy ones when they are free. Those that were added by hand go
    /// first, in number. Returns how many there are to be, or why there cannot be fewer. Waits as
    /// [`SupervisorHandle::add_threads`].
    pub fn remove_threads(&self, count: u32) -> Result<u32, String> {
        self.change_threads(Change::Remove(count))
    }

    fn change_threads(&self, change: Change) -> Result<u32, String> {
        let (answer, answered) = channel();
        self.tell(Command::Threads { change, answer });
        answered
            .recv_timeout(ANSWER_MAX)
            .unwrap_or_else(|_| Err("the supervisor of these threads does not answer".into()))
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

    /// Waits until a process takes requests for the first time. An error says why there is none.
    pub fn await_first_process(&self) -> Result<(), String> {
        let first_served = self
            .first_served
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let bound = Duration::from_millis(SERVE_MS_MAX);
        first_served.recv_timeout(bound).unwrap_or_else(|error| {
            Err(match error {
                RecvTimeoutError::Timeout => format!("no process has booted within {bound:?}"),
                RecvTimeoutError::Disconnected => "it was ended while it started".into(),
            })
        })
    }

    /// Ends all app processes; those that do not end by themselves within the grace are killed. The shortest grace
    /// counts. Says so when none is left.
    pub fn stop(&self, grace: Duration) -> Receiver<()> {
        let (done, is_done) = channel();
        self.tell(Command::Stop { grace, done });
        is_done
    }
}

/// A zygote and its generation: what was loaded by one start or restart of the app.
struct Seat {
    /// Its processes have the same. Later ones are higher.
    generation: u64,
    zygote: ZygoteState,
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

/// A process that was asked for and has not said hello.
struct Asked {
    nascent: Nascent,
    generation: u64,
    since_ms: u64,
    at: Instant,
}

struct Member {
    process: Arc<Process>,
    generation: u64,
    since_ms: u64,
    /// Those that the dispatcher knows: none while the process boots.
    threads: Vec<ThreadId>,
    stderr: super::lines::Lines,
    /// What it had used when it was last looked at.
    reading: Option<Reading>,
    /// When its memory was last measured.
    measured_ms: u64,
    /// It wants a restart, and is not listened to any more.
    has_asked: bool,
    leaving: Leaving,
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
    /// It has the zygote that makes up for processes that end.
    current: Seat,
    /// In a restart, until the first of its processes is ready.
    successor: Option<Seat>,
    next_generation: u64,
    restart: Restart,
    leavers: Leavers,
    scaler: Scaler,
    /// Threads that empty a socket which is slow to empty.
    slow: Arc<AtomicUsize>,
    zygote_ready_ms: u64,
    nascent: HashMap<u64, Asked>,
    members: HashMap<u64, Member>,
    next_number: u64,
    zygote_backoff: Backoff,
    process_backoff: Backoff,
    fork_not_before_ms: u64,
    departure: Option<Departure>,
    stopping: Option<Stopping>,
    /// Told once whether the first zygote got ready.
    first_start: Option<Sender<Result<(), String>>>,
    /// Told once whether the first process got ready.
    first_served: Option<Sender<Result<(), String>>>,
}

/// What an epoll event is about.
#[derive(Clone, Copy)]
enum Token {
    Bell,
    /// With the generation.
    ZygoteControl(u64),
    ZygoteStderr(u64),
    /// With the number of the process.
    Control(u64),
    Stderr(u64),
}

impl Token {
    fn to_data(self) -> epoll::EventData {
        let (number, kind) = match self {
            Token::Bell => (0, 0),
            Token::ZygoteControl(generation) => (generation, 1),
            Token::ZygoteStderr(generation) => (generation, 2),
            Token::Control(number) => (number, 3),
            Token::Stderr(number) => (number, 4),
        };
        epoll::EventData::new_u64(number << 3 | kind)
    }

    fn from_data(data: epoll::EventData) -> Self {
        let number = data.u64() >> 3;
        match data.u64() & 7 {
            0 => Token::Bell,
            1 => Token::ZygoteControl(number),
            2 => Token::ZygoteStderr(number),
            3 => Token::Control(number),
            _ => Token::Stderr(number),
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
        let (first_serves, first_served) = channel();
        let handle = SupervisorHandle {
            commands: sender,
            bell: bell.clone(),
            first_started: Arc::new(Mutex::new(first_started)),
            first_served: Arc::new(Mutex::new(first_served)),
        };
        // Whoever wakes it later does not wait for its first start.
        let first_start = (!pool.is_dormant()).then_some(first_start);
        let first_number = u64::from(pool.number) << POOL_SHIFT | 1;
        let scaler = Scaler::new(pool.limits.threads_min);
        let supervisor = Self {
            pool,
            children,
            flags,
            io_thread_count,
            epoll,
            commands,
            bell,
            current: Seat {
                generation: 1,
                zygote: ZygoteState::Wanted { not_before_ms: 0 },
            },
            successor: None,
            next_generation: 2,
            restart: Restart::default(),
            leavers: Leavers::default(),
            scaler,
            slow: Arc::default(),
            zygote_ready_ms: 0,
            nascent: HashMap::new(),
            members: HashMap::new(),
            next_number: first_number,
            zygote_backoff: Backoff::default(),
            process_backoff: Backoff::default(),
            fork_not_before_ms: 0,
            departure: None,
            stopping: None,
            first_start,
            first_served: Some(first_serves),
        };
        supervisor.watch(supervisor.bell.as_fd(), Token::Bell)?;
        supervisor.pool.set_supervisor(handle);
        Ok(supervisor)
    }

    /// Until it was told to stop and no process is left. Zygotes die with the thread that spawned them, and this is it.
    pub fn run(mut self) {
        let mut events = Vec::with_capacity(64);
        loop {
            let next_ms = self.advance();
            if self.has_stopped() {
                return self.end();
            }
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

    /// The clock that the I/O threads use too, for the dispatcher's times.
    fn now_ms(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
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
            Token::ZygoteControl(generation) => self.hear_zygote(generation),
            Token::ZygoteStderr(generation) => self.read_zygote_stderr(generation),
            Token::Control(number) => self.hear_process(number),
            Token::Stderr(number) => self.read_stderr(number),
        }
    }

    /// Does what is due, and says when the next thing will be.
    fn advance(&mut self) -> Option<u64> {
        let now_ms = self.now_ms();
        let depart_ms = self.advance_departure(now_ms);
        let stop_ms = self.advance_stop(now_ms);
        if self.pool.is_dormant() {
            return stop_ms.or(depart_ms);
        }
        let scaling_ms = self.advance_scaling(now_ms);
        let restart_ms = self.advance_restart(now_ms);
        let zygotes_ms = self.advance_zygotes(now_ms);
        let forks_ms = self.advance_forks(now_ms);
        self.advance_surplus();
        let leavers_ms = self.advance_leavers(now_ms);
        let ending_ms = [depart_ms, stop_ms];
        let serving_ms = [scaling_ms, restart_ms, zygotes_ms, forks_ms, leavers_ms];
        ending_ms.into_iter().chain(serving_ms).flatten().min()
    }
}
