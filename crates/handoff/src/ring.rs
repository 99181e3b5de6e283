//! The reply ring of a slot: how far the app has written, and how far the front has read.
//!
//! The app's word says everything in one load, so the front can never see the length of one
//! request with the end of another:
//!
//! ```text
//!   63          48 47  44 43                                             0
//!  +--------------+------+------------------------------------------------+
//!  |  generation  | end  |  bytes written since the request began         |
//!  +--------------+------+------------------------------------------------+
//!   low 16 bits     OPEN 0   FINISHED 1   ABANDONED 2   COMPLETE 3
//! ```
//!
//! The front's word is the count of bytes read. Both start at 0 with each request. Bytes lie at
//! `count % RING_BYTES`.
//!
//! Memory: the app's word is a Release store after the bytes were written, and an Acquire load
//! before they are read. The front's word is a Release store after the bytes were read and an
//! Acquire load before they are overwritten. Neither side needs more than its pair.

use crate::layout::RING_BYTES;
use crate::slot::Generation;
use crate::sync::{AtomicU64, ordering};

const WRITTEN_BITS: u32 = 44;
const WRITTEN_MASK: u64 = (1 << WRITTEN_BITS) - 1;
const END_MASK: u64 = 0b1111;
const GENERATION_SHIFT: u32 = 48;

/// 16 TiB: a longer reply is broken off.
pub const REPLY_BYTES_MAX: u64 = WRITTEN_MASK;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// More may come.
    Open,
    /// The reply is complete, and the thread is through with the request.
    Finished,
    /// The app gave up: what was written is all there will be.
    Abandoned,
    /// The reply is complete, but the thread still works on the request.
    Complete,
}

/// What the app says of its reply; a copy, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub written: u64,
    pub end: End,
}

impl Progress {
    /// Whether an honest app can say this after `earlier`: bytes are not unsaid, nor is an end.
    #[must_use]
    pub fn can_follow(self, earlier: Self) -> bool {
        let end = match earlier.end {
            End::Open => true,
            End::Complete => matches!(self.end, End::Finished | End::Abandoned),
            End::Finished | End::Abandoned => false,
        };
        self == earlier || (end && self.written >= earlier.written)
    }
}

/// App: `written` bytes of `generation` may be read, and whether they are all.
#[inline]
pub(crate) fn publish(word: &AtomicU64, generation: Generation, progress: Progress) {
    let end = match progress.end {
        End::Open => 0,
        End::Finished => 1,
        End::Abandoned => 2,
        End::Complete => 3,
    };
    let bits = u64::from(generation.bits() & 0xffff) << GENERATION_SHIFT
        | end << WRITTEN_BITS
        | progress.written & WRITTEN_MASK;
    word.store(bits, ordering!(Release, mutant = "publish_relaxed"));
}

/// The app broke the rules of the ring: its word cannot be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonsense;

/// Front: what there is to read, given how much it has consumed. `None`: nothing said yet for
/// this generation.
#[inline]
pub(crate) fn observe(
    word: &AtomicU64,
    generation: Generation,
    consumed: u64,
) -> Result<Option<Progress>, Nonsense> {
    let bits = word.load(ordering!(Acquire, mutant = "observe_relaxed"));
    #[cfg(not(mutant = "observe_any_generation"))]
    if bits >> GENERATION_SHIFT != u64::from(generation.bits() & 0xffff) {
        return Ok(None);
    }
    let end = match bits >> WRITTEN_BITS & END_MASK {
        0 => End::Open,
        1 => End::Finished,
        2 => End::Abandoned,
        3 => End::Complete,
        _ => return Err(Nonsense),
    };
    let written = bits & WRITTEN_MASK;
    match written.checked_sub(consumed) {
        Some(unread) if unread <= RING_BYTES as u64 => Ok(Some(Progress { written, end })),
        _ => Err(Nonsense),
    }
}

/// Front: everything before `consumed` has been read; the app may write over it.
#[inline]
pub(crate) fn consume(word: &AtomicU64, consumed: u64) {
    word.store(consumed, ordering!(Release, mutant = "consume_relaxed"));
}

/// App: bytes that may be written now. None if more was consumed than this writer wrote: then something else in the
/// process has written to the reply's word.
#[inline]
pub(crate) fn room(consumed: &AtomicU64, written: u64) -> usize {
    let consumed = consumed.load(ordering!(Acquire, mutant = "room_relaxed"));
    match written.checked_sub(consumed) {
        Some(unread) => RING_BYTES.saturating_sub(unread as usize),
        None => 0,
    }
}

/// The one or two stretches of the ring that hold `len` bytes from `position` on.
#[inline]
pub(crate) fn stretches(position: u64, len: usize) -> [(usize, usize); 2] {
    let start = (position % RING_BYTES as u64) as usize;
    let first = len.min(RING_BYTES - start);
    [(start, first), (0, len - first)]
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn word_of(bits: u64) -> AtomicU64 {
        AtomicU64::new(bits)
    }

    #[test]
    fn what_is_published_is_observed() {
        let word = word_of(0);
        let generation = Generation::from_bits(0x12_3456);
        for end in [End::Open, End::Finished, End::Abandoned, End::Complete] {
            let progress = Progress {
                written: 200_000,
                end,
            };
            publish(&word, generation, progress);
            assert_eq!(observe(&word, generation, 10), Ok(Some(progress)));
            assert_eq!(observe(&word, generation.next(), 10), Ok(None));
        }
    }

    #[test]
    fn impossible_words_are_nonsense() {
        let generation = Generation::from_bits(7);
        let tagged = |low: u64| word_of(7 << GENERATION_SHIFT | low);
        let more_than_the_ring = RING_BYTES as u64 + 1;
        assert_eq!(
            observe(&tagged(more_than_the_ring), generation, 0),
            Err(Nonsense)
        );
        assert_eq!(observe(&tagged(5), generation, 6), Err(Nonsense));
        assert_eq!(
            observe(&tagged(4 << WRITTEN_BITS), generation, 0),
            Err(Nonsense)
        );
        assert_eq!(observe(&tagged(WRITTEN_MASK), generation, 0), Err(Nonsense));
    }

    #[test]
    fn there_is_room_for_what_was_consumed_and_none_for_impossible_words() {
        let ring = RING_BYTES as u64;
        assert_eq!(room(&word_of(0), 0), RING_BYTES);
        assert_eq!(room(&word_of(10), 15), RING_BYTES - 5);
        assert_eq!(room(&word_of(0), ring), 0);
        assert_eq!(room(&word_of(0), ring + 1), 0);
        assert_eq!(room(&word_of(16), 15), 0);
    }

    #[test]
    fn what_was_said_stays_said() {
        let said = |written, end| Progress { written, end };
        let open = said(10, End::Open);
        assert!(open.can_follow(open));
        assert!(said(20, End::Open).can_follow(open));
        assert!(said(10, End::Complete).can_follow(open));
        assert!(!said(9, End::Finished).can_follow(open));
        assert!(said(10, End::Finished).can_follow(said(10, End::Complete)));
        assert!(!said(20, End::Open).can_follow(said(10, End::Complete)));
        for end in [End::Finished, End::Abandoned] {
            assert!(said(10, end).can_follow(said(10, end)));
            assert!(!said(20, end).can_follow(said(10, end)));
            assert!(!said(10, End::Complete).can_follow(said(10, end)));
        }
    }

    #[test]
    fn stretches_wrap() {
        assert_eq!(stretches(0, 10), [(0, 10), (0, 0)]);
        let near_end = 3 * RING_BYTES as u64 - 4;
        assert_eq!(stretches(near_end, 10), [(RING_BYTES - 4, 4), (0, 6)]);
        assert_eq!(stretches(5, RING_BYTES), [(5, RING_BYTES - 5), (0, 5)]);
    }
}
