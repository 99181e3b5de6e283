//! Back to the client: what the app says of its replies is acted upon, and threads become free.

use baton_dispatch::{Dispatcher, Released, ThreadId};
use baton_handoff::ring::{End, Progress};
use baton_server::{Io, Push};
use rustix::process::Signal;

use super::answers::refuse;
use super::{Followed, Gateway, SCAN_SLOTS_MAX};
use crate::app::{Client, Pending, Place, Stage, TakenHead};

impl Gateway {
    /// Looks at all running requests, or those of processes that have knocked.
    pub(super) fn scan(&mut self, io: &mut Io) {
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
    pub(super) fn follow(&mut self, io: &mut Io, at: usize) -> Followed {
        match self.running[at].news() {
            Ok(None) => Followed::Stays,
            Ok(Some(progress)) => self.go_on(io, at, progress),
            Err(_) => self.distrust(io, at),
        }
    }

    pub(super) fn go_on(&mut self, io: &mut Io, at: usize, progress: Progress) -> Followed {
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
    pub(super) fn client_left(&mut self, io: &mut Io, at: usize) -> Followed {
        let running = &mut self.running[at];
        running.forget_client();
        let is_through = running
            .seen()
            .is_some_and(|progress| running.swallow(progress));
        self.go_on_alone(io, at, is_through)
    }

    /// Nobody waits for the reply. If the thread is not through it goes on, unless it is dead: then nothing would ever
    /// be heard of it again.
    pub(super) fn go_on_alone(&mut self, io: &mut Io, at: usize, is_through: bool) -> Followed {
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
    pub(super) fn distrust(&mut self, io: &mut Io, at: usize) -> Followed {
        let process = self.running[at].place.process.clone();
        tracing::error!(
            app = process.pool.label,
            pid = process.pid.as_raw_nonzero().get(),
            "a process has written nonsense into its shared memory; killing it"
        );
        process.signal(Signal::KILL);
        self.fail(io, at);
        Followed::Left
    }

    /// The thread is free: it gets the next request, or goes idle.
    pub(super) fn release(&mut self, io: &mut Io, at: usize) -> Followed {
        let now_ms = io.now().mono_ms();
        let running = self.running.swap_remove(at);
        self.count_service(&running, now_ms);
        let by = (running.pool().number, running.thread);
        self.served.set(running.pending.conn, by);
        self.recycle(running.pending.bytes);
        self.release_seat(&running.place, running.thread, running.seat, now_ms);
        Followed::Left
    }

    /// The thread is through with what was in that seat, or will not get to it.
    pub(super) fn release_seat(&mut self, place: &Place, thread: ThreadId, seat: u32, now_ms: u64) {
        let index = self.index;
        self.decide(place, thread, now_ms, |dispatcher| {
            dispatcher.release(thread, seat, index, now_ms)
        });
    }

    /// Has the dispatcher decide about a thread, and acts on it.
    pub(super) fn decide(
        &mut self,
        place: &Place,
        thread: ThreadId,
        now_ms: u64,
        decision: impl FnOnce(&mut Dispatcher<Place, Pending>) -> Released<Place, Pending>,
    ) {
        let pool = &place.process.pool;
        let mut standbys = std::mem::take(&mut self.standbys);
        let mut dispatcher = pool.dispatcher();
        let released = decision(&mut dispatcher);
        if matches!(released, Released::Next(_) | Released::GoesOn(_)) {
            standbys.extend(std::iter::from_fn(|| dispatcher.stand_by(thread)));
        }
        drop(dispatcher);
        match released {
            Released::Next(next) => self.run(next, now_ms),
            Released::GoesOn(seat) => place.process.goes_on(place.slot_of(seat)),
            Released::Idle {
                others_have_standby: true,
            } => self.recalling.push(pool.clone()),
            Released::Left(place) => {
                place.leave();
                // The others of its process.
                pool.let_idle_ones_leave();
            }
            Released::Idle { .. } | Released::Nothing => {}
        }
        for standby in standbys.drain(..) {
            self.run(standby, now_ms);
        }
        self.standbys = standbys;
    }
}

/// Whether all bytes of the reply are there.
pub(super) fn is_complete(progress: Progress) -> bool {
    matches!(progress.end, End::Finished | End::Complete)
}
