//! Files beside the scripts.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use baton_server::http1::{RequestHead, http_date};
use baton_server::{ConnId, Io};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

/// The folder whose files are served, and whether links may lead out of it.
pub struct Root {
    folder: OwnedFd,
    follow: bool,
}

impl Root {
    pub fn open(path: &Path, follow: bool) -> std::io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            folder: rustix::fs::openat(CWD, path, flags, Mode::empty())?,
            follow,
        })
    }

    /// `None`: not there, not a regular file, or a link leads out of the root.
    fn open_file(&self, relative: &Path) -> Option<(File, u64, i64)> {
        let resolve = match self.follow {
            true => ResolveFlags::NO_MAGICLINKS,
            false => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
        };
        // A FIFO must not keep the I/O thread.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file =
            rustix::fs::openat2(&self.folder, relative, flags, Mode::empty(), resolve).ok()?;
        let stat = rustix::fs::fstat(&file).ok()?;
        let is_regular = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file();
        is_regular.then(|| (File::from(file), stat.st_size.max(0) as u64, stat.st_mtime))
    }
}

type Headers<'h> = Vec<(&'h [u8], &'h [u8])>;

/// Answers with the file. `false`: there is none, and nothing was answered.
pub fn send(
    io: &mut Io,
    conn: ConnId,
    head: &RequestHead<'_>,
    root: &Root,
    relative: &Path,
) -> bool {
    if !matches!(head.method, "GET" | "HEAD") {
        let headers: Headers<'_> = vec![(b"Allow", b"GET, HEAD"), (b"Content-Type", b"text/plain")];
        io.respond(conn, 405, None, headers, b"A file can be read only.\n");
        return true;
    }
    let Some((file, len, modified_s)) = root.open_file(relative) else {
        return false;
    };
    let modified = http_date(modified_s);
    let etag = format!("\"{modified_s:x}-{len:x}\"");
    let media_type = mime_guess::from_path(relative)
        .first_raw()
        .unwrap_or("application/octet-stream");
    let text_type;
    let media_type = match media_type.strip_prefix("text/") {
        Some(_) => {
            text_type = format!("{media_type}; charset=utf-8");
            text_type.as_str()
        }
        None => media_type,
    };
    let headers: Headers<'_> = vec![
        (b"Content-Type", media_type.as_bytes()),
        (b"Last-Modified", &modified),
        (b"ETag", etag.as_bytes()),
    ];
    if is_unchanged(head, &etag, modified_s) {
        io.respond(conn, 304, None, headers.into_iter().skip(1), b"");
    } else {
        io.send_file(conn, 200, headers, file.into(), 0, len);
    }
    true
}

/// RFC 9110, section 13.2.2: If-None-Match goes before If-Modified-Since.
fn is_unchanged(head: &RequestHead<'_>, etag: &str, modified_s: i64) -> bool {
    if let Some(wanted) = head
        .header("If-None-Match")
        .and_then(|v| std::str::from_utf8(v).ok())
    {
        return wanted
            .split(',')
            .map(str::trim)
            .any(|tag| tag == "*" || tag.trim_start_matches("W/") == etag);
    }
    let since = head
        .header("If-Modified-Since")
        .and_then(|v| std::str::from_utf8(v).ok());
    let Some(since) = since.and_then(|text| httpdate::parse_http_date(text).ok()) else {
        return false;
    };
    let modified: SystemTime = UNIX_EPOCH + Duration::from_secs(modified_s.max(0) as u64);
    modified <= since
}
