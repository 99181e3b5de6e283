//! Where to listen, as the options say it: an address, and words behind it.

use std::fmt::{self, Display};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use baton_server::{ListenAt, LocalAddress};

use crate::systemd::Passed;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    pub at: At,
    pub proxy_protocol: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    Tcp(SocketAddr),
    Unix {
        path: PathBuf,
        mode: Option<u32>,
    },
    /// Sockets that systemd passes: those of this name, or all.
    Systemd(Option<String>),
}

impl Listen {
    /// Two of the same cannot both be opened.
    pub fn is_taken_by(&self, other: &Self) -> bool {
        let picks_free_port = matches!(self.at, At::Tcp(address) if address.port() == 0);
        self.at == other.at && !picks_free_port
    }
}

impl Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            At::Tcp(address) => write!(f, "{address}"),
            At::Unix { path, .. } => write!(f, "unix:{}", path.display()),
            At::Systemd(None) => f.write_str("systemd"),
            At::Systemd(Some(name)) => write!(f, "systemd:{name}"),
        }
    }
}

const EXPECTED: &str = "expected HOST:PORT, :PORT, unix:/path or systemd, and behind it proxy_protocol or, for unix, mode=0660";

/// Also for paths with spaces in them: the words are taken from the end.
pub fn parse(text: &str) -> Result<Listen, String> {
    let mut address = text;
    let mut proxy_protocol = false;
    let mut socket_mode = None;
    while let Some((before, word)) = address.rsplit_once(' ') {
        match word.strip_prefix("mode=") {
            _ if word == "proxy_protocol" => proxy_protocol = true,
            Some(mode) => socket_mode = Some(parse_mode(mode)?),
            None => break,
        }
        address = before.trim_end();
    }
    let at = parse_at(address, socket_mode)?;
    if socket_mode.is_some() && !matches!(at, At::Unix { .. }) {
        return Err("mode= is for unix sockets".into());
    }
    Ok(Listen { at, proxy_protocol })
}

fn parse_at(address: &str, mode: Option<u32>) -> Result<At, String> {
    if let Some(path) = address.strip_prefix("unix:") {
        return match path.is_empty() {
            true => Err("a path is expected after unix:".into()),
            false => Ok(At::Unix {
                path: path.into(),
                mode,
            }),
        };
    }
    match address.strip_prefix("systemd") {
        Some("") => return Ok(At::Systemd(None)),
        Some(name) if name.len() > 1 && name.starts_with(':') => {
            return Ok(At::Systemd(Some(name[1..].into())));
        }
        _ => {}
    }
    let full = match address.starts_with(':') {
        true => format!("0.0.0.0{address}"),
        false => address.to_owned(),
    };
    let mut found = full
        .to_socket_addrs()
        .map_err(|error| format!("{error}; {EXPECTED}"))?;
    let first = found.next().map(At::Tcp);
    first.ok_or_else(|| "the host has no address".into())
}

fn parse_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok();
    mode.filter(|mode| *mode <= 0o777)
        .ok_or_else(|| "mode= takes permissions such as 0660".into())
}

/// The listeners to open, with the sockets that systemd passed in their places.
pub fn resolve(listen: &[Listen], passed: &[Passed]) -> Result<Vec<baton_server::Listen>, String> {
    let all_of_systemd = [Listen {
        at: At::Systemd(None),
        proxy_protocol: false,
    }];
    let by_hand = listen.iter().any(|one| matches!(one.at, At::Systemd(_)));
    match passed.is_empty() || by_hand {
        true => place(listen, passed.to_vec()),
        false => place(&all_of_systemd, passed.to_vec()),
    }
}

fn place(listen: &[Listen], mut passed: Vec<Passed>) -> Result<Vec<baton_server::Listen>, String> {
    let mut resolved = Vec::new();
    for one in listen {
        let sockets = match &one.at {
            At::Tcp(address) => vec![ListenAt::Tcp(*address)],
            At::Unix { path, mode } => vec![ListenAt::Unix {
                path: path.clone(),
                mode: *mode,
            }],
            At::Systemd(name) => take(&mut passed, name.as_deref())?,
        };
        let proxy_protocol = one.proxy_protocol;
        resolved.extend(
            sockets
                .into_iter()
                .map(|at| baton_server::Listen { at, proxy_protocol }),
        );
    }
    match passed.first() {
        None => Ok(resolved),
        // Nobody would ever answer there.
        Some(left) => Err(format!(
            "systemd passed a socket named {} that no --listen names; add systemd:{0}",
            left.name
        )),
    }
}

fn take(passed: &mut Vec<Passed>, name: Option<&str>) -> Result<Vec<ListenAt>, String> {
    let names: Vec<&str> = passed.iter().map(|socket| socket.name.as_str()).collect();
    let names = match names.is_empty() {
        true => "none".into(),
        false => names.join(", "),
    };
    let (taken, left) = std::mem::take(passed)
        .into_iter()
        .partition::<Vec<_>, _>(|socket| name.is_none_or(|name| socket.name == name));
    *passed = left;
    match (taken.is_empty(), name) {
        (true, Some(name)) => Err(format!(
            "systemd passed no socket named {name}, but {names}; see FileDescriptorName= in its unit"
        )),
        (true, None) => Err(
            "systemd passed no socket; start this by its .socket unit, or give an address with --listen"
                .into(),
        ),
        (false, _) => Ok(taken
            .into_iter()
            .map(|socket| ListenAt::Made(socket.socket))
            .collect()),
    }
}

/// Why an address cannot be listened on, with the remedy.
pub fn explain(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            format!("{error}; another server listens there, give another with --listen")
        }
        std::io::ErrorKind::PermissionDenied => {
            format!("{error}; ports below 1024 need root or CAP_NET_BIND_SERVICE")
        }
        _ => error.to_string(),
    }
}

/// For people.
pub fn url(address: &LocalAddress) -> String {
    match address {
        LocalAddress::Tcp(address) => format!("http://{address}"),
        LocalAddress::Unix(path) => format!("unix:{}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::sync::Arc;

    #[test]
    fn addresses_are_understood() {
        let local = |proxy_protocol| Listen {
            at: At::Tcp(([127, 0, 0, 1], 80).into()),
            proxy_protocol,
        };
        assert_eq!(parse("127.0.0.1:80"), Ok(local(false)));
        assert_eq!(parse("127.0.0.1:80 proxy_protocol"), Ok(local(true)));
        assert!(
            matches!(parse(":8080"), Ok(Listen { at: At::Tcp(a), .. }) if a.is_ipv4() && a.port() == 8080)
        );
        let unix = |path: &str, mode, proxy_protocol| Listen {
            at: At::Unix {
                path: path.into(),
                mode,
            },
            proxy_protocol,
        };
        assert_eq!(parse("unix:/run/x"), Ok(unix("/run/x", None, false)));
        assert_eq!(
            parse("unix:/run/a b mode=660 proxy_protocol"),
            Ok(unix("/run/a b", Some(0o660), true))
        );
        assert_eq!(
            parse("unix:/run/x proxy_protocol  mode=0777"),
            Ok(unix("/run/x", Some(0o777), true))
        );
        assert_eq!(parse("systemd").map(|l| l.at), Ok(At::Systemd(None)));
        assert_eq!(
            parse("systemd:web proxy_protocol").map(|l| (l.at, l.proxy_protocol)),
            Ok((At::Systemd(Some("web".into())), true))
        );
        for bad in [
            "",
            "unix:",
            "8080",
            "127.0.0.1",
            "127.0.0.1:99999",
            "127.0.0.1:80 proxy",
            "127.0.0.1:80 mode=0660",
            "unix:/run/x mode=888",
            "unix:/run/x mode=07777",
            "systemd:",
            "systemd mode=0660",
            "proxy_protocol",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    fn passed(names: &[&str]) -> Vec<Passed> {
        let socket = |name: &&str| Passed {
            name: (*name).into(),
            socket: Arc::new(File::open("/dev/null").expect("always there").into()),
        };
        names.iter().map(socket).collect()
    }

    fn resolved(listen: &[&str], names: &[&str]) -> Result<Vec<(bool, bool)>, String> {
        let listen: Vec<Listen> = listen.iter().map(|l| parse(l).expect("good")).collect();
        let resolved = resolve(&listen, &passed(names))?;
        Ok(resolved
            .iter()
            .map(|l| (matches!(l.at, ListenAt::Made(_)), l.proxy_protocol))
            .collect())
    }

    #[test]
    fn passed_sockets_replace_the_others_unless_they_are_named() {
        assert_eq!(resolved(&["127.0.0.1:1"], &[]), Ok(vec![(false, false)]));
        assert_eq!(
            resolved(&["127.0.0.1:1"], &["a", "a"]),
            Ok(vec![(true, false), (true, false)])
        );
        assert_eq!(
            resolved(
                &["systemd:b proxy_protocol", "127.0.0.1:1", "systemd"],
                &["a", "b"]
            ),
            Ok(vec![(true, true), (false, false), (true, false)])
        );
        assert!(
            resolved(&["systemd:b"], &["a"]).is_err_and(|e| e.contains("no socket named b, but a"))
        );
        assert!(resolved(&["systemd"], &[]).is_err());
        assert!(resolved(&["systemd:a"], &["a", "b"]).is_err_and(|e| e.contains("systemd:b")));
    }
}
