//! The server as a process: started, watched from outside, signalled, stopped.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::options::{CONFIG, LISTEN, MAX_THREADS, NUM_THREADS, THREADS};
use crate::proc::{self, Process};
use crate::{client, peer};

/// From the start of the process to the line with its URL.
const START_BOUND: Duration = Duration::from_secs(20);
const STOP_BOUND: Duration = Duration::from_secs(10);
const PHP_THREADS: &str = "4";

/// A running server. Dropping it ends it.
pub struct Baton {
    child: Child,
    addr: SocketAddr,
    log: Log,
    /// Ends with this value.
    _peer: Option<peer::Peer>,
}

/// A start that failed, or a command that was to end by itself.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    /// stdout and stderr.
    pub output: String,
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Log {
    fn text(&self) -> String {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Gathers what a pipe gives, on a thread that ends with the pipe.
    fn gather(&self, pipe: impl Read + Send + 'static) -> std::thread::JoinHandle<()> {
        let log = self.clone();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(pipe);
            let mut line = Vec::new();
            while matches!(lines.read_until(b'\n', &mut line), Ok(n) if n > 0) {
                let text = String::from_utf8_lossy(&line).into_owned();
                if std::env::var_os("BATON_SHOW_LOG").is_some() {
                    eprint!("{text}");
                }
                log.0
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push_str(&text);
                line.clear();
            }
        })
    }
}

/// The binary under test: `$BATON_BIN`, else `target/release/baton` of this workspace.
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("BATON_BIN") {
        return PathBuf::from(path);
    }
    let path = target_folder().join("release/baton");
    assert!(
        path.exists(),
        "{} is missing: run `make build` first",
        path.display()
    );
    path
}

/// Where this workspace is built.
pub fn target_folder() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ lies in the workspace");
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| workspace.join("target"), |dir| workspace.join(dir))
}

fn spawn(
    mut command: Command,
    stdin: Stdio,
    arguments: &[&OsStr],
) -> (Child, Log, Vec<std::thread::JoinHandle<()>>) {
    let mut child = command
        .args(arguments)
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("cannot start {:?}: {e}", command.get_program()));
    let log = Log::default();
    let readers = vec![
        log.gather(child.stdout.take().expect("stdout is piped")),
        log.gather(child.stderr.take().expect("stderr is piped")),
    ];
    (child, log, readers)
}

/// The address in the first `http://127.0.0.1:PORT` of a text. The digits must have an end: the line may be half read.
fn address_in(text: &str) -> Option<SocketAddr> {
    let at = text.find("http://127.0.0.1:")? + "http://".len();
    let rest = &text[at..];
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ':')?;
    rest[..end].parse().ok()
}

/// Runs `baton` with these arguments until it ends by itself; killed after `bound`.
#[track_caller]
pub fn run(arguments: &[&str], bound: Duration) -> Ended {
    let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
    let (mut child, log, readers) = spawn(Command::new(binary()), Stdio::null(), &arguments);
    let status = wait(&mut child, bound);
    if status.is_none() {
        let _ = child.kill();
        let _ = child.wait();
    }
    let Some(status) = status else {
        panic!("still running after {bound:?}; said: {}", log.text())
    };
    for reader in readers {
        let _ = reader.join();
    }
    Ended {
        status,
        output: log.text(),
    }
}

fn wait(child: &mut Child, bound: Duration) -> Option<ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("waiting for an own child") {
            return Some(status);
        }
        if start.elapsed() >= bound {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Baton {
    /// `baton serve ROOT` with always four threads, on a port of its own.
    #[track_caller]
    pub fn serve(root: &Path) -> Baton {
        Baton::with(root, &[])
    }

    /// The same with more options, which may say how many threads instead.
    #[track_caller]
    pub fn with(root: &Path, options: &[&str]) -> Baton {
        match Baton::try_with(root, options) {
            Ok(baton) => baton,
            Err(ended) => panic!("baton did not start ({}): {}", ended.status, ended.output),
        }
    }

    #[track_caller]
    pub fn try_with(root: &Path, options: &[&str]) -> Result<Baton, Ended> {
        if let Some(peer) = peer::Peer::wanted(root, options) {
            let (child, addr) = peer.start();
            return Ok(Baton {
                child,
                addr,
                log: Log::default(),
                _peer: Some(peer),
            });
        }
        Baton::start(Command::new(binary()), root, options)
    }

    /// The same of another build: a command with its environment, but without arguments.
    #[track_caller]
    pub fn start(command: Command, root: &Path, options: &[&str]) -> Result<Baton, Ended> {
        Baton::start_with_stdin(command, Stdio::null(), root, options)
    }

    #[track_caller]
    pub fn start_with_stdin(
        command: Command,
        stdin: Stdio,
        root: &Path,
        options: &[&str],
    ) -> Result<Baton, Ended> {
        let mut arguments = vec![OsStr::new("serve"), root.as_os_str()];
        if !options.contains(&LISTEN) {
            arguments.extend([LISTEN, "127.0.0.1:0"].map(OsStr::new));
        }
        let says_how_many = |option| [THREADS, NUM_THREADS, MAX_THREADS].contains(option);
        if !options.iter().any(says_how_many) {
            arguments.extend([THREADS, PHP_THREADS].map(OsStr::new));
        }
        arguments.extend(options.iter().map(OsStr::new));
        Baton::launch(command, stdin, &arguments)
    }

    /// `baton serve --config FILE`, on a port of its own.
    #[track_caller]
    pub fn configured(file: &Path) -> Baton {
        let arguments = [
            OsStr::new("serve"),
            OsStr::new(CONFIG),
            file.as_os_str(),
            OsStr::new(LISTEN),
            OsStr::new("127.0.0.1:0"),
        ];
        match Baton::launch(Command::new(binary()), Stdio::null(), &arguments) {
            Ok(baton) => baton,
            Err(ended) => panic!("baton did not start ({}): {}", ended.status, ended.output),
        }
    }

    /// A command with these arguments and no others, until it serves.
    #[track_caller]
    pub fn launch(command: Command, stdin: Stdio, arguments: &[&OsStr]) -> Result<Baton, Ended> {
        let (mut child, log, readers) = spawn(command, stdin, arguments);
        let start = Instant::now();
        loop {
            if let Some(addr) = address_in(&log.text()) {
                return Ok(Baton {
                    child,
                    addr,
                    log,
                    _peer: None,
                });
            }
            if let Some(status) = child.try_wait().expect("waiting for an own child") {
                for reader in readers {
                    let _ = reader.join();
                }
                return Err(Ended {
                    status,
                    output: log.text(),
                });
            }
            if start.elapsed() > START_BOUND {
                let _ = child.kill();
                let _ = child.wait();
                panic!(
                    "no URL printed within {START_BOUND:?}; said: {}",
                    log.text()
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything that the server has said so far.
    pub fn log(&self) -> String {
        self.log.text()
    }

    #[track_caller]
    pub fn wait_for_log(&self, part: &str) {
        crate::wait_until(
            &format!("{part:?} in the log"),
            Duration::from_secs(5),
            || self.log().contains(part),
        );
    }

    #[track_caller]
    pub fn get(&self, target: &str) -> client::Reply {
        client::get(self.addr, target)
    }

    #[track_caller]
    pub fn send(&self, request: impl AsRef<[u8]>) -> client::Reply {
        client::send(self.addr, request)
    }

    pub fn connect(&self) -> client::Conn {
        client::Conn::open(self.addr)
    }

    /// The living processes that belong to the server, oldest first. App processes are children of the front, not of the
    /// zygote, from the moment at which they serve.
    pub fn children(&self) -> Vec<Process> {
        proc::children(self.pid())
    }

    /// Zygotes lead a process group, app processes are in that of the zygote that forked them.
    pub fn zygotes(&self) -> Vec<Process> {
        self.children()
            .into_iter()
            .filter(|p| p.group == p.pid)
            .collect()
    }

    /// The children that are no zygotes.
    pub fn app_processes(&self) -> Vec<Process> {
        self.children()
            .into_iter()
            .filter(|p| p.group != p.pid)
            .collect()
    }

    pub fn signal(&self, signal: Signal) {
        proc::signal(self.pid(), signal);
    }

    /// Waits until the server has ended by itself.
    pub fn wait(&mut self, bound: Duration) -> Option<ExitStatus> {
        wait(&mut self.child, bound)
    }

    /// SIGTERM, then the end: asserts that it comes, with status 0, and that no process stays behind.
    #[track_caller]
    pub fn stop(mut self) -> String {
        let children = self.children();
        self.signal(Signal::TERM);
        let Some(status) = self.wait(STOP_BOUND) else {
            panic!("still running {STOP_BOUND:?} after SIGTERM")
        };
        assert!(status.success(), "ended with {status}; log: {}", self.log());
        crate::wait_until(
            "the children end with the server",
            Duration::from_secs(5),
            || {
                children.iter().all(|p| {
                    proc::process(p.pid)
                        .is_none_or(|now| now.started != p.started || now.state == 'Z')
                })
            },
        );
        self.log()
    }
}

impl Drop for Baton {
    fn drop(&mut self) {
        if std::thread::panicking() && std::env::var_os("BATON_SHOW_LOG").is_none() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(15).collect();
            eprintln!("--- the server's last lines");
            tail.iter().rev().for_each(|line| eprintln!("{line}"));
        }
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(Signal::TERM);
            if wait(&mut self.child, Duration::from_secs(2)).is_none() {
                // A second signal stops at once; a server that ignores it as well is killed.
                self.signal(Signal::TERM);
                if wait(&mut self.child, Duration::from_secs(2)).is_none() {
                    let _ = self.child.kill();
                    let _ = self.child.wait();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::address_in;

    #[test]
    fn finds_the_address_only_when_it_is_whole() {
        assert_eq!(address_in("serving on http://127.0.0.1:80"), None);
        let addr = address_in("{\"message\":\"serving /x on http://127.0.0.1:41234\"}")
            .expect("an address");
        assert_eq!(addr.port(), 41234);
    }
}
