//! The last decisions, for people to read.

use std::collections::VecDeque;

use super::decision::{Action, Decision};

/// Keeps the last [`DecisionLog::LEN_MAX`] decisions that say something new: every start and stop, and a hold only if the
/// last decision had another reason.
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
        let is_new = decision.action != Action::Hold
            || self
                .decisions
                .back()
                .is_none_or(|last| !last.decision.reason.is_like(&decision.reason));
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
        assert!(log.note(&starting(3), 3));
        let start = decision(
            Action::Start(1),
            Reason::TooFew {
                threads: 0,
                threads_min: 1,
            },
        );
        for at_ms in 4..1000 {
            assert!(log.note(&start, at_ms));
        }
        assert_eq!(log.iter().len(), DecisionLog::LEN_MAX);
        assert_eq!(log.iter().next_back().map(|last| last.at_ms), Some(999));
    }
}
