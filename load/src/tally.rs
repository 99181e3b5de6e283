//! What a network thread counts, handed over once a second and added up by the main thread.

use hdrhistogram::Histogram;

use crate::kind::{KINDS, Kind};
use crate::usage::Usage;

/// Statuses 0 to 999.
const STATUSES: usize = 1_000;
/// Times beyond an hour count as an hour.
const TIME_NS_MAX: u64 = 3_600_000_000_000;

/// To which part of the load a tally belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Connections are made, and nothing is sent.
    #[default]
    Opening,
    WarmUp,
    Measured,
    /// Nothing more is sent; the last replies are waited for.
    Drain,
}

pub struct Tally {
    pub thread: usize,
    pub stage: Stage,
    /// The second since the start of the load, from 0.
    pub second: u64,
    /// Requests written, those written again included.
    pub sent: u64,
    /// Requests written again, as the connection ended before they could be answered.
    pub resent: u64,
    /// Due requests that waited for a free connection.
    pub waited: u64,
    /// Due requests that were never sent, as no connection was free before the end.
    pub unsent: u64,
    /// Requests that had no reply when the wait for the last ones was over.
    pub unfinished: u64,
    /// Whole replies, good or not.
    pub replies: u64,
    /// Replies that passed every check.
    pub good: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub connects: u64,
    /// Open connections at the end of it.
    pub open: u64,
    pub statuses: Box<[u64; STATUSES]>,
    pub errors: [u64; KINDS],
    /// The first of each kind, in words.
    pub examples: [Option<String>; KINDS],
    /// From when a request was meant to be sent until its reply was there. Good replies, and requests that
    /// timed out with the time that they had waited. In nanoseconds, like all of these.
    pub latency: Histogram<u64>,
    /// The same, from when it was sent.
    pub from_sending: Histogram<u64>,
    pub connecting: Histogram<u64>,
    /// How late the generator itself was to send what it could have sent.
    pub lateness: Histogram<u64>,
    /// How long the generator was busy with one batch of events, for which it reads the clock once.
    pub turn: Histogram<u64>,
    pub usage: Usage,
    /// When its last reply came, since the start of the load.
    pub last_reply_ns: u64,
}

impl Tally {
    pub fn new(thread: usize) -> Tally {
        Tally {
            thread,
            stage: Stage::Opening,
            second: 0,
            sent: 0,
            resent: 0,
            waited: 0,
            unsent: 0,
            unfinished: 0,
            replies: 0,
            good: 0,
            bytes_read: 0,
            bytes_written: 0,
            connects: 0,
            open: 0,
            statuses: Box::new([0; STATUSES]),
            errors: [0; KINDS],
            examples: [const { None }; KINDS],
            latency: histogram(3),
            from_sending: histogram(3),
            connecting: histogram(2),
            lateness: histogram(2),
            turn: histogram(2),
            usage: Usage::default(),
            last_reply_ns: 0,
        }
    }

    #[inline]
    pub fn reply(&mut self, status: u16) {
        self.replies += 1;
        if let Some(count) = self.statuses.get_mut(usize::from(status)) {
            *count += 1;
        }
    }

    #[cold]
    pub fn error(&mut self, kind: Kind, example: impl FnOnce() -> String) {
        self.errors[kind as usize] += 1;
        self.examples[kind as usize].get_or_insert_with(example);
    }

    pub fn errors_total(&self) -> u64 {
        self.errors.iter().sum()
    }

    /// Adds all that can be added; the rest stays as it is.
    pub fn add(&mut self, other: &Tally) {
        self.sent += other.sent;
        self.resent += other.resent;
        self.waited += other.waited;
        self.unsent += other.unsent;
        self.unfinished += other.unfinished;
        self.replies += other.replies;
        self.good += other.good;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.connects += other.connects;
        let statuses = self.statuses.iter_mut().zip(other.statuses.iter());
        statuses.for_each(|(sum, count)| *sum += count);
        let errors = self.errors.iter_mut().zip(&other.errors);
        errors.for_each(|(sum, count)| *sum += count);
        for (mine, theirs) in self.examples.iter_mut().zip(&other.examples) {
            if mine.is_none() {
                mine.clone_from(theirs);
            }
        }
        for (mine, theirs) in [
            (&mut self.latency, &other.latency),
            (&mut self.from_sending, &other.from_sending),
            (&mut self.connecting, &other.connecting),
            (&mut self.lateness, &other.lateness),
            (&mut self.turn, &other.turn),
        ] {
            mine.add(theirs).expect("all have the same bounds");
        }
        self.usage.add(&other.usage);
        self.last_reply_ns = self.last_reply_ns.max(other.last_reply_ns);
    }

    /// As new, in the memory that it has.
    pub fn clear(&mut self) {
        let mut histograms = [
            &mut self.latency,
            &mut self.from_sending,
            &mut self.connecting,
            &mut self.lateness,
            &mut self.turn,
        ];
        histograms
            .iter_mut()
            .filter(|histogram| !histogram.is_empty())
            .for_each(|histogram| histogram.reset());
        self.statuses.fill(0);
        self.errors = [0; KINDS];
        self.examples.iter_mut().for_each(|example| *example = None);
        self.usage = Usage::default();
        for count in [
            &mut self.sent,
            &mut self.resent,
            &mut self.waited,
            &mut self.unsent,
            &mut self.unfinished,
            &mut self.replies,
            &mut self.good,
            &mut self.bytes_read,
            &mut self.bytes_written,
            &mut self.connects,
            &mut self.open,
            &mut self.last_reply_ns,
        ] {
            *count = 0;
        }
    }
}

/// Three digits: 0.1 %.
fn histogram(digits: u8) -> Histogram<u64> {
    // 500 ns are told apart.
    Histogram::new_with_bounds(1_000, TIME_NS_MAX, digits).expect("good bounds")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_add_up_and_are_cleared() {
        let (mut sum, mut one) = (Tally::new(0), Tally::new(1));
        one.reply(200);
        one.good = 1;
        one.latency.saturating_record(5_000_000);
        one.error(Kind::Cut, || "first".into());
        one.error(Kind::Cut, || "second".into());
        sum.add(&one);
        sum.add(&one);
        assert_eq!(
            (sum.replies, sum.good, sum.statuses[200], sum.errors_total()),
            (2, 2, 2, 4)
        );
        assert_eq!(sum.examples[Kind::Cut as usize].as_deref(), Some("first"));
        assert_eq!(sum.latency.len(), 2);
        sum.clear();
        assert_eq!(
            (sum.replies, sum.latency.len(), sum.errors_total()),
            (0, 0, 0)
        );
        assert!(sum.examples.iter().all(Option::is_none));
    }

    #[test]
    fn times_beyond_the_bounds_saturate() {
        let mut tally = Tally::new(0);
        tally.latency.saturating_record(0);
        tally.latency.saturating_record(u64::MAX);
        assert_eq!(tally.latency.len(), 2);
    }
}
