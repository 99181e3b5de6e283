//! The last decisions, for people to read.

use std::collections::VecDeque;

use super::decision::{Action, Decision};

/// Keeps the last [`DecisionLog::LEN_MAX`] decisions that say something new: every start and stop, and a hold only if none
/// since then had the same reason. Under load holds for two reasons take turns many times a second, and would push all else
/// out.
#[derive(Debug, Default)]
pub struct DecisionLog {
    decisions: VecDeque<Logged>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Logged {
    pub at_ms: u64,
    pub decision: Decision,
}

impl DecisionLog {
    pub const LEN_MAX: usize = 256;

    /// Whether it said something new.
    pub fn note(&mut self, decision: &Decision, at_ms: u64) -> bool {
        let is_new = decision.action != Action::Hold || !self.holds_like(decision);
        if is_new {
            if self.decisions.len() == Self::LEN_MAX {
                self.decisions.pop_front();
            }
            self.decisions.push_back(Logged {
                at_ms,
                decision: decision.clone(),
            });
        }
        is_new
    }

    /// Whether it has held for the same reason since the last start or stop.
    fn holds_like(&self, decision: &Decision) -> bool {
        let before = self.iter().rev().map(|logged| &logged.decision);
        let mut holds = before.take_while(|before| before.action == Action::Hold);
        holds.any(|hold| hold.reason.is_like(&decision.reason))
    }

    /// The oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Logged> + ExactSizeIterator {
        self.decisions.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autoscale::Reason;

    fn decision(action: Action, reason: Reason) -> Decision {
        Decision {
            action,
            reason,
            look_again_ms: None,
        }
    }

    #[test]
    fn holds_are_told_once_and_the_last_256_are_kept() {
        let mut log = DecisionLog::default();
        let starting = |waiting| {
            decision(
                Action::Hold,
                Reason::Starting {
                    waiting,
                    starting: 1,
                },
            )
        };
        assert!(log.note(&starting(1), 0));
        assert!(!log.note(&starting(2), 1));
        assert!(log.note(&decision(Action::Hold, Reason::NothingWaits), 2));
        assert!(!log.note(&starting(3), 3));
        let start = decision(
            Action::Start(1),
            Reason::TooFew {
                threads: 0,
                threads_min: 1,
            },
        );
        assert!(log.note(&start, 4));
        assert!(log.note(&starting(4), 5));
        for at_ms in 6..1000 {
            assert!(log.note(&start, at_ms));
        }
        assert_eq!(log.iter().len(), DecisionLog::LEN_MAX);
        assert_eq!(log.iter().next_back().map(|last| last.at_ms), Some(999));
    }
}
