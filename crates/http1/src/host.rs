//! The host that a request names (RFC 9110 section 7.2, RFC 3986 section 3.2.2).

use std::net::Ipv6Addr;

/// Whether `text` is a host with an optional port, as a Host header or an http target may carry it.
///
/// A registered name or IPv4 address may hold letters, digits, `-`, `_`, `~` and single dots; an IPv6
/// address stands in brackets. That is narrower than RFC 3986: percent-encodings, `,`, `'` and the like
/// name no host in practice, but break applications that print or match the host.
pub fn is_host_and_port(text: &str) -> bool {
    match text.strip_prefix('[') {
        Some(literal) => match literal.split_once(']') {
            Some((address, after)) => address.parse::<Ipv6Addr>().is_ok() && is_port_suffix(after),
            None => false,
        },
        None => {
            let name_len = text.find(':').unwrap_or(text.len());
            let (name, after) = text.split_at(name_len);
            is_name(name) && is_port_suffix(after)
        }
    }
}

fn is_name(name: &str) -> bool {
    let mut previous = b'.';
    for &byte in name.as_bytes() {
        let dot_follows_dot = byte == b'.' && previous == b'.';
        let known = byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'~');
        if dot_follows_dot || !known {
            return false;
        }
        previous = byte;
    }
    !name.is_empty()
}

/// Nothing, or a colon with a port in 0..=65535. The port may be empty (RFC 3986 section 3.2.3).
fn is_port_suffix(text: &str) -> bool {
    match text.strip_prefix(':') {
        None => text.is_empty(),
        Some("") => true,
        Some(port) => is_port(port),
    }
}

/// A number in 0..=65535, of 1 to 5 digits.
pub(crate) fn is_port(text: &str) -> bool {
    text.len() <= 5 && text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<u16>().is_ok()
}
