//! Files beside the scripts.
//!
//! [`Root`] opens what may be sent, [`Resource`] is what is known of it, [`Cache`] remembers that, [`choose`] picks a
//! coding, [`plan`] decides, [`Answer`] sends. All decisions are functions of the request's head and of what is known
//! of the file; none of them does I/O.

mod cache;
mod coding;
mod conditions;
mod headers;
mod media_type;
mod plan;
mod ranges;
mod reply;
mod resource;
mod root;
mod validators;

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use baton_server::http1::RequestHead;
use baton_server::{ConnId, Io};

use super::answers::{refuse, unavailable};
use cache::{Cache, Cost};
use coding::choose;
use plan::plan;
use reply::Answer;
use resource::Resource;
use root::Missing;

pub use root::Root;

/// Paths in a root that an I/O thread remembers, and what it holds for them in memory.
const ENTRIES_MAX: usize = 1024;
const BYTES_MAX: usize = 8 * 1024 * 1024;
/// Of an I/O thread and a root, for files that are too large for memory.
const DESCRIPTORS_MAX: usize = 512;
/// All I/O threads together hold this part of the descriptors that the process may have, for all roots.
const DESCRIPTORS_SHARE: usize = 8;

/// The files of one root, as one I/O thread serves them.
pub struct StaticFiles {
    root: Arc<Root>,
    cache: Cache<Result<Rc<Resource>, Missing>>,
    cache_control: Option<String>,
}

impl StaticFiles {
    /// `cache_ms`: how long a file is taken for unchanged. `max_age_s`: the same, for clients. `caches`: how many of
    /// these there will be.
    pub fn new(root: Arc<Root>, cache_ms: u64, max_age_s: Option<u32>, caches: usize) -> Self {
        let max = Cost {
            entries: ENTRIES_MAX,
            bytes: BYTES_MAX,
            descriptors: descriptors_max(caches),
        };
        Self {
            root,
            cache: Cache::new(max, cache_ms),
            cache_control: max_age_s.map(|seconds| format!("max-age={seconds}")),
        }
    }

    /// Answers with the file, or says why it is not sent. False: nothing has that name any more, and nothing was
    /// answered.
    pub fn answer(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        head: &RequestHead<'_>,
        path: &Path,
    ) -> bool {
        match self.find(io, path) {
            Ok(resource) => self.send(io, conn, head, &resource),
            Err(Missing::Absent) => return false,
            Err(Missing::NoFile) => refuse(io, conn, 404, "Not found.\n"),
            Err(Missing::Forbidden) => refuse(io, conn, 403, "The file may not be read.\n"),
            Err(Missing::Trouble) => unavailable(io, conn, "The file cannot be read now.\n"),
        }
        true
    }

    fn send(&self, io: &mut Io, conn: ConnId, head: &RequestHead<'_>, resource: &Resource) {
        if !matches!(head.method, "GET" | "HEAD") {
            let headers = [
                (b"Allow".as_slice(), b"GET, HEAD".as_slice()),
                (b"Content-Type", b"text/plain"),
            ];
            return io.respond(conn, 405, None, headers, b"A file can be read only.\n");
        }
        let coding = choose(head, resource.coded.iter().map(|(coding, _)| *coding));
        let chosen = resource.in_coding(coding);
        let plan = plan(head, &chosen.validators, chosen.content.len());
        let answer = Answer {
            resource,
            coding,
            cache_control: self.cache_control.as_deref(),
            is_head: head.method == "HEAD",
        };
        answer.send(io, conn, plan);
    }

    fn find(&mut self, io: &Io, path: &Path) -> Result<Rc<Resource>, Missing> {
        let now = *io.now();
        let key = path.as_os_str();
        if let Some(found) = self.cache.get(key, now.mono_ms()) {
            return found;
        }
        let found = Resource::load(&self.root, path, now.wall_ns).map(Rc::new);
        // Absence is the resolver's to remember.
        if found.as_ref().err() != Some(&Missing::Absent) {
            let cost = found.as_ref().map(|file| file.cost()).unwrap_or_default();
            self.cache.put(key, found.clone(), cost, now.mono_ms());
        }
        found
    }

    /// Lets go of files that nobody asks for any more.
    pub fn tick(&mut self, now_ms: u64) {
        self.cache.sweep(now_ms);
    }

    pub fn next_tick_ms(&self) -> Option<u64> {
        self.cache.next_sweep_ms()
    }
}

fn descriptors_max(caches: usize) -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let limit = limit.map_or(usize::MAX, |limit| limit as usize);
    (limit / DESCRIPTORS_SHARE / caches.max(1)).min(DESCRIPTORS_MAX)
}
