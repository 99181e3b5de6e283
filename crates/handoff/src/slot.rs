//! A slot's state word: which request it holds, and whether the app has it.
//!
//! ```text
//!   31                                2 1   0
//!  +-----------------------------------+-----+
//!  |            generation             |state|      FREE 0   OFFERED 1   TAKEN 2
//!  +-----------------------------------+-----+
//!
//!             front: offer(g)                   app: take
//!   any ────────────────────────► OFFERED, g ─────────────► TAKEN, g
//!                                     │
//!                                     │ front: retract(g)
//!                                     ▼
//!                                  FREE, g
//! ```
//!
//! The front offers only into a slot that its own table says is idle, so it never overwrites a
//! request that runs. The two transitions out of OFFERED are compare-and-swaps of the whole word,
//! so exactly one of them wins: a request is run by this thread or goes back to the queue, never
//! both. The generation keeps an app that was stopped for long from taking the next offer for the
//! one it saw. TAKEN is final for its generation: that the reply is complete is said by the reply
//! word, under the same generation.
//!
//! Memory: `offer` is a Release store after the request was written; `take` is an Acquire
//! compare-and-swap before it is read.
//!
//! A lying app can write any word here. It then fails to get its requests, or has them failed by
//! the deadline: the front acts on the outcome of its own compare-and-swap only.

use crate::sync::{AtomicU32, Ordering, ordering};

const FREE: u32 = 0;
const OFFERED: u32 = 1;
const TAKEN: u32 = 2;
const STATE_MASK: u32 = 0b11;

/// Counts the requests of a slot; wraps around.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub struct Generation(u32);

impl Generation {
    const MASK: u32 = u32::MAX >> 2;

    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.wrapping_add(1) & Self::MASK)
    }

    pub fn from_bits(bits: u32) -> Self {
        Self(bits & Self::MASK)
    }

    pub fn bits(self) -> u32 {
        self.0
    }

    fn with(self, state: u32) -> u32 {
        self.0 << 2 | state
    }
}

/// Front: the request of `generation` lies in the cell; the app may take it.
#[inline]
pub(crate) fn offer(state: &AtomicU32, generation: Generation) {
    state.store(
        generation.with(OFFERED),
        ordering!(Release, mutant = "offer_relaxed"),
    );
}

/// App: is there something to take?
#[inline]
pub(crate) fn is_offered(state: &AtomicU32) -> bool {
    state.load(Ordering::Relaxed) & STATE_MASK == OFFERED
}

/// App: take what is offered; the request may be read afterwards.
#[inline]
pub(crate) fn take(state: &AtomicU32) -> Option<Generation> {
    let seen = state.load(Ordering::Relaxed);
    if seen & STATE_MASK != OFFERED {
        return None;
    }
    let generation = Generation::from_bits(seen >> 2);
    #[cfg(mutant = "take_any_generation")]
    let seen = state.load(Ordering::Relaxed);
    #[cfg(mutant = "take_without_cas")]
    return compare_then_store(state, seen, generation.with(TAKEN)).then_some(generation);
    #[cfg(not(mutant = "take_without_cas"))]
    state
        .compare_exchange(
            seen,
            generation.with(TAKEN),
            ordering!(Acquire, mutant = "take_relaxed"),
            Ordering::Relaxed,
        )
        .ok()
        .map(|_| generation)
}

/// Front: take an offer back. `false`: the app has it (or says so).
#[inline]
pub(crate) fn retract(state: &AtomicU32, generation: Generation) -> bool {
    #[cfg(mutant = "retract_without_cas")]
    return compare_then_store(state, generation.with(OFFERED), generation.with(FREE));
    #[cfg(not(mutant = "retract_without_cas"))]
    state
        .compare_exchange(
            generation.with(OFFERED),
            generation.with(FREE),
            Ordering::Relaxed,
            Ordering::Relaxed,
        )
        .is_ok()
}

/// Front: is the offer still lying there? A hint, for what waits too long.
#[inline]
pub(crate) fn is_pending(state: &AtomicU32, generation: Generation) -> bool {
    state.load(Ordering::Relaxed) == generation.with(OFFERED)
}

/// What the mutants do in place of a compare-and-swap.
#[cfg(any(mutant = "take_without_cas", mutant = "retract_without_cas"))]
fn compare_then_store(state: &AtomicU32, from: u32, to: u32) -> bool {
    let same = state.load(Ordering::Acquire) == from;
    if same {
        state.store(to, Ordering::Relaxed);
    }
    same
}
