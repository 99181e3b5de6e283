//! Who asks, and for which host: as the connection shows it, or as a trusted proxy tells it.

use std::net::IpAddr;

use baton_server::{Io, Peer, Request};

use super::forwarded::{Node, Scheme, told};
use crate::options::TrustedHeader;

/// The client's side of a request, in the terms of `$_SERVER`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller<'r> {
    /// `None`: a unix socket of which nobody has said more.
    pub remote: Option<Node>,
    /// A proxy named the client, so that it is not the connection's other end.
    pub named: Option<IpAddr>,
    pub scheme: Scheme,
    /// `host[:port]`, valid; where a proxy told it, the Host header's value is this as well.
    pub host: Option<&'r str>,
    /// Where the client connected to, if that is not this server's own listener.
    pub port: Option<u16>,
}

impl<'r> Caller<'r> {
    /// `headers` are those that are believed of a trusted proxy.
    pub fn of(request: &Request<'r>, io: &Io, headers: &[TrustedHeader]) -> Caller<'r> {
        let direct = Caller {
            remote: match request.peer {
                Peer::Tcp(address) => Some(Node {
                    address: address.ip().to_canonical(),
                    port: Some(address.port()),
                }),
                Peer::Unix => None,
            },
            named: None,
            scheme: match request.tls {
                true => Scheme::Https,
                false => Scheme::Http,
            },
            host: request.head.host,
            port: None,
        };
        if !request.trusted {
            return direct;
        }
        let proxies = io.trusted_proxies();
        let told = told(request.head.headers(), headers, |ip| proxies.contains(ip));
        let scheme = told.scheme.unwrap_or(direct.scheme);
        let host = told.host.or(direct.host);
        // The port of this server's listener says nothing to a client that came by another server.
        let port_of_url = || {
            let (_, port) = split_port(host.unwrap_or_default());
            let port = port.and_then(|port| port.parse().ok());
            port.unwrap_or(scheme.default_port())
        };
        let is_elsewhere = told.scheme.is_some() || told.host.is_some();
        Caller {
            remote: told.client.or(direct.remote),
            named: told.client.map(|client| client.address),
            scheme,
            host,
            port: told.port.or_else(|| is_elsewhere.then(port_of_url)),
        }
    }
}

/// A validated host, and its port if it has one.
pub fn split_port(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => {
            (name, Some(port).filter(|port| !port.is_empty()))
        }
        _ => (host, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_split_from_their_ports() {
        assert_eq!(
            split_port("example.com:8080"),
            ("example.com", Some("8080"))
        );
        assert_eq!(split_port("example.com"), ("example.com", None));
        assert_eq!(split_port("[::1]:80"), ("[::1]", Some("80")));
        assert_eq!(split_port("[::1]"), ("[::1]", None));
        assert_eq!(split_port("example.com:"), ("example.com", None));
    }
}
