//! Who may speak for others: the proxies in front of this server.

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use crate::service::Peer;

/// A proxy, or a network of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrustedProxy {
    Network(IpNet),
    /// Whoever may connect to this server's unix sockets.
    Unix,
}

impl FromStr for TrustedProxy {
    type Err = &'static str;

    /// `192.0.2.1`, `10.0.0.0/8`, `fd00::/8` or `unix`.
    fn from_str(text: &str) -> Result<TrustedProxy, &'static str> {
        if text == "unix" {
            return Ok(TrustedProxy::Unix);
        }
        let network = match text.parse::<IpAddr>() {
            Ok(address) => Ok(IpNet::from(address)),
            Err(_) => text.parse::<IpNet>(),
        };
        let network = network
            .map_err(|_| "expected an address, a network such as 10.0.0.0/8, or the word unix")?;
        // Peers are compared in their canonical form, in which this would match none.
        if matches!(network, IpNet::V6(v6) if v6.addr().to_ipv4_mapped().is_some()) {
            return Err("write an IPv4 network as such, not as ::ffff:");
        }
        Ok(TrustedProxy::Network(network.trunc()))
    }
}

/// All of them; none unless told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    networks: Vec<IpNet>,
    unix: bool,
}

impl FromIterator<TrustedProxy> for TrustedProxies {
    fn from_iter<T: IntoIterator<Item = TrustedProxy>>(proxies: T) -> TrustedProxies {
        let mut all = TrustedProxies::default();
        for proxy in proxies {
            match proxy {
                TrustedProxy::Network(network) => all.networks.push(network),
                TrustedProxy::Unix => all.unix = true,
            }
        }
        all
    }
}

impl TrustedProxies {
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty() && !self.unix
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        // A socket for both families shows IPv4 peers as ::ffff:192.0.2.1.
        let address = address.to_canonical();
        self.networks
            .iter()
            .any(|network| network.contains(&address))
    }

    pub fn contains_peer(&self, peer: &Peer) -> bool {
        match peer {
            Peer::Tcp(address) => self.contains(address.ip()),
            Peer::Unix => self.unix,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(texts: &[&str]) -> TrustedProxies {
        texts
            .iter()
            .map(|text| text.parse::<TrustedProxy>().expect("good"))
            .collect()
    }

    #[test]
    fn addresses_are_in_their_networks() {
        let proxies = proxies(&["192.0.2.7", "10.1.2.3/8", "fd00::/8", "::1"]);
        for inside in [
            "192.0.2.7",
            "10.0.0.0",
            "10.255.255.255",
            "::ffff:10.1.1.1",
            "fdff::1",
            "::1",
        ] {
            assert!(proxies.contains(inside.parse().expect("good")), "{inside}");
        }
        for outside in ["192.0.2.8", "11.0.0.0", "fe00::1", "::2", "127.0.0.1"] {
            assert!(
                !proxies.contains(outside.parse().expect("good")),
                "{outside}"
            );
        }
        assert!(!proxies.contains_peer(&Peer::Unix));
    }

    #[test]
    fn unix_sockets_are_trusted_by_name_only() {
        assert!(proxies(&["unix"]).contains_peer(&Peer::Unix));
        assert!(!proxies(&["0.0.0.0/0", "::/0"]).contains_peer(&Peer::Unix));
        assert!(TrustedProxies::default().is_empty() && !proxies(&["unix"]).is_empty());
    }

    #[test]
    fn mistakes_are_errors() {
        for bad in [
            "",
            "10.0.0.0/33",
            "10.0.0/8",
            "localhost",
            "::ffff:10.0.0.0/104",
            "10.0.0.1:80",
            "Unix",
        ] {
            assert!(bad.parse::<TrustedProxy>().is_err(), "{bad}");
        }
    }
}
