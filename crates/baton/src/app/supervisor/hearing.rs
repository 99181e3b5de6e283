//! What app processes may say: that they have booted, and that they want a restart. Nothing else is listened to.
//!
//! Each wish is heard once, and again when a restart has failed: a process that is replaced has no more to ask for. So however
//! often they ask, it costs one message each. Descriptors sent along may be slow to close, and a process that sends some is
//! killed; what it has sent is closed on a thread of its own, of which there are not many.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use baton_handoff::control::{self, Kind, Message};
use rustix::event::epoll;
use rustix::process::Signal;

use super::super::process::Process;
use super::members::{is_mere, spawn_closer};
use super::{Command, Supervisor};

/// Longer than any queue of a socket: `net.unix.max_dgram_qlen` is 512 at most by default.
const MESSAGES_MAX: usize = 10_000;
/// Sockets that are slow to empty, because of what was sent along. Beyond, new processes are not listened to at all.
const SLOW_MAX: usize = 16;

impl Supervisor {
    pub(super) fn hear_member(&mut self, number: u64) {
        let Some(member) = self.members.get_mut(&number) else {
            return;
        };
        match hear(&member.process, member.boots()) {
            Heard::Nothing => {}
            Heard::Ready => self.process_ready(number),
            Heard::Request(message) => {
                member.has_asked = true;
                self.asked_by_app(message);
            }
            // A closed socket means that it has ended, or pretends to.
            Heard::Nonsense => {
                member.process.signal(Signal::KILL);
                let _ = epoll::delete(&self.epoll, member.process.control());
            }
        }
    }

    fn asked_by_app(&mut self, message: Message) {
        let reason = readable(&message.text);
        let pid = message.pid.map_or(0, |pid| pid.as_raw_nonzero().get());
        let pool = self.pool.clone();
        let app = &pool.label;
        let wanted = format!("asked for by the app: {reason}");
        if message.a == control::WHOLE_APP {
            // Told even if it is wanted here already: there it may have begun before.
            for supervisor in pool
                .siblings()
                .iter()
                .filter_map(|other| other.supervisor())
            {
                supervisor.tell(Command::Restart {
                    reason: wanted.clone(),
                    only_by_app: true,
                });
            }
        }
        if self.want_restart(wanted, true) {
            tracing::info!(app, pid, "the app asks for a restart: {reason}");
        } else {
            tracing::debug!(app, pid, "the app asks for a restart as well: {reason}");
        }
    }

    /// Who has asked in vain may ask again.
    pub(super) fn listen_again(&mut self) {
        for member in self.members.values_mut().filter(|member| member.has_asked) {
            // If that is not possible it stays unheard.
            member.has_asked = !listen(member.process.control(), false, &self.slow);
        }
    }

    /// For a process that has ended: its socket is emptied, so that it can be closed on any thread.
    pub(super) fn silence(&self, process: &Process) {
        let control = process.control();
        // Children of the process may have the other end. If it cannot be made deaf, it is emptied all the same.
        let _ = control::hear_no_more(control);
        if control::is_empty(control) {
            return;
        }
        let control = match control.try_clone_to_owned() {
            Ok(control) => control,
            // Whoever lets go of the process last may have to wait.
            Err(error) => return tracing::error!("cannot copy a descriptor: {error}"),
        };
        let slow = self.slow.clone();
        slow.fetch_add(1, Ordering::Relaxed);
        spawn_closer(move || {
            control::drain(control.as_fd());
            slow.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// For a process in which application code runs from now on. Whether its socket is fit to be kept.
pub(super) fn listen(control: BorrowedFd<'_>, boots: bool, slow: &AtomicUsize) -> bool {
    let kinds: &[Kind] = match (boots, slow.load(Ordering::Relaxed) < SLOW_MAX) {
        (true, true) => &[Kind::Ready, Kind::Restart],
        (true, false) => &[Kind::Ready],
        (false, true) => &[Kind::Restart],
        (false, false) => &[],
    };
    control::hear_only(control, kinds).is_ok()
}

enum Heard {
    Nothing,
    Ready,
    Request(Message),
    Nonsense,
}

/// That it has booted, or its first wish for a restart. What comes with that one and after it is thrown away, in the
/// kernel if possible.
fn hear(process: &Process, boots: bool) -> Heard {
    let control = process.control();
    let mut first = None;
    for _ in 0..MESSAGES_MAX {
        match control::look(control) {
            Ok(Some(message)) if is_mere(&message, Kind::Ready) && boots => {
                return match control::receive(control, false) {
                    Ok(_) => Heard::Ready,
                    Err(_) => Heard::Nonsense,
                };
            }
            Ok(Some(message)) if is_mere(&message, Kind::Restart) && !boots => {
                let is_taken = control::receive(control, false).is_ok();
                if !is_taken || (first.is_none() && control::hear_no_more(control).is_err()) {
                    return Heard::Nonsense;
                }
                first.get_or_insert(message);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                return first.map_or(Heard::Nothing, Heard::Request);
            }
            _ => return Heard::Nonsense,
        }
    }
    Heard::Nonsense
}

/// What an app wrote, as a part of one line in a log.
fn readable(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::readable;

    #[test]
    fn a_reason_cannot_write_lines_of_its_own() {
        assert_eq!(
            readable(b"full\n{\"level\":\"ERROR\"}\x1b[2J\xff"),
            "full{\"level\":\"ERROR\"}[2J\u{fffd}"
        );
    }
}
