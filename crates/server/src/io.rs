//! What an I/O thread has beside its service: epoll, connections, clock, timers, buffers.

use std::sync::Arc;

use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::clock::{Now, TickClock};
use crate::config::{ClockMode, Config, WriteMode};
use crate::conn::{Conn, Note, Phase};
use crate::service::ConnId;
use crate::shared::{Shared, Stage};
use crate::slab::Slab;
use crate::timer::Wheel;
use crate::trusted::TrustedProxies;

/// Buffers and notes kept for the next use, per I/O thread.
const SPARES_MAX: usize = 32;
/// A buffer that grew beyond this is given back to the allocator.
const SPARE_BYTES_MAX: usize = 64 * 1024;

/// The two highest bits of an epoll event's data say what it is about.
pub(crate) const TAG_CONN: u64 = 0;
pub(crate) const TAG_LISTENER: u64 = 1 << 62;
pub(crate) const TAG_TOKEN: u64 = 2 << 62;
pub(crate) const TAG_KNOCK: u64 = 3 << 62;
pub(crate) const TAG_MASK: u64 = 3 << 62;

/// An I/O thread, as its service may use it.
pub struct Io {
    pub(crate) shared: Arc<Shared>,
    /// The one of this tick; another may follow.
    pub(crate) config: Arc<Config>,
    pub(crate) epoll: OwnedFd,
    pub(crate) conns: Slab,
    pub(crate) clock: TickClock,
    pub(crate) wheel: Wheel,
    /// Connections that are Complete or Broken. A name may be here twice, or have moved on.
    pub(crate) settled: Vec<ConnId>,
    /// Connections whose turn was cut short for the sake of the others.
    pub(crate) again: Vec<ConnId>,
    pub(crate) draining: bool,
    /// No complaint of proxies before this time.
    pub(crate) complain_after_ms: u64,
    index: usize,
    spare_buffers: Vec<Vec<u8>>,
    /// Boxed because connections hold them so: an idle one has a pointer, not a note.
    #[allow(clippy::vec_box)]
    spare_notes: Vec<Box<Note>>,
}

impl Io {
    pub(crate) fn new(
        shared: Arc<Shared>,
        config: Arc<Config>,
        index: usize,
    ) -> rustix::io::Result<Io> {
        let per_use = config.clock_mode == ClockMode::PerUse;
        let clock = TickClock::new((config.clock)(index), per_use);
        let wheel = Wheel::new(clock.now().mono_ms());
        Ok(Io {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            conns: Slab::default(),
            clock,
            wheel,
            settled: Vec::new(),
            again: Vec::new(),
            draining: false,
            complain_after_ms: 0,
            index,
            spare_buffers: Vec::new(),
            spare_notes: Vec::new(),
            shared,
            config,
        })
    }

    /// This tick's reading of the clock.
    pub fn now(&self) -> &Now {
        self.clock.now()
    }

    /// Those of the configuration.
    pub fn trusted_proxies(&self) -> &TrustedProxies {
        &self.config.trusted_proxies
    }

    /// The I/O thread's number, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Open connections of this I/O thread.
    pub fn connections(&self) -> usize {
        self.conns.len()
    }

    /// Whether the connection is there and its service is not through with the reply.
    pub fn is_open(&self, conn: ConnId) -> bool {
        self.conns
            .get(conn)
            .is_some_and(|conn| conn.phase.with_service())
    }

    /// Whether [`crate::Service::half_closed`] was called for the present request.
    pub fn is_half_closed(&self, conn: ConnId) -> bool {
        self.conns
            .get(conn)
            .is_some_and(|conn| conn.fin_told && conn.phase.with_service())
    }

    /// Bytes of all connections that wait in the server's memory for slow readers.
    pub fn spilled_bytes(&self) -> usize {
        self.shared.spill.used()
    }

    /// Calls [`crate::Service::ready`] with `token` (below 2^62) when `fd` becomes readable: once per edge. The
    /// descriptor is never read here.
    pub fn register(&mut self, fd: BorrowedFd<'_>, token: u64) -> std::io::Result<()> {
        if token & TAG_MASK != 0 {
            return Err(std::io::Error::from(std::io::ErrorKind::InvalidInput));
        }
        let data = epoll::EventData::new_u64(TAG_TOKEN | token);
        Ok(epoll::add(
            &self.epoll,
            fd,
            data,
            epoll::EventFlags::IN | epoll::EventFlags::ET,
        )?)
    }

    pub fn deregister(&mut self, fd: BorrowedFd<'_>) -> std::io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Begins the shutdown of the whole server, as [`crate::Handle::drain`] does.
    pub fn drain(&self) {
        self.shared.raise_stage(Stage::Draining);
    }

    /// Cuts the connection. The service is not called for it again.
    pub fn abort(&mut self, conn: ConnId) {
        self.break_off(conn, false);
    }

    /// What a connection is registered for. TCP says EPOLLOUT only after a write found the socket full, so asking for
    /// it from the start saves the call later. A unix socket says it whenever its peer has read something.
    pub(crate) fn interest(&self, out: bool) -> epoll::EventFlags {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        if out {
            flags | epoll::EventFlags::OUT
        } else {
            flags
        }
    }

    pub(crate) fn ask_out_from_start(&self, tcp: bool) -> bool {
        tcp && self.config.write_mode == WriteMode::AtOnce
    }

    /// Changes whether epoll tells that the socket is writable. If it is already, that is told in the next tick.
    #[cold]
    pub(crate) fn ask_out(&mut self, id: ConnId, out: bool) {
        let flags = self.interest(out);
        let Some(conn) = self.conns.get_mut(id) else {
            return;
        };
        conn.out_asked = out;
        let data = epoll::EventData::new_u64(TAG_CONN | id.to_bits());
        if let Err(error) = epoll::modify(&self.epoll, conn.socket.as_fd(), data, flags) {
            tracing::error!(%error, "epoll_ctl");
            self.break_off(id, true);
        }
    }

    /// Marks a connection for closing. The loop closes it, tells the service if `tell` and it still has the request,
    /// and counts a reply that was begun as broken.
    pub(crate) fn break_off(&mut self, id: ConnId, tell: bool) {
        let Some(conn) = self.conns.get_mut(id) else {
            return;
        };
        if conn.phase == Phase::Broken {
            conn.tell_gone &= tell;
            return;
        }
        if conn.phase == Phase::Complete {
            // The reply is with the kernel; only the connection cannot go on.
            conn.exchange.keep_alive = false;
            conn.linger = false;
            return;
        }
        conn.tell_gone = tell && conn.phase.with_service();
        conn.phase = Phase::Broken;
        self.settled.push(id);
    }

    /// Sets the time at which the connection has waited for too long; NEVER_MS: no limit.
    ///
    /// A later deadline costs nothing here: the entry that is armed already fires early and is put in again.
    #[inline]
    pub(crate) fn set_deadline(&mut self, id: ConnId, deadline_ms: u64) {
        let Some((armed_ms, Some((current, conn)))) = self.conns.armed_mut(id.index) else {
            return;
        };
        if current != id {
            return;
        }
        conn.deadline_ms = deadline_ms;
        if deadline_ms < *armed_ms {
            *armed_ms = deadline_ms;
            self.wheel.insert(deadline_ms, id.index);
        }
    }

    pub(crate) fn used_ms(&mut self) -> u64 {
        self.clock.used().mono_ms()
    }

    /// An empty buffer, if possible one that has room already.
    pub(crate) fn take_buffer(&mut self) -> Vec<u8> {
        self.spare_buffers.pop().unwrap_or_default()
    }

    pub(crate) fn give_buffer(&mut self, mut buffer: Vec<u8>) {
        let fits = buffer.capacity() > 0 && buffer.capacity() <= SPARE_BYTES_MAX;
        if fits && self.spare_buffers.len() < SPARES_MAX {
            buffer.clear();
            self.spare_buffers.push(buffer);
        }
    }

    pub(crate) fn take_note(&mut self) -> Box<Note> {
        self.spare_notes.pop().unwrap_or_default()
    }

    pub(crate) fn give_note(&mut self, note: Box<Note>) {
        if self.spare_notes.len() < SPARES_MAX {
            self.spare_notes.push(note);
        }
    }

    /// Forgets a connection; its socket is closed with the returned value.
    pub(crate) fn remove(&mut self, id: ConnId) -> Option<Conn> {
        let conn = self.conns.remove(id)?;
        self.shared.spill.give_back(conn.spilled);
        self.shared.connection_leave();
        Some(conn)
    }
}
