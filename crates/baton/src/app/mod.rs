//! An application behind the front: its threads and queue, its processes, what they are running,
//! and their supervisor.

mod lines;
mod process;
mod running;
mod supervisor;
mod zygote;

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use baton_dispatch::{Dispatcher, Limits};
use baton_server::{ConnId, Handle};

use crate::account::Account;
use crate::options::ServeOptions;
use crate::project::Project;

pub use process::{Place, Process};
pub use running::{Client, Running, Stage, TakenHead};
pub use supervisor::{Command, Supervisor, SupervisorHandle};

/// One configured application.
pub struct App {
    pub project: Project,
    pub options: ServeOptions,
    pub account: Option<Account>,
    dispatcher: Mutex<Dispatcher<Place, Pending>>,
    /// The I/O threads, once they run.
    io_threads: OnceLock<Handle<Message>>,
    /// Its zygote cannot start: requests are answered 503 at once.
    down: AtomicBool,
}

impl App {
    pub fn new(project: Project, options: ServeOptions, account: Option<Account>) -> Self {
        let limits = Limits {
            queue_len_max: options.queue_len_max as usize,
            queue_wait_ms_max: options.queue_wait_ms_max,
            rotate_ms: options.rotate_ms,
        };
        let dispatcher = Mutex::new(Dispatcher::new(limits));
        Self {
            project,
            options,
            account,
            dispatcher,
            io_threads: OnceLock::new(),
            down: AtomicBool::new(false),
        }
    }

    /// The app's threads and queue. Held for a decision, never across a system call.
    pub fn dispatcher(&self) -> MutexGuard<'_, Dispatcher<Place, Pending>> {
        // A panic while it was held leaves a consistent dispatcher: decisions do not unwind half-way.
        self.dispatcher
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// To be called once, before there are app processes.
    pub fn set_io_threads(&self, handle: Handle<Message>) {
        // A second call would change nothing: there is one server.
        let _ = self.io_threads.set(handle);
    }

    /// Tells I/O thread `io` something.
    pub fn post(&self, io: usize, message: Message) {
        if let Some(io_threads) = self.io_threads.get() {
            io_threads.post(io, message);
        }
    }

    pub fn is_down(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }

    fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::Relaxed);
    }
}

/// A request on its way to a thread, wherever it waits.
pub struct Pending {
    pub conn: ConnId,
    /// The I/O thread that owns the connection.
    pub io: usize,
    pub id: u64,
    /// The encoded head, and behind it a body that is kept in memory.
    pub bytes: Vec<u8>,
    pub head_bytes: usize,
    /// A spooled body, and its length.
    pub file: Option<(OwnedFd, u64)>,
    pub deadline_ms: u64,
    pub idempotent: bool,
    pub retried: bool,
}

/// What I/O threads are told by others.
pub enum Message {
    /// A process is there: listen to its knocks.
    ProcessUp(std::sync::Arc<Process>),
    /// A process has ended: answer what it was running.
    ProcessGone(std::sync::Arc<Process>),
    /// Another thread has handed a request of this I/O thread to a place, and offered it.
    Adopt(Box<Running>),
    /// A request of this I/O thread waited too long.
    Refuse(ConnId),
    /// The app cannot start: nothing that waits for it will be served.
    AppDown,
}
