//! The header of the PROXY protocol, versions 1 and 2: what a proxy says of a connection that it relays, in front of
//! the connection's first byte (<https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The longest header that is taken, in bytes. Addresses need 232; the rest is for what proxies append, such as a
/// client's certificate.
pub const PROXY_HEADER_BYTES_MAX: usize = 4096;

/// A whole version 1 line, with its CRLF.
const LINE_BYTES_MAX: usize = 107;
const LINE_START: &[u8] = b"PROXY ";
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, version and command, family and protocol, length of the rest.
const FIXED_BYTES: usize = SIGNATURE.len() + 4;
const UNIX_PATH_BYTES: usize = 108;

const TLV_TLS: u8 = 0x20;
const TLS_USED: u8 = 0x01;

/// A whole header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyHeader {
    /// Whose connection this is.
    pub origin: Origin,
    /// The client spoke TLS with the proxy. Told by version 2 only, and not by every proxy.
    pub tls: bool,
    /// The header's own bytes; what follows is the client's.
    pub length: usize,
}

/// Whose connection a proxy hands over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The proxy's own, such as a health check: the connection's ends are what they seem.
    Proxy,
    /// Somebody's whom the proxy cannot name, or not in terms of TCP.
    Unknown,
    /// That of a client on the proxy's machine, by a unix socket.
    Unix,
    /// A TCP client's.
    Tcp {
        /// The client.
        source: SocketAddr,
        /// Where it connected to.
        destination: SocketAddr,
    },
}

/// No PROXY header, or one with a mistake, and what it is. The connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoProxyHeader(pub &'static str);

impl ProxyHeader {
    /// Looks for a header at the beginning of a connection's bytes. `None`: it is not whole yet. At most
    /// [`PROXY_HEADER_BYTES_MAX`] bytes are ever asked for.
    ///
    /// # Errors
    /// What can be no header, as soon as that is seen.
    pub fn parse(bytes: &[u8]) -> Result<Option<ProxyHeader>, NoProxyHeader> {
        if starts_as(bytes, SIGNATURE) {
            binary(bytes)
        } else if starts_as(bytes, LINE_START) {
            line(bytes)
        } else {
            Err(NoProxyHeader("it does not begin with a PROXY header"))
        }
    }
}

/// Whether `bytes` begins with `start`, or with as much of it as is there.
fn starts_as(bytes: &[u8], start: &[u8]) -> bool {
    let length = bytes.len().min(start.len());
    bytes[..length] == start[..length]
}

/// Version 1: `PROXY TCP4 192.0.2.1 198.51.100.1 56324 443` and CRLF.
fn line(bytes: &[u8]) -> Result<Option<ProxyHeader>, NoProxyHeader> {
    const MALFORMED: NoProxyHeader = NoProxyHeader("malformed PROXY line");
    let seen = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let Some(end) = seen.iter().position(|byte| *byte == b'\n') else {
        return match bytes.len() < LINE_BYTES_MAX {
            true => Ok(None),
            false => Err(NoProxyHeader("the PROXY line is too long")),
        };
    };
    let text = seen[..end].strip_suffix(b"\r").ok_or(MALFORMED)?;
    let text = std::str::from_utf8(text).map_err(|_| MALFORMED)?;
    if text.contains('\r') {
        return Err(MALFORMED);
    }
    let mut words = text.split(' ').skip(1);
    let mut word = || words.next().ok_or(MALFORMED);
    let origin = match word()? {
        // Whatever follows is to be ignored.
        "UNKNOWN" => Origin::Unknown,
        family @ ("TCP4" | "TCP6") => {
            let (source, destination) = (word()?, word()?);
            let address = |text: &str| match family {
                "TCP4" => text.parse().map(IpAddr::V4).map_err(|_| MALFORMED),
                _ => text.parse().map(IpAddr::V6).map_err(|_| MALFORMED),
            };
            let origin = Origin::Tcp {
                source: SocketAddr::new(address(source)?, port(word()?).ok_or(MALFORMED)?),
                destination: SocketAddr::new(
                    address(destination)?,
                    port(word()?).ok_or(MALFORMED)?,
                ),
            };
            if words.next().is_some() {
                return Err(MALFORMED);
            }
            origin
        }
        _ => return Err(MALFORMED),
    };
    Ok(Some(ProxyHeader {
        origin,
        tls: false,
        length: end + 1,
    }))
}

/// Decimal, without a sign or leading zeros.
fn port(text: &str) -> Option<u16> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let short = text == "0" || !text.starts_with('0');
    text.parse().ok().filter(|_| plain && short)
}

/// Version 2: signature, four fixed bytes, addresses, and what the proxy appends as type, length and value.
fn binary(bytes: &[u8]) -> Result<Option<ProxyHeader>, NoProxyHeader> {
    let Some((fixed, rest)) = bytes.split_at_checked(FIXED_BYTES) else {
        return Ok(None);
    };
    let &[version_and_command, family_and_protocol, high, low] = &fixed[SIGNATURE.len()..] else {
        return Ok(None);
    };
    if version_and_command >> 4 != 2 {
        return Err(NoProxyHeader("a PROXY header of an unknown version"));
    }
    let rest_bytes = usize::from(u16::from_be_bytes([high, low]));
    let length = FIXED_BYTES + rest_bytes;
    if length > PROXY_HEADER_BYTES_MAX {
        return Err(NoProxyHeader("the PROXY header is too long"));
    }
    let Some(rest) = rest.get(..rest_bytes) else {
        return Ok(None);
    };
    let (origin, appended) = match version_and_command & 0xf {
        // The addresses, their family included, are to be ignored.
        0 => (Origin::Proxy, &[][..]),
        1 => relayed(family_and_protocol, rest)?,
        _ => return Err(NoProxyHeader("a PROXY header with an unknown command")),
    };
    Ok(Some(ProxyHeader {
        origin,
        tls: tells_of_tls(appended)?,
        length,
    }))
}

/// Whose the connection is, and the bytes behind the addresses.
fn relayed(family_and_protocol: u8, rest: &[u8]) -> Result<(Origin, &[u8]), NoProxyHeader> {
    const STREAM: u8 = 1;
    let protocol = family_and_protocol & 0xf;
    let address_bytes = match family_and_protocol >> 4 {
        0 => 0,
        1 => size_of::<Ipv4Addr>(),
        2 => size_of::<Ipv6Addr>(),
        3 => UNIX_PATH_BYTES,
        _ => return Err(NoProxyHeader("a PROXY header with an unknown family")),
    };
    if protocol > 2 {
        return Err(NoProxyHeader("a PROXY header with an unknown protocol"));
    }
    let port_bytes = if matches!(address_bytes, 4 | 16) {
        2
    } else {
        0
    };
    let all_bytes = 2 * (address_bytes + port_bytes);
    let (addresses, appended) = rest
        .split_at_checked(all_bytes)
        .ok_or(NoProxyHeader("the PROXY header's addresses are cut short"))?;
    if protocol != STREAM || address_bytes == 0 {
        return Ok((Origin::Unknown, &[]));
    }
    let (ips, ports) = addresses.split_at(2 * address_bytes);
    let (source, destination) = ips.split_at(address_bytes);
    let origin = match (ip(source), ip(destination), ports) {
        (Some(source), Some(destination), &[a, b, c, d]) => Origin::Tcp {
            source: SocketAddr::new(source, u16::from_be_bytes([a, b])),
            destination: SocketAddr::new(destination, u16::from_be_bytes([c, d])),
        },
        _ => Origin::Unix,
    };
    Ok((origin, appended))
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

/// Looks through what is appended, which must be well formed; only the type for TLS is understood.
fn tells_of_tls(mut appended: &[u8]) -> Result<bool, NoProxyHeader> {
    let mut tls = false;
    while let Some((&[kind, high, low], rest)) = appended.split_first_chunk::<3>() {
        let value_bytes = usize::from(u16::from_be_bytes([high, low]));
        let Some((value, next)) = rest.split_at_checked(value_bytes) else {
            break;
        };
        if kind == TLV_TLS {
            tls = value.first().is_some_and(|client| client & TLS_USED != 0);
        }
        appended = next;
    }
    match appended.is_empty() {
        true => Ok(tls),
        false => Err(NoProxyHeader(
            "what follows the PROXY header's addresses is malformed",
        )),
    }
}
