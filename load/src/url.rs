//! Where the load goes: `http://host[:port][/path]`, or `unix:/path/of/socket[:/path]`.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Deserialize;

/// unix(7): sun_path, less its final NUL.
const SOCKET_PATH_BYTES_MAX: usize = 107;
const URL_BYTES_MAX: usize = 65_536;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Url {
    pub server: Server,
    /// Path and query, from the first `/` on.
    pub path: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// A name, an IPv4 address, or an IPv6 address without its brackets.
    Tcp {
        host: String,
        port: u16,
    },
    Unix(PathBuf),
}

/// An address that can be connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Url, String> {
        if text.len() > URL_BYTES_MAX {
            return Err(format!("the URL is longer than {URL_BYTES_MAX} bytes"));
        }
        if let Some(byte) = text.bytes().find(|byte| !(0x21..=0x7e).contains(byte)) {
            return Err(format!(
                "the URL has the byte 0x{byte:02x}; spaces, control and non-ASCII characters must be written as %XX"
            ));
        }
        if let Some(rest) = text.strip_prefix("unix:") {
            return unix(rest);
        }
        let Some(rest) = strip_prefix_ignoring_case(text, "http://") else {
            return Err(match strip_prefix_ignoring_case(text, "https://") {
                Some(_) => {
                    format!("`{text}`: TLS is not supported; give the server's plain HTTP port")
                }
                None => format!(
                    "`{text}` is no URL; write http://host:port/path or unix:/path/of/socket:/path"
                ),
            });
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err(format!(
                "`{text}` has a user name; send it as --header 'Authorization: ...'"
            ));
        }
        let server = tcp(authority).map_err(|wrong| format!("`{text}`: {wrong}"))?;
        Ok(Url {
            server,
            path: origin_form(path),
        })
    }
}

fn strip_prefix_ignoring_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix)
        .then(|| &text[prefix.len()..])
}

/// RFC 9112, section 3.2.1; a fragment is never sent.
fn origin_form(path: &str) -> String {
    let path = path.split('#').next().unwrap_or_default();
    match path.starts_with('/') {
        true => path.into(),
        false => format!("/{path}"),
    }
}

fn unix(rest: &str) -> Result<Url, String> {
    let (socket, path) = match rest.find(":/") {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => (rest, "/"),
    };
    if socket.is_empty() {
        return Err("a path is expected after unix:, such as unix:/run/app.sock:/path".into());
    }
    if socket.len() > SOCKET_PATH_BYTES_MAX {
        return Err(format!(
            "`{socket}`: the path of a socket has at most {SOCKET_PATH_BYTES_MAX} bytes"
        ));
    }
    Ok(Url {
        server: Server::Unix(socket.into()),
        path: origin_form(path),
    })
}

fn tcp(authority: &str) -> Result<Server, String> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']').ok_or("`[` without `]`")?;
            let address: Ipv6Addr = address
                .parse()
                .map_err(|_| format!("`{address}` is no IPv6 address"))?;
            let port = match port.strip_prefix(':') {
                Some(port) => port,
                None if port.is_empty() => "",
                None => return Err(format!("`:port` is expected after `]`, not `{port}`")),
            };
            (address.to_string(), port)
        }
        None => {
            let (host, port) = authority.split_once(':').unwrap_or((authority, ""));
            let good = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
            if host.is_empty() || !host.chars().all(good) {
                return Err(format!("`{host}` is no host"));
            }
            (host.to_owned(), port)
        }
    };
    let port = match port {
        "" => 80,
        _ if port.bytes().all(|byte| byte.is_ascii_digit()) => port.parse().unwrap_or(0),
        _ => 0,
    };
    match port {
        0 => Err("the port must be a number from 1 to 65535".into()),
        port => Ok(Server::Tcp { host, port }),
    }
}

impl Server {
    /// The value of the Host field, RFC 9110, section 7.2.
    pub fn host_field(&self) -> String {
        match self {
            Server::Tcp { host, port: 80 } => bracketed(host),
            Server::Tcp { host, port } => format!("{}:{port}", bracketed(host)),
            Server::Unix(_) => "localhost".into(),
        }
    }

    /// Asks the resolver; all that it answers, in its order. Blocks.
    pub fn resolve(&self) -> Result<Vec<Address>, String> {
        match self {
            Server::Unix(path) => Ok(vec![Address::Unix(path.clone())]),
            Server::Tcp { host, port } => {
                let found = (host.as_str(), *port)
                    .to_socket_addrs()
                    .map_err(|error| format!("cannot resolve `{host}`: {error}"))?;
                let found: Vec<_> = found.map(Address::Tcp).collect();
                match found.is_empty() {
                    true => Err(format!("`{host}` has no address")),
                    false => Ok(found),
                }
            }
        }
    }
}

fn bracketed(host: &str) -> String {
    match host.contains(':') {
        true => format!("[{host}]"),
        false => host.into(),
    }
}

impl TryFrom<String> for Url {
    type Error = String;

    fn try_from(text: String) -> Result<Url, String> {
        text.parse()
    }
}

impl fmt::Display for Url {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.server {
            Server::Tcp { .. } => write!(out, "http://{}{}", self.server.host_field(), self.path),
            Server::Unix(socket) => write!(out, "unix:{}:{}", socket.display(), self.path),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(out),
            Address::Unix(path) => write!(out, "unix:{}", path.display()),
        }
    }
}

impl Address {
    pub fn unix_path(&self) -> Option<&Path> {
        match self {
            Address::Unix(path) => Some(path),
            Address::Tcp(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> (String, String) {
        let url: Url = text.parse().expect(text);
        (url.server.host_field(), url.path)
    }

    #[test]
    fn urls_name_a_server_and_a_path() {
        for (text, host, path) in [
            ("http://localhost", "localhost", "/"),
            ("http://localhost:80/", "localhost", "/"),
            ("HTTP://a.example:8080/x?y=1", "a.example:8080", "/x?y=1"),
            ("http://127.0.0.1:1?q", "127.0.0.1:1", "/?q"),
            ("http://h/a#b", "h", "/a"),
            ("http://h#b", "h", "/"),
            ("http://[::1]:8080/", "[::1]:8080", "/"),
            ("http://[::1]", "[::1]", "/"),
            ("unix:/run/a.sock", "localhost", "/"),
            (
                "unix:/run/a.sock:/index.php?x=1",
                "localhost",
                "/index.php?x=1",
            ),
            ("unix:relative.sock:/", "localhost", "/"),
        ] {
            assert_eq!(read(text), (host.into(), path.into()), "{text}");
            let url: Url = text.parse().expect(text);
            assert_eq!(url.to_string().parse(), Ok(url), "{text}");
        }
        let url: Url = "unix:/run/a:b.sock:/x".parse().expect("good");
        assert_eq!(url.server, Server::Unix("/run/a:b.sock".into()));
    }

    #[test]
    fn what_is_no_url_is_refused_with_a_reason() {
        for (text, reason) in [
            ("", "no URL"),
            ("localhost:8080", "no URL"),
            ("ftp://h/", "no URL"),
            ("https://h/", "TLS"),
            ("http://", "no host"),
            ("http://:80/", "no host"),
            ("http://u:p@h/", "user name"),
            ("http://h:0/", "port"),
            ("http://h:65536/", "port"),
            ("http://h:+80/", "port"),
            ("http://h:8 0/", "0x20"),
            ("http://h/\r\nX: y", "0x0d"),
            ("http://h/ä", "0xc3"),
            ("http://[::1/", "without"),
            ("http://[1]/", "IPv6"),
            ("http://[::1]x/", "expected"),
            ("http://a_b!/", "no host"),
            ("unix:", "path is expected"),
            ("unix::/x", "path is expected"),
        ] {
            let wrong = text.parse::<Url>().expect_err(text);
            assert!(wrong.contains(reason), "{text}: {wrong}");
        }
        assert!(format!("unix:/{}", "x".repeat(107)).parse::<Url>().is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,60}", tail in "[a-z0-9:/@#?.\\[\\]-]{0,30}") {
            let _ = text.parse::<Url>();
            for prefix in ["http://", "unix:"] {
                if let Ok(url) = format!("{prefix}{tail}").parse::<Url>() {
                    prop_assert!(url.path.starts_with('/'));
                    prop_assert_eq!(url.to_string().parse(), Ok(url));
                }
            }
        }
    }
}
