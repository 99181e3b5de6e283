//! The front of the direct handoff: the dispatcher chooses a thread for each request, as in Baton, and a busy one has its next
//! requests with it. Left out is what goes wrong: deadlines, processes that end, threads that do not take what they were offered.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use baton_dispatch::{Dispatcher, Handoff, Limits, Released, SEATS, Submitted, ThreadId};
use baton_handoff::front::{Body, IoFlags, Segment, Slot};
use baton_handoff::layout::Geometry;
use baton_handoff::{schedule, slot::Generation};
use baton_server::{ConnId, Handle, Io, Request, Service};
use rustix::event::{EventfdFlags, eventfd};

use crate::{Options, app, reply};

/// As in Baton: a request that stands by is taken back after this.
const STANDBY_MS_MAX: u64 = 2;

/// What all I/O threads share.
pub struct Front {
    dispatcher: Mutex<Dispatcher<usize, Pending>>,
    processes: Vec<Process>,
    flags: IoFlags,
    handle: OnceLock<Handle<Message>>,
}

struct Process {
    segment: Segment,
    /// Of what was offered last in each seat; whoever was handed the seat writes it.
    generations: [AtomicU32; SEATS as usize],
    knockers: Vec<OwnedFd>,
}

struct Pending {
    conn: ConnId,
    io: usize,
    bytes: Vec<u8>,
}

pub struct Running {
    pending: Pending,
    thread: ThreadId,
    process: usize,
    seat: u32,
    stands_by: bool,
    queued_since_ms: u64,
    offered_ms: u64,
    generation: Generation,
}

pub enum Message {
    Adopt(Running),
    /// A thread is idle while requests stand by.
    Recall,
}

impl Front {
    pub fn start(options: &Options) -> io::Result<Arc<Self>> {
        let flags = IoFlags::create()?;
        let turns = app::turns_in(options.work_ns);
        let mut dispatcher = Dispatcher::new(Limits {
            queue_len_max: 10_000,
            queue_wait_ms_max: u64::MAX,
            rotate_ms: 1_000,
            stand_by: true,
        });
        let mut processes = Vec::new();
        for number in 0..options.threads as usize {
            let geometry = Geometry::new(1, SEATS).ok_or(io::ErrorKind::InvalidInput)?;
            let segment = Segment::create(geometry, false)?;
            let knocker = |_| Ok(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
            let knockers = (0..options.io_threads)
                .map(knocker)
                .collect::<io::Result<Vec<_>>>()?;
            let mut descriptors = vec![segment.down_file(), segment.up_file(), flags.file()];
            descriptors.extend(knockers.iter().map(AsFd::as_fd));
            app::start(turns, b"direct", &descriptors)?;
            processes.push(Process {
                segment,
                generations: Default::default(),
                knockers,
            });
            let thread = dispatcher.add(number);
            dispatcher.release(thread, 0, 0, 0);
        }
        Ok(Arc::new(Self {
            dispatcher: Mutex::new(dispatcher),
            processes,
            flags,
            handle: OnceLock::new(),
        }))
    }

    /// Once, before there can be requests that another I/O thread has to adopt.
    pub fn set_handle(&self, handle: Handle<Message>) {
        let _ = self.handle.set(handle);
    }

    fn dispatcher(&self) -> MutexGuard<'_, Dispatcher<usize, Pending>> {
        self.dispatcher
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn post(&self, io: usize, message: Message) {
        self.handle.wait().post(io, message);
    }

    fn slot(&self, running: &Running) -> Slot<'_> {
        self.processes[running.process].segment.slot(running.seat)
    }

    fn is_finished(&self, running: &Running) -> bool {
        reply::is_finished(self.slot(running), running.generation)
    }

    fn offer(&self, handoff: Handoff<usize, Pending>, now_ms: u64) -> Running {
        let Handoff {
            id,
            thread: number,
            seat,
            stands_by,
            request: pending,
            queued_since_ms,
        } = handoff;
        let process = &self.processes[number];
        let last = &process.generations[seat as usize];
        let generation = Generation::from_bits(last.load(Ordering::Relaxed)).next();
        last.store(generation.bits(), Ordering::Relaxed);
        let slot = process.segment.slot(seat);
        slot.offer(
            generation,
            pending.io as u32,
            &pending.bytes,
            Body::Memory(&[]),
        );
        Running {
            pending,
            thread: id,
            process: number,
            seat,
            stands_by,
            queued_since_ms,
            offered_ms: now_ms,
            generation,
        }
    }
}

pub struct Gateway {
    front: Arc<Front>,
    index: usize,
    running: Vec<Running>,
    /// What a decision hands over; empty between two of them.
    handed: Vec<Handoff<usize, Pending>>,
    recalls: u32,
    is_registered: bool,
    spare: Vec<Vec<u8>>,
    copy: Vec<u8>,
}

impl Gateway {
    pub fn new(front: Arc<Front>, index: usize) -> Self {
        schedule::io_thread();
        Self {
            front,
            index,
            running: Vec::new(),
            handed: Vec::new(),
            recalls: 0,
            is_registered: false,
            spare: Vec::new(),
            copy: Vec::new(),
        }
    }

    fn run(&mut self, handoff: Handoff<usize, Pending>, now_ms: u64) {
        let running = self.front.offer(handoff, now_ms);
        match running.pending.io == self.index {
            true => self.running.push(running),
            false => self.front.post(running.pending.io, Message::Adopt(running)),
        }
    }

    /// Has the dispatcher decide about a thread, and acts on it.
    fn decide(
        &mut self,
        thread: ThreadId,
        now_ms: u64,
        decision: impl FnOnce(&mut Dispatcher<usize, Pending>) -> Released<usize, Pending>,
    ) {
        let front = self.front.clone();
        let mut handed = std::mem::take(&mut self.handed);
        let mut dispatcher = front.dispatcher();
        let released = decision(&mut dispatcher);
        let has_got_on = matches!(released, Released::Next(_) | Released::GoesOn(_));
        match released {
            Released::Next(next) => handed.push(next),
            Released::Idle {
                others_have_standby,
            } => self.recalls += u32::from(others_have_standby),
            Released::GoesOn(_) | Released::Left(_) | Released::Nothing => {}
        }
        if has_got_on {
            handed.extend(std::iter::from_fn(|| dispatcher.stand_by(thread)));
        }
        drop(dispatcher);
        for handoff in handed.drain(..) {
            self.run(handoff, now_ms);
        }
        self.handed = handed;
    }

    /// Looks through what runs, and passes on what is finished.
    fn scan(&mut self, io: &mut Io, now_ms: u64) {
        let mut at = 0;
        while at < self.running.len() {
            if !self.front.is_finished(&self.running[at]) {
                at += 1;
                continue;
            }
            let running = self.running.swap_remove(at);
            let front = self.front.clone();
            let place = front.slot(&running);
            reply::pass_on(
                io,
                running.pending.conn,
                place,
                running.generation,
                &mut self.copy,
            );
            self.spare.push(running.pending.bytes);
            let (index, thread, seat) = (self.index, running.thread, running.seat);
            self.decide(thread, now_ms, |dispatcher| {
                dispatcher.release(thread, seat, index, now_ms)
            });
        }
    }

    /// Takes a request that stands by back, if its thread has not come to it. Whether it could.
    fn withdraw(&mut self, at: usize, now_ms: u64) -> bool {
        if !self
            .front
            .slot(&self.running[at])
            .retract(self.running[at].generation)
        {
            return false;
        }
        let running = self.running.swap_remove(at);
        let front = self.front.clone();
        let (index, thread, seat) = (self.index, running.thread, running.seat);
        self.decide(thread, now_ms, |dispatcher| {
            dispatcher.withdraw(thread, seat, index, now_ms)
        });
        let submitted = front.dispatcher().resubmit(
            running.pending,
            running.queued_since_ms,
            self.index,
            now_ms,
        );
        if let Submitted::Handoff(handoff) = submitted {
            self.run(handoff, now_ms);
        }
        true
    }

    /// Takes back what has stood by for longest.
    fn recall_one(&mut self, now_ms: u64) -> bool {
        let all = self.running.iter().enumerate();
        let standing =
            all.filter(|(_, running)| running.stands_by && !self.front.is_finished(running));
        let oldest = standing.min_by_key(|(_, running)| running.queued_since_ms);
        oldest
            .map(|(at, _)| at)
            .is_some_and(|at| self.withdraw(at, now_ms))
    }

    fn take_back_late_ones(&mut self, now_ms: u64) {
        let is_late =
            |running: &Running| running.stands_by && now_ms >= running.offered_ms + STANDBY_MS_MAX;
        while let Some(at) = self.running.iter().position(is_late) {
            let has_others = self.front.dispatcher().has_standby(self.running[at].thread);
            // Otherwise the thread has it, or comes to it next.
            if !has_others || !self.withdraw(at, now_ms) {
                self.running[at].stands_by = false;
            }
        }
    }
}

impl Service for Gateway {
    type Message = Message;

    fn request(&mut self, io: &mut Io, conn: ConnId, request: Request<'_>) {
        if !self.is_registered {
            self.is_registered = true;
            for process in &self.front.processes {
                let knocker = process.knockers[self.index].as_fd();
                io.register(knocker, 0).expect("a descriptor of our own");
            }
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        reply::encode(&mut bytes, &request);
        let pending = Pending {
            conn,
            io: self.index,
            bytes,
        };
        let now_ms = io.now().mono_ms();
        let submitted = self.front.dispatcher().submit(pending, self.index, now_ms);
        match submitted {
            Submitted::Handoff(handoff) => self.run(handoff, now_ms),
            Submitted::Queued(_) => {}
            Submitted::Refused(pending) => io.respond(pending.conn, 503, None, [], b""),
        }
    }

    fn message(&mut self, io: &mut Io, message: Message) {
        match message {
            Message::Adopt(running) => self.running.push(running),
            Message::Recall => {
                self.recall_one(io.now().mono_ms());
            }
        }
    }

    fn tick(&mut self, io: &mut Io) {
        let now_ms = io.now().mono_ms();
        self.scan(io, now_ms);
        self.take_back_late_ones(now_ms);
        for _ in 0..std::mem::take(&mut self.recalls) {
            if !self.recall_one(now_ms) {
                let io_threads = self.front.handle.wait().io_threads();
                let others = (0..io_threads).filter(|io| *io != self.index);
                others.for_each(|io| self.front.post(io, Message::Recall));
            }
        }
    }

    fn busy_poll(&mut self) -> bool {
        if self.running.is_empty() {
            return false;
        }
        for _ in 0..reply::YIELDS_BEFORE_SLEEP {
            if self
                .running
                .iter()
                .any(|running| self.front.is_finished(running))
            {
                return true;
            }
            rustix::thread::sched_yield();
        }
        false
    }

    fn may_sleep(&mut self) -> bool {
        self.front.flags.announce(self.index);
        !self
            .running
            .iter()
            .any(|running| self.front.is_finished(running))
    }

    fn awake(&mut self) {
        self.front.flags.retire(self.index);
    }

    fn next_deadline_ms(&self) -> Option<u64> {
        let standing = self.running.iter().filter(|running| running.stands_by);
        standing
            .map(|running| running.offered_ms + STANDBY_MS_MAX)
            .min()
    }
}
