//! The atomics of the protocols: std's, or loom's when their interleavings are explored.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// `Ordering::$needed`; `Relaxed` in the mutant of that name, which a model test must catch.
macro_rules! ordering {
    ($needed:ident, mutant = $name:literal) => {
        if cfg!(mutant = $name) {
            $crate::sync::Ordering::Relaxed
        } else {
            $crate::sync::Ordering::$needed
        }
    };
}
pub(crate) use ordering;
