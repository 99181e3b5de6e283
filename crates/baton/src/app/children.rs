//! The front's children, of all pools: reaped in one place, because a wait for any child takes
//! whichever has ended. Most strangers among them are orphans of applications, which the front
//! inherits as a subreaper; zygotes are heard of otherwise.

use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions};

use super::Pool;
use super::supervisor::Command;

/// Who is told of whose end: the pool, and its number of the process.
#[derive(Default)]
pub struct Children(Mutex<HashMap<Pid, (Arc<Pool>, u64)>>);

impl Children {
    /// From now on the pool hears of the end of this process, also if it has ended already.
    ///
    /// # Errors
    /// It is no child of ours that can still be reaped, or was claimed before: its end would not be heard of.
    pub fn claim(
        &self,
        pid: Pid,
        pidfd: BorrowedFd<'_>,
        pool: &Arc<Pool>,
        number: u64,
    ) -> io::Result<()> {
        // While it is held nobody reaps: a child that is there now is there when its end is looked for.
        let mut claimed = self.lock();
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        rustix::process::waitid(WaitId::PidFd(pidfd), look)?;
        if claimed.contains_key(&pid) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        claimed.insert(pid, (pool.clone(), number));
        Ok(())
    }

    /// Reaps every child that has ended, and tells the pools of theirs.
    pub fn reap(&self) {
        let mut claimed = self.lock();
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            if let Some((pool, number)) = claimed.remove(&pid)
                && let Some(supervisor) = pool.supervisor()
            {
                supervisor.tell(Command::Ended { number, status });
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Pid, (Arc<Pool>, u64)>> {
        // Nothing that is done under it can stop half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
