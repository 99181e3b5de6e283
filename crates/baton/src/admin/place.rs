//! Where the admin API's socket lies, and where a client finds it.

use std::fs::{DirBuilder, Metadata};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// What `--admin` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    Off,
    At(At),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            At::Unix(path) => write!(f, "unix:{}", path.display()),
            At::Tcp(address) => write!(f, "{address}"),
        }
    }
}

impl Asked {
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Asked::Off),
            _ => At::parse(text).map(Asked::At),
        }
    }
}

impl At {
    pub fn parse(text: &str) -> Result<Self, String> {
        const EXPECTED: &str = "expected unix:/path or HOST:PORT";
        match text.strip_prefix("unix:") {
            Some("") => Err(format!("a path is missing; {EXPECTED}")),
            Some(path) => Ok(At::Unix(path.into())),
            None => {
                let mut found = text
                    .to_socket_addrs()
                    .map_err(|error| format!("{error}; {EXPECTED}"))?;
                let first = found.next().map(At::Tcp);
                first.ok_or_else(|| "the host has no address".into())
            }
        }
    }
}

/// The folder that servers of this account keep their sockets in: the service manager's, else `/run/baton` for root, else
/// the user's, else one below `/tmp`.
pub fn folder() -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    // Several are separated by colons (systemd.exec(5)).
    let of_service = variable("RUNTIME_DIRECTORY").and_then(|folders| {
        let folders = folders.into_string().ok()?;
        folders.split(':').next().map(PathBuf::from)
    });
    if let Some(folder) = of_service.filter(|folder| folder.is_absolute()) {
        return folder;
    }
    let user = rustix::process::geteuid();
    if user.is_root() {
        return "/run/baton".into();
    }
    match variable("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(folder) if folder.is_absolute() => folder.join("baton"),
        _ => format!("/tmp/baton-{}", user.as_raw()).into(),
    }
}

/// A socket of this process's own in [`folder`], which is made if it is not there. Sockets of servers that are no more
/// are removed from it.
pub fn default_socket() -> Result<At, String> {
    let folder = folder();
    prepare(&folder)?;
    remove_stale(&folder);
    Ok(At::Unix(
        folder.join(format!("{}.sock", std::process::id())),
    ))
}

fn prepare(folder: &Path) -> Result<(), String> {
    // Root's may have sockets for others in it, such as for a proxy; the admin API's lets nobody else in.
    let mode = match rustix::process::geteuid().is_root() {
        true => 0o755,
        false => 0o700,
    };
    let made = DirBuilder::new().mode(mode).create(folder);
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(format!("cannot make {}: {error}", folder.display()));
        }
        _ => {}
    }
    // Of a link, the link itself: somebody else may have put it there.
    let found = std::fs::symlink_metadata(folder)
        .map_err(|error| format!("cannot look at {}: {error}", folder.display()))?;
    match is_ours(&found) {
        true => Ok(()),
        false => Err(format!(
            "{} is no folder that only this account may write to",
            folder.display()
        )),
    }
}

fn is_ours(found: &Metadata) -> bool {
    let is_closed = found.mode() & 0o022 == 0;
    found.is_dir() && is_closed && found.uid() == rustix::process::geteuid().as_raw()
}

/// The sockets in the folder, with the process that each is named after.
fn sockets(folder: &Path) -> Vec<(PathBuf, u32)> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let socket = |entry: io::Result<std::fs::DirEntry>| {
        let entry = entry.ok()?;
        let name = entry.file_name().into_string().ok()?;
        let pid = name.strip_suffix(".sock")?.parse().ok()?;
        entry
            .file_type()
            .ok()?
            .is_socket()
            .then(|| (entry.path(), pid))
    };
    let mut found: Vec<_> = entries.filter_map(socket).collect();
    found.sort_by_key(|(_, pid)| *pid);
    found
}

/// A server that is just starting has bound its socket and does not listen yet, so its process must be gone as well.
fn remove_stale(folder: &Path) {
    for (path, pid) in sockets(folder) {
        let is_refused = UnixStream::connect(&path)
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
        if is_refused && !Path::new(&format!("/proc/{pid}")).exists() {
            // Another server may have been faster.
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// The servers that answer in this account's folder.
pub fn running() -> Vec<PathBuf> {
    let found = sockets(&folder()).into_iter().map(|(path, _)| path);
    found
        .filter(|path| UnixStream::connect(path).is_ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("baton-admin-{}-{name}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn places_are_understood() {
        assert_eq!(Asked::parse("off"), Ok(Asked::Off));
        let unix = At::Unix("/run/x y.sock".into());
        assert_eq!(Asked::parse("unix:/run/x y.sock"), Ok(Asked::At(unix)));
        let tcp = At::Tcp(([127, 0, 0, 1], 2019).into());
        assert_eq!(Asked::parse("127.0.0.1:2019"), Ok(Asked::At(tcp)));
        for bad in [
            "",
            "on",
            "unix:",
            "8080",
            "127.0.0.1",
            "127.0.0.1:99999",
            ":80",
        ] {
            assert!(Asked::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused() {
        let folder = Folder::new("folder");
        prepare(&folder.0).expect("made");
        let mode = std::fs::metadata(&folder.0).expect("there").mode();
        assert_eq!(mode & 0o022, 0);
        prepare(&folder.0).expect("used again");
        let link = Folder::new("link");
        symlink(&folder.0, &link.0).expect("a link");
        assert!(prepare(&link.0).is_err());
        std::fs::remove_file(&link.0).expect("removed");
        std::fs::set_permissions(&folder.0, PermissionsExt::from_mode(0o770)).expect("changed");
        assert!(prepare(&folder.0).is_err());
    }

    #[test]
    fn only_sockets_of_the_dead_are_removed() {
        let folder = Folder::new("stale");
        prepare(&folder.0).expect("made");
        let path = |name: &str| folder.0.join(name);
        // No process has so high a number (proc(5), pid_max).
        let living = UnixListener::bind(path("4194305.sock")).expect("bound");
        let starting = format!("{}.sock", std::process::id());
        for name in ["4194306.sock", "web.sock", &starting] {
            drop(UnixListener::bind(path(name)).expect("bound"));
        }
        std::fs::write(path("4194307.sock"), "").expect("written");
        remove_stale(&folder.0);
        assert!(!path("4194306.sock").exists());
        for name in ["4194305.sock", "web.sock", "4194307.sock", &starting] {
            assert!(path(name).exists(), "{name}");
        }
        drop(living);
    }
}
