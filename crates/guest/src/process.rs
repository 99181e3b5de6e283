//! An app process: its segment, its threads, and the descriptors that the front sends it.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use baton_handoff::app::{Segment, Taken};
use baton_handoff::control::{self, Kind};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use crate::request::Request;

pub struct Process {
    segment: Segment,
    bodies: Bodies,
    attached: Vec<AtomicBool>,
    /// Set in a child of the application's own fork: the slots are its parent's.
    disowned: AtomicBool,
    /// The front offers requests: from the start, or since it was told that the process has booted.
    is_ready: AtomicBool,
    /// Threads that have booted, while others have not.
    booted: AtomicU32,
}

impl Process {
    /// `boots_first`: as the process has said in its hello.
    pub(crate) fn new(segment: Segment, control: OwnedFd, boots_first: bool) -> Self {
        let threads = segment.geometry().threads as usize;
        Self {
            segment,
            bodies: Bodies {
                control,
                early: Mutex::default(),
            },
            attached: (0..threads).map(|_| AtomicBool::new(false)).collect(),
            disowned: AtomicBool::new(false),
            is_ready: AtomicBool::new(!boots_first),
            booted: AtomicU32::new(0),
        }
    }

    pub fn thread_count(&self) -> u32 {
        self.segment.geometry().threads
    }

    /// The thread of that number, for the calling operating-system thread, once.
    pub fn attach(&self, index: u32) -> Option<Thread<'_>> {
        if self
            .attached
            .get(index as usize)?
            .swap(true, Ordering::Relaxed)
        {
            return None;
        }
        baton_handoff::schedule::app_thread();
        Some(Thread {
            process: self,
            index,
            last_slot: Cell::new(0),
            has_booted: Cell::new(false),
        })
    }

    /// Never touch the slots again. Safe in an atfork handler: one store.
    pub fn disown(&self) {
        self.disowned.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_disowned(&self) -> bool {
        self.disowned.load(Ordering::Relaxed)
    }

    /// Asks the front to load the app anew. `reason` is for the log, and cut to what a message may hold.
    pub fn request_restart(&self, reason: &[u8], whole_app: bool) -> io::Result<()> {
        if self.is_disowned() {
            return Err(Errno::NOTCONN.into());
        }
        if !self.is_ready.load(Ordering::Relaxed) {
            // Its code was loaded a moment ago. A script that asks while it boots would have its app restarted for ever.
            return Err(Errno::BUSY.into());
        }
        let reason = &reason[..reason.len().min(control::RESTART_REASON_BYTES_MAX)];
        let whole_app = if whole_app { control::WHOLE_APP } else { 0 };
        self.send(Kind::Restart, whole_app, reason, false)
    }

    /// A thread asks for requests, so it has booted. The last one to say so speaks for the process.
    #[inline]
    fn booted(&self, thread: &Thread<'_>) {
        if !self.is_ready.load(Ordering::Relaxed) {
            self.booted_once(thread);
        }
    }

    #[cold]
    fn booted_once(&self, thread: &Thread<'_>) {
        let is_new = !thread.has_booted.replace(true);
        if is_new
            && self.booted.fetch_add(1, Ordering::Relaxed) + 1 == self.thread_count()
            && !self.is_ready.swap(true, Ordering::Relaxed)
            && let Err(error) = self.send(Kind::Ready, 0, &[], true)
        {
            eprintln!("baton: the front cannot be told that this process is ready: {error}");
        }
    }

    fn send(&self, kind: Kind, a: u64, text: &[u8], wait: bool) -> io::Result<()> {
        control::send(self.bodies.control.as_fd(), kind, (a, 0), text, &[], wait)
    }

    pub(crate) fn segment(&self) -> &Segment {
        &self.segment
    }

    pub(crate) fn body_file(&self, taken: Taken) -> io::Result<OwnedFd> {
        self.bodies.file_of(taken)
    }
}

/// One of the process's threads, for the operating-system thread that attached it.
pub struct Thread<'p> {
    process: &'p Process,
    index: u32,
    /// From which it took its last request.
    last_slot: Cell<u32>,
    /// It has asked for a request, as far as that matters.
    has_booted: Cell<bool>,
}

/// What an event loop gets when it asks for work.
pub enum Accepted<'p> {
    Request(Request<'p>),
    Nothing,
    Stopped,
}

impl<'p> Thread<'p> {
    /// The next request; sleeps until there is one. `None`: leave the loop.
    pub fn accept(&self) -> Option<Request<'p>> {
        let segment = &self.process.segment;
        loop {
            match self.try_accept() {
                Accepted::Request(request) => return Some(request),
                Accepted::Stopped => return None,
                Accepted::Nothing => segment.sleep_until(self.index, || {
                    segment.has_offer(self.index) || segment.is_stopped(self.index)
                }),
            }
        }
    }

    /// An offer wins over a stop: what was handed over is served.
    pub fn try_accept(&self) -> Accepted<'p> {
        if self.process.is_disowned() {
            return Accepted::Stopped;
        }
        self.process.booted(self);
        let segment = &self.process.segment;
        while let Some(taken) = segment.take(self.index, self.last_slot.get()) {
            self.last_slot.set(taken.slot);
            if let Some(request) = Request::new(self.process, self.index, taken) {
                return Accepted::Request(request);
            }
        }
        if segment.is_stopped(self.index) {
            Accepted::Stopped
        } else {
            Accepted::Nothing
        }
    }

    /// Whether the front has said stop. There may be an offer all the same.
    pub fn is_stopping(&self) -> bool {
        self.process.is_disowned() || self.process.segment.is_stopped(self.index)
    }

    /// Before waiting on the doorbell: `false` if there is work and no need to wait.
    pub fn arm(&self) -> bool {
        let segment = &self.process.segment;
        segment.announce_event_loop(self.index);
        let idle = !segment.has_offer(self.index) && !segment.is_stopped(self.index);
        if !idle {
            segment.retire_event_loop(self.index);
        }
        idle
    }

    /// After waiting on the doorbell.
    pub fn disarm(&self) {
        self.process.segment.retire_event_loop(self.index);
        if let Some(doorbell) = self.process.segment.doorbell() {
            // However often it was rung.
            let mut ring = [0u8; 1];
            while rustix::net::recv(doorbell, &mut ring[..], RecvFlags::DONTWAIT).is_ok() {}
        }
    }

    pub fn process(&self) -> &'p Process {
        self.process
    }
}

/// Descriptors of spooled bodies, which arrive on one socket for all threads of the process.
struct Bodies {
    control: OwnedFd,
    /// Those that another request has to pick up: at most one for each slot.
    early: Mutex<Vec<(Taken, OwnedFd)>>,
}

impl Bodies {
    /// The front sends the descriptor before it offers the request, so it is there; only other
    /// requests' descriptors can lie before it.
    fn file_of(&self, wanted: Taken) -> io::Result<OwnedFd> {
        let is_wanted =
            |taken: &Taken| taken.slot == wanted.slot && taken.generation == wanted.generation;
        let mut early = self
            .early
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(at) = early.iter().position(|(taken, _)| is_wanted(taken)) {
            return Ok(early.swap_remove(at).1);
        }
        // Older ones for this slot belong to offers that were taken back.
        early.retain(|(taken, _)| taken.slot != wanted.slot);
        loop {
            let message = control::receive(self.control.as_fd(), false)?
                .ok_or(io::ErrorKind::UnexpectedEof)?;
            let (Kind::Body, Some(file)) = (message.kind, message.descriptors.into_iter().next())
            else {
                continue;
            };
            let generation = baton_handoff::slot::Generation::from_bits(message.b as u32);
            let taken = Taken {
                slot: message.a as u32,
                generation,
            };
            if is_wanted(&taken) {
                return Ok(file);
            }
            // An older one for that slot belongs to a request that never asked for it.
            early.retain(|(other, _)| other.slot != taken.slot);
            if taken.slot != wanted.slot {
                early.push((taken, file));
            }
        }
    }
}
