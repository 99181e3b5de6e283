//! The wake handshake: nobody is woken who does not sleep, and nobody sleeps through news.
//!
//! One word per sleeper. The sleeper writes it before it sleeps and looks for news once more;
//! the other side publishes its news and then looks at the word.
//!
//! ```text
//!   sleeper                            publisher
//!   word = ASLEEP                      news = ...          (Release)
//!   fence(SeqCst)            (1)       fence(SeqCst)  (2)
//!   news? then do not sleep            word != AWAKE? then wake
//!   sleep
//!   word = AWAKE
//! ```
//!
//! Why nothing is lost: the two fences are ordered. If (1) comes before (2), the publisher's load
//! sees the sleeper's mark and wakes it. If (2) comes before (1), the sleeper's second look sees
//! the news. Without either fence both loads may be old (store buffering), and both sides wait.
//! That the news itself is seen whole is the business of its own Release/Acquire pair.
//!
//! A publisher that may write the word takes the mark down by a swap. If the swap finds it taken
//! down already, then either another publisher did that, and wakes; or the sleeper did, and if it
//! marks the word again then its second look comes after the publisher's fence.
//!
//! An app thread's word lies in memory that the app may write, so a hostile app can only miss its
//! own wakes or have the front make a useless system call. The front's word lies in a page that
//! only the front can write.

use rustix::time::{ClockId, clock_gettime};

use crate::sync::{AtomicU32, Ordering, fence};

/// Does not sleep: nothing to do for it.
pub const AWAKE: u32 = 0;
/// Sleeps on this word as a futex (app thread), or in `epoll_wait` (I/O thread).
pub const ASLEEP: u32 = 1;
/// Sleeps in its event loop: ring the process's doorbell, a socket.
pub const IN_EVENT_LOOP: u32 = 2;

/// What both sides read of the clock.
pub(crate) fn monotonic_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Since the machine started: never negative.
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000
}

/// Sleeper: about to sleep. Look for news once more after this, before sleeping.
#[inline]
pub fn announce(word: &AtomicU32, how: u32) {
    mark(word, how);
    #[cfg(not(mutant = "announce_without_fence"))]
    fence(Ordering::SeqCst);
}

/// Sleeper: calls `sleep` until `ready`, which is asked again after each sleep. `sleep` returns
/// when it was woken, or earlier.
#[inline]
pub(crate) fn park(
    word: &AtomicU32,
    how: u32,
    mut ready: impl FnMut() -> bool,
    mut sleep: impl FnMut(),
) {
    while !ready() {
        announce(word, how);
        #[cfg(not(mutant = "park_without_second_look"))]
        if ready() {
            break;
        }
        sleep();
    }
    retire(word);
}

/// Sleeper: not sleeping (any more).
#[inline]
pub fn retire(word: &AtomicU32) {
    mark(word, AWAKE);
}

/// Publisher, after its news: how the sleeper is to be woken, or [`AWAKE`].
#[inline]
pub fn look(word: &AtomicU32) -> u32 {
    #[cfg(not(mutant = "look_without_fence"))]
    fence(Ordering::SeqCst);
    word.load(Ordering::Relaxed)
}

/// Publisher that may write the word: as [`look`], and takes the mark down, so that a burst of
/// news wakes once. A futex sleeper that is between its mark and the system call finds the word
/// changed and does not sleep.
#[inline]
pub fn claim(word: &AtomicU32) -> u32 {
    match look(word) {
        AWAKE => AWAKE,
        #[cfg(mutant = "claim_leaves_mark")]
        how => how,
        #[cfg(not(mutant = "claim_leaves_mark"))]
        _ => word.swap(AWAKE, Ordering::Relaxed),
    }
}

#[cfg(not(loom))]
#[inline]
fn mark(word: &AtomicU32, how: u32) {
    word.store(how, Ordering::Relaxed);
}

/// A swap whose result nobody looks at. Loom does not know that a store which comes after the
/// value that a swap read also comes after the swap, and would let `look` return the swap's AWAKE
/// when the mark has long been set again.
#[cfg(loom)]
fn mark(word: &AtomicU32, how: u32) {
    word.swap(how, Ordering::Relaxed);
}
