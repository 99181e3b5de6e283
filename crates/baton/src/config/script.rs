//! A worker's script: where it lies, and how a request can name it.

use std::path::{Path, PathBuf};

use crate::project::Project;
use crate::values::parse_name;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Absolute.
    pub file: PathBuf,
    /// The document root, or where else it lies.
    pub folder: PathBuf,
    /// As a URL path below the folder.
    pub name: String,
    /// It lies in the document root.
    pub is_public: bool,
}

impl Script {
    /// `root` is the application's folder, or its one script, as it was given.
    pub fn find(path: &Path, root: &Path, project: &Project) -> Result<Self, String> {
        let failed = |path: &Path, reason: &str| format!("the worker {}: {reason}", path.display());
        let root = root
            .canonicalize()
            .map_err(|error| failed(root, &error.to_string()))?;
        let base = match root.is_file() {
            true => root.parent().unwrap_or(&root),
            false => &root,
        };
        let given = base.join(path);
        let real = given
            .canonicalize()
            .map_err(|error| failed(&given, &error.to_string()))?;
        if !real.is_file() || real.extension().is_none_or(|extension| extension != "php") {
            return Err(failed(&given, "not a .php script"));
        }
        // Links are left as they are where a request can name the script by them.
        let is_plain = |path: &Path| !path.components().any(|part| part.as_os_str() == "..");
        let below = [&given, &real]
            .into_iter()
            .filter(|file| is_plain(file))
            .find_map(|file| {
                file.strip_prefix(&project.root)
                    .ok()?
                    .to_str()
                    .map(str::to_owned)
            });
        if let Some(below) = below {
            return Ok(Self {
                file: project.root.join(&below),
                folder: project.root.clone(),
                name: format!("/{below}"),
                is_public: true,
            });
        }
        let name = real.file_name().and_then(|name| name.to_str());
        Ok(Self {
            name: format!(
                "/{}",
                name.ok_or_else(|| failed(&real, "its name is not UTF-8"))?
            ),
            folder: real.parent().unwrap_or(Path::new("/")).to_owned(),
            file: real,
            is_public: false,
        })
    }

    /// Its name without `.php`, as a name for logs.
    pub fn plain_name(&self) -> String {
        let stem = self.file.file_stem().unwrap_or_default().to_string_lossy();
        let plain = |c: char| match c {
            c if parse_name(c.encode_utf8(&mut [0; 4])).is_ok() => c,
            _ => '_',
        };
        stem.chars().map(plain).take(64).collect()
    }
}
