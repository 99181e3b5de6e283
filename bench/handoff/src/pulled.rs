//! The front of the ways in which threads pull: requests lie in slots that belong to I/O threads, and their numbers in a queue.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use baton_handoff::front::{Body, IoFlags, Segment};
use baton_handoff::layout::Geometry;
use baton_handoff::{schedule, slot::Generation};
use baton_server::{ConnId, Io, Request, Service};
use rustix::event::{EventfdFlags, eventfd};

use crate::queue::{Pull, Queue, SLOTS, SLOTS_PER_IO};
use crate::{Options, app, reply};

/// What all I/O threads share.
pub struct Front {
    segment: Segment,
    flags: IoFlags,
    queue: &'static Queue,
    has_tickets: bool,
    /// One for each I/O thread.
    knockers: Vec<OwnedFd>,
}

impl Front {
    pub fn start(options: &Options, has_tickets: bool) -> io::Result<Arc<Self>> {
        // To all processes it is one thread with many slots, and nobody sleeps on that thread's word.
        let geometry = Geometry::new(1, SLOTS).ok_or(io::ErrorKind::InvalidInput)?;
        let segment = Segment::create(geometry, false)?;
        let flags = IoFlags::create()?;
        let file = Queue::create()?;
        let knocker = |_| Ok(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let knockers = (0..options.io_threads)
            .map(knocker)
            .collect::<io::Result<Vec<_>>>()?;
        let mut descriptors = vec![
            segment.down_file(),
            segment.up_file(),
            flags.file(),
            file.as_fd(),
        ];
        descriptors.extend(knockers.iter().map(AsFd::as_fd));
        let how: &[u8] = if has_tickets { b"semaphore" } else { b"queue" };
        let turns = app::turns_in(options.work_ns);
        for _ in 0..options.threads {
            app::start(turns, how, &descriptors)?;
        }
        let queue = Queue::map(file)?;
        Ok(Arc::new(Self {
            segment,
            flags,
            queue,
            has_tickets,
            knockers,
        }))
    }

    fn push(&self, slot: u32) {
        match self.has_tickets {
            true => self.queue.semaphore.push(slot),
            false => self.queue.blocking.push(slot),
        }
    }
}

pub struct Gateway {
    front: Arc<Front>,
    index: usize,
    /// Of this I/O thread's slots: who waits for the reply, and what was offered last.
    slots: Vec<(Option<ConnId>, Generation)>,
    free: Vec<u32>,
    /// How many were finished so far.
    seen: u32,
    /// Finished, but the reply is not published.
    early: Vec<u32>,
    is_registered: bool,
    copy: Vec<u8>,
}

impl Gateway {
    pub fn new(front: Arc<Front>, index: usize) -> Self {
        schedule::io_thread();
        let first = index as u32 * SLOTS_PER_IO;
        Self {
            front,
            index,
            slots: vec![(None, Generation::default()); SLOTS_PER_IO as usize],
            // The one that was used last is used first: it is in the cache.
            free: (first..first + SLOTS_PER_IO).rev().collect(),
            seen: 0,
            early: Vec::new(),
            is_registered: false,
            copy: Vec::new(),
        }
    }

    fn own(&mut self, slot: u32) -> &mut (Option<ConnId>, Generation) {
        &mut self.slots[(slot % SLOTS_PER_IO) as usize]
    }

    /// Passes the reply on if it is there.
    fn follow(&mut self, io: &mut Io, slot: u32) -> bool {
        let (conn, generation) = *self.own(slot);
        let front = self.front.clone();
        let place = front.segment.slot(slot);
        if !reply::is_finished(place, generation) {
            return false;
        }
        if let Some(conn) = conn {
            reply::pass_on(io, conn, place, generation, &mut self.copy);
        }
        self.free.push(slot);
        true
    }

    fn hear(&mut self) {
        while let Some(slot) = self.front.queue.next_finished(self.index, &mut self.seen) {
            self.early.push(slot);
        }
    }

    fn has_news(&mut self) -> bool {
        self.hear();
        let segment = &self.front.segment;
        let generation = |slot: u32| self.slots[(slot % SLOTS_PER_IO) as usize].1;
        self.early
            .iter()
            .any(|slot| reply::is_finished(segment.slot(*slot), generation(*slot)))
    }
}

impl Service for Gateway {
    type Message = ();

    fn request(&mut self, io: &mut Io, conn: ConnId, request: Request<'_>) {
        if !self.is_registered {
            self.is_registered = true;
            let knocker = self.front.knockers[self.index].as_fd();
            io.register(knocker, 0).expect("a descriptor of our own");
        }
        let Some(slot) = self.free.pop() else {
            return io.respond(conn, 503, None, [], b"");
        };
        let mut bytes = std::mem::take(&mut self.copy);
        reply::encode(&mut bytes, &request);
        let generation = self.own(slot).1.next();
        *self.own(slot) = (Some(conn), generation);
        let place = self.front.segment.slot(slot);
        place.offer(generation, self.index as u32, &bytes, Body::Memory(&[]));
        self.front.push(slot);
        self.copy = bytes;
    }

    fn gone(&mut self, _io: &mut Io, conn: ConnId) {
        for (waiting, _) in &mut self.slots {
            waiting.take_if(|waiting| *waiting == conn);
        }
    }

    fn tick(&mut self, io: &mut Io) {
        self.hear();
        for slot in std::mem::take(&mut self.early) {
            if !self.follow(io, slot) {
                self.early.push(slot);
            }
        }
    }

    fn busy_poll(&mut self) -> bool {
        if self.free.len() == SLOTS_PER_IO as usize {
            return false;
        }
        for _ in 0..reply::YIELDS_BEFORE_SLEEP {
            if self.has_news() {
                return true;
            }
            rustix::thread::sched_yield();
        }
        false
    }

    fn may_sleep(&mut self) -> bool {
        self.front.flags.announce(self.index);
        !self.has_news()
    }

    fn awake(&mut self) {
        self.front.flags.retire(self.index);
    }
}
