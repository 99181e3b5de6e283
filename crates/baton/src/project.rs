//! What is there to serve: found out from the path alone.

use std::path::{Path, PathBuf};

use crate::options::Language;

/// A PHP application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    /// Its name in logs: the folder's.
    pub name: String,
    /// The application's own folder; absolute, links resolved.
    pub folder: PathBuf,
    /// The document root; absolute, links resolved.
    pub root: PathBuf,
    /// The front controller, as a URL path: `/index.php`.
    pub index: String,
    /// Every request goes to the index, files are not served.
    pub single_script: bool,
}

/// What is known before the folder is looked into.
pub struct Sought<'s> {
    /// `None`: to be found out.
    pub language: Option<Language>,
    /// The front controller, relative to the document root.
    pub index: &'s str,
    /// A worker answers, so there may be no front controller.
    pub has_worker: bool,
}

/// Says in one line what is wrong and what to do.
pub fn find(path: &Path, sought: &Sought<'_>) -> Result<Project, String> {
    let shown = path.display();
    let real = path.canonicalize().map_err(|error| {
        format!("cannot serve {shown}: {error}; give a folder or a .php script")
    })?;
    if real.is_file() {
        return single_script(&real).ok_or_else(|| {
            format!("cannot serve {shown}: not a .php script; give a folder or a .php script")
        });
    }
    if let Err(error) = std::fs::read_dir(&real) {
        return Err(format!(
            "cannot read {shown}: {error}; check its permissions"
        ));
    }
    // The application's own folder is never the root where it has a public one.
    let roots = [real.join("public"), real.clone()];
    let has_index = |root: &&PathBuf| root.join(sought.index).is_file();
    let serves_as_root = |root: &&PathBuf| sought.has_worker && root.is_dir();
    let root = roots
        .iter()
        .find(has_index)
        .or_else(|| roots.iter().find(serves_as_root));
    if let Some(root) = root {
        return Ok(Project {
            name: name_of(&real),
            root: root.clone(),
            folder: real,
            index: format!("/{}", sought.index),
            single_script: false,
        });
    }
    let index = sought.index;
    Err(match other_language(&real) {
        Some(language) if sought.language.is_none() => format!(
            "cannot serve {shown}: it is a {language} application, and {language} is not supported yet"
        ),
        _ => format!("cannot serve {shown}: there is neither {index} nor public/{index} in it"),
    })
}

fn single_script(script: &Path) -> Option<Project> {
    let is_php = script.extension()?.eq_ignore_ascii_case("php");
    let file = script.file_name()?.to_str()?;
    let folder = script.parent().unwrap_or(Path::new("/")).to_path_buf();
    is_php.then(|| Project {
        name: script
            .file_stem()
            .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned()),
        root: folder.clone(),
        folder,
        index: format!("/{file}"),
        single_script: true,
    })
}

fn name_of(folder: &Path) -> String {
    folder
        .file_name()
        .map_or_else(|| "app".into(), |name| name.to_string_lossy().into_owned())
}

fn other_language(folder: &Path) -> Option<&'static str> {
    let has = |names: &[&str]| names.iter().any(|name| folder.join(name).exists());
    if has(&["config.ru", "Gemfile"]) {
        return Some("Ruby");
    }
    if has(&[
        "wsgi.py",
        "asgi.py",
        "app.py",
        "main.py",
        "manage.py",
        "pyproject.toml",
        "requirements.txt",
    ]) {
        return Some("Python");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn with(name: &str, files: &[&str]) -> Self {
            let path =
                std::env::temp_dir().join(format!("baton-project-{}-{name}", std::process::id()));
            for file in files {
                let file = path.join(file);
                std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
                std::fs::write(file, "").expect("written");
            }
            Self(path.canonicalize().expect("there"))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    const SOUGHT: Sought<'_> = Sought {
        language: None,
        index: "index.php",
        has_worker: false,
    };

    fn find(path: &Path) -> Result<Project, String> {
        super::find(path, &SOUGHT)
    }

    #[test]
    fn a_worker_needs_no_front_controller() {
        let folder = Folder::with("worker", &["public/worker.php"]);
        let sought = Sought {
            has_worker: true,
            ..SOUGHT
        };
        let project = super::find(&folder.0, &sought).expect("found");
        assert_eq!(project.root, folder.0.join("public"));
    }

    #[test]
    fn another_front_controller_is_looked_for_by_its_name() {
        let folder = Folder::with("index", &["public/index.php", "app.php"]);
        let sought = Sought {
            index: "app.php",
            ..SOUGHT
        };
        let project = super::find(&folder.0, &sought).expect("found");
        assert_eq!(
            (project.root, project.index.as_str()),
            (folder.0.clone(), "/app.php")
        );
    }

    #[test]
    fn a_public_folder_goes_before_the_folder_itself() {
        let folder = Folder::with("public", &["index.php", "public/index.php"]);
        let project = find(&folder.0).expect("found");
        assert_eq!(project.root, folder.0.join("public"));
        assert_eq!(project.folder, folder.0);
    }

    #[test]
    fn a_single_script_is_its_own_index() {
        let folder = Folder::with("single", &["hello.php"]);
        let project = find(&folder.0.join("hello.php")).expect("found");
        assert_eq!(
            (project.index.as_str(), project.single_script),
            ("/hello.php", true)
        );
    }

    #[test]
    fn what_cannot_be_served_is_said() {
        let ruby = Folder::with("ruby", &["config.ru"]);
        let python = Folder::with("python", &["app.py"]);
        let nothing = Folder::with("nothing", &["readme.txt"]);
        assert!(
            find(&ruby.0)
                .expect_err("ruby")
                .contains("Ruby is not supported yet")
        );
        assert!(
            find(&python.0)
                .expect_err("python")
                .contains("Python is not supported yet")
        );
        assert!(find(&nothing.0).expect_err("nothing").contains("index.php"));
        assert!(find(&nothing.0.join("missing")).is_err());
    }
}
