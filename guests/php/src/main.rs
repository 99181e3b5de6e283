//! Starts the distribution's PHP program with the guest in it: `libbaton_php.so`, which lies beside this one.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, exit};

use baton_handoff::control::{self, Kind};

/// PHP's program for web servers, that of the headers the guest was built with. It is not run as such: the guest takes over
/// before its `main`.
const PHP: &str = env!("BATON_PHP_PROGRAM");
const PACKAGE: &str = env!("BATON_PHP_PACKAGE");
const GUEST: &str = "libbaton_php.so";
/// The dynamic loader's list of libraries that come first, see ld.so(8). The guest takes itself off it.
const PRELOAD: &str = "LD_PRELOAD";

fn main() {
    let reason = match std::env::current_exe() {
        Ok(this) => start(this.parent().unwrap_or(Path::new("/"))),
        Err(error) => format!("cannot find this program: {error}"),
    };
    // On standard input is the control socket, if the front has started it.
    let told = control::send(
        std::io::stdin().as_fd(),
        Kind::Failed,
        (0, 0),
        reason.as_bytes(),
        &[],
        true,
    );
    if told.is_err() {
        eprintln!("{reason}");
    }
    exit(1);
}

/// Returns only if it fails, and why.
fn start(folder: &Path) -> String {
    let guest = folder.join(GUEST);
    // The loader would only warn, and PHP run as itself.
    if !guest.is_file() {
        return format!("{} is missing; run `make build`", guest.display());
    }
    let mut preload = OsString::from(&guest);
    if let Some(others) = std::env::var_os(PRELOAD) {
        preload.push(":");
        preload.push(others);
    }
    let error = Command::new(PHP)
        .arg0("baton-php")
        .env(PRELOAD, preload)
        .exec();
    format!("cannot start {PHP}: {error}. Remedy: apt-get install {PACKAGE}")
}
