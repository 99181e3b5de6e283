//! What the app is told of a request: the fields and headers, encoded for the shared cell.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;

use baton_handoff::request::{self, Field, TooLarge};
use baton_server::http1::{RequestHead, Version};
use baton_server::{Local, LocalAddress, Now, Peer};

use super::resolve::UrlPath;

/// The script that is to answer.
pub struct Script<'r> {
    pub root: &'r Path,
    pub name: &'r str,
    pub path_info: &'r str,
}

/// Buffers for what has to be formatted, kept from request to request.
#[derive(Default)]
pub struct FieldWriter {
    remote: Formatted,
    server: Formatted,
    filename: Vec<u8>,
    target: Vec<u8>,
    id: Vec<u8>,
}

/// An address as text, and of what it is the text: connections ask again and again.
#[derive(Default)]
struct Formatted {
    address: Option<SocketAddr>,
    ip: Vec<u8>,
    port: Vec<u8>,
}

impl Formatted {
    fn set(&mut self, address: Option<SocketAddr>) {
        if self.address == address && address.is_some() {
            return;
        }
        self.address = address;
        self.ip.clear();
        self.port.clear();
        if let Some(address) = address {
            // Writing to a Vec cannot fail.
            let _ = write!(self.ip, "{}", address.ip().to_canonical());
            let _ = write!(self.port, "{}", address.port());
        }
    }
}

impl FieldWriter {
    /// Encodes into `out`, which must be empty.
    #[allow(clippy::too_many_arguments)]
    pub fn encode(
        &mut self,
        out: &mut Vec<u8>,
        head: &RequestHead<'_>,
        path: &UrlPath,
        script: &Script<'_>,
        (peer, local): (&Peer, &Local),
        now: &Now,
        id: u64,
    ) -> Result<(), TooLarge> {
        use std::os::unix::ffi::OsStrExt;
        self.remote.set(match peer {
            Peer::Tcp(address) => Some(*address),
            Peer::Unix => None,
        });
        self.server.set(match local.address {
            LocalAddress::Tcp(address) => Some(address),
            LocalAddress::Unix(_) => None,
        });
        let root = script.root.as_os_str().as_bytes();
        self.filename.clear();
        self.filename
            .extend_from_slice(root.strip_suffix(b"/").unwrap_or(root));
        self.filename.extend_from_slice(script.name.as_bytes());
        self.id.clear();
        let _ = write!(self.id, "{id:016x}");
        let (host, port) = split_port(head.host.unwrap_or_default());
        // The listener's own port is the truth; the client's word stands where there is none.
        let port = match self.server.port.as_slice() {
            [] => port.unwrap_or("80").as_bytes(),
            own => own,
        };
        let host = match host {
            "" if self.server.ip.is_empty() => b"localhost".as_slice(),
            "" => &self.server.ip,
            host => host.as_bytes(),
        };
        // An absolute target has told its host; the application gets the rest, as always.
        let target = match head.target.as_bytes() {
            origin @ [b'/' | b'*', ..] => origin,
            _ => {
                self.target.clear();
                self.target.extend_from_slice(head.path.as_bytes());
                if let Some(query) = head.query {
                    self.target.push(b'?');
                    self.target.extend_from_slice(query.as_bytes());
                }
                &self.target
            }
        };
        let mut fields: [&[u8]; Field::COUNT] = [b""; Field::COUNT];
        let mut set = |field: Field, value| fields[field as usize] = value;
        set(Field::Method, head.method.as_bytes());
        set(Field::Target, target);
        set(Field::Path, path.as_str().as_bytes());
        set(Field::Query, head.query.unwrap_or_default().as_bytes());
        set(
            Field::Protocol,
            match head.version {
                Version::Http10 => b"HTTP/1.0",
                Version::Http11 => b"HTTP/1.1",
            },
        );
        set(Field::Scheme, b"http");
        set(Field::Host, host);
        set(Field::ServerAddr, &self.server.ip);
        set(Field::ServerPort, port);
        set(Field::RemoteAddr, &self.remote.ip);
        set(Field::RemotePort, &self.remote.port);
        set(Field::DocumentRoot, root);
        set(Field::ScriptName, script.name.as_bytes());
        set(Field::ScriptFilename, &self.filename);
        set(Field::PathInfo, script.path_info.as_bytes());
        set(Field::RequestId, &self.id);
        let headers = || {
            head.headers()
                .map(|header| (header.name.as_bytes(), header.value))
        };
        request::encode(out, now.wall_ns, &fields, headers().count(), headers())
    }
}

/// A validated host, and its port if it has one.
fn split_port(host: &str) -> (&str, Option<&str>) {
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
