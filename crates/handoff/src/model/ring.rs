//! The reply ring: bytes are read whole, overwritten only when read, and belong to the request
//! whose generation they bear.

use loom::thread;

use super::{PIECE_BYTES, Slot, exhaustively, first, piece, second};
use crate::layout::RING_BYTES;
use crate::ring::End;
use crate::slot::Generation;

/// Writes `values` as a reply, waiting for room where there is none.
fn reply(slot: &Slot, generation: Generation, values: &[u32]) {
    let mut written = 0;
    for (index, value) in values.iter().enumerate() {
        while (slot.room(written) as u64) < PIECE_BYTES {
            thread::yield_now();
        }
        piece(slot, written).write(*value);
        written += PIECE_BYTES;
        let end = if index + 1 == values.len() {
            End::Finished
        } else {
            End::Open
        };
        slot.publish(generation, written, end);
    }
}

/// Reads a reply to its end.
fn read(slot: &Slot, generation: Generation) -> Vec<u32> {
    let mut values = Vec::new();
    let mut consumed = 0;
    loop {
        let Some(progress) = slot.progress(generation, consumed) else {
            thread::yield_now();
            continue;
        };
        if consumed < progress.written {
            while consumed < progress.written {
                values.push(piece(slot, consumed).read());
                consumed += PIECE_BYTES;
            }
            slot.consume(consumed);
        }
        if progress.end != End::Open {
            return values;
        }
        thread::yield_now();
    }
}

/// Three pieces through a ring of two.
#[test]
fn a_long_reply_comes_whole() {
    exhaustively(|| {
        let slot = Slot::new();
        let there = slot.clone();
        let app = thread::spawn(move || reply(&there, first(), &[1, 2, 3]));
        assert_eq!(read(&slot, first()), [1, 2, 3]);
        app.join().expect("the app ends");
    });
}

/// The former reply's word still says that it is finished when the next request is offered, and
/// its count of bytes read still stands until the offer: neither is taken for the new one's.
#[test]
fn a_former_reply_is_not_taken_for_the_new_one() {
    exhaustively(|| {
        let slot = Slot::new();
        reply(&slot, first(), &[1]);
        assert_eq!(read(&slot, first()), [1]);

        let there = slot.clone();
        let app = thread::spawn(move || {
            let Some(generation) = there.take() else {
                return false;
            };
            assert_eq!((generation, there.request.read()), (second(), 2));
            assert_eq!(there.room(0), RING_BYTES);
            reply(&there, generation, &[20]);
            true
        });
        slot.place(second(), 2);
        if slot.progress(second(), 0).is_some() {
            assert_eq!(read(&slot, second()), [20]);
        }
        if app.join().expect("the app ends") {
            assert_eq!(read(&slot, second()), [20]);
        } else {
            assert_eq!(slot.progress(second(), 0), None);
        }
    });
}

/// Two requests one after the other, each reply longer than what fits: the second begins in bytes
/// that the front has read of the first.
#[test]
fn a_ring_is_used_again() {
    exhaustively(|| {
        let slot = Slot::new();
        let there = slot.clone();
        let app = thread::spawn(move || {
            for _ in 0..2 {
                let generation = loop {
                    match there.take() {
                        Some(generation) => break generation,
                        None => thread::yield_now(),
                    }
                };
                reply(&there, generation, &[10 * there.request.read()]);
            }
        });
        for (generation, request) in [(first(), 1), (second(), 2)] {
            slot.place(generation, request);
            assert_eq!(read(&slot, generation), [10 * request]);
        }
        app.join().expect("the app ends");
    });
}
