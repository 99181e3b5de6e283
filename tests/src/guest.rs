//! A front that takes another program for its guest, built from this workspace when a journey needs it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// `cargo build` of a package into `target`. `flags` are the compiler's, those of its next versions among them.
#[track_caller]
pub fn build(target: &Path, package: &str, more: &[&str], flags: &str) {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    command.args(["build", "--quiet", "--package", package, "--target-dir"]);
    command.arg(target).args(more);
    // With its checks of arithmetic, and yet quick enough.
    command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1");
    if !flags.is_empty() {
        command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", flags);
    }
    let status = command.status().expect("cargo runs");
    assert!(status.success(), "{package} could not be built");
}

/// Copies both programs into `folder`; the front there takes this guest for PHP's. Returns the front.
#[track_caller]
pub fn front_with(front: &Path, guest: &Path, folder: &Path) -> PathBuf {
    std::fs::create_dir_all(folder).expect("a folder in the target folder");
    let place = |from: &Path, name: &str| {
        let to = folder.join(name);
        // A running program cannot be written over.
        let _ = std::fs::remove_file(&to);
        std::fs::copy(from, &to).unwrap_or_else(|e| panic!("{}: {e}", from.display()));
        to
    };
    place(guest, "baton-php");
    place(front, "baton")
}
