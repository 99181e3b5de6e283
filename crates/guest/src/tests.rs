//! Both sides of the handoff in one process: the front's calls on one thread, the guest's on others.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use baton_handoff::front::{Body, IoFlags, Segment};
use baton_handoff::layout::Geometry;
use baton_handoff::request::{self, Field};
use baton_handoff::ring::End;
use baton_handoff::slot::Generation;
use baton_handoff::{control, reply};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::process::{Accepted, Process, Thread};
use crate::request::Request;

/// The front's side, and the process that has mapped its segment.
struct Pair {
    front: Segment,
    _flags: IoFlags,
    control: OwnedFd,
    process: Process,
}

impl Pair {
    fn new(threads: u32, slots_per_thread: u32, event_loop: bool) -> Self {
        Self::that(false, threads, slots_per_thread, event_loop)
    }

    fn that(boots_first: bool, threads: u32, slots_per_thread: u32, event_loop: bool) -> Self {
        let geometry = Geometry::new(threads, slots_per_thread).expect("within bounds");
        let front = Segment::create(geometry, event_loop).expect("a segment");
        let flags = IoFlags::create().expect("flags");
        let (control, other) = control::pair().expect("a pair");
        let knocker = eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd");
        let doorbell = front
            .doorbell()
            .map(|fd| fd.try_clone_to_owned().expect("a copy"));
        let mapped = baton_handoff::app::Segment::map(
            front.down_file(),
            front.up_file(),
            flags.file(),
            vec![knocker],
            doorbell,
        );
        let process = Process::new(mapped.expect("mapped"), other, boots_first);
        Self {
            front,
            _flags: flags,
            control,
            process,
        }
    }

    fn offer(&self, slot: u32, generation: Generation, target: &str, body: Body<'_>) {
        let mut fields: [&[u8]; Field::COUNT] = [b""; Field::COUNT];
        fields[Field::Target as usize] = target.as_bytes();
        let mut head = Vec::new();
        request::encode(&mut head, 0, &fields, 0, [].into_iter()).expect("fits");
        self.front.slot(slot).offer(generation, 0, &head, body);
    }

    /// The whole reply of a slot, read as the front reads it.
    fn reply(&self, slot: u32, generation: Generation) -> (u16, Vec<u8>) {
        let slot = self.front.slot(slot);
        let (mut bytes, mut consumed) = (Vec::new(), 0);
        loop {
            let progress = slot.progress(generation, consumed).expect("sense");
            if let Some(progress) = progress {
                slot.copy(consumed, (progress.written - consumed) as usize, &mut bytes);
                consumed = progress.written;
                slot.consume(consumed);
                if progress.end == End::Finished {
                    break;
                }
                assert_eq!(progress.end, End::Open);
            }
            std::thread::yield_now();
        }
        let prefix = bytes[..reply::LENGTH_BYTES].try_into().expect("a length");
        let (head, body) = bytes.split_at(reply::claimed_length(prefix).expect("possible"));
        (
            reply::Head::decode(head).expect("a head").status,
            body.to_vec(),
        )
    }
}

fn answer(mut request: Request<'_>) {
    let target = request.head().field(Field::Target).to_vec();
    let mut body = vec![0; 100_000];
    let len = request.read_body(&mut body).expect("readable");
    request.start(200, [].into_iter()).expect("started");
    request.write(&target).expect("written");
    request.write(&body[..len]).expect("written");
    request.end(End::Finished);
}

fn serve(thread: Thread<'_>) {
    while let Some(request) = thread.accept() {
        answer(request);
    }
}

#[test]
fn several_threads_in_one_process() {
    let pair = Pair::new(4, 1, false);
    std::thread::scope(|scope| {
        for index in 0..4 {
            let process = &pair.process;
            scope.spawn(move || serve(process.attach(index).expect("free")));
        }
        let mut generation = Generation::default();
        for turn in 0..200 {
            generation = generation.next();
            for slot in 0..4 {
                pair.offer(
                    slot,
                    generation,
                    &format!("/{slot}/{turn}"),
                    Body::Memory(b" body"),
                );
            }
            for slot in 0..4 {
                let expected = format!("/{slot}/{turn} body").into_bytes();
                assert_eq!(pair.reply(slot, generation), (200, expected));
            }
        }
        (0..4).for_each(|thread| pair.front.stop(thread));
    });
    assert!(
        pair.process.attach(0).is_none(),
        "a thread is attached once"
    );
}

#[test]
fn a_thread_says_since_when_it_sleeps() {
    let pair = Pair::new(1, 1, false);
    let nap = Duration::from_millis(20);
    std::thread::scope(|scope| {
        assert_eq!(pair.front.asleep_us(0), 0, "it has not begun");
        let begun = Instant::now();
        scope.spawn(|| serve(pair.process.attach(0).expect("free")));
        while !pair.front.is_asleep(0) {
            std::thread::yield_now();
        }
        std::thread::sleep(nap);
        let asleep_us = u128::from(pair.front.asleep_us(0));
        let bounds_us = nap.as_micros()..=begun.elapsed().as_micros() + 1;
        assert!(bounds_us.contains(&asleep_us), "{asleep_us}");
        pair.front.stop(0);
    });
}

#[test]
fn an_event_loop_with_many_slots_waits_on_a_descriptor() {
    const SLOTS: u32 = 8;
    let pair = Pair::new(1, SLOTS, true);
    let slept = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let thread = pair.process.attach(0).expect("free");
            let mut open = Vec::new();
            loop {
                match thread.try_accept() {
                    Accepted::Request(request) => open.push(request),
                    Accepted::Stopped => break,
                    Accepted::Nothing => {
                        // All that came are open at once, and answered last first.
                        while let Some(request) = open.pop() {
                            answer(request);
                        }
                        if thread.arm() {
                            slept.store(true, Ordering::Relaxed);
                            let doorbell = pair.process.segment().doorbell().expect("a doorbell");
                            poll(&mut [PollFd::new(&doorbell, PollFlags::IN)], None)
                                .expect("woken");
                        }
                        thread.disarm();
                    }
                }
            }
        });
        let mut generation = Generation::default();
        for turn in 0..100 {
            if turn % 10 == 0 {
                std::thread::sleep(Duration::from_millis(2));
            }
            generation = generation.next();
            for slot in 0..SLOTS {
                pair.offer(
                    slot,
                    generation,
                    &format!("/{slot}/{turn}"),
                    Body::Memory(b""),
                );
            }
            for slot in 0..SLOTS {
                let expected = format!("/{slot}/{turn}").into_bytes();
                assert_eq!(pair.reply(slot, generation), (200, expected));
            }
        }
        pair.front.stop(0);
    });
    assert!(slept.load(Ordering::Relaxed));
}

#[test]
fn one_bell_is_for_one_thread() {
    let geometry = Geometry::new(2, 4).expect("within bounds");
    assert!(Segment::create(geometry, true).is_err());
}

#[test]
fn a_reply_longer_than_the_ring_waits_for_its_reader() {
    let pair = Pair::new(1, 1, false);
    let generation = Generation::default().next();
    let long: Vec<u8> = (0..1_000_000u32).map(|n| (n % 251) as u8).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let thread = pair.process.attach(0).expect("free");
            let mut request = thread.accept().expect("a request");
            request.start(200, [].into_iter()).expect("started");
            request.write(&long).expect("written");
            request.end(End::Finished);
        });
        pair.offer(0, generation, "/", Body::Memory(b""));
        assert_eq!(pair.reply(0, generation), (200, long.clone()));
    });
}

#[test]
fn a_spooled_body_comes_by_its_descriptor_also_behind_older_ones() {
    let pair = Pair::new(1, 1, false);
    let file = |text: &str| {
        let path = std::env::temp_dir().join(format!("baton-guest-{}-{text}", std::process::id()));
        std::fs::write(&path, text).expect("written");
        let file = std::fs::File::open(&path).expect("opened");
        std::fs::remove_file(&path).expect("removed");
        file
    };
    let send = |generation: Generation, file: &std::fs::File| {
        let numbers = (0, u64::from(generation.bits()));
        let control = pair.control.as_fd();
        control::send(
            control,
            control::Kind::Body,
            numbers,
            &[],
            &[file.as_fd()],
            true,
        )
        .expect("sent");
    };
    let stale = Generation::default().next();
    send(stale, &file("of an offer that was taken back"));
    let generation = stale.next();
    send(generation, &file("the body"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            answer(
                pair.process
                    .attach(0)
                    .expect("free")
                    .accept()
                    .expect("a request"),
            )
        });
        pair.offer(0, generation, "/", Body::File(8));
        assert_eq!(pair.reply(0, generation), (200, b"/the body".to_vec()));
    });
}

#[test]
fn who_gave_up_or_disowned_writes_nothing() {
    let pair = Pair::new(1, 1, false);
    let thread = pair.process.attach(0).expect("free");
    let generation = Generation::default().next();
    pair.offer(0, generation, "/", Body::Memory(b""));
    let mut request = thread.accept().expect("a request");
    pair.front.slot(0).client_gone(generation);
    assert!(request.is_client_gone());
    assert!(request.start(200, [].into_iter()).is_err());
    request.end(End::Abandoned);
    let progress = pair
        .front
        .slot(0)
        .progress(generation, 0)
        .expect("sense")
        .expect("some");
    assert_eq!((progress.written, progress.end), (0, End::Abandoned));

    pair.process.disown();
    pair.offer(0, generation.next(), "/", Body::Memory(b""));
    assert!(thread.accept().is_none());
    assert!(pair.front.slot(0).is_pending(generation.next()));
}

#[test]
fn who_boots_first_is_ready_when_it_accepts() {
    let pair = Pair::that(true, 1, 1, false);
    let heard = || control::receive(pair.control.as_fd(), false);
    let thread = pair.process.attach(0).expect("free");
    let early = pair.process.request_restart(b"while it boots", false);
    assert_eq!(
        early.expect_err("too early").raw_os_error(),
        Some(libc::EBUSY)
    );
    assert!(heard().is_err(), "nothing was to be said so far");
    for _ in 0..3 {
        assert!(matches!(thread.try_accept(), Accepted::Nothing));
    }
    let message = heard().expect("received").expect("not closed");
    assert_eq!(message.kind, control::Kind::Ready);
    assert!(heard().is_err(), "it is ready once only");

    pair.process
        .request_restart("\u{e9}".repeat(150).as_bytes(), true)
        .expect("sent");
    let message = heard().expect("received").expect("not closed");
    assert_eq!(
        (message.kind, message.a),
        (control::Kind::Restart, control::WHOLE_APP)
    );
    assert_eq!(message.text.len(), control::RESTART_REASON_BYTES_MAX);

    assert!(!thread.is_stopping());
    pair.front.stop(0);
    assert!(thread.is_stopping());
    pair.process.disown();
    assert!(
        pair.process
            .request_restart(b"from a child", false)
            .is_err()
    );
}

#[test]
fn a_process_has_booted_when_all_its_threads_have() {
    let pair = Pair::that(true, 2, 1, false);
    let heard = || control::receive(pair.control.as_fd(), false);
    let threads = [0, 1].map(|index| pair.process.attach(index).expect("free"));
    for _ in 0..2 {
        assert!(matches!(threads[0].try_accept(), Accepted::Nothing));
    }
    assert!(heard().is_err(), "the other one still boots");
    assert!(matches!(threads[1].try_accept(), Accepted::Nothing));
    assert!(heard().is_ok_and(|message| message.is_some()));
}
