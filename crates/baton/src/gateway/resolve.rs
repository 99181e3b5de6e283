//! From a URL path to what it means: a script, a file, a redirect.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};

use crate::project::Project;

/// Looked-up paths that are remembered.
const CACHE_ENTRIES_MAX: usize = 4096;

/// All but `pchar` and the slash.
const NOT_IN_PATHS: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':')
    .remove(b'@');

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// URL path of the script, and what follows it.
    Script {
        name: Vec<u8>,
        path_info: Vec<u8>,
    },
    /// No file: the app's worker is to answer.
    Worker {
        path_info: Vec<u8>,
    },
    /// A regular file, relative to the root.
    File(PathBuf),
    /// A folder asked for without its slash.
    AddSlash,
    NotFound,
}

/// Decoded and without dot segments; starts with a slash. Bytes, as file names are: some sites' are not UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UrlPath(Vec<u8>);

impl UrlPath {
    /// `None` for what is no path in this server: a NUL, or above the root.
    pub fn parse(raw: &str) -> Option<Self> {
        let decoded = Cow::from(percent_decode(raw.as_bytes()));
        if !decoded.starts_with(b"/") || decoded.contains(&0) {
            return None;
        }
        let is_to_be_folded = |two: &[u8]| matches!(two, b"//" | b"/.");
        if !decoded.windows(2).any(is_to_be_folded) {
            return Some(Self(decoded.into_owned()));
        }
        let mut segments: Vec<&[u8]> = vec![b""];
        let mut is_folder = false;
        for segment in decoded.split(|byte| *byte == b'/') {
            is_folder = matches!(segment, b"" | b"." | b"..");
            match segment {
                b"" | b"." => {}
                b".." if segments.len() == 1 => return None,
                b".." => {
                    segments.pop();
                }
                name => segments.push(name),
            }
        }
        if is_folder {
            segments.push(b"");
        }
        Some(Self(segments.join(&b'/')))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// As it may stand in a header: RFC 3986, section 3.3.
    pub fn encoded(&self) -> impl Display {
        percent_encode(&self.0, NOT_IN_PATHS)
    }
}

/// Resolves paths in one document root, remembering what it found for a while.
pub struct Resolver {
    root: PathBuf,
    index: String,
    single_script: bool,
    has_worker: bool,
    cache_ms: u64,
    cache: HashMap<UrlPath, (Target, u64)>,
}

impl Resolver {
    pub fn new(project: &Project, has_worker: bool, cache_ms: u64) -> Self {
        Self {
            root: project.root.clone(),
            index: project.index.clone(),
            single_script: project.single_script,
            has_worker,
            cache_ms,
            cache: HashMap::new(),
        }
    }

    pub fn resolve(&mut self, path: &UrlPath, now_ms: u64) -> &Target {
        // The borrow checker cannot see an early return of a found entry.
        let fresh = self
            .cache
            .get(path)
            .is_some_and(|(_, until_ms)| now_ms < *until_ms);
        if !fresh {
            if self.cache.len() >= CACHE_ENTRIES_MAX {
                self.cache.clear();
            }
            let target = self.look_up(path.as_bytes());
            self.cache
                .insert(path.clone(), (target, now_ms + self.cache_ms));
        }
        self.cache
            .get(path)
            .map_or(&Target::NotFound, |(target, _)| target)
    }

    /// What was remembered has turned out to be untrue.
    pub fn forget(&mut self, path: &UrlPath) {
        self.cache.remove(path);
    }

    fn look_up(&self, path: &[u8]) -> Target {
        if self.single_script || (self.has_worker && path == b"/") {
            return self.front_controller(path);
        }
        if let Some(script) = self.script_in(path) {
            return script;
        }
        if has_hidden(path) {
            return Target::NotFound;
        }
        let relative = relative(path);
        let Ok(metadata) = std::fs::metadata(self.root.join(relative)) else {
            return self.front_controller(path);
        };
        if metadata.is_dir() {
            return self.folder(path);
        }
        let servable = metadata.is_file() && !path.ends_with(b"/") && !is_source(relative);
        if servable {
            Target::File(relative.into())
        } else {
            Target::NotFound
        }
    }

    /// `/a/b.php/c`: the first part that is a script, and the rest.
    fn script_in(&self, path: &[u8]) -> Option<Target> {
        const EXTENSION: &[u8] = b".php";
        let ends = (EXTENSION.len()..=path.len()).filter(|end| path[..*end].ends_with(EXTENSION));
        for (name, rest) in ends.map(|end| path.split_at(end)) {
            let is_segment_end = rest.is_empty() || rest.starts_with(b"/");
            if is_segment_end && !has_hidden(name) && self.is_file(name) {
                return Some(Target::Script {
                    name: name.into(),
                    path_info: rest.into(),
                });
            }
        }
        None
    }

    fn folder(&self, path: &[u8]) -> Target {
        let slash: &[u8] = if path.ends_with(b"/") { b"" } else { b"/" };
        let index = match path {
            b"/" => self.index.clone().into_bytes(),
            _ => [path, slash, b"index.php"].concat(),
        };
        let page = [path, slash, b"index.html"].concat();
        if !self.is_file(&index) && !self.is_file(&page) {
            return self.front_controller(path);
        }
        if !slash.is_empty() {
            return Target::AddSlash;
        }
        match self.is_file(&index) {
            true => Target::Script {
                name: index,
                path_info: Vec::new(),
            },
            false => Target::File(relative(&page).into()),
        }
    }

    fn front_controller(&self, path: &[u8]) -> Target {
        // A single script answers for everything, so what follows its name is its path info.
        let path_info = match self.single_script {
            true => path.strip_prefix(self.index.as_bytes()).unwrap_or_default(),
            false => b"",
        };
        if self.has_worker {
            return Target::Worker {
                path_info: path_info.into(),
            };
        }
        match self.is_file(self.index.as_bytes()) {
            true => Target::Script {
                name: self.index.clone().into_bytes(),
                path_info: path_info.into(),
            },
            false => Target::NotFound,
        }
    }

    fn is_file(&self, path: &[u8]) -> bool {
        std::fs::metadata(self.root.join(relative(path))).is_ok_and(|metadata| metadata.is_file())
    }
}

/// To the root. The path has one slash at its beginning.
fn relative(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path.strip_prefix(b"/").unwrap_or(path)))
}

fn has_hidden(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/')
        .any(|segment| segment.starts_with(b".") && segment != b".well-known")
}

/// What some server somewhere runs as PHP: never sent as text.
pub fn is_source(relative: &Path) -> bool {
    let extension = relative
        .extension()
        .map(|e| e.to_string_lossy().to_ascii_lowercase());
    extension
        .is_some_and(|e| e.starts_with("php") || matches!(e.as_str(), "phtml" | "phar" | "inc"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_decoded_and_folded() {
        let cases = [
            ("/", Some("/")),
            ("/a%20b", Some("/a b")),
            ("/a//b", Some("/a/b")),
            ("/a/./b/", Some("/a/b/")),
            ("/a/../b", Some("/b")),
            ("/a/b/..", Some("/a/")),
            ("/a/..", Some("/")),
            ("/%2e%2e/etc/passwd", None),
            ("/..", None),
            ("/a/../..", None),
            ("/a%00b", None),
            ("*", None),
        ];
        for (raw, expected) in cases {
            assert_eq!(
                UrlPath::parse(raw).as_ref().map(UrlPath::as_bytes),
                expected.map(str::as_bytes),
                "{raw}"
            );
        }
    }

    struct Site(PathBuf);

    impl Site {
        fn new(name: &str) -> Self {
            let root =
                std::env::temp_dir().join(format!("baton-resolve-{}-{name}", std::process::id()));
            let files = [
                "index.php",
                "info.php",
                "style.css",
                "A.PHP",
                "old.phtml",
                ".env",
                "sub/index.php",
                "docs/index.html",
                "empty/x.txt",
            ];
            for file in files {
                let file = root.join(file);
                std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
                std::fs::write(file, "").expect("written");
            }
            Self(root)
        }

        fn resolver(&self, index: &str, has_worker: bool) -> Resolver {
            let project = Project {
                name: "site".into(),
                folder: self.0.clone(),
                root: self.0.clone(),
                index: index.into(),
                single_script: false,
            };
            Resolver::new(&project, has_worker, 1000)
        }

        fn resolve(&self, path: &str) -> Target {
            self.resolve_with(path, "/index.php", false)
        }

        fn resolve_with(&self, path: &str, index: &str, has_worker: bool) -> Target {
            let path = UrlPath::parse(path).expect("a path");
            let mut resolver = self.resolver(index, has_worker);
            resolver.resolve(&path, 0).clone()
        }
    }

    impl Drop for Site {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn script(name: &str, path_info: &str) -> Target {
        Target::Script {
            name: name.into(),
            path_info: path_info.into(),
        }
    }

    #[test]
    fn scripts_files_and_the_front_controller() {
        let site = Site::new("all");
        let cases = [
            ("/", script("/index.php", "")),
            ("/en/about", script("/index.php", "")),
            ("/index.php/blah", script("/index.php", "/blah")),
            ("/info.php", script("/info.php", "")),
            ("/missing.php/x", script("/index.php", "")),
            ("/style.css", Target::File("style.css".into())),
            ("/style.css/", script("/index.php", "")),
            ("/sub", Target::AddSlash),
            ("/sub/", script("/sub/index.php", "")),
            ("/docs/", Target::File("docs/index.html".into())),
            ("/empty", script("/index.php", "")),
            ("/.env", Target::NotFound),
            ("/A.PHP", Target::NotFound),
            ("/old.phtml", Target::NotFound),
        ];
        for (path, expected) in cases {
            assert_eq!(site.resolve(path), expected, "{path}");
        }
    }

    #[test]
    fn names_need_not_be_utf_8() {
        let site = Site::new("latin-1");
        let name = OsStr::from_bytes(b"caf\xe9.txt");
        std::fs::write(site.0.join(name), "").expect("written");
        assert_eq!(site.resolve("/caf%E9.txt"), Target::File(name.into()));
        assert_eq!(site.resolve("/na%EFve"), script("/index.php", ""));
        let Target::Script { path_info, .. } = site.resolve("/info.php/%FF") else {
            panic!("a script");
        };
        assert_eq!(path_info, b"/\xff");
        let path = UrlPath::parse("/caf%e9").expect("a path");
        assert_eq!(path.encoded().to_string(), "/caf%E9");
    }

    #[test]
    fn what_is_forgotten_is_looked_up_again() {
        let site = Site::new("forget");
        let mut resolver = site.resolver("/index.php", false);
        let path = UrlPath::parse("/style.css").expect("a path");
        let file = Target::File("style.css".into());
        assert_eq!(*resolver.resolve(&path, 0), file);
        std::fs::remove_file(site.0.join("style.css")).expect("removed");
        assert_eq!(*resolver.resolve(&path, 999), file);
        resolver.forget(&path);
        assert_eq!(*resolver.resolve(&path, 999), script("/index.php", ""));
    }

    #[test]
    fn encoded_paths_mean_the_same() {
        for (raw, encoded) in [
            ("/a/b-c._~", "/a/b-c._~"),
            ("/a%20b%3f%23", "/a%20b%3F%23"),
            ("/%5c%25", "/%5C%25"),
            ("/\u{fc}", "/%C3%BC"),
            ("/a:@!$&'()*+,;=", "/a:@!$&'()*+,;="),
        ] {
            let path = UrlPath::parse(raw).expect("a path");
            assert_eq!(path.encoded().to_string(), encoded, "{raw}");
            assert_eq!(UrlPath::parse(encoded), Some(path), "{raw}");
        }
    }

    #[test]
    fn a_worker_gets_what_has_no_file_and_the_root() {
        let site = Site::new("worker");
        let worker = || Target::Worker {
            path_info: Vec::new(),
        };
        let cases = [
            ("/", worker()),
            ("/en/about", worker()),
            ("/empty", worker()),
            ("/info.php", script("/info.php", "")),
            ("/index.php", script("/index.php", "")),
            ("/sub/", script("/sub/index.php", "")),
            ("/style.css", Target::File("style.css".into())),
            ("/.env", Target::NotFound),
        ];
        for (path, expected) in cases {
            assert_eq!(
                site.resolve_with(path, "/index.php", true),
                expected,
                "{path}"
            );
        }
    }

    #[test]
    fn the_front_controller_may_have_another_name() {
        let site = Site::new("index");
        for path in ["/", "/en/about"] {
            let found = site.resolve_with(path, "/info.php", false);
            assert_eq!(found, script("/info.php", ""), "{path}");
        }
        let found = site.resolve_with("/sub/", "/info.php", false);
        assert_eq!(found, script("/sub/index.php", ""));
    }
}
