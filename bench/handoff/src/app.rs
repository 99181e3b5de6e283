//! An application process: one thread, which computes for as long as it was told, and answers.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};

use baton_handoff::app::{ReplyWriter, Segment, Taken};
use baton_handoff::control::{self, Kind};
use baton_handoff::reply::encode;
use baton_handoff::request::Field;
use baton_handoff::ring::End;
use baton_handoff::schedule;
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::queue::{Pull, Queue};
use crate::reply::{BODY, headers};

/// The argument of a process that the front has started.
pub const ROLE: &str = "app";
const THREAD: u32 = 0;
/// Turns of [`work`] that are timed to know how many make a nanosecond.
const TRIAL: u64 = 2_000_000;

/// For the front: starts a process of its own, with what the message carries.
pub fn start(
    turns: u64,
    how: &[u8],
    descriptors: &[std::os::fd::BorrowedFd<'_>],
) -> io::Result<()> {
    let (front, other) = control::pair()?;
    Command::new(std::env::current_exe()?)
        .arg(ROLE)
        .stdin(Stdio::from(other))
        .spawn()?;
    let numbers = (turns, u64::from(std::process::id()));
    control::send(front.as_fd(), Kind::Fork, numbers, how, descriptors, true)
}

/// The message's numbers: turns of work, and the front's process. Text: how it gets its requests.
pub fn run() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let message =
        control::receive(io::stdin().as_fd(), true)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    // A front that ended before the signal was asked for sends none.
    if u64::from(std::os::unix::process::parent_id()) != message.b {
        return Ok(());
    }
    let mut descriptors = message.descriptors.into_iter();
    let mut next = || descriptors.next().ok_or(io::ErrorKind::UnexpectedEof);
    let (down, up, flags) = (next()?, next()?, next()?);
    let queue = match &message.text[..] {
        b"direct" => None,
        _ => Some(Queue::map(next()?)?),
    };
    let knockers: Vec<OwnedFd> = descriptors.collect();
    let segment = Segment::map(down.as_fd(), up.as_fd(), flags.as_fd(), knockers, None)?;
    schedule::app_thread();
    let turns = message.a;
    match queue {
        None => run_direct(&segment, turns),
        Some(queue) if message.text == b"semaphore" => {
            run_pulled(&segment, queue, &queue.semaphore, turns)
        }
        Some(queue) => run_pulled(&segment, queue, &queue.blocking, turns),
    }
}

fn run_direct(segment: &Segment, turns: u64) -> ! {
    let mut last = 0;
    loop {
        while let Some(taken) = segment.take(THREAD, last) {
            last = taken.slot;
            answer(segment, taken, turns).publish(segment, End::Finished);
        }
        segment.sleep_until(THREAD, || segment.has_offer(THREAD));
    }
}

fn run_pulled(segment: &Segment, queue: &Queue, pull: &impl Pull, turns: u64) -> ! {
    let slots = segment.geometry().slots();
    loop {
        let slot = pull.pop();
        // It looks first at the slot behind the last one.
        let before = (slot + slots - 1) % slots;
        let taken = segment
            .take(THREAD, before)
            .expect("what was queued was offered before");
        let mut writer = answer(segment, taken, turns);
        // Told first: publishing knocks.
        queue.finished(slot);
        writer.publish(segment, End::Finished);
    }
}

fn answer(segment: &Segment, taken: Taken, turns: u64) -> ReplyWriter {
    let (head, _) = segment
        .request(taken)
        .expect("our own front tells the truth");
    let seed = head.field(Field::Target).len() as u64;
    let mut bytes = Vec::with_capacity(256);
    let work = work(turns, seed).to_ne_bytes().map(printable);
    encode(&mut bytes, 200, headers(&work).into_iter()).expect("short");
    bytes.extend_from_slice(BODY);
    let mut writer = ReplyWriter::new(taken);
    let written = writer.copy_in(segment, &bytes);
    assert_eq!(written, bytes.len(), "an empty ring has room");
    writer
}

/// So that nobody can leave the work out, its result is a part of the reply.
fn printable(byte: u8) -> u8 {
    b'a' + byte % 26
}

/// Computes: each turn needs the result of the one before.
fn work(turns: u64, seed: u64) -> u64 {
    (0..turns).fold(seed | 1, |x, _| {
        let x = x ^ x << 13;
        let x = x ^ x >> 7;
        x ^ x << 17
    })
}

/// How many turns take so long here, on a core of one's own.
pub fn turns_in(work_ns: u64) -> u64 {
    let trial = || {
        let begin = std::time::Instant::now();
        std::hint::black_box(work(TRIAL, std::hint::black_box(7)));
        begin.elapsed().as_nanos() as u64
    };
    let shortest_ns = (0..5).map(|_| trial()).min().unwrap_or(1).max(1);
    work_ns * TRIAL / shortest_ns
}
