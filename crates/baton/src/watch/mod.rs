//! Development: the application is restarted when its files change.
//!
//! [`patterns`] say which files count, [`folders`] tells that they have changed. A thread of its own waits until nothing has
//! changed for a moment, since one save is several events, and a checkout is many.

mod folders;
mod patterns;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::app::{App, Command, SupervisorHandle};
use folders::Folders;
use patterns::Patterns;

/// What `--watch` without a pattern means. The files that FrankenPHP's `watch` has by default.
pub const DEFAULT_PATTERN: &str = "**/*.{env,php,twig,yaml,yml}";
/// Quiet for so long, and it is over.
const QUIET: Duration = Duration::from_millis(150);
/// If it is never quiet.
const QUIET_MAX: Duration = Duration::from_secs(2);
/// Between two looks for a folder that has gone, as when it is cloned anew.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Says in one line what is wrong with the patterns, if anything.
pub fn check(folder: &Path, patterns: &[String]) -> Result<(), String> {
    match patterns {
        [] => Ok(()),
        patterns => Patterns::parse(folder, patterns).map(|_| ()),
    }
}

/// As long as it is there, the application is watched.
pub struct Watch {
    /// The other end of what the thread waits for.
    _end: OwnedFd,
}

/// Watches the application's folder, if that is to be watched.
pub fn start(app: &App) -> Result<Option<Watch>, String> {
    let (project, options) = (&app.config.project, &app.config.options);
    if options.watch.is_empty() {
        return Ok(None);
    }
    let failed = |reason: String| format!("cannot watch {}: {reason}", project.folder.display());
    let patterns = Patterns::parse(&project.folder, &options.watch).map_err(failed)?;
    let folders = Folders::watch(&project.folder, &patterns).map_err(failed)?;
    tracing::info!(
        app = project.name,
        folders = folders.len(),
        "watching for changes in {}",
        project.folder.display()
    );
    let (ended, end) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.to_string()))?;
    let watcher = Watcher {
        ended,
        app: project.name.clone(),
        folder: project.folder.clone(),
        patterns,
        folders,
        supervisors: app
            .pools()
            .filter_map(|pool| pool.supervisor().cloned())
            .collect(),
    };
    thread::Builder::new()
        .name("watch".into())
        .spawn(move || watcher.run())
        .map_err(|error| failed(error.to_string()))?;
    Ok(Some(Watch { _end: end }))
}

struct Watcher {
    /// Hangs up when nobody wants it any more.
    ended: OwnedFd,
    /// For logs.
    app: String,
    folder: PathBuf,
    patterns: Patterns,
    folders: Folders,
    /// Of all its pools.
    supervisors: Vec<SupervisorHandle>,
}

/// What there may be after a wait.
#[derive(PartialEq, Eq)]
enum Awaited {
    News,
    End,
}

/// Changes that the application has not been restarted for.
struct Pending {
    file: PathBuf,
    first: Instant,
    last: Instant,
}

impl Pending {
    /// How long to wait for more.
    fn wait(&self, now: Instant) -> Duration {
        let quiet = (self.last + QUIET).min(self.first + QUIET_MAX);
        quiet.saturating_duration_since(now)
    }
}

impl Watcher {
    fn run(mut self) {
        let mut pending: Option<Pending> = None;
        loop {
            let wait = pending.as_ref().map(|pending| pending.wait(Instant::now()));
            if wait.is_none_or(|wait| !wait.is_zero()) && self.wait(wait) == Awaited::End {
                return;
            }
            let now = Instant::now();
            if let Some(file) = self.look() {
                let pending = pending.get_or_insert(Pending {
                    file,
                    first: now,
                    last: now,
                });
                pending.last = now;
            }
            if pending
                .as_ref()
                .is_some_and(|pending| pending.wait(now).is_zero())
                && let Some(pending) = pending.take()
            {
                let file = pending.file.display();
                let reason = match pending.file.as_os_str().is_empty() {
                    true => "many files have changed".to_owned(),
                    false => format!("{file} has changed"),
                };
                for supervisor in &self.supervisors {
                    let reason = reason.clone();
                    supervisor.tell(Command::Restart {
                        reason,
                        only_by_app: false,
                    });
                }
            }
        }
    }

    fn wait(&self, bound: Option<Duration>) -> Awaited {
        let bound = bound.map(timespec);
        let mut descriptors = [
            PollFd::from_borrowed_fd(self.folders.descriptor(), PollFlags::IN),
            PollFd::new(&self.ended, PollFlags::empty()),
        ];
        // EINTR is one more look.
        let _ = poll(&mut descriptors, bound.as_ref());
        match descriptors[1].revents().contains(PollFlags::HUP) {
            true => Awaited::End,
            false => Awaited::News,
        }
    }

    fn has_ended_within(&self, bound: Duration) -> bool {
        let mut ended = [PollFd::new(&self.ended, PollFlags::empty())];
        let _ = poll(&mut ended, Some(&timespec(bound)));
        ended[0].revents().contains(PollFlags::HUP)
    }

    /// A file that has changed.
    fn look(&mut self) -> Option<PathBuf> {
        match self.folders.changes(&self.patterns) {
            Ok(changes) if changes.is_stale => {
                self.watch_anew();
                changes.first.or(Some(PathBuf::new()))
            }
            Ok(changes) => changes.first,
            Err(reason) => {
                tracing::error!(app = self.app, "some changes will not be seen: {reason}");
                None
            }
        }
    }

    fn watch_anew(&mut self) {
        let mut is_told = false;
        loop {
            match Folders::watch(&self.folder, &self.patterns) {
                Ok(folders) => {
                    self.folders = folders;
                    return;
                }
                Err(reason) if !is_told => {
                    is_told = true;
                    tracing::warn!(app = self.app, "nothing is watched for now: {reason}");
                }
                Err(_) => {}
            }
            if self.has_ended_within(LOOK_AGAIN) {
                return;
            }
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs() as i64,
        tv_nsec: duration.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_for_quiet_but_not_for_ever() {
        let first = Instant::now();
        let mut pending = Pending {
            file: PathBuf::new(),
            first,
            last: first,
        };
        assert_eq!(pending.wait(first), QUIET);
        assert!(pending.wait(first + QUIET).is_zero());
        pending.last = first + QUIET_MAX - Duration::from_millis(10);
        assert_eq!(pending.wait(pending.last), Duration::from_millis(10));
    }
}
