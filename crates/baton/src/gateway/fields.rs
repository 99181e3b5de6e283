//! What the app is told of a request: the fields and headers, encoded for the shared cell.

use std::io::Write;
use std::path::Path;

use baton_handoff::request::{self, Field, TooLarge};
use baton_server::http1::{RequestHead, Version};
use baton_server::{Local, LocalAddress, Now};

use super::caller::{Caller, split_port};
use super::forwarded::Node;
use super::resolve::UrlPath;
use crate::app::Pool;

/// The script that is to answer.
pub struct Script<'r> {
    root: &'r Path,
    /// The folder that its name begins at: the root, unless it is a worker that lies elsewhere.
    folder: &'r Path,
    name: &'r [u8],
    path_info: &'r [u8],
}

impl<'r> Script<'r> {
    /// One below the root, by its URL path.
    pub fn of_path(root: &'r Path, name: &'r [u8], path_info: &'r [u8]) -> Self {
        Self {
            root,
            folder: root,
            name,
            path_info,
        }
    }

    /// The one that answers in this pool for what has no file.
    pub fn front_of(pool: &'r Pool, path_info: &'r [u8]) -> Self {
        let project = &pool.app.project;
        let (folder, name) = match &pool.worker {
            Some(worker) => (&worker.script.folder, &worker.script.name),
            None => (&project.root, &project.index),
        };
        Self {
            root: &project.root,
            folder,
            name: name.as_bytes(),
            path_info,
        }
    }
}

/// Buffers for what has to be formatted, kept from request to request.
#[derive(Default)]
pub struct FieldWriter {
    remote: Formatted,
    server: Formatted,
    told_port: Vec<u8>,
    filename: Vec<u8>,
    target: Vec<u8>,
    id: Vec<u8>,
}

/// An address as text, and of what it is the text: connections ask again and again.
#[derive(Default)]
struct Formatted {
    node: Option<Node>,
    ip: Vec<u8>,
    port: Vec<u8>,
}

impl Formatted {
    fn set(&mut self, node: Option<Node>) {
        if self.node == node && node.is_some() {
            return;
        }
        self.node = node;
        self.ip.clear();
        self.port.clear();
        if let Some(node) = node {
            // Writing to a Vec cannot fail.
            let _ = write!(self.ip, "{}", node.address);
            let _ = node.port.map(|port| write!(self.port, "{port}"));
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
        (caller, local): (&Caller<'_>, &Local),
        now: &Now,
        id: u64,
    ) -> Result<(), TooLarge> {
        use std::os::unix::ffi::OsStrExt;
        self.remote.set(caller.remote);
        self.server.set(match local.address {
            LocalAddress::Tcp(address) => Some(Node {
                address: address.ip().to_canonical(),
                port: Some(address.port()),
            }),
            LocalAddress::Unix(_) => None,
        });
        self.told_port.clear();
        if let Some(port) = caller.port {
            let _ = write!(self.told_port, "{port}");
        }
        let root = script.root.as_os_str().as_bytes();
        let folder = script.folder.as_os_str().as_bytes();
        self.filename.clear();
        self.filename
            .extend_from_slice(folder.strip_suffix(b"/").unwrap_or(folder));
        self.filename.extend_from_slice(script.name);
        self.id.clear();
        let _ = write!(self.id, "{id:016x}");
        let (host, port) = split_port(caller.host.unwrap_or_default());
        // The listener's own port is the truth, unless a proxy knows better; the client's word stands where there is none.
        let port = match (self.told_port.as_slice(), self.server.port.as_slice()) {
            ([], []) => port.unwrap_or("80").as_bytes(),
            ([], own) => own,
            (told, _) => told,
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
        set(Field::Path, path.as_bytes());
        set(Field::Query, head.query.unwrap_or_default().as_bytes());
        set(
            Field::Protocol,
            match head.version {
                Version::Http10 => b"HTTP/1.0",
                Version::Http11 => b"HTTP/1.1",
            },
        );
        set(Field::Scheme, caller.scheme.as_str().as_bytes());
        set(Field::Host, host);
        set(Field::ServerAddr, &self.server.ip);
        set(Field::ServerPort, port);
        set(Field::RemoteAddr, &self.remote.ip);
        set(Field::RemotePort, &self.remote.port);
        set(Field::DocumentRoot, root);
        set(Field::ScriptName, script.name);
        set(Field::ScriptFilename, &self.filename);
        set(Field::PathInfo, script.path_info);
        set(Field::RequestId, &self.id);
        let headers = || {
            head.headers().map(|header| {
                let value = match caller.host {
                    Some(host) if header.name.eq_ignore_ascii_case("host") => host.as_bytes(),
                    _ => header.value,
                };
                (header.name.as_bytes(), value)
            })
        };
        request::encode(out, now.wall_ns, &fields, headers().count(), headers())
    }
}
