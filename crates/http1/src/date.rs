//! The `Date` header's format.

use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

/// The last second that IMF-fixdate's four-digit year can express.
const UNIX_SECONDS_MAX: u64 = 253_402_300_799;

/// `Sun, 06 Nov 1994 08:49:37 GMT` (IMF-fixdate, RFC 9110 section 5.6.7) for a number of seconds since
/// 1970. Times before 1970 or after 9999 give the nearest date that can be written.
///
/// Meant to be called once per second, not once per reply.
pub fn http_date(unix_seconds: i64) -> [u8; 29] {
    let seconds = u64::try_from(unix_seconds)
        .unwrap_or(0)
        .min(UNIX_SECONDS_MAX);
    let date = httpdate::HttpDate::from(UNIX_EPOCH + Duration::from_secs(seconds));
    let mut text = [b' '; 29];
    // The format has exactly 29 bytes, so the write cannot fall short.
    let _ = write!(&mut text[..], "{date}");
    text
}
