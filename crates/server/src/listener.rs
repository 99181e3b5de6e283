//! Listening sockets: bound once at start, then owned by the I/O threads.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::sockopt::{
    set_ipv6_v6only, set_socket_reuseaddr, set_socket_reuseport, set_tcp_nodelay,
};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, getsockname, listen, socket_with,
};

use crate::config::Listen;
use crate::service::LocalAddress;

/// The kernel lowers it to net.core.somaxconn.
const BACKLOG_MAX: i32 = 4096;

/// One I/O thread's share of a listener.
pub(crate) struct Listener {
    /// Unix sockets are shared by all I/O threads.
    socket: Arc<OwnedFd>,
    pub(crate) address: LocalAddress,
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
    pub(crate) address: LocalAddress,
    sockets: Vec<Arc<OwnedFd>>,
    pub(crate) file: Option<SocketFile>,
}

impl Bound {
    pub(crate) fn share(&self, io_thread: usize) -> Listener {
        let socket = &self.sockets[io_thread % self.sockets.len()];
        Listener {
            socket: Arc::clone(socket),
            address: self.address.clone(),
            ready: true,
        }
    }
}

/// Binds; the error names the address.
pub(crate) fn bind_all(listen: &Listen, io_threads: usize) -> io::Result<Bound> {
    let (name, bound) = match listen {
        Listen::Tcp(address) => (address.to_string(), bind_tcp(*address, io_threads)),
        Listen::Unix { path, mode } => (path.display().to_string(), bind_unix(path, *mode)),
    };
    bound.map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {name}: {error}")))
}

fn bind_tcp(address: SocketAddr, io_threads: usize) -> io::Result<Bound> {
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
    Ok(Bound {
        address: LocalAddress::Tcp(address),
        sockets: sockets.into_iter().map(Arc::new).collect(),
        file: None,
    })
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

fn bind_unix(path: &Path, mode: Option<u32>) -> io::Result<Bound> {
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
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    }
    listen(&socket, BACKLOG_MAX)?;
    Ok(Bound {
        address: LocalAddress::Unix(Arc::from(path)),
        sockets: vec![Arc::new(socket)],
        file: Some(file),
    })
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
