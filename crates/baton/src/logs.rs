//! The log: what happens in the front, and what applications write to standard error. Written by
//! a thread of its own, so that neither a slow terminal nor a full disk keeps an I/O thread.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

use crate::options::{LogFormat, ServerOptions};

/// Lines that may wait for a slow disk or terminal; further ones are dropped.
const LINES_WAITING_MAX: usize = 16_384;

/// Counts the requests to open all logs anew (SIGUSR1): files may have been moved away.
#[derive(Clone, Default)]
pub struct Reopen(Arc<AtomicU32>);

impl Reopen {
    pub fn request(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A file that is opened anew on request.
struct LogFile {
    path: PathBuf,
    file: File,
    reopen: Reopen,
    opened: u32,
}

impl LogFile {
    fn open(path: &Path, reopen: &Reopen) -> io::Result<Self> {
        let opened = reopen.count();
        Ok(Self {
            path: path.to_owned(),
            file: append_to(path)?,
            reopen: reopen.clone(),
            opened,
        })
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let wanted = self.reopen.count();
        if wanted != self.opened {
            self.opened = wanted;
            // If it cannot be opened the old one is better than none.
            if let Ok(file) = append_to(&self.path) {
                self.file = file;
            }
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// What is written here goes to the file by a thread of its own; when that is far behind, lines
/// are dropped. Everything is written when the guard is dropped.
pub fn background_file(path: &Path, reopen: &Reopen) -> Result<(NonBlocking, WorkerGuard), String> {
    if path == Path::new("-") {
        return Ok(in_background(io::stdout()));
    }
    let file = LogFile::open(path, reopen).map_err(|error| {
        format!(
            "cannot write to {}: {error}; check the folder and its permissions",
            path.display()
        )
    })?;
    Ok(in_background(file))
}

fn in_background(writer: impl Write + Send + 'static) -> (NonBlocking, WorkerGuard) {
    NonBlockingBuilder::default()
        .buffered_lines_limit(LINES_WAITING_MAX)
        .lossy(true)
        .finish(writer)
}

/// Installs the log. `RUST_LOG` may ask for more or less than `info`.
pub fn install(options: &ServerOptions, reopen: &Reopen) -> Result<WorkerGuard, String> {
    let (writer, guard) = match &options.log {
        Some(path) => background_file(path, reopen)?,
        None => in_background(io::stderr()),
    };
    let on_terminal = options.log.is_none() && io::stderr().is_terminal();
    let human = match options.log_format {
        LogFormat::Human => true,
        LogFormat::Json => false,
        LogFormat::Auto => on_terminal,
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(false)
        .with_writer(writer);
    if human {
        builder.with_ansi(on_terminal).init();
    } else {
        builder.json().flatten_event(true).init();
    }
    Ok(guard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_log_is_opened_anew() {
        let dir = std::env::temp_dir().join(format!("baton-logs-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("made");
        let (path, moved) = (dir.join("log"), dir.join("log.1"));
        let reopen = Reopen::default();
        let mut log = LogFile::open(&path, &reopen).expect("opened");
        log.write_all(b"one\n").expect("written");
        std::fs::rename(&path, &moved).expect("moved");
        log.write_all(b"two\n").expect("written");
        reopen.request();
        log.write_all(b"three\n").expect("written");
        assert_eq!(
            std::fs::read_to_string(&moved).expect("there"),
            "one\ntwo\n"
        );
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "three\n");
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
