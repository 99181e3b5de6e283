//! Listening sockets: bound once, then owned by the I/O threads.

use std::ffi::OsStr;
use std::io;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::sockopt::{
    set_ipv6_v6only, set_socket_reuseaddr, set_socket_reuseport, set_tcp_nodelay,
    socket_acceptconn, socket_type,
};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, getsockname, listen, socket_with,
};

use crate::config::{Listen, ListenAt};
use crate::service::LocalAddress;

/// The kernel lowers it to net.core.somaxconn.
const BACKLOG_MAX: i32 = 4096;

/// One I/O thread's share of a listener.
pub(crate) struct Listener {
    /// That of its [`Bound`]; names it in epoll.
    pub(crate) number: u64,
    socket: Arc<OwnedFd>,
    pub(crate) address: LocalAddress,
    pub(crate) proxy_protocol: bool,
    /// Other I/O threads wait on the same socket.
    pub(crate) shared: bool,
    /// Edge-triggered: connections may wait in the backlog until accept says EAGAIN.
    pub(crate) ready: bool,
}

impl Listener {
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A listener, bound for all I/O threads.
pub(crate) struct Bound {
    pub(crate) number: u64,
    /// As it was asked for.
    pub(crate) listen: Listen,
    pub(crate) address: LocalAddress,
    sockets: Sockets,
}

#[derive(Clone)]
struct Sockets {
    /// One for each I/O thread, or one for all.
    list: Vec<Arc<OwnedFd>>,
    /// Removed with the last that needs it.
    file: Option<Arc<SocketFile>>,
}

impl Bound {
    /// Binds; the error names the address.
    pub(crate) fn open(listen: &Listen, number: u64, io_threads: usize) -> io::Result<Bound> {
        let (name, bound) = match &listen.at {
            ListenAt::Tcp(address) => (address.to_string(), bind_tcp(*address, io_threads)),
            ListenAt::Unix { path, mode } => (path.display().to_string(), bind_unix(path, *mode)),
            ListenAt::Made(socket) => (format!("descriptor {}", socket.as_raw_fd()), adopt(socket)),
        };
        let (address, sockets) = bound.map_err(|error| {
            io::Error::new(error.kind(), format!("cannot listen on {name}: {error}"))
        })?;
        Ok(Bound {
            number,
            listen: listen.clone(),
            address,
            sockets,
        })
    }

    /// Whether this address is the one that was asked for, or picked.
    pub(crate) fn is_at(&self, at: &ListenAt) -> bool {
        let is_picked = matches!((at, &self.address),
            (ListenAt::Tcp(wanted), LocalAddress::Tcp(picked)) if wanted == picked);
        is_picked || self.listen.at.is_same_place(at)
    }

    pub(crate) fn file(&self) -> Option<Arc<SocketFile>> {
        self.sockets.file.clone()
    }

    /// The same sockets, of which something else is expected.
    pub(crate) fn with(&self, listen: &Listen, number: u64) -> Bound {
        Bound {
            number,
            listen: listen.clone(),
            address: self.address.clone(),
            sockets: self.sockets.clone(),
        }
    }

    /// For a socket that was open before it was said who may use it.
    pub(crate) fn set_mode(&self) {
        if let ListenAt::Unix {
            path,
            mode: Some(mode),
        } = &self.listen.at
            && let Err(error) = set_mode(path, *mode)
        {
            tracing::error!(%error, "cannot change the permissions of {}", path.display());
        }
    }

    pub(crate) fn share(&self, io_thread: usize) -> Listener {
        let sockets = &self.sockets.list;
        let socket = &sockets[io_thread % sockets.len()];
        Listener {
            number: self.number,
            socket: Arc::clone(socket),
            address: self.address.clone(),
            proxy_protocol: self.listen.proxy_protocol,
            shared: sockets.len() == 1,
            ready: true,
        }
    }
}

/// Takes a socket over that listens already.
fn adopt(socket: &Arc<OwnedFd>) -> io::Result<(LocalAddress, Sockets)> {
    if socket_type(socket)? != SocketType::STREAM || !socket_acceptconn(socket)? {
        let kind = io::ErrorKind::InvalidInput;
        return Err(io::Error::new(kind, "it is no stream socket that listens"));
    }
    fcntl_setfl(socket, fcntl_getfl(socket)? | OFlags::NONBLOCK)?;
    fcntl_setfd(socket, FdFlags::CLOEXEC)?;
    let address = match SocketAddrUnix::try_from(getsockname(socket)?) {
        Ok(unix) => {
            // An abstract name begins with @, as in ss(8).
            let name = match (unix.path_bytes(), unix.abstract_name()) {
                (Some(path), _) => path.to_vec(),
                (None, Some(name)) => [b"@", name].concat(),
                (None, None) => Vec::new(),
            };
            LocalAddress::Unix(Arc::from(Path::new(OsStr::from_bytes(&name))))
        }
        Err(_) => {
            set_tcp_nodelay(socket, true)?;
            LocalAddress::Tcp(SocketAddr::try_from(getsockname(socket)?)?)
        }
    };
    let list = vec![Arc::clone(socket)];
    Ok((address, Sockets { list, file: None }))
}

fn bind_tcp(address: SocketAddr, io_threads: usize) -> io::Result<(LocalAddress, Sockets)> {
    // With SO_REUSEPORT a second server of the same user would share the port in silence. A socket without it finds that
    // out, and picks the port where none was asked for.
    let only = bind_one(address, false)?;
    let address = SocketAddr::try_from(getsockname(&only)?)?;
    let mut sockets = Vec::new();
    if io_threads == 1 {
        sockets.push(only);
    } else {
        drop(only);
        for _ in 0..io_threads {
            sockets.push(bind_one(address, true)?);
        }
    }
    for socket in &sockets {
        listen(socket, BACKLOG_MAX)?;
    }
    let list = sockets.into_iter().map(Arc::new).collect();
    Ok((LocalAddress::Tcp(address), Sockets { list, file: None }))
}

fn bind_one(address: SocketAddr, share_port: bool) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let socket = socket_with(
        family,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    set_socket_reuseaddr(&socket, true)?;
    // Accepted sockets inherit it, so a connection costs no call for it.
    set_tcp_nodelay(&socket, true)?;
    if address.is_ipv6() {
        set_ipv6_v6only(&socket, true)?;
    }
    if share_port {
        set_socket_reuseport(&socket, true)?;
    }
    bind(&socket, &address)?;
    Ok(socket)
}

fn bind_unix(path: &Path, mode: Option<u32>) -> io::Result<(LocalAddress, Sockets)> {
    remove_stale(path)?;
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    let file = SocketFile::new(path)?;
    if let Some(mode) = mode {
        set_mode(path, mode)?;
    }
    listen(&socket, BACKLOG_MAX)?;
    let sockets = Sockets {
        list: vec![Arc::new(socket)],
        file: Some(Arc::new(file)),
    };
    Ok((LocalAddress::Unix(Arc::from(path)), sockets))
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

/// Removes a socket file that nobody listens on any more; whatever else lies there is left alone.
fn remove_stale(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path)
            }
            _ => Err(io::Error::from(io::ErrorKind::AddrInUse)),
        },
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "a file that is no socket is in the way",
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Removes the socket's file at the end, unless another server has put its own there meanwhile.
pub(crate) struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    fn new(path: &Path) -> io::Result<SocketFile> {
        let found = std::fs::symlink_metadata(path)?;
        Ok(SocketFile {
            path: path.to_path_buf(),
            identity: (found.dev(), found.ino()),
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let found = std::fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| (found.dev(), found.ino()) == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
