//! The protocols together: no schedule leaves a request, a reply or a wait for room behind.

use loom::thread;
use std::sync::Arc;

use super::{PIECE_BYTES, Slot, exhaustively, first, piece, second, within};
use crate::layout::RING_BYTES;
use crate::ring::End;
use crate::slot::Generation;
use crate::sync::Ordering;
use crate::wake::{ASLEEP, IN_EVENT_LOOP, announce, retire};

/// The app's answer to a request: one piece, ten times the request.
fn serve(slot: &Slot, generation: Generation) {
    piece(slot, 0).write(10 * slot.request.read());
    slot.publish(generation, PIECE_BYTES, End::Finished);
    slot.knock();
}

/// An app thread that serves `requests`, sleeping where it finds none.
fn spawn_app(slot: &Arc<Slot>, requests: usize) -> thread::JoinHandle<()> {
    let there = slot.clone();
    thread::spawn(move || {
        for _ in 0..requests {
            serve(&there, there.accept());
        }
    })
}

/// Offer and rouse against `sleep_until`.
#[test]
fn an_offer_reaches_a_sleeper() {
    exhaustively(|| {
        let slot = Slot::new();
        let there = slot.clone();
        let app = thread::spawn(move || (there.accept(), there.request.read()));
        slot.offer(first(), 1);
        assert_eq!(app.join().expect("the app ends"), (first(), 1));
    });
}

/// Finish and knock against an I/O thread's announce and scan.
#[test]
fn a_reply_reaches_a_sleeper() {
    exhaustively(|| {
        let slot = Slot::new();
        slot.place(first(), 1);
        let app = spawn_app(&slot, 1);
        slot.wait_in_epoll(|| slot.is_over(first(), 0));
        assert_eq!(piece(&slot, 0).read(), 10);
        app.join().expect("the app ends");
    });
}

/// There and back, twice through one slot.
#[test]
fn two_requests_go_there_and_back() {
    within(3, || {
        let slot = Slot::new();
        let app = spawn_app(&slot, 2);
        for (generation, request) in [(first(), 1), (second(), 2)] {
            slot.offer(generation, request);
            slot.wait_in_epoll(|| slot.is_over(generation, 0));
            assert_eq!(piece(&slot, 0).read(), 10 * request);
        }
        app.join().expect("the app ends");
    });
}

/// An offer is taken back while the thread wakes for it, or before it sleeps, and another made:
/// one of the two is run, and the thread does not sleep through it.
#[test]
fn an_offer_that_follows_a_retract_reaches_a_sleeper() {
    within(4, || {
        let slot = Slot::new();
        let there = slot.clone();
        let app = thread::spawn(move || (there.accept(), there.request.read()));
        slot.offer(first(), 1);
        let back = slot.retract(first());
        if back {
            slot.offer(second(), 2);
        }
        let expected = if back { (second(), 2) } else { (first(), 1) };
        assert_eq!(app.join().expect("the app ends"), expected);
    });
}

/// An I/O thread with too many slots to look through leaves its mark up and goes by the knocks.
/// Once it has looked through all of them after it put the mark up, a knock comes with each news.
#[test]
fn a_mark_that_stays_up_has_each_news_knocked() {
    exhaustively(|| {
        let slot = Slot::new();
        let there = slot.clone();
        let app = thread::spawn(move || {
            for (written, end) in [(PIECE_BYTES, End::Open), (2 * PIECE_BYTES, End::Finished)] {
                piece(&there, written - PIECE_BYTES).write(1);
                there.publish(first(), written, end);
                there.knock();
            }
        });
        announce(&slot.asleep, ASLEEP);
        while !slot.is_over(first(), 0) {
            slot.knocker.wait();
            slot.knocker.empty();
        }
        app.join().expect("the app ends");
    });
}

/// A thread that waits for room is woken by what is read, or by the news that nobody will read.
fn wait_for_room(client_stays: bool) {
    exhaustively(move || {
        let slot = Slot::new();
        let full = RING_BYTES as u64;
        for position in [0, PIECE_BYTES] {
            piece(&slot, position).write(1);
        }
        slot.publish(first(), full, End::Open);

        let there = slot.clone();
        let app = thread::spawn(move || {
            let is_gone = || there.gone.load(Ordering::Acquire) != 0;
            there.sleep_until(|| there.room(full) > 0 || is_gone());
            if there.room(full) > 0 {
                piece(&there, full).write(2);
            } else {
                assert!(is_gone());
            }
        });
        if client_stays {
            assert_eq!(piece(&slot, 0).read(), 1);
            slot.consume(PIECE_BYTES);
        } else {
            slot.gone.store(1, Ordering::Release);
        }
        slot.rouse();
        app.join().expect("the app ends");
    });
}

#[test]
fn a_writer_waits_for_room() {
    wait_for_room(true);
}

#[test]
fn a_writer_does_not_wait_for_a_client_that_left() {
    wait_for_room(false);
}

/// An app thread in an event loop: `guest::Thread::{arm, disarm, try_accept}`.
#[test]
fn an_offer_reaches_an_event_loop() {
    within(3, || {
        let slot = Slot::new();
        let there = slot.clone();
        let app = thread::spawn(move || {
            let mut served = 0;
            while served < 2 {
                while let Some(generation) = there.take() {
                    serve(&there, generation);
                    served += 1;
                }
                announce(&there.wake, IN_EVENT_LOOP);
                if served < 2 && !crate::slot::is_offered(&there.state) {
                    there.doorbell.wait();
                }
                retire(&there.wake);
                there.doorbell.empty();
            }
        });
        for (generation, request) in [(first(), 1), (second(), 2)] {
            slot.offer(generation, request);
            slot.wait_in_epoll(|| slot.is_over(generation, 0));
            assert_eq!(piece(&slot, 0).read(), 10 * request);
        }
        app.join().expect("the app ends");
    });
}
