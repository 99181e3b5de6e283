//! The account that application processes run as.

use std::path::PathBuf;

use nix::unistd::{Uid, User};

#[derive(Clone, Debug)]
pub struct Account {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub home: PathBuf,
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
    Ok(Some(Account {
        name: user.name,
        uid: user.uid.as_raw(),
        gid: user.gid.as_raw(),
        home: user.dir,
    }))
}
