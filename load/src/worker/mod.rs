//! A network thread: one epoll instance, and its share of the connections.
//!
//! One turn of its loop takes a batch of events and reads the clock once. A reply is read, checked and answered
//! with the next request where it lies ([`receiving`], [`sending`]); what is not about one event, such as timeouts,
//! stages and counting by the second, is looked after now and then ([`chores`]).

mod chores;
mod conn;
mod connecting;
mod pace;
mod receiving;
mod sending;

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Instant;

use fastrand::Rng;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::mix::Mix;
use crate::plan::Plan;
use crate::tally::{Stage, Tally};
use crate::url::Address;
use crate::usage::UsageMeter;
use conn::Conn;
use pace::{Pace, Schedule};

const EVENTS_PER_TURN_MAX: usize = 256;
const READ_BYTES_MAX: usize = 64 * 1024;
/// The event of the timer, which no connection can have.
const TIMER: u64 = u64::MAX;

/// What all threads look at.
pub struct Shared {
    /// All times count from here.
    pub base: Instant,
    /// When the load begins; [`NOT_YET`] until all threads are ready.
    pub start_ns: AtomicU64,
    /// To end at once.
    pub stop: AtomicBool,
    /// Some connection was made.
    pub connected: AtomicBool,
}

pub const NOT_YET: u64 = u64::MAX;

pub enum Message {
    /// The connections of one thread are made, or some could not be.
    Ready,
    Tally(Box<Tally>),
}

/// The ends of a thread's channels.
pub struct Lines {
    pub to_main: Sender<Message>,
    /// Tallies to use again.
    pub used: Receiver<Box<Tally>>,
}

pub struct Worker<'a> {
    plan: &'a Plan,
    address: &'a Address,
    shared: &'a Shared,
    lines: Lines,
    index: usize,
    epoll: OwnedFd,
    /// Ends the sleep when the next request is due, in an open loop.
    timer: Option<OwnedFd>,
    armed_for_ns: u64,
    conns: Vec<Conn>,
    /// So many of them are to be open now, from the first on.
    wanted: usize,
    /// So many are.
    open: u64,
    /// Connections that can send, in an open loop; some may have gone since.
    free: VecDeque<u32>,
    /// Intended times of requests that went down with a connection before their turn came.
    owed: VecDeque<u64>,
    /// Connections with more to read than one turn allows: index and generation.
    again: Vec<(u32, u32)>,
    pace: Pace,
    mix: Mix,
    rng: Rng,
    /// Requests on their way to one write.
    batch: Vec<u8>,
    tally: Box<Tally>,
    meter: UsageMeter,
    stage: Stage,
    /// Connections that were neither made nor failed yet, before the load begins.
    opening_left: usize,
    ready_told: bool,
    /// The clock of this turn.
    now_ns: u64,
    start_ns: u64,
    measured_from_ns: u64,
    end_ns: u64,
    drain_end_ns: u64,
    rotate_ns: u64,
    chores_ns: u64,
    chores_every_ns: u64,
}

impl<'a> Worker<'a> {
    pub fn new(
        plan: &'a Plan,
        address: &'a Address,
        shared: &'a Shared,
        index: usize,
        lines: Lines,
    ) -> rustix::io::Result<Worker<'a>> {
        let total = plan.load.requests.unwrap_or(u64::MAX);
        let pace = match &plan.load.rate {
            Some(rate) => Pace::Open(Schedule::new(rate, index, plan.load.threads, total)),
            None => Pace::Closed {
                left: match plan.load.requests {
                    Some(total) => share(total, plan.load.threads, index),
                    None => u64::MAX,
                },
            },
        };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer = match pace {
            Pace::Open(_) => {
                let timer = timerfd_create(
                    TimerfdClockId::Monotonic,
                    TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
                )?;
                let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
                epoll::add(&epoll, &timer, epoll::EventData::new_u64(TIMER), flags)?;
                Some(timer)
            }
            Pace::Closed { .. } => None,
        };
        let count = share(plan.load.connections_max() as u64, plan.load.threads, index) as usize;
        let shortest_ns = plan.load.timeout.ns().min(plan.load.connect_timeout.ns());
        Ok(Worker {
            plan,
            address,
            shared,
            lines,
            index,
            epoll,
            timer,
            armed_for_ns: 0,
            conns: (0..count).map(|_| Conn::new(plan.load.pipeline)).collect(),
            wanted: 0,
            open: 0,
            free: VecDeque::with_capacity(count),
            owed: VecDeque::new(),
            again: Vec::new(),
            pace,
            mix: plan.mix.clone(),
            // Seeds that are neighbours give streams that have nothing to do with each other.
            rng: Rng::with_seed(Rng::with_seed(plan.load.seed.wrapping_add(index as u64)).u64(..)),
            batch: Vec::new(),
            tally: Box::new(Tally::new(index)),
            meter: UsageMeter::new(),
            stage: Stage::Opening,
            opening_left: 0,
            ready_told: false,
            now_ns: 0,
            start_ns: NOT_YET,
            measured_from_ns: NOT_YET,
            end_ns: NOT_YET,
            drain_end_ns: NOT_YET,
            rotate_ns: NOT_YET,
            chores_ns: 0,
            chores_every_ns: (shortest_ns / 10).clamp(1_000_000, 100_000_000),
        })
    }

    /// Until the load is over.
    pub fn run(&mut self) -> rustix::io::Result<()> {
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); EVENTS_PER_TURN_MAX];
        let mut input = vec![0; READ_BYTES_MAX].into_boxed_slice();
        self.now_ns = self.clock_ns();
        self.open_first();
        let mut after_ns = self.now_ns;
        loop {
            let timeout = self.sleep(after_ns)?;
            let batch = match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
                Ok((batch, _)) => batch,
                Err(Errno::INTR) => &mut [],
                Err(error) => return Err(error),
            };
            self.now_ns = self.clock_ns();
            if self.now_ns >= self.rotate_ns {
                self.rotate();
            }
            for event in batch.iter() {
                self.event(event.data.u64(), event.flags, &mut input);
            }
            if !self.again.is_empty() {
                self.read_again(&mut input);
            }
            if self.now_ns >= self.chores_ns && self.chores() {
                self.hand_over();
                return Ok(());
            }
            if self.timer.is_some() {
                self.dispatch();
            }
            after_ns = self.clock_ns();
            if !batch.is_empty() {
                self.tally.turn.saturating_record(after_ns - self.now_ns);
            }
        }
    }

    #[inline]
    fn event(&mut self, data: u64, flags: epoll::EventFlags, input: &mut [u8]) {
        if data == TIMER {
            return;
        }
        let index = data as u32 as usize;
        let Some(conn) = self
            .conns
            .get(index)
            .filter(|conn| conn.generation == (data >> 32) as u32)
        else {
            return;
        };
        match conn.state {
            conn::State::Connecting => self.connect_event(index),
            conn::State::Open => {
                if flags.contains(epoll::EventFlags::OUT) && !conn.out.is_empty() {
                    self.flush(index);
                }
                let ending =
                    epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
                if flags.intersects(ending | epoll::EventFlags::IN) {
                    self.receive(index, flags.intersects(ending), input);
                }
            }
            // They have no socket.
            conn::State::Off | conn::State::Backlog { .. } | conn::State::Waiting { .. } => {}
        }
    }

    #[cold]
    fn read_again(&mut self, input: &mut [u8]) {
        for (index, generation) in std::mem::take(&mut self.again) {
            let conn = &self.conns[index as usize];
            if conn.generation == generation && conn.state == conn::State::Open {
                self.receive(index as usize, conn.broken.is_some(), input);
            }
        }
    }

    /// How long to sleep, with the timer set if something is due before that.
    fn sleep(&mut self, after_ns: u64) -> rustix::io::Result<Timespec> {
        if !self.again.is_empty() {
            return Ok(Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            });
        }
        let mut until_ns = self.chores_ns.min(self.rotate_ns);
        if let Some(timer) = &self.timer
            && let Some(due_ns) = self.due_ns()
            && due_ns < until_ns
        {
            if due_ns <= after_ns {
                until_ns = after_ns;
            } else if self.armed_for_ns != due_ns {
                let wait_ns = due_ns - after_ns;
                let once = Itimerspec {
                    it_interval: Timespec {
                        tv_sec: 0,
                        tv_nsec: 0,
                    },
                    it_value: timespec(wait_ns),
                };
                timerfd_settime(timer, TimerfdTimerFlags::empty(), &once)?;
                self.armed_for_ns = due_ns;
            }
        }
        Ok(timespec(until_ns.saturating_sub(after_ns)))
    }

    /// When there is something to send and a connection to send it on.
    fn due_ns(&self) -> Option<u64> {
        match &self.pace {
            Pace::Open(schedule) if self.sending() && !self.free.is_empty() => {
                match self.owed.is_empty() {
                    true => schedule
                        .due_ns()
                        .map(|due_ns| due_ns.saturating_add(self.start_ns)),
                    false => Some(0),
                }
            }
            _ => None,
        }
    }

    #[inline]
    fn clock_ns(&self) -> u64 {
        self.shared.base.elapsed().as_nanos() as u64
    }

    /// Requests are sent now.
    fn sending(&self) -> bool {
        matches!(self.stage, Stage::WarmUp | Stage::Measured)
    }

    /// No request will be sent any more.
    fn all_sent(&self) -> bool {
        let none_left = match &self.pace {
            Pace::Closed { left } => *left == 0,
            Pace::Open(schedule) => schedule.due_ns().is_none(),
        };
        self.stage == Stage::Drain
            || (self.plan.load.requests.is_some() && none_left && self.owed.is_empty())
    }

    fn stop_asked(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }
}

/// What falls to one of the threads.
fn share(total: u64, threads: usize, index: usize) -> u64 {
    let (threads, index) = (threads as u64, index as u64);
    total / threads + u64::from(index < total % threads)
}

fn timespec(ns: u64) -> Timespec {
    Timespec {
        tv_sec: (ns / 1_000_000_000) as _,
        tv_nsec: (ns % 1_000_000_000) as _,
    }
}
