//! From a request that is due to bytes on a socket.

use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use super::Worker;
use super::conn::{Sent, State, Unsent};
use super::connecting::EVENTS;
use super::pace::Pace;
use crate::request::Request;

/// Prepared requests up to this size are joined into one write by copying.
const COPIED_BYTES_MAX: usize = 16 * 1024;

impl Worker<'_> {
    /// The intended time of the next request, in a closed loop.
    #[inline]
    pub(super) fn next_job(&mut self, ready_ns: u64) -> Option<u64> {
        if let Some(intended_ns) = self.owed.pop_front() {
            self.tally.resent += 1;
            return Some(intended_ns);
        }
        match &mut self.pace {
            Pace::Closed { left } if *left > 0 => {
                *left -= 1;
                Some(ready_ns)
            }
            _ => None,
        }
    }

    /// One request less to send, in a closed loop: its connection could not be made.
    pub(super) fn forfeit(&mut self) {
        if let Pace::Closed { left } = &mut self.pace
            && self.owed.pop_front().is_none()
        {
            *left = left.saturating_sub(1);
        }
    }

    /// Sends as many as may be under way, in one write if they are small. Closed loop.
    #[inline]
    pub(super) fn fill(&mut self, index: usize) {
        let conn = &self.conns[index];
        let (room, ready_ns) = (self.plan.load.pipeline - conn.sent.len(), conn.ready_ns);
        if room == 1 {
            if let Some(intended_ns) = self.next_job(ready_ns) {
                self.send_one(index, intended_ns);
            }
            return;
        }
        let plan = self.plan;
        let mut batch = std::mem::take(&mut self.batch);
        batch.clear();
        for _ in 0..room {
            let Some(intended_ns) = self.next_job(ready_ns) else {
                break;
            };
            let target = self.note(index, intended_ns);
            match &plan.targets[target].request {
                Request::Fixed(bytes) if bytes.len() > COPIED_BYTES_MAX => {
                    self.write_copied(index, &batch);
                    batch.clear();
                    self.write_prepared(index, target, bytes);
                }
                Request::Fixed(bytes) => batch.extend_from_slice(bytes),
                Request::Template(template) => template.write(&mut self.rng, &mut batch),
            }
        }
        self.write_copied(index, &batch);
        self.batch = batch;
    }

    #[inline]
    pub(super) fn send_one(&mut self, index: usize, intended_ns: u64) {
        let target = self.note(index, intended_ns);
        let plan = self.plan;
        match &plan.targets[target].request {
            Request::Fixed(bytes) => self.write_prepared(index, target, bytes),
            Request::Template(template) => {
                let mut batch = std::mem::take(&mut self.batch);
                batch.clear();
                template.write(&mut self.rng, &mut batch);
                self.write_copied(index, &batch);
                self.batch = batch;
            }
        }
    }

    /// Draws the target of a request and takes it down as sent.
    #[inline]
    fn note(&mut self, index: usize, intended_ns: u64) -> usize {
        let target = self.mix.pick(self.now_ns - self.start_ns, &mut self.rng);
        self.tally.sent += 1;
        self.conns[index].sent.push_back(Sent {
            intended_ns,
            sent_ns: self.now_ns,
            target: target as u32,
        });
        target
    }

    /// Sends what is due, as far as connections are free. Open loop.
    pub(super) fn dispatch(&mut self) {
        if !self.sending() {
            return;
        }
        while let Some(index) = self.free.front().copied() {
            let index = index as usize;
            let conn = &mut self.conns[index];
            let usable = match conn.state {
                State::Open => conn.broken.is_none() && conn.sent.len() < self.plan.load.pipeline,
                State::Off => !self.plan.load.keep_alive,
                _ => false,
            };
            if !usable || index >= self.wanted {
                conn.listed = false;
                self.free.pop_front();
                if index >= self.wanted {
                    self.retire(index);
                }
                continue;
            }
            let free_since_ns = conn.ready_ns;
            let Some(intended_ns) = self.next_due(free_since_ns) else {
                return;
            };
            self.free.pop_front();
            self.conns[index].listed = false;
            if self.conns[index].state == State::Off {
                self.conns[index].job_ns = Some(intended_ns);
                self.connect(index);
                continue;
            }
            self.send_one(index, intended_ns);
            let conn = &mut self.conns[index];
            if conn.state == State::Open && conn.sent.len() < self.plan.load.pipeline {
                conn.listed = true;
                self.free.push_back(index as u32);
            }
        }
    }

    /// The intended time of a request that is due by now, for a connection that is free since then.
    fn next_due(&mut self, free_since_ns: u64) -> Option<u64> {
        if let Some(intended_ns) = self.owed.pop_front() {
            self.tally.resent += 1;
            return Some(intended_ns);
        }
        let Pace::Open(schedule) = &mut self.pace else {
            return None;
        };
        let due_ns = schedule.due_ns()?.saturating_add(self.start_ns);
        if due_ns > self.now_ns {
            return None;
        }
        schedule.advance();
        self.tally.waited += u64::from(free_since_ns > due_ns);
        self.tally
            .lateness
            .saturating_record(self.now_ns - due_ns.max(free_since_ns));
        Some(due_ns)
    }

    fn write_prepared(&mut self, index: usize, target: usize, bytes: &[u8]) {
        let at = self.write(index, bytes);
        if at < bytes.len() {
            self.keep(index, Unsent::Prepared { target, at });
        }
    }

    fn write_copied(&mut self, index: usize, bytes: &[u8]) {
        let at = self.write(index, bytes);
        if at < bytes.len() {
            let bytes = bytes[at..].to_vec();
            self.keep(index, Unsent::Copied { bytes, at: 0 });
        }
    }

    /// What the socket took. If it is broken, all is as good as taken.
    #[inline]
    fn write(&mut self, index: usize, bytes: &[u8]) -> usize {
        let conn = &mut self.conns[index];
        let Some(socket) = conn.socket.as_ref().filter(|_| conn.out.is_empty()) else {
            return 0;
        };
        if bytes.is_empty() || conn.broken.is_some() {
            return bytes.len();
        }
        loop {
            match send(socket, bytes, SendFlags::NOSIGNAL) {
                Ok(taken) => {
                    self.tally.bytes_written += taken as u64;
                    return taken;
                }
                Err(Errno::AGAIN) => return 0,
                Err(Errno::INTR) => {}
                Err(errno) => {
                    // The server may have answered before it closed: reading tells.
                    conn.broken = Some(errno);
                    self.again.push((index as u32, conn.generation));
                    return bytes.len();
                }
            }
        }
    }

    #[cold]
    fn keep(&mut self, index: usize, unsent: Unsent) {
        self.conns[index].out.push_back(unsent);
        self.watch_out(index, true);
    }

    fn watch_out(&mut self, index: usize, wanted: bool) {
        let conn = &self.conns[index];
        let Some(socket) = conn.socket.as_ref().filter(|_| conn.watches_out != wanted) else {
            return;
        };
        let events = match wanted {
            true => EVENTS | EventFlags::OUT,
            false => EVENTS,
        };
        // Fails only for lack of memory, and then the request times out.
        let done = epoll::modify(&self.epoll, socket, self.data(index), events);
        self.conns[index].watches_out = wanted && done.is_ok();
    }

    /// The socket takes bytes again.
    #[cold]
    pub(super) fn flush(&mut self, index: usize) {
        let plan = self.plan;
        while let Some(unsent) = self.conns[index].out.pop_front() {
            // Writing asks for nothing to be before it, and nothing is until it is put back.
            let rest = std::mem::take(&mut self.conns[index].out);
            let unsent = match unsent {
                Unsent::Prepared { target, at } => match &plan.targets[target].request {
                    Request::Fixed(bytes) => {
                        let at = at + self.write(index, &bytes[at..]);
                        (at < bytes.len()).then_some(Unsent::Prepared { target, at })
                    }
                    Request::Template(_) => None,
                },
                Unsent::Copied { bytes, at } => {
                    let at = at + self.write(index, &bytes[at..]);
                    (at < bytes.len()).then_some(Unsent::Copied { bytes, at })
                }
            };
            let out = &mut self.conns[index].out;
            *out = rest;
            if let Some(unsent) = unsent {
                out.push_front(unsent);
                return;
            }
        }
        self.watch_out(index, false);
    }
}
