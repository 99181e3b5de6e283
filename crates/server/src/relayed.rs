//! The PROXY protocol on the first bytes of a connection.

use crate::conn::Phase;
use crate::http1::{Origin, ProxyHeader};
use crate::io::Io;
use crate::io_thread::IoThread;
use crate::service::{ConnId, LocalAddress, Peer, Service};

/// Complaints of one I/O thread about proxies come no faster.
const COMPLAINT_MS_MIN: u64 = 10_000;

impl<S: Service> IoThread<S> {
    /// Looks for a PROXY header at the beginning of `bytes`. None: it is not whole yet.
    #[cold]
    pub(crate) fn preface(&mut self, id: ConnId, bytes: &[u8]) -> Option<usize> {
        let conn = self.io.conns.get_mut(id)?;
        let header = match ProxyHeader::parse(bytes) {
            Ok(header) => header?,
            Err(mistake) => {
                let peer = conn.peer;
                self.io.complain(&peer, mistake.0);
                self.io.remove(id);
                return Some(bytes.len());
            }
        };
        conn.phase = Phase::Idle;
        conn.tls = header.tls;
        match header.origin {
            Origin::Proxy => {}
            // The proxy relays what it cannot name: its own address must not lend that its trust.
            Origin::Unknown => conn.trusted = false,
            Origin::Unix => {
                conn.peer = Peer::Unix;
                conn.trusted = false;
            }
            Origin::Tcp {
                source,
                destination,
            } => {
                conn.peer = Peer::Tcp(source);
                conn.local.address = LocalAddress::Tcp(destination);
                conn.trusted = self.io.config.trusted_proxies.contains(source.ip());
            }
        }
        Some(header.length)
    }
}

impl Io {
    /// Says why a connection was closed that should have had a PROXY header. Without this a proxy that is set up wrongly
    /// looks as if it met silence; without its limit anyone could fill the log.
    #[cold]
    pub(crate) fn complain(&mut self, peer: &Peer, mistake: &str) {
        let now_ms = self.clock.now().mono_ms();
        if now_ms < self.complain_after_ms {
            return;
        }
        self.complain_after_ms = now_ms + COMPLAINT_MS_MIN;
        let peer = match peer {
            Peer::Tcp(address) => address.to_string(),
            Peer::Unix => "a unix socket".into(),
        };
        tracing::warn!(
            "closed a connection from {peer} to a listener with the PROXY protocol: {mistake}"
        );
    }
}
