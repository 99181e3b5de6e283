//! Which files count: globs relative to the application's folder.

use std::path::{Component, Path, PathBuf};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// Not looked into unless a pattern names them: nobody edits there, or the application itself writes there.
const SKIPPED_EVERYWHERE: &str = "node_modules";
const SKIPPED_AT_THE_TOP: [&str; 2] = ["var", "storage"];

#[derive(Debug)]
pub struct Patterns {
    wanted: GlobSet,
    /// Those with a leading `!`.
    unwanted: GlobSet,
    /// The folders in which the wanted ones begin, up to the first wildcard.
    bases: Vec<PathBuf>,
}

impl Patterns {
    /// A pattern that names a folder means all that is in it. Says in one line what is wrong.
    pub fn parse(folder: &Path, patterns: &[String]) -> Result<Self, String> {
        let (mut wanted, mut unwanted) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        let mut bases = Vec::new();
        for given in patterns {
            let (set, pattern) = match given.strip_prefix('!') {
                Some(pattern) => (&mut unwanted, pattern),
                None => (&mut wanted, given.as_str()),
            };
            if pattern.is_empty() {
                return Err("a pattern is empty".into());
            }
            let pattern = relative(folder, pattern)
                .ok_or_else(|| format!("{given} lies outside of {}", folder.display()))?;
            for glob in [pattern.clone(), format!("{pattern}/**")] {
                let glob = GlobBuilder::new(&glob).literal_separator(true).build();
                set.add(glob.map_err(|error| format!("{given}: {}", error.kind()))?);
            }
            if !given.starts_with('!') {
                bases.push(base_of(&pattern));
            }
        }
        if bases.is_empty() {
            return Err("there are only patterns with !, which say what not to watch".into());
        }
        let build = |set: GlobSetBuilder| set.build().map_err(|error| error.to_string());
        Ok(Self {
            wanted: build(wanted)?,
            unwanted: build(unwanted)?,
            bases,
        })
    }

    /// Whether a file counts, by its path relative to the folder.
    pub fn is_wanted(&self, file: &Path) -> bool {
        self.wanted.is_match(file) && !self.unwanted.is_match(file)
    }

    /// Whether files that count may be in this folder or below.
    pub fn may_be_in(&self, folder: &Path) -> bool {
        let is_named = self.bases.iter().any(|base| base.starts_with(folder));
        let is_below = self.bases.iter().any(|base| folder.starts_with(base));
        is_named || (is_below && !is_skipped(folder) && !self.unwanted.is_match(folder))
    }
}

fn is_skipped(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let is_at_the_top = folder.components().count() == 1;
    name.starts_with('.')
        || name == SKIPPED_EVERYWHERE
        || (is_at_the_top && SKIPPED_AT_THE_TOP.contains(&&*name))
}

/// Without `./` and the folder itself in front, and without a slash behind. `None`: outside.
fn relative(folder: &Path, pattern: &str) -> Option<String> {
    let path = Path::new(pattern);
    let path = match path.is_absolute() {
        true => path.strip_prefix(folder).ok()?,
        false => path,
    };
    let mut parts = Vec::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::Normal(part) => parts.push(part.to_str()?),
            _ => return None,
        }
    }
    match parts.is_empty() {
        true => Some("**".into()),
        false => Some(parts.join("/")),
    }
}

fn base_of(pattern: &str) -> PathBuf {
    let is_literal = |part: &&str| !part.contains(['*', '?', '[', '{', '\\']);
    let parts = pattern.split('/').collect::<Vec<_>>();
    let literal = parts.iter().take_while(|part| is_literal(part)).count();
    // The last part may be a file: its folder is watched.
    parts[..literal.min(parts.len() - 1)].iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(patterns: &[&str]) -> Patterns {
        let patterns: Vec<_> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
        Patterns::parse(Path::new("/srv/site"), &patterns).expect("patterns")
    }

    #[test]
    fn globs_are_those_of_shells_with_braces_and_two_stars() {
        let cases = [
            ("**/*.{php,env}", "index.php", true),
            ("**/*.{php,env}", "src/deep/a.php", true),
            ("**/*.{php,env}", ".env", true),
            ("**/*.{php,env}", "a.css", false),
            ("*.php", "src/a.php", false),
            ("./*.php", "a.php", true),
            ("/srv/site/src/**/*.php", "src/a.php", true),
            ("src", "src/deep/a.css", true),
            ("src/", "src/a", true),
            ("src", "other/src", false),
            (".", "any/thing", true),
            ("/srv/site", "any", true),
            ("composer.lock", "composer.lock", true),
        ];
        for (pattern, file, wanted) in cases {
            let is_wanted = patterns(&[pattern]).is_wanted(Path::new(file));
            assert_eq!(is_wanted, wanted, "{pattern} and {file}");
        }
    }

    #[test]
    fn folders_are_left_out_unless_they_are_named() {
        let cases: [(&[&str], &str, bool); 15] = [
            (&["**/*.php"], "", true),
            (&["**/*.php"], "src/deep", true),
            (&["**/*.php"], ".git", false),
            (&["**/*.php"], "src/node_modules", false),
            (&["**/*.php"], "var", false),
            (&["**/*.php"], "src/storage", true),
            (&["**/*.php", "storage/*.php"], "storage", true),
            (&["**/*.php", "!vendor"], "vendor", false),
            (&["src/**/*.php"], "", true),
            (&["src/**/*.php"], "src", true),
            (&["src/**/*.php"], "tests", false),
            (&["src/a/*.php"], "src/b", false),
            (&[".config/x.yaml"], ".config", true),
            (&["composer.lock"], "vendor", true),
            (&["composer.lock"], ".git", false),
        ];
        for (given, folder, expected) in cases {
            let may_be_in = patterns(given).may_be_in(Path::new(folder));
            assert_eq!(may_be_in, expected, "{given:?} and {folder}");
        }
    }

    #[test]
    fn what_is_left_out_does_not_count() {
        let patterns = patterns(&["**/*.php", "!cache/**", "!*_test.php"]);
        for (file, wanted) in [
            ("a.php", true),
            ("cache/x.php", false),
            ("a_test.php", false),
        ] {
            assert_eq!(patterns.is_wanted(Path::new(file)), wanted, "{file}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        let parse = |pattern: &str| {
            let given = [pattern.to_owned()];
            Patterns::parse(Path::new("/srv/site"), &given).expect_err(pattern)
        };
        assert!(parse("/etc/passwd").contains("outside of /srv/site"));
        assert!(parse("../x").contains("outside"));
        assert!(parse("src/{a").contains("src/{a"));
        assert!(parse("!src").contains("only patterns with !"));
        assert!(parse("").contains("empty"));
    }
}
