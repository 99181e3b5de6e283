//! Which target the next request goes to: by weight, among those whose window is open.

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::span::{SECOND_NS, Span};

const CHANGES_MAX: usize = 1_000_000;

/// A target is asked for from `from` to `to` of each `every`, counted from the start of the load.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    pub every: Span,
    pub from: Span,
    pub to: Span,
}

impl Window {
    pub fn check(&self) -> Result<(), String> {
        match self.from < self.to && self.to <= self.every {
            true => Ok(()),
            false => Err(format!(
                "the window from {} to {} of every {} is empty or too long: from < to <= every is needed",
                self.from, self.to, self.every
            )),
        }
    }

    /// Is it open, and until when does that stay so?
    fn at(&self, now_ns: u64) -> (bool, u64) {
        let (every, from, to) = (self.every.ns(), self.from.ns(), self.to.ns());
        let begin = now_ns - now_ns % every;
        match now_ns - begin {
            within if within < from => (false, begin + from),
            within if within < to => (true, begin + to),
            _ => (false, begin + every + from),
        }
    }
}

#[derive(Clone)]
pub struct Mix {
    entries: Vec<(u32, Option<Window>)>,
    /// The open targets with the sums of their weights, up to each.
    open: Vec<(u64, usize)>,
    until_ns: u64,
}

impl Mix {
    /// Weights and windows of the targets, in their order.
    pub fn new(entries: Vec<(u32, Option<Window>)>) -> Mix {
        Mix {
            entries,
            open: vec![],
            until_ns: 0,
        }
    }

    /// The index of a target. `now_ns` since the start of the load.
    #[inline]
    pub fn pick(&mut self, now_ns: u64, rng: &mut Rng) -> usize {
        if now_ns >= self.until_ns {
            self.refresh(now_ns);
        }
        match self.open.as_slice() {
            [(_, only)] => *only,
            [.., (total, _)] => {
                let drawn = rng.u64(..total);
                let at = self.open.partition_point(|(upto, _)| *upto <= drawn);
                self.open[at].1
            }
            // Not in a mix that `check` found good.
            [] => 0,
        }
    }

    #[cold]
    fn refresh(&mut self, now_ns: u64) {
        self.open.clear();
        self.until_ns = u64::MAX;
        let mut total = 0;
        for (index, (weight, window)) in self.entries.iter().enumerate() {
            let (open, until_ns) = window.map_or((true, u64::MAX), |window| window.at(now_ns));
            self.until_ns = self.until_ns.min(until_ns);
            if open {
                total += u64::from(*weight);
                self.open.push((total, index));
            }
        }
    }

    /// Some target must be open at any time before `end_ns`.
    pub fn check(&self, end_ns: u64) -> Result<(), String> {
        let (mut mix, mut now_ns) = (self.clone(), 0);
        for _ in 0..CHANGES_MAX {
            if now_ns >= end_ns {
                return Ok(());
            }
            mix.refresh(now_ns);
            if mix.open.is_empty() {
                let at_s = now_ns as f64 / SECOND_NS as f64;
                return Err(format!(
                    "no target's window is open {at_s} s after the start"
                ));
            }
            now_ns = mix.until_ns;
        }
        Err(format!(
            "the windows open and close more than {CHANGES_MAX} times"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(every: &str, from: &str, to: &str) -> Window {
        let span = |text: &str| text.parse().expect("a duration");
        Window {
            every: span(every),
            from: span(from),
            to: span(to),
        }
    }

    #[test]
    fn weights_are_proportions() {
        let mut mix = Mix::new(vec![(2, None), (98, None)]);
        let mut rng = Rng::with_seed(1);
        let first = (0..100_000).filter(|_| mix.pick(0, &mut rng) == 0).count();
        assert!((1_800..2_200).contains(&first), "{first}");
    }

    #[test]
    fn windows_take_turns() {
        let mut mix = Mix::new(vec![
            (1, Some(window("20s", "0s", "10s"))),
            (1, Some(window("20s", "10s", "20s"))),
        ]);
        let mut rng = Rng::with_seed(1);
        for (at_s, target) in [(0, 0), (9, 0), (10, 1), (19, 1), (20, 0), (35, 1), (45, 0)] {
            assert_eq!(mix.pick(at_s * 1_000_000_000, &mut rng), target, "{at_s}");
        }
        assert_eq!(mix.check(3_600_000_000_000), Ok(()));
    }

    #[test]
    fn gaps_are_found() {
        let mix = Mix::new(vec![(1, Some(window("20s", "5s", "15s")))]);
        assert!(mix.check(1).expect_err("closed").contains(" 0 s"));
        let mix = Mix::new(vec![
            (1, Some(window("20s", "0s", "15s"))),
            (1, Some(window("40s", "15s", "20s"))),
        ]);
        assert_eq!(mix.check(30_000_000_000), Ok(()));
        assert!(
            mix.check(60_000_000_000)
                .expect_err("closed")
                .contains(" 35 s")
        );
        let mix = Mix::new(vec![
            (1, Some(window("2us", "0s", "1us"))),
            (1, Some(window("2us", "1us", "2us"))),
        ]);
        assert!(mix.check(u64::MAX).is_err());
        for bad in [
            window("20s", "5s", "5s"),
            window("20s", "5s", "21s"),
            window("0s", "0s", "0s"),
        ] {
            assert!(bad.check().is_err());
        }
    }
}
