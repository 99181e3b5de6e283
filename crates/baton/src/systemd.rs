//! What systemd gives to a service and hears from it: sockets (sd_listen_fds(3)) and news of its state (sd_notify(3)).
//!
//! App processes get neither: their environment is made anew, and descriptors are closed in them.

use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use listenfd::ListenFd;
use rustix::time::{ClockId, clock_gettime};

const SOCKETS_MAX: usize = 1024;
/// What systemd may take to read a message.
const SEND_BOUND: Duration = Duration::from_secs(1);

/// A socket that systemd opened.
#[derive(Clone)]
pub struct Passed {
    /// FileDescriptorName= of its unit; by default that of the unit.
    pub name: String,
    pub socket: Arc<OwnedFd>,
}

/// The sockets that were passed to this process. To be called once, before anything else opens a descriptor.
pub fn take_sockets() -> Result<Vec<Passed>, String> {
    let variable = |name| std::env::var(name).ok();
    // Meant for another process, which started this one and did not clean up.
    if variable("LISTEN_PID").and_then(|pid| pid.parse().ok()) != Some(std::process::id()) {
        return Ok(Vec::new());
    }
    let count: usize = variable("LISTEN_FDS")
        .and_then(|count| count.parse().ok())
        .filter(|count| *count <= SOCKETS_MAX)
        .ok_or("LISTEN_FDS is no number of sockets; see sd_listen_fds(3)")?;
    let names = variable("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let mut descriptors = ListenFd::from_env();
    let mut passed = Vec::new();
    for index in 0..count {
        let name = match names.next() {
            None | Some("") => "unknown".to_owned(),
            Some(name) => name.to_owned(),
        };
        let socket = take_socket(&mut descriptors, index).map_err(|error| {
            format!(
                "systemd passed descriptor {} ({name}), which is no listening stream socket: {error}",
                3 + index
            )
        })?;
        let socket = Arc::new(socket);
        passed.push(Passed { name, socket });
    }
    Ok(passed)
}

fn take_socket(descriptors: &mut ListenFd, index: usize) -> io::Result<OwnedFd> {
    if let Ok(Some(tcp)) = descriptors.take_tcp_listener(index) {
        return Ok(TcpListener::into(tcp));
    }
    let unix = descriptors.take_unix_listener(index)?;
    unix.map(UnixListener::into)
        .ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Tells systemd how the service is doing, if it wants to know.
pub struct Notifier {
    socket: Option<UnixDatagram>,
    is_up: AtomicBool,
}

impl Notifier {
    /// By `NOTIFY_SOCKET`. Without one nothing is ever sent.
    pub fn from_env() -> Notifier {
        let name = std::env::var("NOTIFY_SOCKET").ok();
        let socket = name.and_then(|name| {
            let connected = connect(&name);
            connected
                .inspect_err(|error| tracing::warn!("cannot notify systemd at {name}: {error}"))
                .ok()
        });
        Notifier {
            socket,
            is_up: AtomicBool::new(false),
        }
    }

    pub fn ready(&self, status: &str) {
        self.is_up.store(true, Ordering::Relaxed);
        self.send(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// Frames a reload, of which `work` says how it went. A service that is not up yet stays so.
    pub fn reload(&self, work: impl FnOnce() -> String) {
        let is_up = self.is_up.load(Ordering::Relaxed);
        if is_up {
            let now = clock_gettime(ClockId::Monotonic);
            let now_us = now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000;
            self.send(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}"));
        }
        let status = work();
        if is_up {
            self.send(&format!("READY=1\nSTATUS={}", one_line(&status)));
        }
    }

    pub fn stopping(&self, status: &str) {
        self.send(&format!("STOPPING=1\nSTATUS={}", one_line(status)));
    }

    fn send(&self, message: &str) {
        let Some(socket) = &self.socket else { return };
        if let Err(error) = socket.send(message.as_bytes()) {
            tracing::warn!("cannot notify systemd: {error}");
        }
    }
}

/// A path, or the name of an abstract socket behind an @.
fn connect(name: &str) -> io::Result<UnixDatagram> {
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_write_timeout(Some(SEND_BOUND))?;
    Ok(socket)
}

/// A line break would begin another message.
fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}
