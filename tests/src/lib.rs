//! What the journeys in `tests/tests/` stand on.
//!
//! A journey starts the real `baton` on a folder of its own, talks to it over real sockets with a client that
//! shares no code with the server, and looks at it from outside through /proc, signals and its log.
//!
//! - [`admin`]: a client of the admin API
//! - [`client`]: a strict HTTP/1.1 client; sends any bytes at any pace, refuses any reply that is not well framed
//! - [`reply`]: what it takes for a reply
//! - [`baton`]: the server process: start, log, signals, children, stop
//! - [`site`]: a temporary folder that app processes may read, whatever account they run as
//! - [`browser`]: cookies, redirects and forms on top of the client
//! - [`page`], [`png`]: what comes back: pages without errors, pictures of the right size
//! - [`visitor`]: what a person does with an application, and twenty of them at once
//! - [`host`], [`mariadb`], [`opcache`]: a host name and a database of the run's own; whether scripts are cached
//! - [`cases`]: tables of cases that are all run before the first failure is reported
//! - [`peer`]: the same folder served by nginx + php-fpm, to check the journeys' own expectations
//! - [`guest`]: a front with another guest than PHP's, for what no language does yet
//! - [`load`]: clients that account for every request
//! - [`multipart`], [`proc`], [`options`]: upload bodies, /proc, the server's options by name
//!
//! Environment: `BATON_BIN` another binary (its guest beside it), `BATON_TEST_PEER=fpm` nginx + php-fpm instead,
//! `BATON_SHOW_LOG` the server's log as it comes, `BATON_KEEP_SITES` leave the temporary folders.

#![forbid(unsafe_code)]

pub mod admin;
pub mod baton;
pub mod browser;
pub mod cases;
pub mod client;
pub mod guest;
pub mod host;
pub mod load;
pub mod mariadb;
pub mod multipart;
pub mod opcache;
pub mod options;
pub mod page;
pub mod peer;
pub mod png;
pub mod proc;
pub mod reply;
pub mod site;
pub mod visitor;

pub use admin::{Admin, Answer};
pub use baton::Baton;
pub use browser::Browser;
pub use cases::Cases;
pub use client::{Conn, Fault, Reply, get, send};
pub use load::Account;
pub use multipart::Multipart;
pub use site::Site;
pub use visitor::Visitor;

use std::time::{Duration, Instant};

/// Polls until `done` holds; panics with `what` after `bound`.
#[track_caller]
pub fn wait_until(what: &str, bound: Duration, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < bound, "not within {bound:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether this runs as root, which journeys need that give a package of Debian's a site: otherwise they are skipped.
pub fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("skipped: needs root");
    }
    is_root
}

/// Bytes that repeat only after 64 KiB and never on a power of two, so that a lost or doubled piece shows.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i % 251) as u8 ^ ((i / 251) % 253) as u8)
        .collect()
}

/// Lets this process, and the servers that it starts, hold many sockets.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).expect("the soft limit may go up to the hard one");
}

/// For journeys that need the machine to themselves: one at a time within a file.
pub fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
