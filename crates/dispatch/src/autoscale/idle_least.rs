//! How many threads nobody needed for a long time.

use std::collections::VecDeque;

/// The fewest threads that were idle at once over a time that is known only roughly: it is counted in
/// [`IdleLeast::PARTS`] parts, and the part that has just begun counts too.
#[derive(Debug, Default)]
pub(super) struct IdleLeast {
    /// Ended parts, the oldest first.
    parts: VecDeque<usize>,
    part: usize,
    part_since_ms: Option<u64>,
}

impl IdleLeast {
    const PARTS: u64 = 8;

    /// `least` were idle at any moment since the last look. Returns how many in the whole time; none, before it has passed.
    pub(super) fn seen(&mut self, least: usize, whole_ms: u64, now_ms: u64) -> usize {
        let part_ms = (whole_ms / Self::PARTS).max(1);
        let Some(since_ms) = self.part_since_ms else {
            self.part_since_ms = Some(now_ms);
            self.part = least;
            return 0;
        };
        self.part = self.part.min(least);
        let ended = now_ms.saturating_sub(since_ms) / part_ms;
        for _ in 0..ended.min(Self::PARTS) {
            // After the first of them the same time is meant: looks are rare while nothing happens.
            self.parts.push_back(self.part);
            self.part = least;
        }
        self.part_since_ms = Some(since_ms + ended * part_ms);
        while self.parts.len() as u64 > Self::PARTS {
            self.parts.pop_front();
        }
        match self.parts.len() as u64 == Self::PARTS {
            true => self.parts.iter().copied().fold(self.part, usize::min),
            false => 0,
        }
    }

    pub(super) fn stopped(&mut self, count: usize) {
        for part in self.parts.iter_mut().chain([&mut self.part]) {
            *part = part.saturating_sub(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_idle_if_they_were_all_the_time() {
        let mut idle = IdleLeast::default();
        assert_eq!(idle.seen(9, 8000, 0), 0);
        for now_ms in (1000..8000).step_by(1000) {
            assert_eq!(idle.seen(5, 8000, now_ms), 0);
        }
        assert_eq!(idle.seen(5, 8000, 8000), 5);
        assert_eq!(idle.seen(2, 8000, 8100), 2);
        idle.stopped(1);
        assert_eq!(idle.seen(4, 8000, 9000), 1);
        assert_eq!(idle.seen(4, 8000, 17_900), 4, "a long time ago");
    }
}
