//! The account that application processes run as.

use std::ffi::CString;
use std::io;
use std::path::PathBuf;

use nix::unistd::{Gid, Uid, User, getgrouplist, setfsgid, setfsuid};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub home: PathBuf,
    /// All groups, as initgroups(3) gives them to app processes.
    groups: Vec<rustix::thread::Gid>,
}

/// `None`: the front is not root, so its own account it is. Never root.
pub fn for_app_processes(name: &str) -> Result<Option<Account>, String> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    let found =
        User::from_name(name).map_err(|error| format!("cannot look up user {name}: {error}"))?;
    let user = found.ok_or_else(|| format!("there is no user {name}; give another with --user"))?;
    if user.uid.is_root() {
        return Err(
            "application processes never run as root; give another account with --user".into(),
        );
    }
    let groups = CString::new(name)
        .map_err(io::Error::from)
        .and_then(|name| Ok(getgrouplist(&name, user.gid)?))
        .map_err(|error| format!("cannot look up the groups of user {name}: {error}"))?;
    Ok(Some(Account {
        name: user.name,
        uid: user.uid.as_raw(),
        gid: user.gid.as_raw(),
        home: user.dir,
        groups: groups
            .into_iter()
            .map(|group| rustix::thread::Gid::from_raw(group.as_raw()))
            .collect(),
    }))
}

impl Account {
    /// Runs `f` with the permissions that this account has on files: setfsuid(2), of this thread only.
    ///
    /// # Errors
    /// The thread may not take the account; `f` was not called.
    pub fn with_file_access<T>(&self, f: impl FnOnce() -> T) -> io::Result<T> {
        // Root's own groups matter to nothing that it opens, so they are not put back.
        rustix::thread::set_thread_groups(&self.groups)
            .map_err(|error| self.not_allowed(error.into()))?;
        let _back = FrontsFileAccess;
        setfsgid(Gid::from_raw(self.gid));
        setfsuid(Uid::from_raw(self.uid));
        // Neither call reports failure; asked for a user that cannot be, they say the one that is.
        match setfsuid(Uid::from_raw(u32::MAX)).as_raw() == self.uid {
            true => Ok(f()),
            false => Err(self.not_allowed(io::ErrorKind::PermissionDenied.into())),
        }
    }

    fn not_allowed(&self, error: io::Error) -> io::Error {
        let name = &self.name;
        io::Error::other(format!(
            "cannot read files as {name}: {error}; it takes CAP_SETUID and CAP_SETGID"
        ))
    }
}

/// Gives the thread back what the process has.
struct FrontsFileAccess;

impl Drop for FrontsFileAccess {
    fn drop(&mut self) {
        setfsuid(Uid::effective());
        setfsgid(Gid::effective());
    }
}
