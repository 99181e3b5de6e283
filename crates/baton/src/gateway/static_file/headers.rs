//! Request headers, as those who decide here want them.

use baton_server::http1::RequestHead;

/// The values of all lines of that name: a list may be spread over several.
pub fn lines<'h>(
    head: &RequestHead<'h>,
    name: &'static str,
) -> impl Iterator<Item = &'h [u8]> + use<'h> {
    head.headers()
        .filter(move |header| header.name.eq_ignore_ascii_case(name))
        .map(|header| header.value)
}

/// A header that holds one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Single<'h> {
    Absent,
    Value(&'h str),
    /// There more than once, or not in ASCII.
    Unclear,
}

pub fn single<'h>(head: &RequestHead<'h>, name: &'static str) -> Single<'h> {
    let mut lines = lines(head, name);
    match (lines.next(), lines.next()) {
        (None, _) => Single::Absent,
        (Some(value), None) if value.is_ascii() => {
            std::str::from_utf8(value).map_or(Single::Unclear, Single::Value)
        }
        _ => Single::Unclear,
    }
}

/// A request head for the tests of this room.
#[cfg(test)]
pub fn test_head<T>(method: &str, headers: &str, then: impl FnOnce(&RequestHead<'_>) -> T) -> T {
    use baton_server::http1::{HeaderStore, Limits};
    let lines: String = headers
        .lines()
        .map(|line| format!("{}\r\n", line.trim()))
        .collect();
    let text = format!("{method} /a HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
    let mut store = HeaderStore::new();
    let head = RequestHead::parse(text.as_bytes(), &Limits::default(), &mut store);
    then(&head.unwrap_or_else(|reject| panic!("{headers}: {reject:?}")))
}
