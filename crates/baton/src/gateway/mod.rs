//! The service on each I/O thread: takes requests to the apps and replies back to clients.
//!
//! A request's way through this room: [`caller`] says who asks, [`sites`] has the routes and the
//! apps, [`resolve`] says what the path means, [`static_file`] answers for a file, [`fields`]
//! encodes what goes to the app, [`submit`] gives it to the dispatcher of a pool, [`Running`] is
//! the record of who has it, [`follow`] brings the reply back. [`standby`] takes requests
//! back from busy threads. [`trouble`] is for all that can go
//! wrong; [`answers`] are those of the front itself, and [`count`] counts.

mod answers;
mod caller;
mod count;
mod fields;
mod follow;
mod forwarded;
mod per_connection;
mod resolve;
mod sites;
mod standby;
mod static_file;
mod submit;
mod trouble;

use std::sync::{Arc, Weak};

use baton_dispatch::{Handoff, ThreadId, Ticket};
use baton_handoff::front::IoFlags;
use baton_handoff::ring::End;
use baton_server::{ConnId, Io, Request, Served, Service};
use rustix::process::Signal;

use answers::{redirect_to_folder, refuse, unavailable};
use caller::Caller;
use fields::{FieldWriter, Script};
use per_connection::PerConnection;
use resolve::{Target, UrlPath};
use sites::Folder;

use crate::access_log::AccessLog;
use crate::app::{Client, Message, Pending, Place, Pool, Process, Running, Work};
use crate::counters::IoCounters;
use crate::live::Live;

pub use sites::Sites;

/// Up to so many busy slots are looked through in each tick; beyond, completions knock.
const SCAN_SLOTS_MAX: usize = 512;
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
    thread: ThreadId,
    seat: u32,
    kill_at_ms: u64,
}

/// Where a connection's request waits, or waited.
struct QueuedAt {
    /// The pool's number.
    pool: u32,
    ticket: Ticket,
}

pub struct Gateway {
    live: Arc<Live>,
    sites: Arc<Sites>,
    /// One for each of the sites.
    folders: Vec<Folder>,
    /// Pools of earlier sites, which finish what they have.
    leaving: Vec<Weak<Pool>>,
    flags: Arc<IoFlags>,
    fields: FieldWriter,
    access_log: Option<AccessLog>,
    /// Of all I/O threads; this one writes to its own.
    counters: Arc<[IoCounters]>,
    running: Vec<Running>,
    stalled: Vec<Stalled>,
    /// What a decision hands to a thread to stand by; empty between two of them.
    standbys: Vec<Handoff<Place, Pending>>,
    /// Pools with an idle thread, for which a request that stands by is to be taken back at the end of the tick.
    recalling: Vec<Arc<Pool>>,
    queued: PerConnection<QueuedAt>,
    /// Who served the connection last, and in which pool, by its number.
    served: PerConnection<(u32, ThreadId)>,
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
        live: Arc<Live>,
        flags: Arc<IoFlags>,
        index: usize,
        counters: Arc<[IoCounters]>,
        first_id: u64,
    ) -> Self {
        let sites = live.sites();
        Self {
            live,
            folders: sites.folders(),
            access_log: sites.access_log.clone(),
            sites,
            leaving: Vec::new(),
            flags,
            fields: FieldWriter::default(),
            counters,
            running: Vec::new(),
            stalled: Vec::new(),
            standbys: Vec::new(),
            recalling: Vec::new(),
            queued: PerConnection::default(),
            served: PerConnection::default(),
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

    /// Requests that were begun stay with the pools that have them.
    #[cold]
    fn go_by_new_sites(&mut self) {
        let before = std::mem::replace(&mut self.sites, self.live.sites());
        self.folders = self.sites.folders();
        self.access_log = self.sites.access_log.clone();
        self.leaving.retain(|pool| pool.strong_count() > 0);
        for pool in before.pools() {
            if !self.sites.pools().any(|kept| Arc::ptr_eq(kept, pool)) {
                self.leaving.push(Arc::downgrade(pool));
            }
        }
    }

    /// Also one of earlier sites, as long as it has requests.
    fn pool_of_number(&self, number: u32) -> Option<Arc<Pool>> {
        let leaving = || self.leaving.iter().filter_map(Weak::upgrade);
        let served = self.sites.pools().find(|pool| pool.number == number);
        served
            .cloned()
            .or_else(|| leaving().find(|pool| pool.number == number))
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
        self.count_request(&request);
        if request.head.path == "*" {
            // RFC 9110, section 9.3.7: about the server, not about a resource.
            let allow = b"GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH".as_slice();
            return io.respond(conn, 204, None, [(b"Allow".as_slice(), allow)], b"");
        }
        let caller = Caller::of(&request, io, &self.sites.trusted_headers);
        if let Some(client) = caller.named {
            io.name_client(conn, client);
        }
        let Some(path) = UrlPath::parse(request.head.path) else {
            return refuse(io, conn, 400, "The path is not valid.\n");
        };
        let Some(at) = self.sites.routes.app_for(caller.host, path.as_bytes()) else {
            let reason = "No application is configured for this address.\n";
            return refuse(io, conn, 404, reason);
        };
        let folder = &mut self.folders[at];
        let now_ms = io.now().mono_ms();
        let mut target = folder.resolver.resolve(&path, now_ms).clone();
        if let Target::File(file) = &target {
            if folder.files.answer(io, conn, request.head, file) {
                return;
            }
            // Removed since it was looked up: perhaps the application knows the path.
            folder.resolver.forget(&path);
            target = folder.resolver.resolve(&path, now_ms).clone();
        }
        let app = &self.sites.list[at].app;
        match target {
            Target::Script { name, path_info } => {
                let pool = app.pool_for(&name).clone();
                let script = Script::of_path(&pool.app.project.root, &name, &path_info);
                self.pass_to_script(io, conn, request, (&caller, &path), &pool, &script)
            }
            Target::Worker { path_info } => {
                let pool = app.front_pool().clone();
                let script = Script::front_of(&pool, &path_info);
                self.pass_to_script(io, conn, request, (&caller, &path), &pool, &script)
            }
            Target::AddSlash => redirect_to_folder(io, conn, &path, request.head.query),
            Target::File(_) | Target::NotFound => refuse(io, conn, 404, "Not found.\n"),
        }
    }

    fn message(&mut self, io: &mut Io, message: Message) {
        match message {
            Message::ProcessUp(process) => self.process_up(io, &process),
            Message::ProcessGone(process) => self.process_gone(io, &process),
            Message::Adopt(running) => {
                let is_dead = running.place.process.is_dead();
                let conn = running.pending.conn;
                self.check_by(running.take_back_ms());
                self.count_handed(&running);
                self.running.push(*running);
                let at = self.running.len() - 1;
                if !io.is_open(conn) {
                    self.drop_or_forget(io, at);
                } else if io.is_half_closed(conn) && self.drop_standby(io, at) {
                    io.abort(conn);
                } else if is_dead {
                    self.settle(io, at);
                } else {
                    self.follow(io, at);
                }
            }
            Message::Recall(pool) => {
                self.recall_one(io, &pool);
            }
            Message::NewSites(done) => {
                self.go_by_new_sites();
                // Whoever waits may have given up.
                let _ = done.send(());
            }
            Message::Refuse(conn) => unavailable(io, conn, "The request waited too long.\n"),
            Message::Describe(to) => {
                // Whoever asked may have stopped waiting.
                let _ = to.try_send(self.running.iter().map(Work::of).collect());
            }
            Message::PoolDown(pool) => {
                let waiting =
                    std::iter::from_fn(|| pool.dispatcher().pop_waiting()).collect::<Vec<_>>();
                for pending in waiting {
                    self.refuse_waiting(io, &pool, pending);
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
        let was_waiting = match self.position_of(conn) {
            Some(at) => self.drop_standby(io, at),
            None => self.cancel_queued(conn),
        };
        if was_waiting {
            io.abort(conn);
        }
    }

    fn gone(&mut self, io: &mut Io, conn: ConnId) {
        if !self.cancel_queued(conn)
            && let Some(at) = self.position_of(conn)
        {
            self.drop_or_forget(io, at);
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
        while let Some(pool) = self.recalling.pop() {
            self.recall(io, &pool);
        }
        for folder in &mut self.folders {
            folder.files.tick(now_ms);
        }
        self.count_tick(io);
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
        let check_ms = (self.next_check_ms != u64::MAX).then_some(self.next_check_ms);
        let folders = self.folders.iter();
        let files_ms = folders.filter_map(|folder| folder.files.next_tick_ms());
        check_ms.into_iter().chain(files_ms).min()
    }

    fn served(&mut self, _io: &mut Io, _conn: ConnId, served: &Served<'_>) {
        self.count_reply(served);
        if let Some(log) = &mut self.access_log {
            log.write(served);
        }
    }
}
