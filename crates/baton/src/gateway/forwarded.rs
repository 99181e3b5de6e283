//! What proxies say of the client: X-Forwarded-For, -Proto, -Host, -Port, and Forwarded (RFC 7239).
//!
//! Each proxy appends what it saw to what it was told, so only the right end of these lists is known to be true. They
//! are read from there: an address that is a trusted proxy's makes the next one to the left worth reading, and so on.
//! The other lists are read at the same distance from the right, so that what a client puts in front is never reached.
//! Whatever does not parse ends the walk; it is never passed on.

use std::net::{IpAddr, Ipv6Addr};

use baton_server::http1::{Header, is_host_and_port};

use crate::options::TrustedHeader;

#[cfg(test)]
mod tests;

/// Elements of one Forwarded header; a longer one says nothing.
const ELEMENTS_MAX: usize = 64;

const BLANK: [char; 2] = [' ', '\t'];

/// What is known from a trusted proxy. Everything in it has been parsed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told<'h> {
    pub client: Option<Node>,
    pub scheme: Option<Scheme>,
    /// `host[:port]`, valid.
    pub host: Option<&'h str>,
    pub port: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    pub address: IpAddr,
    pub port: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    Http,
    Https,
}

impl Scheme {
    pub fn as_str(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }

    pub fn default_port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }

    fn parse(text: &str) -> Option<Scheme> {
        [Scheme::Http, Scheme::Https]
            .into_iter()
            .find(|scheme| text.eq_ignore_ascii_case(scheme.as_str()))
    }
}

/// Reads the headers of a request that came from a trusted proxy. `trusts` knows the others. If there is any of the
/// X-Forwarded family that `read` names, Forwarded is not looked at: hardly a proxy sets both, and the other one would
/// be the client's.
pub fn told<'h>(
    headers: impl DoubleEndedIterator<Item = Header<'h>> + Clone,
    read: &[TrustedHeader],
    trusts: impl Fn(IpAddr) -> bool,
) -> Told<'h> {
    let list = |header: TrustedHeader| {
        let wanted = read.contains(&header);
        let lines = headers.clone().rev();
        let lines =
            lines.filter(move |line| wanted && line.name.eq_ignore_ascii_case(header.name()));
        lines.map(|line| line.value)
    };
    let family = [
        TrustedHeader::XForwardedFor,
        TrustedHeader::XForwardedProto,
        TrustedHeader::XForwardedHost,
        TrustedHeader::XForwardedPort,
    ];
    if family
        .into_iter()
        .all(|header| list(header).next().is_none())
    {
        return forwarded(list(TrustedHeader::Forwarded), trusts);
    }
    let (client, distance) = walk(from_the_right(list(TrustedHeader::XForwardedFor)), trusts);
    // A proxy that replaces what it was told, rather than append to it, leaves a shorter list.
    let at = |header| from_the_right(list(header)).take(distance + 1).last();
    Told {
        client,
        scheme: at(TrustedHeader::XForwardedProto).and_then(Scheme::parse),
        host: at(TrustedHeader::XForwardedHost).filter(|host| is_host_and_port(host)),
        port: at(TrustedHeader::XForwardedPort).and_then(parse_port),
    }
}

/// The elements of a comma-separated list, the last one first. `lines` come last first, too.
fn from_the_right<'h>(lines: impl Iterator<Item = &'h [u8]>) -> impl Iterator<Item = &'h str> {
    // In no list is this a value.
    const MALFORMED: &str = "?";
    lines
        .flat_map(|line| line.rsplit(|byte| *byte == b','))
        .map(|element| std::str::from_utf8(element).unwrap_or(MALFORMED))
        .map(|element| element.trim_matches(BLANK))
        .filter(|element| !element.is_empty())
}

/// The client, and the distance from the right of the element that tells of it.
fn walk<'h>(
    elements: impl Iterator<Item = &'h str>,
    trusts: impl Fn(IpAddr) -> bool,
) -> (Option<Node>, usize) {
    let mut client = None;
    let mut distance = 0;
    for (at, element) in elements.enumerate() {
        distance = at;
        let Some(node) = Node::parse(element) else {
            break;
        };
        client = Some(node);
        if !trusts(node.address) {
            break;
        }
    }
    (client, distance)
}

impl Node {
    /// `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:80`.
    fn parse(text: &str) -> Option<Node> {
        let bare = |text: &str| match text.strip_prefix('[') {
            Some(rest) => rest
                .strip_suffix(']')?
                .parse::<Ipv6Addr>()
                .ok()
                .map(IpAddr::V6),
            None => text.parse::<IpAddr>().ok(),
        };
        let (address, port) = match bare(text) {
            Some(address) => (address, None),
            None => {
                let (address, port) = text.rsplit_once(':')?;
                // Without brackets what precedes the last colon is an IPv4 address, or the whole was none.
                let address = bare(address).filter(|a| a.is_ipv4() || address.starts_with('['))?;
                (address, Some(parse_port(port)?))
            }
        };
        Some(Node {
            address: address.to_canonical(),
            port,
        })
    }
}

fn parse_port(text: &str) -> Option<u16> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| plain && *port > 0)
}

/// `lines` come last first.
fn forwarded<'h>(
    lines: impl Iterator<Item = &'h [u8]>,
    trusts: impl Fn(IpAddr) -> bool,
) -> Told<'h> {
    let mut told = Told::default();
    for line in lines {
        // A quote that a client opens may hide what a proxy appends behind it: a bad line says nothing at all.
        let line = std::str::from_utf8(line).ok();
        let Some(elements) = line.and_then(elements) else {
            break;
        };
        for element in elements.iter().rev() {
            told.scheme = element.proto.and_then(Scheme::parse).or(told.scheme);
            let host = element.host.filter(|host| is_host_and_port(host));
            told.host = host.or(told.host);
            let node = element.node.and_then(Node::parse);
            told.client = node.or(told.client);
            if !node.is_some_and(|node| trusts(node.address)) {
                return told;
            }
        }
    }
    told
}

#[derive(Clone, Copy, Default)]
struct Element<'h> {
    node: Option<&'h str>,
    proto: Option<&'h str>,
    host: Option<&'h str>,
}

/// RFC 7239, section 4: `for=192.0.2.43;proto=https, for="[2001:db8::1]:80"`. `None`: it is not of that form.
fn elements(line: &str) -> Option<Vec<Element<'_>>> {
    let mut elements = Vec::new();
    let mut element = Element::default();
    let mut is_empty = true;
    let mut rest = line.trim_matches(BLANK);
    loop {
        if !rest.is_empty() && !rest.starts_with([';', ',']) {
            let (name, value, after) = pair(rest)?;
            let known = match name.len() {
                3 if name.eq_ignore_ascii_case("for") => Some(&mut element.node),
                4 if name.eq_ignore_ascii_case("host") => Some(&mut element.host),
                5 if name.eq_ignore_ascii_case("proto") => Some(&mut element.proto),
                _ => None,
            };
            // Each parameter may come once.
            if known.is_some_and(|place| place.replace(value).is_some()) {
                return None;
            }
            is_empty = false;
            rest = after.trim_start_matches(BLANK);
        }
        if !rest.starts_with(';') && !std::mem::replace(&mut is_empty, true) {
            elements.push(std::mem::take(&mut element));
        }
        let Some(next) = rest.strip_prefix([';', ',']) else {
            return (rest.is_empty() && elements.len() <= ELEMENTS_MAX).then_some(elements);
        };
        rest = next.trim_start_matches(BLANK);
    }
}

/// `name=value` or `name="value"`, and what follows. Nothing that is understood here needs an escape in quotes, so
/// those are not undone.
fn pair(text: &str) -> Option<(&str, &str, &str)> {
    let (name, rest) = text.split_once('=')?;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if name.is_empty() || !name.bytes().all(is_name) {
        return None;
    }
    let Some(quoted) = rest.strip_prefix('"') else {
        let end = rest.find([';', ',', ' ', '\t']).unwrap_or(rest.len());
        let (value, after) = rest.split_at(end);
        let is_plain = !value.is_empty() && !value.contains(['"', '\\']);
        return is_plain.then_some((name, value, after));
    };
    let mut escaped = false;
    let end = quoted.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })?;
    Some((name, &quoted[..end], &quoted[end + 1..]))
}
