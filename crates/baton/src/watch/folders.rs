//! Folders and all below them, watched by inotify(7): one watch for each.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use super::patterns::Patterns;

/// More would take seconds to walk through.
const FOLDERS_MAX: usize = 16_384;
const REMEDY: &str = "name those that matter, as in --watch='src/**/*.php'";

pub struct Folders {
    inotify: OwnedFd,
    root: PathBuf,
    /// By watch descriptor, relative to the root.
    watched: HashMap<i32, PathBuf>,
}

/// What has happened, of that which matters.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The first file that changed, relative to the root; or a folder that came or went with all in it.
    pub first: Option<PathBuf>,
    /// The watches do not fit any more what is there: watch anew.
    pub is_stale: bool,
}

impl Folders {
    /// Says in one line what is wrong.
    pub fn watch(root: &Path, patterns: &Patterns) -> Result<Self, String> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
        let inotify = inotify.map_err(|error| match error {
            Errno::MFILE => {
                "this user has too many watchers; raise fs.inotify.max_user_instances".into()
            }
            _ => error.to_string(),
        })?;
        let mut folders = Self {
            inotify,
            root: root.to_path_buf(),
            watched: HashMap::new(),
        };
        folders.add(PathBuf::new(), patterns, &mut Changes::default())?;
        match folders.watched.is_empty() {
            true => Err(format!("{} is no folder that can be read", root.display())),
            false => Ok(folders),
        }
    }

    pub fn len(&self) -> usize {
        self.watched.len()
    }

    /// Readable when there are changes.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }

    /// Watches a folder and those below. Files that are there already count as changed: they may have come first.
    fn add(
        &mut self,
        folder: PathBuf,
        patterns: &Patterns,
        changes: &mut Changes,
    ) -> Result<(), String> {
        let mut to_do = vec![folder];
        while let Some(folder) = to_do.pop() {
            if !patterns.may_be_in(&folder) || !self.add_one(&folder)? {
                continue;
            }
            // It may have gone meanwhile; then it has nothing to tell.
            let entries = fs::read_dir(self.root.join(&folder)).into_iter().flatten();
            for entry in entries.flatten() {
                let path = folder.join(entry.file_name());
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    to_do.push(path);
                } else if changes.first.is_none() && patterns.is_wanted(&path) {
                    changes.first = Some(path);
                }
            }
        }
        Ok(())
    }

    /// `false`: it is not there, is a link, or cannot be read.
    fn add_one(&mut self, folder: &Path) -> Result<bool, String> {
        if self.watched.len() >= FOLDERS_MAX {
            return Err(format!(
                "there are more than {FOLDERS_MAX} folders in {}; {REMEDY}",
                self.root.display()
            ));
        }
        let events = WatchFlags::CLOSE_WRITE
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::ONLYDIR
            | WatchFlags::DONT_FOLLOW
            | WatchFlags::EXCL_UNLINK;
        match inotify::add_watch(&self.inotify, self.root.join(folder), events) {
            Ok(watch) => {
                self.watched.insert(watch, folder.to_path_buf());
                Ok(true)
            }
            Err(Errno::NOSPC) => Err(format!(
                "this user may watch no more folders (after {} of them); raise fs.inotify.max_user_watches, or {REMEDY}",
                self.watched.len()
            )),
            Err(Errno::NOMEM) => Err(Errno::NOMEM.to_string()),
            Err(_) => Ok(false),
        }
    }

    /// Takes what has happened. An error is one of watching a new folder; the others are still watched.
    pub fn changes(&mut self, patterns: &Patterns) -> Result<Changes, String> {
        let mut changes = Changes::default();
        let mut new = Vec::new();
        let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
        let mut events = Reader::new(&self.inotify, &mut buffer);
        loop {
            let event = match events.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error.to_string()),
            };
            let what = event.events();
            if what.contains(ReadFlags::QUEUE_OVERFLOW) {
                // Whatever it was, it was much.
                changes.first.get_or_insert_with(PathBuf::new);
                changes.is_stale = true;
                continue;
            }
            if what.contains(ReadFlags::IGNORED) {
                let gone = self.watched.remove(&event.wd());
                changes.is_stale |= gone.is_some_and(|folder| folder.as_os_str().is_empty());
                continue;
            }
            let (Some(folder), Some(name)) = (self.watched.get(&event.wd()), event.file_name())
            else {
                continue;
            };
            let path = folder.join(OsStr::from_bytes(name.to_bytes()));
            if !what.contains(ReadFlags::ISDIR) {
                if changes.first.is_none() && patterns.is_wanted(&path) {
                    changes.first = Some(path);
                }
            } else if patterns.may_be_in(&path) {
                match what.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
                    true => new.push(path),
                    // Its watches go on, under the name that it has now. What is deleted is told file by file.
                    false if what.contains(ReadFlags::MOVED_FROM) => {
                        changes.first.get_or_insert(path);
                        changes.is_stale = true;
                    }
                    false => {}
                }
            }
        }
        if !changes.is_stale {
            for folder in new {
                self.add(folder, patterns, &mut changes)?;
            }
        }
        Ok(changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel has queued the events of a change when the call that made it returns.
    struct Site {
        root: PathBuf,
        patterns: Patterns,
        folders: Folders,
    }

    impl Site {
        fn with(name: &str, folders: &[&str]) -> Self {
            let root =
                std::env::temp_dir().join(format!("baton-watch-{}-{name}", std::process::id()));
            for folder in folders {
                fs::create_dir_all(root.join(folder)).expect("a folder");
            }
            let patterns = Patterns::parse(&root, &["**/*.php".to_owned()]).expect("patterns");
            let folders = Folders::watch(&root, &patterns).expect("watched");
            Self {
                root,
                patterns,
                folders,
            }
        }

        fn write(&self, file: &str) {
            fs::write(self.root.join(file), "x").expect("written");
        }

        #[track_caller]
        fn assert(&mut self, first: Option<&str>, is_stale: bool) {
            let expected = Changes {
                first: first.map(PathBuf::from),
                is_stale,
            };
            assert_eq!(self.folders.changes(&self.patterns), Ok(expected));
        }
    }

    impl Drop for Site {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.root);
        }
    }

    #[test]
    fn files_that_count_are_told_of() {
        let mut site = Site::with("files", &["src/deep", ".git", "var"]);
        assert_eq!(site.folders.len(), 3);
        site.assert(None, false);
        for other in ["a.css", ".git/a.php", "var/a.php"] {
            site.write(other);
            site.assert(None, false);
        }
        site.write("src/deep/a.php");
        site.write("src/b.php");
        site.assert(Some("src/deep/a.php"), false);
        // As editors do it.
        site.write("src/b.php~");
        site.assert(None, false);
        fs::rename(site.root.join("src/b.php~"), site.root.join("src/b.php")).expect("renamed");
        site.assert(Some("src/b.php"), false);
        fs::remove_file(site.root.join("src/b.php")).expect("removed");
        site.assert(Some("src/b.php"), false);
        std::os::unix::fs::symlink("a.css", site.root.join("link.php")).expect("a link");
        site.assert(Some("link.php"), false);
    }

    #[test]
    fn new_folders_are_watched_and_looked_through() {
        let mut site = Site::with("new", &["src"]);
        fs::create_dir_all(site.root.join("src/a/b")).expect("folders");
        site.assert(None, false);
        site.write("src/a/b/c.php");
        site.assert(Some("src/a/b/c.php"), false);
        fs::create_dir_all(site.root.join("src/x/y")).expect("folders");
        site.write("src/x/y/before.php");
        site.assert(Some("src/x/y/before.php"), false);
        assert_eq!(site.folders.len(), 6);
        fs::remove_dir_all(site.root.join("src/x")).expect("removed");
        site.assert(Some("src/x/y/before.php"), false);
        assert_eq!(site.folders.len(), 4);
    }

    #[test]
    fn what_moves_or_goes_is_to_be_watched_anew() {
        let mut site = Site::with("moves", &["src/deep"]);
        fs::rename(site.root.join("src"), site.root.join("lib")).expect("renamed");
        site.assert(Some("src"), true);
        site.folders = Folders::watch(&site.root, &site.patterns).expect("watched");
        site.write("lib/deep/a.php");
        site.assert(Some("lib/deep/a.php"), false);
        fs::remove_dir_all(&site.root).expect("removed");
        site.assert(Some("lib/deep/a.php"), true);
        let gone = Folders::watch(&site.root, &site.patterns).map(|folders| folders.len());
        assert!(gone.expect_err("no folder").contains("no folder"));
    }
}
