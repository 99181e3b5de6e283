//! The loop of an I/O thread.

use std::mem::MaybeUninit;
use std::sync::Arc;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::conn::Phase;
use crate::drain::Drain;
use crate::io::{Io, TAG_CONN, TAG_KNOCK, TAG_LISTENER, TAG_MASK, TAG_TOKEN};
use crate::listener::Listener;
use crate::mailbox::Mailbox;
use crate::output::Flow;
use crate::service::{ConnId, Service};
use crate::shared::{Shared, Stage};
use crate::timer::Entry;

/// The largest batch of one tick.
const EVENTS_PER_TICK_MAX: usize = 256;
/// What one read takes at most. A whole request found here is parsed where it lies.
const READ_BYTES_MAX: usize = 64 * 1024;

pub(crate) struct IoThread<S: Service> {
    pub(crate) io: Io,
    pub(crate) service: S,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) scratch: Box<[u8]>,
    pub(crate) drain: Option<Drain>,
    /// No accept before this time: descriptors or memory ran out.
    pub(crate) accept_after_ms: u64,
    /// Another round of accept is due at once.
    pub(crate) accept_again: bool,
    /// Requests handed to the service, ever.
    pub(crate) asked_count: u64,
    /// The service got a request behind its tick: it is to have another one.
    tick_again: bool,
    mailboxes: Arc<[Mailbox<S::Message>]>,
    messages: Vec<S::Message>,
    fired: Vec<Entry>,
    stage: Stage,
    /// Of the setup that it goes by.
    setup_count: u64,
}

impl<S: Service> IoThread<S> {
    pub(crate) fn new(
        io: Io,
        service: S,
        listeners: Vec<Listener>,
        mailboxes: Arc<[Mailbox<S::Message>]>,
    ) -> IoThread<S> {
        IoThread {
            io,
            service,
            listeners,
            scratch: vec![0; READ_BYTES_MAX].into_boxed_slice(),
            drain: None,
            accept_after_ms: 0,
            accept_again: true,
            asked_count: 0,
            tick_again: false,
            mailboxes,
            messages: Vec::new(),
            fired: Vec::new(),
            stage: Stage::Running,
            setup_count: 0,
        }
    }

    /// Turns until the server is stopped or drained.
    pub(crate) fn run(&mut self) -> rustix::io::Result<()> {
        let shared = Arc::clone(&self.io.shared);
        let knock = &shared.knocks[self.io.index()];
        let data = epoll::EventData::new_u64(TAG_KNOCK);
        epoll::add(
            &self.io.epoll,
            knock.descriptor(),
            data,
            epoll::EventFlags::IN | epoll::EventFlags::ET,
        )?;
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); EVENTS_PER_TICK_MAX];
        while !self.ended(&shared) {
            let announce = !self.work_waits() && !self.service.busy_poll();
            let asleep = announce && knock.announce_sleep();
            let timeout = match announce && self.service.may_sleep() && asleep {
                true => self.sleep_ms(),
                false => Some(0),
            };
            let timeout = timeout.map(|ms| Timespec {
                tv_sec: (ms / 1000) as _,
                tv_nsec: (ms % 1000 * 1_000_000) as _,
            });
            let batch = match epoll::wait(&self.io.epoll, &mut events, timeout.as_ref()) {
                Ok((batch, _)) => batch,
                Err(Errno::INTR) => &mut [],
                Err(error) => return Err(error),
            };
            if announce {
                knock.awake();
                self.service.awake();
            }
            self.io.clock.tick();
            if knock.take() {
                self.messages(&shared);
            }
            for event in batch.iter() {
                self.event(event.data.u64(), event.flags);
            }
            self.turns_cut_short();
            self.accept();
            self.settle();
            self.timers();
            self.service.tick(&mut self.io);
            let asked_count = self.asked_count;
            self.settle();
            self.tick_again = self.asked_count != asked_count;
        }
        Ok(())
    }

    fn event(&mut self, data: u64, flags: epoll::EventFlags) {
        match data & TAG_MASK {
            TAG_CONN => self.conn_event(ConnId::from_bits(data), flags),
            TAG_LISTENER => {
                let number = data & !TAG_MASK;
                let mut listeners = self.listeners.iter_mut();
                if let Some(listener) = listeners.find(|one| one.number == number) {
                    listener.ready = true;
                    self.accept_again = true;
                }
            }
            TAG_TOKEN => self.service.ready(&mut self.io, data & !TAG_MASK),
            // A knock only ends the sleep.
            _ => {}
        }
    }

    #[inline]
    fn conn_event(&mut self, id: ConnId, flags: epoll::EventFlags) {
        let Some(conn) = self.io.conns.get_mut(id) else {
            return;
        };
        if flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP) {
            self.io.break_off(id, true);
            return;
        }
        if flags.contains(epoll::EventFlags::RDHUP) {
            conn.peer_fin = true;
        }
        if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::RDHUP) {
            conn.may_read = true;
        }
        if flags.contains(epoll::EventFlags::OUT) && conn.blocked {
            self.writable(id);
        }
        self.go_on(id);
    }

    /// A blocked connection has room again.
    fn writable(&mut self, id: ConnId) {
        if self.io.writable(id) != Flow::Sent {
            return;
        }
        let Some(conn) = self.io.conns.get_mut(id) else {
            return;
        };
        if conn.phase == Phase::Replying && std::mem::take(&mut conn.service_waits) {
            self.service.writable(&mut self.io, id);
        }
    }

    /// Reads, or tells the service of a FIN, as the phase asks for.
    pub(crate) fn go_on(&mut self, id: ConnId) {
        let Some(conn) = self.io.conns.get_mut(id) else {
            return;
        };
        if conn.phase.reads() {
            self.read(id);
        }
        let Some(conn) = self.io.conns.get_mut(id) else {
            return;
        };
        if conn.peer_fin && !conn.fin_told && conn.phase.with_service() {
            conn.fin_told = true;
            self.service.half_closed(&mut self.io, id);
        }
    }

    fn turns_cut_short(&mut self) {
        if self.io.again.is_empty() {
            return;
        }
        for id in std::mem::take(&mut self.io.again) {
            let Some(conn) = self.io.conns.get(id) else {
                continue;
            };
            if conn.phase == Phase::Flushing {
                if !conn.blocked {
                    self.io.pump(id);
                }
            } else if self.drain.is_some() && conn.phase == Phase::Idle && conn.requests > 0 {
                self.drain_idle(id);
            } else {
                self.go_on(id);
            }
        }
    }

    #[cold]
    fn messages(&mut self, shared: &Shared) {
        self.accept_again = true;
        // Before the messages: what was posted before a setup was applied is there when it is.
        let setup_count = shared.setup_count();
        if setup_count != self.setup_count {
            self.setup_count = setup_count;
            self.go_by_setup(shared);
        }
        let mut messages = std::mem::take(&mut self.messages);
        self.mailboxes[self.io.index()].take(&mut messages);
        for message in messages.drain(..) {
            self.service.message(&mut self.io, message);
        }
        self.messages = messages;
        self.settle();
        if self.stage == Stage::Running && shared.stage() == Stage::Draining {
            self.stage = Stage::Draining;
            self.begin_drain();
        }
    }

    fn timers(&mut self) {
        let now_ms = self.io.clock.now().mono_ms();
        let mut fired = std::mem::take(&mut self.fired);
        self.io.wheel.advance(now_ms, &mut fired);
        if !fired.is_empty() {
            for entry in fired.drain(..) {
                self.timer(entry, now_ms);
            }
            self.settle();
        }
        self.fired = fired;
    }

    fn work_waits(&self) -> bool {
        self.accept_again
            || self.tick_again
            || !self.io.again.is_empty()
            || !self.io.settled.is_empty()
    }

    /// None: for ever.
    fn sleep_ms(&self) -> Option<u64> {
        let now_ms = self.io.clock.now().mono_ms();
        let accept_ms = self
            .listeners
            .iter()
            .any(|listener| listener.ready)
            .then_some(self.accept_after_ms);
        let accept_ms = accept_ms.filter(|ms| *ms > now_ms);
        let drain_ms = self.drain.as_ref().map(|drain| drain.until_ms);
        let wakes = [
            self.io.wheel.next_ms(),
            self.service.next_deadline_ms(),
            accept_ms,
            drain_ms,
        ];
        wakes
            .into_iter()
            .flatten()
            .min()
            .map(|due_ms| due_ms.saturating_sub(now_ms))
    }

    fn ended(&self, shared: &Shared) -> bool {
        if shared.stage() == Stage::Stopped {
            return true;
        }
        let now_ms = self.io.clock.now().mono_ms();
        self.drain
            .as_ref()
            .is_some_and(|drain| self.io.conns.len() == 0 || now_ms >= drain.until_ms)
    }
}
