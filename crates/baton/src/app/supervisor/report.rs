//! The log's lines about the number of threads: one a second at most, whatever happens in between.

/// Of a pool, between two lines.
const PAUSE_MS: u64 = 1_000;

#[derive(Default)]
pub(super) struct Report {
    /// When the last line was written.
    told_ms: Option<u64>,
    /// The number before the first change that was not told, and why it last changed.
    untold: Option<(u32, String)>,
}

/// To be written to the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Threads before.
    pub was: u32,
    pub reason: String,
}

impl Report {
    pub(super) fn changed(&mut self, was: u32, reason: String) {
        let was = self.untold.take().map_or(was, |(was, _)| was);
        self.untold = Some((was, reason));
    }

    /// The line that is due.
    pub(super) fn take(&mut self, now_ms: u64) -> Option<Line> {
        if self.due_ms()? > now_ms {
            return None;
        }
        self.told_ms = Some(now_ms);
        let (was, reason) = self.untold.take()?;
        Some(Line { was, reason })
    }

    /// When there is one; `None` if nothing has changed.
    pub(super) fn due_ms(&self) -> Option<u64> {
        self.untold.as_ref()?;
        Some(self.told_ms.map_or(0, |told_ms| told_ms + PAUSE_MS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(was: u32, reason: &str) -> Option<Line> {
        let reason = reason.to_owned();
        Some(Line { was, reason })
    }

    #[test]
    fn what_changes_within_a_second_is_one_line() {
        let mut report = Report::default();
        assert_eq!((report.take(0), report.due_ms()), (None, None));
        report.changed(4, "a".into());
        assert_eq!(report.take(5000), line(4, "a"));
        report.changed(8, "b".into());
        report.changed(16, "c".into());
        assert_eq!((report.take(5999), report.due_ms()), (None, Some(6000)));
        assert_eq!(report.take(6000), line(8, "c"));
        assert_eq!((report.take(9000), report.due_ms()), (None, None));
    }
}
