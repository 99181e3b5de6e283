//! The folder whose files are served: what may be opened in it, and as whom.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::account::Account;
use crate::gateway::resolve::is_source;

/// With a link that has `..` in it, a rename anywhere on the machine makes the kernel give up (openat2(2), EAGAIN).
const TRIES_MAX: u32 = 16;

pub struct Root {
    folder: OwnedFd,
    follow: bool,
    account: Option<Account>,
}

/// Why there is nothing to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Nothing has that name, any more.
    Absent,
    /// It is no regular file, or a link leads to what is not to be sent.
    NoFile,
    /// The account may not read it.
    Forbidden,
    /// Not now: descriptors or memory ran out, or the disk failed.
    Trouble,
}

impl Root {
    /// `follow`: links may lead out of the folder. `account`: whose permissions count, if not the front's own.
    ///
    /// # Errors
    /// The folder cannot be opened; there is no openat2(2); or the account cannot be taken.
    pub fn open(path: &Path, follow: bool, account: Option<&Account>) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        let root = Self {
            folder,
            follow,
            account: account.cloned(),
        };
        root.as_account(|| ())?;
        match root.open_with(Path::new("."), flags, ResolveFlags::BENEATH) {
            Err(Errno::NOSYS | Errno::PERM) => Err(io::Error::other(
                "openat2 is not allowed here: it takes Linux 5.6, and a seccomp profile that knows it",
            )),
            _ => Ok(root),
        }
    }

    /// Runs `f` with the permissions of the account whose files these are.
    pub fn as_account<T>(&self, f: impl FnOnce() -> T) -> io::Result<T> {
        match &self.account {
            Some(account) => account.with_file_access(f),
            None => Ok(f()),
        }
    }

    /// A regular file, and what is known of it. Never waits for the other end of a FIFO.
    pub fn open_file(&self, relative: &Path) -> Result<(File, Stat), Missing> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let mut is_linked = false;
        let mut opened = self.open_with(
            relative,
            flags,
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
        );
        if matches!(opened, Err(Errno::LOOP)) {
            is_linked = true;
            let within = match self.follow {
                true => ResolveFlags::empty(),
                false => ResolveFlags::BENEATH,
            };
            opened = self.open_with(relative, flags, within | ResolveFlags::NO_MAGICLINKS);
        }
        let file = File::from(opened.map_err(|error| missing(relative, error))?);
        if is_linked && is_source(Path::new(&real_name(&file))) {
            return Err(Missing::NoFile);
        }
        let stat = rustix::fs::fstat(&file).map_err(|error| missing(relative, error))?;
        let is_regular = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file();
        match is_regular {
            true => Ok((file, stat)),
            false => Err(Missing::NoFile),
        }
    }

    fn open_with(
        &self,
        relative: &Path,
        flags: OFlags,
        resolve: ResolveFlags,
    ) -> Result<OwnedFd, Errno> {
        for _ in 1..TRIES_MAX {
            match rustix::fs::openat2(&self.folder, relative, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                result => return result,
            }
        }
        rustix::fs::openat2(&self.folder, relative, flags, Mode::empty(), resolve)
    }
}

/// The name behind all links. Unknown, it is one that is not sent.
fn real_name(file: &File) -> String {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let path = std::fs::read_link(link).unwrap_or_else(|_| "unknown.php".into());
    let path = path.to_string_lossy();
    // proc(5): the name of a file that was removed meanwhile.
    path.trim_end_matches(" (deleted)").to_owned()
}

fn missing(relative: &Path, error: Errno) -> Missing {
    match error {
        Errno::NOENT | Errno::NOTDIR => Missing::Absent,
        // A link that leads out, or in circles; a socket; a device without a driver.
        Errno::XDEV | Errno::LOOP | Errno::NXIO | Errno::NODEV => Missing::NoFile,
        Errno::ACCESS | Errno::PERM => Missing::Forbidden,
        error => {
            tracing::error!("cannot open {}: {error}", relative.display());
            Missing::Trouble
        }
    }
}
