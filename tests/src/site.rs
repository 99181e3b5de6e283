//! A temporary folder to serve. App processes may run as another account (www-data when the server was started as root),
//! so everything in it is readable by all, and what scripts write to is writable by all.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

static NEXT: AtomicU32 = AtomicU32::new(0);

#[derive(Debug)]
pub struct Site {
    root: PathBuf,
}

impl Site {
    pub fn new() -> Site {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let root =
            std::env::temp_dir().join(format!("baton-journey-{}-{number}", std::process::id()));
        // Left over from a run that was killed and had the same pid.
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).expect("a folder in the temporary directory");
        set_mode(&root, 0o755);
        Site { root }
    }

    /// A site that holds one `index.php`.
    pub fn with_index(script: &str) -> Site {
        let site = Site::new();
        site.write("index.php", script);
        site
    }

    /// A copy of `tests/fixtures/NAME`.
    pub fn of_fixture(name: &str) -> Site {
        let site = Site::new();
        copy_tree(&fixture(name), &site.root);
        site
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        if let Some(parent) = path.parent() {
            self.folders(parent);
        }
        fs::write(&path, contents).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        settle(&path);
        set_mode(&path, 0o644);
        path
    }

    /// A folder that scripts may write to.
    pub fn writable(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        self.folders(&path);
        set_mode(&path, 0o777);
        path
    }

    /// Links to a folder's entries, but for some.
    pub fn link_to(&self, folder: &Path, but: &[&str]) {
        let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        for entry in entries {
            let target = entry.expect("a folder's entry").path();
            let name = target.file_name().expect("an entry has a name");
            if !but.iter().any(|but| name == *but) {
                symlink(&target, self.root.join(name))
                    .unwrap_or_else(|e| panic!("{}: {e}", target.display()));
            }
        }
    }

    fn folders(&self, path: &Path) {
        if !path.exists() {
            self.folders(path.parent().expect("paths of a site lie below its root"));
            fs::create_dir(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            set_mode(path, 0o755);
        }
    }
}

impl Default for Site {
    fn default() -> Site {
        Site::new()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if std::env::var_os("BATON_KEEP_SITES").is_none() {
            let _ = fs::remove_dir_all(&self.root);
        }
    }
}

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures")
        .join(name)
}

/// Makes a file older than it is: opcache leaves files alone that changed in the last two seconds.
fn settle(path: &Path) {
    let before = SystemTime::now() - Duration::from_secs(60);
    let file = fs::File::options()
        .write(true)
        .open(path)
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    file.set_modified(before)
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

pub fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

/// Copies a folder's content, following symbolic links; the copies are readable by all.
pub fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap_or_else(|e| panic!("{}: {e}", to.display()));
    set_mode(to, 0o755);
    let entries = fs::read_dir(from).unwrap_or_else(|e| panic!("{}: {e}", from.display()));
    for entry in entries {
        let source = entry.expect("a folder's entry").path();
        let target = to.join(source.file_name().expect("an entry has a name"));
        // A dangling link has nothing to copy.
        let Ok(meta) = fs::metadata(&source) else {
            continue;
        };
        if meta.is_dir() {
            copy_tree(&source, &target);
        } else if meta.is_file() {
            fs::copy(&source, &target).unwrap_or_else(|e| panic!("{}: {e}", source.display()));
            settle(&target);
            set_mode(&target, 0o644);
        }
    }
}

/// Lets every account write to everything in a folder.
pub fn open_to_all(path: &Path) {
    let is_dir = path.is_dir();
    set_mode(path, if is_dir { 0o777 } else { 0o666 });
    if is_dir {
        for entry in fs::read_dir(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())) {
            open_to_all(&entry.expect("a folder's entry").path());
        }
    }
}
