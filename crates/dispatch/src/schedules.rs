//! Random schedules: whatever happens in whatever order, the invariants of this crate hold.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use crate::{Dispatcher, Handoff, Limits, Released, SEATS, Submitted, ThreadId, Ticket};

const LIMITS: Limits = Limits {
    queue_len_max: 12,
    queue_wait_ms_max: 100,
    rotate_ms: 1000,
    stand_by: true,
};

#[derive(Clone, Debug)]
enum Event {
    /// On a connection that one of the threads, which may be busy or gone, has served before.
    Submit(usize),
    Finish(usize),
    /// A thread comes to a request that stands by before the others.
    FinishStandby(usize),
    Withdraw(usize),
    /// An offer is taken back: the request goes on, its thread is looked at later.
    TakeBack(usize),
    Recover(usize),
    /// In a process of its own, or beside one of the threads, if that is there.
    Add(usize),
    Kill(usize),
    /// All that are there, and how many are to stay.
    Retire(usize),
    RetireNone,
    /// If it is idle.
    Dismiss(usize),
    Cancel(usize),
    Wait(u8),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0..8usize).prop_map(Event::Submit),
        5 => (0..8usize).prop_map(Event::Finish),
        1 => (0..8usize).prop_map(Event::FinishStandby),
        1 => (0..8usize).prop_map(Event::Withdraw),
        1 => (0..8usize).prop_map(Event::TakeBack),
        1 => (0..8usize).prop_map(Event::Recover),
        2 => (0..12usize).prop_map(Event::Add),
        1 => (0..8usize).prop_map(Event::Kill),
        1 => (0..5usize).prop_map(Event::Retire),
        1 => Just(Event::RetireNone),
        1 => (0..8usize).prop_map(Event::Dismiss),
        1 => (0..8usize).prop_map(Event::Cancel),
        1 => any::<u8>().prop_map(Event::Wait),
    ]
}

/// The caller's view, against which the dispatcher is checked. Threads and requests are numbers.
struct Schedule {
    dispatcher: Dispatcher<u32, u32>,
    now_ms: u64,
    next_thread: u32,
    next_request: u32,
    threads: BTreeMap<u32, ThreadId>,
    /// Of each thread that there ever was.
    processes: BTreeMap<u32, u32>,
    /// Of all threads that there ever were.
    ids: Vec<ThreadId>,
    retired: Vec<u32>,
    keep: usize,
    /// Processes that leave, by their number.
    leaving: BTreeSet<u32>,
    running: Vec<Held>,
    standing: Vec<Held>,
    /// Threads whose request was taken back, with its seat.
    stalled: Vec<(u32, u32)>,
    taken_back: BTreeSet<u32>,
    /// Requests as they are to leave the queue.
    waiting: VecDeque<u32>,
    tickets: Vec<(Ticket, u32)>,
    ended: usize,
}

/// A thread's request.
#[derive(Clone, Copy)]
struct Held {
    thread: u32,
    seat: u32,
    request: u32,
}

type Checked = Result<(), TestCaseError>;

impl Schedule {
    fn new() -> Self {
        Self {
            dispatcher: Dispatcher::new(LIMITS),
            now_ms: 0,
            next_thread: 0,
            next_request: 0,
            threads: BTreeMap::new(),
            processes: BTreeMap::new(),
            ids: Vec::new(),
            retired: Vec::new(),
            keep: 0,
            leaving: BTreeSet::new(),
            running: Vec::new(),
            standing: Vec::new(),
            stalled: Vec::new(),
            taken_back: BTreeSet::new(),
            waiting: VecDeque::new(),
            tickets: Vec::new(),
            ended: 0,
        }
    }

    fn step(&mut self, event: Event) -> Checked {
        let now_ms = self.now_ms;
        match event {
            Event::Submit(last) => {
                let request = self.next_request;
                self.next_request += 1;
                let last = self.ids.get(last).copied();
                let fit = self.fit();
                match self.dispatcher.submit_after(last, request, 0, now_ms) {
                    Submitted::Handoff(handoff) => {
                        prop_assert!(fit.contains(&handoff.thread));
                        self.handed(handoff)?;
                    }
                    Submitted::Queued(ticket) => {
                        self.waiting.push_back(request);
                        self.tickets.push((ticket, request));
                    }
                    Submitted::Refused(_) => self.ended += 1,
                }
            }
            Event::Finish(at) if at < self.running.len() => {
                let held = self.running.remove(at);
                self.ended += 1;
                self.release(held.thread, held.seat)?;
            }
            Event::FinishStandby(at) if at < self.standing.len() => {
                let held = self.standing.remove(at);
                self.ended += 1;
                self.release(held.thread, held.seat)?;
            }
            Event::Withdraw(at) if at < self.standing.len() => self.withdraw(at)?,
            Event::TakeBack(at) if at < self.running.len() => {
                let held = self.running.remove(at);
                self.stalled.push((held.thread, held.seat));
                self.resubmit(held.request)?;
            }
            Event::Recover(at) if at < self.stalled.len() => {
                let (thread, seat) = self.stalled.remove(at);
                let id = self.threads[&thread];
                let released = self.dispatcher.release(id, seat, 0, now_ms);
                self.released(thread, seat, released)?;
            }
            Event::Add(beside) => {
                let number = self.next_thread;
                self.next_thread += 1;
                let other = self.threads.iter().nth(beside);
                let (process, id) = match other.map(|(other, id)| (self.processes[other], *id)) {
                    Some((process, id)) => (process, self.dispatcher.add_beside(id, number)),
                    None => (number, self.dispatcher.add(number)),
                };
                self.processes.insert(number, process);
                self.threads.insert(number, id);
                self.ids.push(id);
                self.release(number, 0)?;
                self.leave()?;
            }
            Event::Kill(at) => self.kill(at)?,
            Event::Retire(keep) => {
                self.keep = keep;
                self.dispatcher.retire(self.threads.values().copied(), keep);
                self.retired = self.threads.keys().copied().collect();
                self.leave()?;
            }
            Event::RetireNone => {
                self.dispatcher.retire_none();
                self.retired.clear();
            }
            Event::Dismiss(at) => self.dismiss(at)?,
            Event::Cancel(at) if at < self.tickets.len() => {
                let (ticket, request) = self.tickets.remove(at);
                if let Some(cancelled) = self.dispatcher.cancel(ticket) {
                    prop_assert_eq!(cancelled, request);
                    self.waiting.retain(|waiting| *waiting != request);
                    self.ended += 1;
                }
            }
            Event::Wait(ms) => {
                self.now_ms += u64::from(ms);
                while let Some(request) = self.dispatcher.expire(self.now_ms) {
                    prop_assert_eq!(self.waiting.pop_front(), Some(request));
                    self.ended += 1;
                }
                let oldest_ms = self.dispatcher.next_expiry_ms();
                prop_assert!(oldest_ms.is_none_or(|at| at > self.now_ms));
            }
            _ => {}
        }
        Ok(())
    }

    /// Which idle threads may be next: the one that is to go first once, else those of the processes that run the fewest.
    fn fit(&self) -> Vec<u32> {
        let number_of = |id: ThreadId| self.threads.iter().find(|(_, other)| **other == id);
        let idle = self.dispatcher.idle_threads();
        let idle: Vec<_> = idle
            .filter_map(|(id, since_ms)| Some((*number_of(id)?.0, since_ms)))
            .collect();
        let longest = idle.first().copied();
        if let Some((thread, since_ms)) = longest
            && self.now_ms - since_ms > LIMITS.rotate_ms
        {
            return vec![thread];
        }
        let running = |thread: u32| {
            let is_beside = |other: &u32| self.processes[other] == self.processes[&thread];
            let all = self.threads.keys().filter(|other| is_beside(other)).count();
            all - idle.iter().filter(|(other, _)| is_beside(other)).count()
        };
        let fewest = idle.iter().map(|(thread, _)| running(*thread)).min();
        let threads = idle.iter().map(|(thread, _)| *thread);
        threads
            .filter(|thread| Some(running(*thread)) == fewest)
            .collect()
    }

    fn resubmit(&mut self, request: u32) -> Checked {
        self.taken_back.insert(request);
        match self
            .dispatcher
            .resubmit(request, self.now_ms, 0, self.now_ms)
        {
            Submitted::Handoff(handoff) => self.handed(handoff)?,
            Submitted::Queued(ticket) => {
                self.waiting.push_front(request);
                self.tickets.push((ticket, request));
            }
            Submitted::Refused(_) => prop_assert!(false, "taken back and refused"),
        }
        Ok(())
    }

    /// The front takes a request back that stands by.
    fn withdraw(&mut self, at: usize) -> Checked {
        let held = self.standing.remove(at);
        let id = self.threads[&held.thread];
        prop_assert!(self.dispatcher.has_standby(id));
        let released = self.dispatcher.withdraw(id, held.seat, 0, self.now_ms);
        prop_assert_eq!(released, Released::Nothing);
        self.resubmit(held.request)
    }

    /// A request goes to a thread that is there and has none, or to stand by at one that has.
    fn handed(&mut self, handoff: Handoff<u32, u32>) -> Checked {
        let Handoff {
            id,
            thread,
            seat,
            stands_by,
            request,
            ..
        } = handoff;
        prop_assert_eq!(
            self.threads.get(&thread),
            Some(&id),
            "a thread that has left"
        );
        let held = Held {
            thread,
            seat,
            request,
        };
        let others = self.running.iter().map(|held| (held.thread, held.seat));
        let mut others = others.chain(self.stalled.iter().copied());
        let mut standing = self.standing.iter();
        prop_assert!(
            seat < SEATS && standing.all(|held| (held.thread, held.seat) != (thread, seat))
        );
        match stands_by {
            true => prop_assert!(others.any(|(other, taken)| other == thread && taken != seat)),
            false => prop_assert!(others.all(|(other, _)| other != thread)),
        }
        match stands_by {
            true => self.standing.push(held),
            false => self.running.push(held),
        }
        Ok(())
    }

    fn handed_next(&mut self, handoff: Handoff<u32, u32>, to: u32) -> Checked {
        prop_assert_eq!(self.waiting.pop_front(), Some(handoff.request));
        prop_assert_eq!(handoff.thread, to);
        self.handed(handoff)
    }

    fn release(&mut self, thread: u32, seat: u32) -> Checked {
        let id = self.threads[&thread];
        let released = self.dispatcher.release(id, seat, 0, self.now_ms);
        self.released(thread, seat, released)
    }

    fn released(&mut self, thread: u32, seat: u32, released: Released<u32, u32>) -> Checked {
        match released {
            Released::Next(next) => {
                self.handed_next(next, thread)?;
                self.stand_by(thread)
            }
            Released::GoesOn(next) => {
                prop_assert_ne!(next, seat);
                // To one that stood by, unless that was finished before the one that was to run.
                let mut others = self.running.iter().map(|held| held.thread);
                let mut others = others
                    .by_ref()
                    .chain(self.stalled.iter().map(|(other, _)| *other));
                if others.all(|other| other != thread) {
                    let is_it = |held: &Held| (held.thread, held.seat) == (thread, next);
                    let at = self.standing.iter().position(is_it);
                    prop_assert!(at.is_some(), "it goes on with one that it has");
                    self.running.extend(at.map(|at| self.standing.remove(at)));
                }
                self.stand_by(thread)
            }
            Released::Idle {
                others_have_standby,
            } => {
                prop_assert_eq!(others_have_standby, !self.standing.is_empty());
                match others_have_standby {
                    true => self.withdraw(0),
                    false => Ok(()),
                }
            }
            Released::Left(left) => {
                prop_assert_eq!(left, thread);
                self.left(left)?;
                self.leave()
            }
            Released::Nothing => Ok(()),
        }
    }

    /// The thread has just got to another request.
    fn stand_by(&mut self, thread: u32) -> Checked {
        let id = self.threads[&thread];
        while let Some(standby) = self.dispatcher.stand_by(id) {
            prop_assert!(standby.stands_by);
            self.handed_next(standby, thread)?;
        }
        Ok(())
    }

    fn leave(&mut self) -> Checked {
        while let Some(thread) = self.dispatcher.leave() {
            prop_assert!(self.running.iter().all(|held| held.thread != thread));
            self.left(thread)?;
        }
        Ok(())
    }

    /// Only threads of processes that leave do, and retired ones if enough stay.
    fn left(&mut self, thread: u32) -> Checked {
        prop_assert!(self.leaves_when_free(thread));
        self.leaving.insert(self.processes[&thread]);
        prop_assert!(self.threads.remove(&thread).is_some());
        Ok(())
    }

    fn leaves_when_free(&self, thread: u32) -> bool {
        let process = self.processes[&thread];
        let of_process = self.threads.keys();
        let with_it = of_process.filter(|other| self.processes[other] == process);
        let stay = self.staying().saturating_sub(with_it.count());
        let may = self.retired.contains(&thread) && stay >= self.keep;
        may || self.leaving.contains(&process)
    }

    fn staying(&self) -> usize {
        let stays = |thread: &&u32| !self.leaving.contains(&self.processes[*thread]);
        self.threads.keys().filter(stays).count()
    }

    /// Busy ones stay.
    fn dismiss(&mut self, at: usize) -> Checked {
        let Some((thread, id)) = self.threads.iter().nth(at).map(|(n, id)| (*n, *id)) else {
            return Ok(());
        };
        let is_busy = self.running.iter().any(|held| held.thread == thread);
        let is_idle = !is_busy && self.stalled.iter().all(|(stalled, _)| *stalled != thread);
        let left = self.dispatcher.dismiss(id);
        prop_assert_eq!(left, is_idle.then_some(thread));
        if is_idle {
            self.threads.remove(&thread);
            self.leaving.insert(self.processes[&thread]);
        }
        self.leave()
    }

    fn kill(&mut self, at: usize) -> Checked {
        let Some((thread, id)) = self.threads.iter().nth(at).map(|(n, id)| (*n, *id)) else {
            return Ok(());
        };
        self.threads.remove(&thread);
        prop_assert!(self.dispatcher.remove(id));
        prop_assert!(!self.dispatcher.remove(id));
        self.stalled.retain(|(stalled, _)| *stalled != thread);
        for held in [&mut self.running, &mut self.standing] {
            let before = held.len();
            held.retain(|held| held.thread != thread);
            self.ended += before - held.len();
        }
        Ok(())
    }

    fn check(&mut self) -> Checked {
        let (waiting, idle) = (
            self.dispatcher.waiting_count(),
            self.dispatcher.idle_count(),
        );
        prop_assert!(
            waiting == 0 || idle == 0,
            "one waits while a thread is idle"
        );
        prop_assert_eq!(waiting, self.waiting.len() + self.standing.len());
        // What was taken back comes on top of a full queue.
        let is_first = |request: &&u32| !self.taken_back.contains(request);
        let submitted = self.waiting.iter().filter(is_first).count();
        prop_assert!(submitted <= LIMITS.queue_len_max);
        prop_assert_eq!(self.dispatcher.thread_count(), self.staying());
        prop_assert_eq!(
            idle,
            self.threads.len() - self.running.len() - self.stalled.len()
        );
        let known = self.running.len() + waiting + self.ended;
        prop_assert_eq!(
            known,
            self.next_request as usize,
            "one is lost, or there twice"
        );
        prop_assert_eq!(
            self.dispatcher.leave(),
            None,
            "an idle one should have left"
        );
        let leavers: BTreeSet<u32> = self
            .dispatcher
            .leavers_at_work()
            .map(|(thread, _)| *thread)
            .collect();
        let threads = self.threads.keys().copied();
        let expected = threads.filter(|thread| self.leaves_when_free(*thread));
        prop_assert_eq!(leavers, expected.collect(), "idle ones have left");
        Ok(())
    }
}

proptest! {
    #[test]
    fn invariants_hold(events in prop::collection::vec(event(), 0..200)) {
        let mut schedule = Schedule::new();
        for event in events {
            schedule.step(event)?;
            schedule.check()?;
        }
    }
}
