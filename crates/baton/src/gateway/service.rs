//! What one I/O thread does with requests and replies.

use std::sync::Arc;

use baton_dispatch::{Handoff, Refusal, Released, Submitted, Ticket};
use baton_handoff::front::IoFlags;
use baton_handoff::layout::REQUEST_BODY_BYTES_MAX;
use baton_handoff::ring::{End, Progress};
use baton_server::{Body, ConnId, Io, Push, Request, Served, Service};
use rustix::process::Signal;

use super::fields::{FieldWriter, Script};
use super::resolve::{Resolver, Target, UrlPath};
use super::running::{Client, Running, Stage, TakenHead};
use super::static_file::{self, Root};
use crate::access_log::AccessLog;
use crate::app::{App, Message, Pending, Place, Process};

/// Up to so many busy slots are looked through in each tick; beyond, completions knock.
const SCAN_SLOTS_MAX: usize = 64;
/// Measured at 50 connections on two cores: 0 costs 11 us of the front's CPU per request, 5 and 20
/// cost 9. An idle CPU returns from a yield at once, so this is a microsecond or two.
const YIELDS_BEFORE_SLEEP: u32 = 5;
/// Request buffers kept for later requests.
const SPARE_BUFFERS_MAX: usize = 64;
const SPARE_BUFFER_BYTES_MAX: usize = 16 * 1024;
/// How long a thread that let an offer lie may show no sign of life before its process is killed.
const STALLED_MS_MAX: u64 = 5_000;

/// A thread whose offer was taken back: it gets no other until it has looked for this one.
struct Stalled {
    place: Place,
    thread: baton_dispatch::ThreadId,
    since_ms: u64,
}

pub struct Gateway {
    app: Arc<App>,
    flags: Arc<IoFlags>,
    resolver: Resolver,
    root: Arc<Root>,
    fields: FieldWriter,
    access_log: Option<AccessLog>,
    running: Vec<Running>,
    stalled: Vec<Stalled>,
    /// Tickets of queued requests, by the connection's index.
    tickets: Vec<Option<(ConnId, Ticket)>>,
    /// Processes that have knocked since the last tick.
    knocked: Vec<u64>,
    /// The app processes have been told to knock.
    is_announced: bool,
    /// When they were told, some had finished already: they will not knock for that.
    has_unknocked_news: bool,
    index: usize,
    next_check_ms: u64,
    next_id: u64,
    spare: Vec<Vec<u8>>,
    head_copy: Vec<u8>,
}

/// What became of a running request.
#[derive(PartialEq, Eq)]
enum Followed {
    Stays,
    Left,
}

impl Gateway {
    pub fn new(
        app: Arc<App>,
        flags: Arc<IoFlags>,
        index: usize,
        root: Arc<Root>,
        access_log: Option<AccessLog>,
        first_id: u64,
    ) -> Self {
        let resolver = Resolver::new(&app.project, app.options.path_cache_ms);
        Self {
            app,
            flags,
            resolver,
            root,
            fields: FieldWriter::default(),
            access_log,
            running: Vec::new(),
            stalled: Vec::new(),
            tickets: Vec::new(),
            knocked: Vec::new(),
            is_announced: false,
            has_unknocked_news: false,
            index,
            next_check_ms: u64::MAX,
            next_id: first_id,
            spare: Vec::new(),
            head_copy: Vec::new(),
        }
    }

    // ---- to the app --------------------------------------------------------------------------

    fn pass_to_script(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        request: Request<'_>,
        path: &UrlPath,
        name: &str,
        path_info: &str,
    ) {
        if self.app.is_down() {
            return unavailable(io, conn, "The application cannot start.\n");
        }
        let app = self.app.clone();
        let script = Script {
            root: &app.project.root,
            name,
            path_info,
        };
        let id = self.next_id();
        let mut bytes = self.spare.pop().unwrap_or_default();
        let ends = (request.peer, request.local);
        if self
            .fields
            .encode(&mut bytes, request.head, path, &script, ends, io.now(), id)
            .is_err()
        {
            self.recycle(bytes);
            return refuse(io, conn, 431, "The request head is too large.\n");
        }
        let head_bytes = bytes.len();
        let file = match request.body {
            Body::Empty => None,
            Body::Memory(body) if body.len() <= REQUEST_BODY_BYTES_MAX => {
                bytes.extend_from_slice(body);
                None
            }
            Body::Memory(_) => {
                self.recycle(bytes);
                return refuse(io, conn, 500, "The request body was not spooled.\n");
            }
            Body::File(file, len) => match read_only(&file) {
                Ok(file) => Some((file, len)),
                Err(error) => {
                    tracing::error!("cannot reopen a spooled request body: {error}");
                    self.recycle(bytes);
                    return refuse(io, conn, 500, "The request body could not be kept.\n");
                }
            },
        };
        let now_ms = io.now().mono_ms();
        let pending = Pending {
            conn,
            io: self.index,
            id,
            bytes,
            head_bytes,
            file,
            deadline_ms: now_ms + self.app.options.deadline_ms,
            idempotent: is_idempotent(request.head.method),
            retried: false,
        };
        let submitted = self.app.dispatcher().submit(pending, self.index, now_ms);
        self.submitted(io, conn, submitted, now_ms);
    }

    fn submitted(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        submitted: Submitted<Place, Pending>,
        now_ms: u64,
    ) {
        match submitted {
            Submitted::Handoff(handoff) => self.run(handoff, now_ms),
            Submitted::Queued(ticket) => {
                self.check_by(now_ms + self.app.options.queue_wait_ms_max);
                self.remember(conn, ticket);
            }
            Submitted::Refused(pending, refusal) => {
                let reason = match refusal {
                    Refusal::QueueFull => "Too many requests are waiting.\n",
                    Refusal::WaitedTooLong => "The request waited too long.\n",
                };
                unavailable(io, pending.conn, reason);
                self.recycle(pending.bytes);
            }
        }
    }

    fn run(&mut self, handoff: Handoff<Place, Pending>, now_ms: u64) {
        if handoff.request.io == self.index {
            self.check_by(now_ms + self.app.options.offer_ms);
            self.running.push(Running::offer(handoff, now_ms));
        } else {
            Running::offer_elsewhere(handoff, now_ms, &self.app);
        }
    }

    fn next_id(&mut self) -> u64 {
        // A Weyl sequence: distinct, and unlike its neighbours at first sight.
        self.next_id = self.next_id.wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.next_id
    }

    fn remember(&mut self, conn: ConnId, ticket: Ticket) {
        let index = conn.to_bits() as u32 as usize;
        if index >= self.tickets.len() {
            self.tickets.resize(index + 1, None);
        }
        self.tickets[index] = Some((conn, ticket));
    }

    /// Takes the connection's request out of the queue, if it waits there.
    fn cancel_queued(&mut self, conn: ConnId) -> bool {
        let index = conn.to_bits() as u32 as usize;
        let Some(Some((_, ticket))) = self
            .tickets
            .get(index)
            .filter(|t| matches!(t, Some((c, _)) if *c == conn))
        else {
            return false;
        };
        let cancelled = self.app.dispatcher().cancel(*ticket);
        self.tickets[index] = None;
        let was_queued = cancelled.is_some();
        if let Some(pending) = cancelled {
            self.recycle(pending.bytes);
        }
        was_queued
    }

    fn recycle(&mut self, mut bytes: Vec<u8>) {
        if self.spare.len() < SPARE_BUFFERS_MAX && bytes.capacity() <= SPARE_BUFFER_BYTES_MAX {
            bytes.clear();
            self.spare.push(bytes);
        }
    }

    // ---- back to the client ------------------------------------------------------------------

    /// Looks at all running requests, or those of processes that have knocked.
    fn scan(&mut self, io: &mut Io) {
        let many =
            self.running.len() > SCAN_SLOTS_MAX && self.is_announced && !self.has_unknocked_news;
        self.has_unknocked_news = false;
        let mut at = 0;
        while at < self.running.len() {
            let skip = many
                && !self
                    .knocked
                    .contains(&self.running[at].place.process.number);
            if skip || self.follow(io, at) == Followed::Stays {
                at += 1;
            }
        }
        self.knocked.clear();
    }

    /// Acts on what the app has said of the request.
    fn follow(&mut self, io: &mut Io, at: usize) -> Followed {
        match self.running[at].news() {
            Ok(None) => Followed::Stays,
            Ok(Some(progress)) => self.go_on(io, at, progress),
            Err(_) => self.distrust(io, at),
        }
    }

    fn go_on(&mut self, io: &mut Io, at: usize, progress: Progress) -> Followed {
        let running = &mut self.running[at];
        if running.client == Client::Gone {
            let is_through = running.swallow(progress);
            return self.go_on_alone(io, at, is_through);
        }
        let conn = running.pending.conn;
        while running.stage == Stage::Head {
            let head = match running.take_head(progress, &mut self.head_copy) {
                Ok(TakenHead::Whole(head)) => head,
                Ok(TakenHead::Partial) if progress.end == End::Open => return Followed::Stays,
                Ok(TakenHead::Partial) => {
                    refuse(io, conn, 500, "The application gave no answer.\n");
                    return self.release(io, at);
                }
                Err(_) => return self.distrust(io, at),
            };
            if head.is_informational() {
                io.inform(conn, head.status, head.headers());
            } else {
                let whole = is_complete(progress).then(|| running.unread(progress));
                io.start(conn, head.status, None, head.headers(), whole);
                running.stage = Stage::Body;
            }
        }
        if progress.end == End::Abandoned {
            io.abort(conn);
            return self.release(io, at);
        }
        let mut source = running.source(progress);
        let pushed = io.push(conn, &mut source, is_complete(progress));
        let position = source.position();
        running.consumed_up_to(position, progress.end);
        match (pushed, progress.end) {
            (Push::Done, End::Finished) => self.release(io, at),
            (Push::Done, End::Complete) => {
                running.detach_client();
                self.go_on_alone(io, at, false)
            }
            (Push::Done | Push::Blocked, _) => Followed::Stays,
            (Push::Closed, _) => self.client_left(io, at),
        }
    }

    /// The client of a running request is no more: the reply goes into the void.
    fn client_left(&mut self, io: &mut Io, at: usize) -> Followed {
        let running = &mut self.running[at];
        running.forget_client();
        let is_through = running
            .seen()
            .is_some_and(|progress| running.swallow(progress));
        self.go_on_alone(io, at, is_through)
    }

    /// Nobody waits for the reply. If the thread is not through it goes on, unless it is dead: then nothing would ever
    /// be heard of it again.
    fn go_on_alone(&mut self, io: &mut Io, at: usize, is_through: bool) -> Followed {
        if is_through {
            return self.release(io, at);
        }
        if self.running[at].place.process.is_dead() {
            self.fail(io, at);
            return Followed::Left;
        }
        Followed::Stays
    }

    /// The process has written what cannot be true. It has lost its senses, or means harm.
    #[cold]
    fn distrust(&mut self, io: &mut Io, at: usize) -> Followed {
        let process = self.running[at].place.process.clone();
        tracing::error!(
            app = self.app.project.name,
            pid = process.pid.as_raw_nonzero().get(),
            "a process has written nonsense into its shared memory; killing it"
        );
        process.signal(Signal::KILL);
        self.fail(io, at);
        Followed::Left
    }

    /// The thread is free: it gets the next request, or goes idle.
    fn release(&mut self, io: &mut Io, at: usize) -> Followed {
        let running = self.running.swap_remove(at);
        self.recycle(running.pending.bytes);
        self.release_thread(io, running.thread);
        Followed::Left
    }

    fn release_thread(&mut self, io: &mut Io, thread: baton_dispatch::ThreadId) {
        let now_ms = io.now().mono_ms();
        let released = self.app.dispatcher().release(thread, self.index, now_ms);
        if let Released::Next(handoff) = released {
            self.run(handoff, now_ms);
        }
    }

    // ---- when something goes wrong -----------------------------------------------------------

    /// Answers for a thread that will not. The thread is not released: its process is ending.
    fn fail(&mut self, io: &mut Io, at: usize) {
        let running = self.running.swap_remove(at);
        let may_retry = running.client == Client::There
            && running.stage == Stage::Head
            && self.app.options.retry
            && running.pending.idempotent
            && !running.pending.retried;
        if may_retry {
            let pending = Pending {
                retried: true,
                ..running.pending
            };
            return self.resubmit(io, pending, running.queued_since_ms);
        }
        if running.client == Client::There {
            match running.stage {
                Stage::Head => refuse(
                    io,
                    running.pending.conn,
                    502,
                    "The application process ended.\n",
                ),
                Stage::Body => io.abort(running.pending.conn),
            }
        }
        self.recycle(running.pending.bytes);
    }

    fn resubmit(&mut self, io: &mut Io, pending: Pending, since_ms: u64) {
        let now_ms = io.now().mono_ms();
        let conn = pending.conn;
        let submitted = self
            .app
            .dispatcher()
            .resubmit(pending, since_ms, self.index, now_ms);
        self.submitted(io, conn, submitted, now_ms);
    }

    /// A process has ended: its last replies are delivered, untaken requests go back to the queue,
    /// the others fail.
    fn process_gone(&mut self, io: &mut Io, process: &Process) {
        let number = process.number;
        if let Some(knocker) = process.knocker(self.index) {
            // A child of the process may hold the other end, and knock for as long as it lives. An error means that
            // it was never registered.
            let _ = io.deregister(knocker);
        }
        let mut at = 0;
        while at < self.running.len() {
            if self.running[at].place.process.number != number
                || self.settle(io, at) == Followed::Stays
            {
                at += 1;
            }
        }
        self.stalled
            .retain(|stalled| stalled.place.process.number != number);
    }

    /// For a running request whose process is dead.
    fn settle(&mut self, io: &mut Io, at: usize) -> Followed {
        if self.follow(io, at) == Followed::Left {
            return Followed::Left;
        }
        if self.running[at].client == Client::There
            && self.running[at].seen().is_some_and(is_complete)
        {
            // All there; the client is slow. The segment stays until it has read it.
            self.running[at].freeze();
            return Followed::Stays;
        }
        // Whoever is gone may have been answered, and its connection be with another request by now.
        if self.running[at].client == Client::There
            && self.running[at].seen().is_none()
            && self.running[at].retract()
        {
            let running = self.running.swap_remove(at);
            self.resubmit(io, running.pending, running.queued_since_ms);
        } else {
            self.fail(io, at);
        }
        Followed::Left
    }

    fn check_by(&mut self, at_ms: u64) {
        self.next_check_ms = self.next_check_ms.min(at_ms);
    }

    /// Deadlines, offers that lie untaken, requests that have waited too long.
    fn check_times(&mut self, io: &mut Io, now_ms: u64) {
        self.next_check_ms = u64::MAX;
        let offer_ms = self.app.options.offer_ms;
        let mut at = 0;
        while at < self.running.len() {
            if self.check_running(io, at, now_ms) == Followed::Stays {
                let due_ms = self.running[at].next_check_ms(offer_ms);
                self.check_by(due_ms.max(now_ms + 1));
                at += 1;
            }
        }
        self.check_stalled(io, now_ms);
        self.expire_queue(io, now_ms);
    }

    fn check_running(&mut self, io: &mut Io, at: usize, now_ms: u64) -> Followed {
        let running = &mut self.running[at];
        let take_back_ms = running.offered_ms + self.app.options.offer_ms;
        // Over its deadline and not taken: the process is not to blame.
        if now_ms >= take_back_ms.min(running.pending.deadline_ms)
            && running.is_untaken()
            && running.retract()
        {
            return self.take_back(io, at, now_ms);
        }
        match running.kill_at_ms {
            None if now_ms >= running.pending.deadline_ms => self.overdue(io, at, now_ms),
            Some(kill_at_ms) if now_ms >= kill_at_ms => {
                running.place.process.signal(Signal::KILL);
                // Once is enough; its end is told by the supervisor.
                running.kill_at_ms = Some(u64::MAX);
                Followed::Stays
            }
            _ => Followed::Stays,
        }
    }

    /// An offer lay too long: the process is stopped, or starved. Another thread gets the request.
    #[cold]
    fn take_back(&mut self, io: &mut Io, at: usize, now_ms: u64) -> Followed {
        let running = self.running.swap_remove(at);
        let untaken_max = STALLED_MS_MAX / self.app.options.offer_ms.max(1);
        if u64::from(running.place.process.count_untaken()) >= untaken_max.max(2) {
            // It looks as if it went back to sleep each time, and never takes anything.
            self.kill_stalled(&running.place.process);
        }
        let stalled = Stalled {
            place: running.place,
            thread: running.thread,
            since_ms: now_ms,
        };
        self.stalled.push(stalled);
        if running.client == Client::There && now_ms < running.pending.deadline_ms {
            self.resubmit(io, running.pending, running.queued_since_ms);
        } else if running.client == Client::There {
            refuse(
                io,
                running.pending.conn,
                504,
                "The application took too long.\n",
            );
        }
        Followed::Left
    }

    /// The request took too long. The client hears so now; the thread has the grace to end.
    #[cold]
    fn overdue(&mut self, io: &mut Io, at: usize, now_ms: u64) -> Followed {
        let running = &mut self.running[at];
        running.kill_at_ms = Some(now_ms + self.app.options.kill_grace_ms);
        let process = running.place.process.clone();
        tracing::warn!(
            app = self.app.project.name,
            pid = process.pid.as_raw_nonzero().get(),
            request = format!("{:016x}", running.pending.id),
            "a request is over its deadline of {} ms",
            self.app.options.deadline_ms
        );
        if running.client == Client::There {
            match running.stage {
                Stage::Head => refuse(
                    io,
                    running.pending.conn,
                    504,
                    "The application took too long.\n",
                ),
                Stage::Body => io.abort(running.pending.conn),
            }
        }
        process.signal(Signal::PROF);
        self.client_left(io, at)
    }

    /// Threads that let an offer lie: back to work when they have looked, killed if they do not.
    fn check_stalled(&mut self, io: &mut Io, now_ms: u64) {
        let mut at = 0;
        while at < self.stalled.len() {
            let stalled = &self.stalled[at];
            if stalled.place.is_asleep_again() {
                let thread = self.stalled.swap_remove(at).thread;
                self.release_thread(io, thread);
                continue;
            }
            if now_ms >= stalled.since_ms + STALLED_MS_MAX {
                self.kill_stalled(&stalled.place.process);
                self.stalled.swap_remove(at);
                continue;
            }
            self.check_by(now_ms + 10);
            at += 1;
        }
    }

    #[cold]
    fn kill_stalled(&self, process: &Process) {
        tracing::warn!(
            app = self.app.project.name,
            pid = process.pid.as_raw_nonzero().get(),
            "a process does not take requests; killing it"
        );
        process.signal(Signal::KILL);
    }

    fn expire_queue(&mut self, io: &mut Io, now_ms: u64) {
        loop {
            let mut dispatcher = self.app.dispatcher();
            let Some(pending) = dispatcher.expire(now_ms) else {
                let next_ms = dispatcher.next_expiry_ms();
                drop(dispatcher);
                if let Some(next_ms) = next_ms {
                    self.check_by(next_ms.max(now_ms + 1));
                }
                return;
            };
            drop(dispatcher);
            self.refuse_waiting(io, pending);
        }
    }

    fn refuse_waiting(&mut self, io: &mut Io, pending: Pending) {
        if pending.io == self.index {
            unavailable(io, pending.conn, "The request waited too long.\n");
            self.recycle(pending.bytes);
        } else {
            self.app.post(pending.io, Message::Refuse(pending.conn));
        }
    }

    fn process_up(&mut self, io: &mut Io, process: &Process) {
        let Some(knocker) = process.knocker(self.index) else {
            return;
        };
        if let Err(error) = io.register(knocker, process.number) {
            tracing::error!("cannot listen to a process, killing it: {error}");
            process.signal(Signal::KILL);
        }
    }

    fn position_of(&self, conn: ConnId) -> Option<usize> {
        self.running
            .iter()
            .position(|running| running.pending.conn == conn && running.client == Client::There)
    }
}

impl Service for Gateway {
    type Message = Message;

    fn request(&mut self, io: &mut Io, conn: ConnId, request: Request<'_>) {
        if request.head.path == "*" {
            // RFC 9110, section 9.3.7: about the server, not about a resource.
            let allow = b"GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH".as_slice();
            return io.respond(conn, 204, None, [(b"Allow".as_slice(), allow)], b"");
        }
        let Some(path) = UrlPath::parse(request.head.path) else {
            return refuse(io, conn, 400, "The path is not valid.\n");
        };
        let target = self.resolver.resolve(&path, io.now().mono_ms()).clone();
        match target {
            Target::Script { name, path_info } => {
                self.pass_to_script(io, conn, request, &path, &name, &path_info)
            }
            Target::File(file) => {
                if !static_file::send(io, conn, request.head, &self.root, &file) {
                    refuse(io, conn, 404, "Not found.\n");
                }
            }
            Target::AddSlash => redirect_to_folder(io, conn, &request),
            Target::NotFound => refuse(io, conn, 404, "Not found.\n"),
        }
    }

    fn message(&mut self, io: &mut Io, message: Message) {
        match message {
            Message::ProcessUp(process) => self.process_up(io, &process),
            Message::ProcessGone(process) => self.process_gone(io, &process),
            Message::Adopt(running) => {
                let is_dead = running.place.process.is_dead();
                let conn = running.pending.conn;
                self.check_by(running.offered_ms + self.app.options.offer_ms);
                self.running.push(*running);
                let at = self.running.len() - 1;
                if !io.is_open(conn) {
                    self.client_left(io, at);
                } else if is_dead {
                    self.settle(io, at);
                } else {
                    self.follow(io, at);
                }
            }
            Message::Refuse(conn) => unavailable(io, conn, "The request waited too long.\n"),
            Message::AppDown => {
                let waiting =
                    std::iter::from_fn(|| self.app.dispatcher().pop_waiting()).collect::<Vec<_>>();
                for pending in waiting {
                    self.refuse_waiting(io, pending);
                }
            }
        }
    }

    fn writable(&mut self, io: &mut Io, conn: ConnId) {
        if let Some(at) = self.position_of(conn)
            && let Some(progress) = self.running[at].seen()
        {
            let was_dead = self.running[at].place.process.is_dead();
            if self.go_on(io, at, progress) == Followed::Stays
                && was_dead
                && progress.end == End::Open
            {
                self.fail(io, at);
            }
        }
    }

    fn half_closed(&mut self, io: &mut Io, conn: ConnId) {
        if self.cancel_queued(conn) {
            io.abort(conn);
        }
    }

    fn gone(&mut self, io: &mut Io, conn: ConnId) {
        if !self.cancel_queued(conn)
            && let Some(at) = self.position_of(conn)
        {
            self.client_left(io, at);
        }
    }

    fn ready(&mut self, _io: &mut Io, token: u64) {
        self.knocked.push(token);
    }

    fn tick(&mut self, io: &mut Io) {
        self.scan(io);
        let now_ms = io.now().mono_ms();
        if now_ms >= self.next_check_ms {
            self.check_times(io, now_ms);
        }
    }

    /// Before it sleeps, and has the apps knock, the thread lets them run a little: where they share
    /// its CPU they finish meanwhile, and their replies are found without a knock.
    fn busy_poll(&mut self) -> bool {
        if self.running.is_empty() || self.is_announced {
            return false;
        }
        for _ in 0..YIELDS_BEFORE_SLEEP {
            if self.running.iter().any(Running::has_news) {
                return true;
            }
            rustix::thread::sched_yield();
        }
        false
    }

    fn may_sleep(&mut self) -> bool {
        if self.is_announced {
            // Since it was, every completion knocks.
            return true;
        }
        self.flags.announce(self.index);
        self.is_announced = true;
        self.has_unknocked_news = self.running.iter().any(Running::has_news);
        !self.has_unknocked_news
    }

    fn awake(&mut self) {
        if self.running.len() <= SCAN_SLOTS_MAX {
            self.flags.retire(self.index);
            self.is_announced = false;
        }
    }

    fn next_deadline_ms(&self) -> Option<u64> {
        (self.next_check_ms != u64::MAX).then_some(self.next_check_ms)
    }

    fn served(&mut self, _io: &mut Io, _conn: ConnId, served: &Served<'_>) {
        if let Some(log) = &mut self.access_log {
            log.write(served);
        }
    }
}

/// Whether all bytes of the reply are there.
fn is_complete(progress: Progress) -> bool {
    matches!(progress.end, End::Finished | End::Complete)
}

fn is_idempotent(method: &str) -> bool {
    // RFC 9110, section 9.2.2.
    matches!(
        method,
        "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE"
    )
}

/// The app gets a description that it cannot write through.
fn read_only(file: &std::fs::File) -> std::io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::AsRawFd;
    Ok(std::fs::File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?.into())
}

fn refuse(io: &mut Io, conn: ConnId, status: u16, reason: &str) {
    let headers = [(b"Content-Type".as_slice(), b"text/plain".as_slice())];
    io.respond(conn, status, None, headers, reason.as_bytes());
}

fn unavailable(io: &mut Io, conn: ConnId, reason: &str) {
    let headers = [
        (b"Content-Type".as_slice(), b"text/plain".as_slice()),
        (b"Retry-After".as_slice(), b"1".as_slice()),
    ];
    io.respond(conn, 503, None, headers, reason.as_bytes());
}

/// Keeps host and query.
fn redirect_to_folder(io: &mut Io, conn: ConnId, request: &Request<'_>) {
    let head = request.head;
    let query = head
        .query
        .map(|query| format!("?{query}"))
        .unwrap_or_default();
    // One slash only: two would make another host of the path.
    let path = format!("/{}/", head.path.trim_start_matches('/'));
    let location = match head.host {
        Some(host) => format!("http://{host}{path}{query}"),
        None => format!("{path}{query}"),
    };
    io.respond(
        conn,
        301,
        None,
        [(b"Location".as_slice(), location.as_bytes())],
        b"",
    );
}
