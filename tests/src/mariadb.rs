//! A MariaDB server for one journey: its own data folder, no network but a unix socket, an account without privileges.

use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::site::Site;
use crate::{proc, wait_until};

const START_BOUND: Duration = Duration::from_secs(60);
const STOP_BOUND: Duration = Duration::from_secs(30);

/// A running server. Dropping it ends it, and removes its data.
pub struct MariaDb {
    child: Child,
    folder: Site,
}

impl MariaDb {
    /// Starts one that has run these statements, one a line.
    pub fn start(statements: &str) -> MariaDb {
        let folder = Site::new();
        folder.writable("run");
        folder.write("init.sql", statements);
        let data = format!("--datadir={}", folder.path("run/data").display());
        let installed = unprivileged("mariadb-install-db")
            // By force: it would insist that the machine's name has an address.
            .args(["--no-defaults", &data, "--skip-test-db", "--force"])
            .args([
                "--auth-root-authentication-method=normal",
                "--skip-name-resolve",
            ])
            .output()
            .expect("setpriv");
        assert!(installed.status.success(), "{installed:?}");
        let log = fs::File::create(folder.path("log")).expect("a log");
        let path = |option: &str, name: &str| format!("{option}={}", folder.path(name).display());
        let child = unprivileged("mariadbd")
            .args(["--no-defaults", &data, "--skip-networking"])
            .arg(path("--socket", "run/socket"))
            .arg(path("--pid-file", "run/pid"))
            .arg(path("--init-file", "init.sql"))
            // Nobody needs this data after a crash.
            .args([
                "--innodb-flush-log-at-trx-commit=0",
                "--innodb-buffer-pool-size=64M",
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("setpriv");
        let mut server = MariaDb { child, folder };
        wait_until("mariadbd answers", START_BOUND, || {
            let ended = server.child.try_wait().expect("waiting for an own child");
            assert!(ended.is_none(), "mariadbd: {ended:?}: {}", server.log());
            server.greets()
        });
        server
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path("run/socket")
    }

    /// It speaks first, once the statements have run.
    fn greets(&self) -> bool {
        let Ok(mut stream) = UnixStream::connect(self.socket()) else {
            return false;
        };
        let bounded = stream.set_read_timeout(Some(Duration::from_secs(5)));
        bounded.is_ok() && stream.read_exact(&mut [0]).is_ok()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path("log")).unwrap_or_default()
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        proc::signal(self.child.id(), Signal::TERM);
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && start.elapsed() < STOP_BOUND {
            std::thread::sleep(Duration::from_millis(20));
        }
        // Whatever is wrong with it, it ends with the journey.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program that is killed when this process is, and never root.
fn unprivileged(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    if rustix::process::geteuid().is_root() {
        command.args(["--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]);
    }
    command.arg(program);
    command
}
