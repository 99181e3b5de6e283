//! Finding the end of a request head in bytes that trickle in.

use memchr::{memchr, memchr_iter};

use crate::classes::is_token_byte;
use crate::limits::{LEADING_EMPTY_LINES_MAX, Limits};
use crate::reject::{BARE_LINE_END, HEAD_TOO_LARGE, Reject, TARGET_TOO_LONG};

/// Incremental search for the end of a request head. One per connection; [`reset`](Self::reset) it
/// between requests.
///
/// Each call looks only at the bytes that are new since the last one. A reject depends on the bytes
/// alone, never on how they were split, and comes with the byte that causes it: a line that ends in a
/// bare LF is refused at once instead of being waited upon.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadScanner {
    /// Where the request line begins, behind empty lines.
    request_start: usize,
    /// Where the first incomplete line begins.
    line_start: usize,
    /// No LF lies between `line_start` and here.
    searched: usize,
}

impl HeadScanner {
    /// Looks for the end of the head in `bytes`, which start where the request starts and only grow
    /// from call to call. Returns the head's length, with its empty line and with any empty lines
    /// before the request line.
    ///
    /// # Errors
    /// 400 for a bare CR or LF, more than [`LEADING_EMPTY_LINES_MAX`] empty lines first, or a first
    /// byte that no method begins with (RFC 9112 section 2.2); 414 for a request line, 431 for a head
    /// that is over its limit without having ended.
    #[inline]
    pub fn scan(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<usize>, Reject> {
        let first_line = self.line_start;
        let mut lines = 0;
        let found = self.walk(bytes, limits, &mut lines);
        // Every complete line ends in CRLF, so any further CR is a bare one.
        let complete = bytes.get(first_line..self.line_start).unwrap_or_default();
        if memchr_iter(b'\r', complete).count() != lines {
            return Err(BARE_LINE_END);
        }
        found
    }

    /// Ready for the next request, whose first byte will be at index 0.
    #[inline]
    pub fn reset(&mut self) {
        *self = HeadScanner::default();
    }

    fn walk(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        lines: &mut usize,
    ) -> Result<Option<usize>, Reject> {
        loop {
            if self.line_start == self.request_start {
                self.check_first_byte(bytes)?;
            }
            let fresh = bytes.get(self.searched..).unwrap_or_default();
            let Some(offset) = memchr(b'\n', fresh) else {
                self.searched = bytes.len();
                self.check_limits(bytes.len(), limits)?;
                return Ok(None);
            };
            let next_line = self.searched + offset + 1;
            self.check_limits(next_line, limits)?;
            let line = &bytes[self.line_start..next_line];
            if !line.ends_with(b"\r\n") {
                return Err(BARE_LINE_END);
            }
            let empty = line.len() == 2;
            let before_request = self.line_start == self.request_start;
            self.line_start = next_line;
            self.searched = next_line;
            *lines += 1;
            match (empty, before_request) {
                (true, true) if next_line > 2 * LEADING_EMPTY_LINES_MAX => {
                    return Err(Reject::bad("too many empty lines before the request"));
                }
                (true, true) => self.request_start = next_line,
                (true, false) => return Ok(Some(next_line)),
                (false, _) => {}
            }
        }
    }

    /// Refuses what cannot become HTTP (a TLS handshake, say) without waiting for a line of it.
    fn check_first_byte(&self, bytes: &[u8]) -> Result<(), Reject> {
        match bytes.get(self.request_start) {
            Some(&byte) if byte != b'\r' && !is_token_byte(byte) => {
                Err(Reject::bad("no request line"))
            }
            _ => Ok(()),
        }
    }

    /// The current line reaches up to `end`, complete or not. The lower bound speaks, so that the answer
    /// is the same when more bytes arrive at once.
    fn check_limits(&self, end: usize, limits: &Limits) -> Result<(), Reject> {
        let head_end_max = limits.head_bytes_max;
        let line_end_max = if self.line_start == self.request_start {
            self.request_start
                .saturating_add(limits.request_line_bytes_max())
        } else {
            usize::MAX
        };
        if end <= head_end_max.min(line_end_max) {
            Ok(())
        } else if line_end_max <= head_end_max {
            Err(TARGET_TOO_LONG)
        } else {
            Err(HEAD_TOO_LARGE)
        }
    }
}
