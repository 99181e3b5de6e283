//! An application behind the front: its pools of threads, their processes, what they are running,
//! and their supervisors.

mod budget;
mod children;
mod lifecycle;
mod lines;
mod pool;
mod process;
mod running;
mod scaling;
mod supervisor;
mod work;
mod zygote;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender};

use baton_server::ConnId;

use crate::config::AppConfig;

pub use budget::ThreadBudget;
pub use children::Children;
pub use lifecycle::Lifecycle;
pub use pool::{Begun, Pool};
pub use process::{Place, Process, process_id};
pub use running::{Client, Running, Stage, TakenHead};
pub use scaling::Scaling;
pub use supervisor::{Change, Command, PoolState, Supervisor, SupervisorHandle, ZygotePhase};
pub use work::Work;

/// One configured application: its pools.
pub struct App {
    pub config: Arc<AppConfig>,
    pub regular: Arc<Pool>,
    /// In the order of the configuration.
    pub workers: Vec<Arc<Pool>>,
}

impl App {
    /// `next_number` counts the pools of this server, which share the `budget`.
    pub fn new(config: Arc<AppConfig>, next_number: &mut u32, budget: &Arc<ThreadBudget>) -> Self {
        let mut number = || {
            *next_number += 1;
            *next_number
        };
        let regular = Arc::new(Pool::regular(number(), config.clone(), budget.clone()));
        let of_worker = |worker: &crate::config::WorkerConfig| {
            let (config, worker) = (config.clone(), worker.clone());
            Arc::new(Pool::of_worker(number(), config, worker, budget.clone()))
        };
        let workers = config.workers.iter().map(of_worker).collect();
        let app = Self {
            config,
            regular,
            workers,
        };
        for pool in app.pools() {
            let others = app.pools().filter(|other| !Arc::ptr_eq(other, pool));
            pool.set_siblings(others.map(Arc::downgrade).collect());
        }
        app
    }

    pub fn pools(&self) -> impl Iterator<Item = &Arc<Pool>> {
        std::iter::once(&self.regular).chain(&self.workers)
    }

    /// The pool that answers for paths without a file.
    pub fn front_pool(&self) -> &Arc<Pool> {
        self.workers.first().unwrap_or(&self.regular)
    }

    /// The pool that runs a script, by its URL path.
    #[inline]
    pub fn pool_for(&self, script: &[u8]) -> &Arc<Pool> {
        let runs = |pool: &&Arc<Pool>| {
            let worker = pool.worker.as_ref();
            worker.is_some_and(|worker| {
                worker.script.is_public && worker.script.name.as_bytes() == script
            })
        };
        self.workers.iter().find(runs).unwrap_or(&self.regular)
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
    pub _begun: Begun,
}

/// What I/O threads are told by others.
pub enum Message {
    /// A process is there: listen to its knocks.
    ProcessUp(Arc<Process>),
    /// A process has ended: answer what it was running.
    ProcessGone(Arc<Process>),
    /// Another thread has handed a request of this I/O thread to a place, and offered it.
    Adopt(Box<Running>),
    /// A request of this I/O thread waited too long.
    Refuse(ConnId),
    /// A thread is idle: take a request back that stands by behind a busy one.
    Recall(Arc<Pool>),
    /// Say what is running. The channel must have room.
    Describe(SyncSender<Vec<Work>>),
    /// The pool cannot start: nothing that waits for it will be served.
    PoolDown(Arc<Pool>),
    /// There are other sites: new requests are for these. Answered when none is for the old ones any more.
    NewSites(Sender<()>),
}
