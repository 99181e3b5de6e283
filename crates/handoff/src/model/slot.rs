//! The slot's transitions: each request is run by the thread or goes back to the queue, never
//! both and never neither.

use loom::thread;

use super::{PIECE_BYTES, Slot, exhaustively, first, piece, second};
use crate::ring::End;

/// `offer_ms` passes while the app is about to take.
#[test]
fn an_offer_is_run_or_comes_back() {
    exhaustively(|| {
        let slot = Slot::new();
        let there = slot.clone();
        let app = thread::spawn(move || {
            there
                .take()
                .map(|generation| (generation, there.request.read()))
        });
        slot.place(first(), 1);
        let back = slot.retract(first());
        if back {
            // The place is free: the app must not be reading there.
            slot.request.write(2);
        }
        match app.join().expect("the app ends") {
            Some(run) => assert_eq!((run, back), ((first(), 1), false)),
            None => assert!(back),
        }
    });
}

/// The front takes an offer back and makes the next into the same slot, while the app may still
/// have the first before its eyes.
#[test]
fn the_next_offer_is_not_taken_for_the_former() {
    exhaustively(|| {
        let slot = Slot::new();
        let there = slot.clone();
        let app = thread::spawn(move || {
            let mut run = [const { None }; 2];
            for taken in &mut run {
                *taken = there
                    .take()
                    .map(|generation| (generation, there.request.read()));
            }
            run
        });
        slot.place(first(), 1);
        let first_came_back = slot.retract(first());
        if first_came_back {
            slot.place(second(), 2);
        }
        let run = app.join().expect("the app ends");
        let times = |wanted| run.iter().flatten().filter(|run| **run == wanted).count();
        let (first_run, second_run) = (times((first(), 1)), times((second(), 2)));
        // No request under another's generation, none twice.
        assert_eq!(run.iter().flatten().count(), first_run + second_run);
        assert_eq!(first_run + usize::from(first_came_back), 1);
        if first_came_back {
            assert_eq!(second_run + usize::from(slot.retract(second())), 1);
        } else {
            assert_eq!(second_run, 0);
        }
    });
}

/// How far an app thread comes before its process dies. Within `take` it can also die between
/// its load and its compare-and-swap, which leaves the same words as before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Step {
    NotTaken,
    Taken,
    HalfReplied,
    Complete,
    Finished,
}

/// What becomes of a request, by the front's own table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Queued,
    Failed,
    Replied,
}

/// Runs until `death`, and tells the test, not the front, how far it came.
fn live_until(slot: &Slot, death: Step) -> Step {
    if death == Step::NotTaken {
        return Step::NotTaken;
    }
    let Some(generation) = slot.take() else {
        return Step::NotTaken;
    };
    assert_eq!(slot.request.read(), 1);
    if death >= Step::HalfReplied {
        piece(slot, 0).write(1);
        slot.publish(generation, PIECE_BYTES, End::Open);
    }
    if death >= Step::Complete {
        slot.publish(generation, PIECE_BYTES, End::Complete);
    }
    if death == Step::Finished {
        slot.publish(generation, PIECE_BYTES, End::Finished);
    }
    death
}

/// What the front decides once it knows that the process is dead: from now on the words rest.
fn settle(slot: &Slot) -> Fate {
    match slot.progress(first(), 0) {
        Some(progress) if matches!(progress.end, End::Complete | End::Finished) => {
            assert_eq!(piece(slot, 0).read(), 1);
            Fate::Replied
        }
        None if slot.retract(first()) => Fate::Queued,
        _ => Fate::Failed,
    }
}

/// `hasty`: the front also takes the offer back while the app lives.
fn die(death: Step, hasty: bool) {
    exhaustively(move || {
        let slot = Slot::new();
        let there = slot.clone();
        let app = thread::spawn(move || live_until(&there, death));
        slot.place(first(), 1);
        let back = hasty && slot.is_pending(first()) && slot.retract(first());
        // The pidfd says that the process has ended.
        let came_to = app.join().expect("the app ends");
        let fate = if back { Fate::Queued } else { settle(&slot) };
        let expected = match came_to {
            Step::NotTaken => Fate::Queued,
            Step::Taken | Step::HalfReplied => Fate::Failed,
            Step::Complete | Step::Finished => Fate::Replied,
        };
        assert_eq!(fate, expected);
        // Decided: there is nothing left that could be taken back a second time.
        assert!(!slot.retract(first()));
    });
}

#[test]
fn of_an_app_that_dies_each_request_has_one_fate() {
    for death in [
        Step::NotTaken,
        Step::Taken,
        Step::HalfReplied,
        Step::Complete,
        Step::Finished,
    ] {
        die(death, false);
        die(death, true);
    }
}
