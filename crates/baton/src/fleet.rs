//! The supervisors of all pools: of those that serve, that start, and that finish what they have.

use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use baton_handoff::front::IoFlags;
use baton_server::Handle;

use crate::app::{App, Children, Command, Message, Pool, Supervisor, SupervisorHandle};

/// What app processes get to end by themselves once nothing is running any more.
pub const STOP_GRACE: Duration = Duration::from_secs(5);
/// Beyond the deadlines of its requests a pool gets this to be done with them.
const LEAVE_SLACK: Duration = Duration::from_secs(1);

pub struct Fleet {
    io_threads: Handle<Message>,
    flags: Arc<IoFlags>,
    children: Arc<Children>,
    pools: Mutex<Pools>,
}

#[derive(Default)]
struct Pools {
    /// One is gone when its last process has ended, and nobody reads a reply from it any more.
    list: Vec<Weak<Pool>>,
    /// The server ends, and starts nothing more.
    is_closed: bool,
}

impl Fleet {
    pub fn new(io_threads: Handle<Message>, flags: Arc<IoFlags>, children: Arc<Children>) -> Fleet {
        Fleet {
            io_threads,
            flags,
            children,
            pools: Mutex::default(),
        }
    }

    /// Starts the supervisors of all pools of an application, and does not wait for what they start.
    ///
    /// # Errors
    /// Descriptors or memory ran out, or the server ends. Those that were started are to be stopped.
    pub fn start(&self, app: &App) -> Result<(), String> {
        app.pools().try_for_each(|pool| self.start_pool(pool))
    }

    fn start_pool(&self, pool: &Arc<Pool>) -> Result<(), String> {
        let mut pools = self.lock();
        if pools.is_closed {
            return Err("the server is ending".into());
        }
        let failed = |error: std::io::Error| format!("cannot start a supervisor: {error}");
        pool.set_io_threads(self.io_threads.clone());
        let supervisor = Supervisor::new(
            pool.clone(),
            self.flags.clone(),
            self.io_threads.io_threads(),
            self.children.clone(),
        )
        .map_err(failed)?;
        thread::Builder::new()
            .name("supervisor".into())
            .spawn(move || supervisor.run())
            .map_err(failed)?;
        pools.list.retain(|pool| pool.strong_count() > 0);
        pools.list.push(Arc::downgrade(pool));
        Ok(())
    }

    /// No I/O thread gives this application a request any more: it finishes what it has, and ends.
    pub fn leave(&self, app: &App) {
        let options = &app.config.options;
        let requests_ms = options.deadline_ms + options.kill_grace_ms;
        let within = Duration::from_millis(requests_ms) + LEAVE_SLACK;
        for supervisor in app.pools().filter_map(|pool| pool.supervisor()) {
            supervisor.tell(Command::Leave { within });
        }
    }

    /// Ends the processes of an application that has served nobody.
    pub fn discard(&self, app: &App) {
        for supervisor in app.pools().filter_map(|pool| pool.supervisor()) {
            // Whether that is done soon matters to nobody.
            drop(supervisor.stop(Duration::ZERO));
        }
    }

    /// Has all that run end, within the grace, and nothing more start.
    pub fn stop(&self, grace: Duration) -> Vec<Receiver<()>> {
        let mut pools = self.lock();
        pools.is_closed = true;
        let pools: Vec<_> = pools.list.iter().filter_map(Weak::upgrade).collect();
        let supervisors = pools.iter().filter_map(|pool| pool.supervisor());
        supervisors
            .map(|supervisor: &SupervisorHandle| supervisor.stop(grace))
            .collect()
    }

    /// As [`Fleet::stop`], and waits until all have ended. Those that take too long die with the front.
    pub fn stop_and_wait(&self) {
        let stopping = self.stop(STOP_GRACE);
        let end = Instant::now() + STOP_GRACE + Duration::from_secs(5);
        for is_done in stopping {
            let _ = is_done.recv_timeout(end.saturating_duration_since(Instant::now()));
        }
    }

    pub fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    fn lock(&self) -> MutexGuard<'_, Pools> {
        // Nothing that is done under it can stop half-way.
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
