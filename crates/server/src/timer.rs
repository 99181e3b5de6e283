//! A hashed timer wheel: coarse, and cheap where deadlines move far more often than they fire.
//!
//! It holds (time, index) pairs and knows nothing of what they mean. The owner keeps the true deadline; an entry that
//! fires early is simply put in again.

/// How late a timer may fire.
const STEP_MS: u64 = 16;
/// One turn is 65 seconds; entries beyond it come by early.
const STEPS: usize = 4096;
const WORDS: usize = STEPS / 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) due_ms: u64,
    pub(crate) index: u32,
}

pub(crate) struct Wheel {
    steps: Vec<Vec<Entry>>,
    /// A bit per step that has entries.
    occupied: [u64; WORDS],
    /// All steps before this one have fired.
    step_next: u64,
}

impl Wheel {
    pub(crate) fn new(now_ms: u64) -> Wheel {
        Wheel {
            steps: vec![Vec::new(); STEPS],
            occupied: [0; WORDS],
            step_next: now_ms / STEP_MS,
        }
    }

    /// `due_ms` in the past fires with the next `advance` that passes a step.
    pub(crate) fn insert(&mut self, due_ms: u64, index: u32) {
        // Rounded up, so that a whole step has passed its entries' time when it fires.
        let step = due_ms.div_ceil(STEP_MS).max(self.step_next);
        // What lies beyond one turn waits in the last step of this one, and is put in again from there.
        let step = step.min(self.step_next + STEPS as u64 - 1);
        let place = step as usize % STEPS;
        self.steps[place].push(Entry { due_ms, index });
        self.occupied[place / 64] |= 1 << (place % 64);
    }

    /// Moves to `fired` all entries of the steps up to `now_ms`; some may be due only later.
    pub(crate) fn advance(&mut self, now_ms: u64, fired: &mut Vec<Entry>) {
        let step_now = now_ms / STEP_MS;
        if step_now < self.step_next {
            return;
        }
        let count = (step_now - self.step_next + 1).min(STEPS as u64);
        let mut offset = 0;
        while let Some(next) = self
            .occupied_from(offset)
            .filter(|next| *next < count as usize)
        {
            let place = (self.step_next as usize + next) % STEPS;
            // The step gives its memory back: after a burst of connections it would be kept for nothing.
            fired.append(&mut std::mem::take(&mut self.steps[place]));
            self.occupied[place / 64] &= !(1 << (place % 64));
            offset = next + 1;
        }
        self.step_next = step_now + 1;
    }

    /// When `advance` is needed next; None: never.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.occupied_from(0)
            .map(|offset| (self.step_next + offset as u64) * STEP_MS)
    }

    /// The first occupied step at or after `step_next + offset`, counted from `step_next`.
    fn occupied_from(&self, offset: usize) -> Option<usize> {
        let mut offset = offset;
        while offset < STEPS {
            let place = (self.step_next as usize + offset) % STEPS;
            let word = self.occupied[place / 64] >> (place % 64);
            if word != 0 {
                let found = offset + word.trailing_zeros() as usize;
                return (found < STEPS).then_some(found);
            }
            offset += 64 - place % 64;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fired_until(wheel: &mut Wheel, now_ms: u64) -> Vec<u32> {
        let mut fired = Vec::new();
        wheel.advance(now_ms, &mut fired);
        let mut due = Vec::new();
        for entry in fired {
            if entry.due_ms > now_ms {
                wheel.insert(entry.due_ms, entry.index)
            } else {
                due.push(entry.index)
            }
        }
        due.sort_unstable();
        due
    }

    #[test]
    fn empty_wheel_never_wakes() {
        assert_eq!(Wheel::new(5_000).next_ms(), None);
    }

    #[test]
    fn fires_neither_early_nor_more_than_a_step_late() {
        let mut wheel = Wheel::new(1_000);
        wheel.insert(1_100, 1);
        let wake_ms = wheel.next_ms().unwrap();
        assert!((1_100..1_100 + STEP_MS).contains(&wake_ms), "{wake_ms}");
        assert!(fired_until(&mut wheel, 1_099).is_empty());
        assert_eq!(fired_until(&mut wheel, wake_ms), [1]);
        assert_eq!(wheel.next_ms(), None);
    }

    #[test]
    fn past_deadlines_fire_at_the_next_step() {
        let mut wheel = Wheel::new(1_000);
        fired_until(&mut wheel, 2_000);
        wheel.insert(1_500, 9);
        assert_eq!(fired_until(&mut wheel, 2_016), [9]);
    }

    #[test]
    fn far_deadlines_survive_several_turns() {
        let mut wheel = Wheel::new(0);
        wheel.insert(200_000, 3);
        let mut now_ms = 0;
        let mut wakes = 0;
        while now_ms < 200_000 {
            now_ms = wheel.next_ms().unwrap();
            wakes += 1;
            let fired = fired_until(&mut wheel, now_ms);
            assert_eq!(fired.is_empty(), now_ms < 200_000);
        }
        assert!(wakes <= 5);
    }

    #[test]
    fn a_jump_of_days_fires_everything_once() {
        let mut wheel = Wheel::new(7);
        for index in 0..1_000 {
            wheel.insert(u64::from(index) * 61, index);
        }
        let fired = fired_until(&mut wheel, 300_000_000);
        assert_eq!(fired, (0..1_000).collect::<Vec<_>>());
    }

    /// Against a plain list, with a small deterministic generator.
    #[test]
    fn agrees_with_a_list() {
        let mut wheel = Wheel::new(0);
        let mut model: Vec<(u64, u32)> = Vec::new();
        let mut state = 1_u64;
        let mut next = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut now_ms = 0;
        for index in 0..5_000_u32 {
            let due_ms = now_ms + next(150_000);
            wheel.insert(due_ms, index);
            model.push((due_ms, index));
            now_ms += next(400);
            for fired in fired_until(&mut wheel, now_ms) {
                let at = model.iter().position(|(_, i)| *i == fired).unwrap();
                assert!(model.swap_remove(at).0 <= now_ms);
            }
            assert!(
                model.iter().all(|(due_ms, _)| due_ms + STEP_MS > now_ms),
                "missed at {now_ms}"
            );
        }
    }
}
