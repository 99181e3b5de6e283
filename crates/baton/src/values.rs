//! Values of options that are more than a number or a text: parsed once, into what cannot be wrong.

use std::ffi::OsString;
use std::path::PathBuf;

use baton_dispatch::autoscale::ScaleLimits;

/// NAME=VALUE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    pub name: String,
    pub value: String,
}

/// A script's path, absolute or relative to the application's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptPath(pub PathBuf);

impl From<OsString> for ScriptPath {
    fn from(path: OsString) -> Self {
        Self(path.into())
    }
}

/// The most threads that there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadsMax {
    /// As many as fit into memory.
    Auto,
    Number(u32),
}

impl ThreadsMax {
    pub fn number(self) -> Option<u32> {
        match self {
            Self::Auto => None,
            Self::Number(number) => Some(number),
        }
    }
}

/// `auto`, or a number of threads.
pub fn parse_threads_max(text: &str) -> Result<ThreadsMax, String> {
    const MAX: u32 = ScaleLimits::THREADS_AUTO_MAX;
    match text.parse() {
        _ if text == "auto" => Ok(ThreadsMax::Auto),
        Ok(number) if (1..=MAX).contains(&number) => Ok(ThreadsMax::Number(number)),
        _ => Err(format!("{text} is neither in 1..={MAX} nor auto")),
    }
}

/// NAME=VALUE on one line.
pub fn parse_pair(text: &str) -> Result<Pair, String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() && !text.contains(['\n', '\0']) => {
            Ok(Pair {
                name: name.trim().into(),
                value: value.into(),
            })
        }
        _ => Err("expected NAME=VALUE on one line".into()),
    }
}

/// A script below the document root, without dots that lead out of it.
pub fn parse_index(text: &str) -> Result<String, String> {
    let is_plain = |segment: &str| !segment.is_empty() && !segment.starts_with('.');
    match text.ends_with(".php") && text.split('/').all(is_plain) {
        true => Ok(text.into()),
        false => Err("expected the name of a .php script in the public folder".into()),
    }
}

/// A name for logs, and for the addresses of an interface.
pub fn parse_name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match (1..=64).contains(&text.len()) && text.chars().all(fits) {
        true => Ok(text.into()),
        false => Err("expected 1 to 64 of the characters a-z, A-Z, 0-9, `-`, `_` and `.`".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_told_apart() {
        let pair = parse_pair(" a = b=c ").expect("a pair");
        assert_eq!((pair.name.as_str(), pair.value.as_str()), ("a", " b=c "));
        for bad in ["", "a", "=b", " =b", "a=b\nc=d", "a=\0"] {
            assert!(parse_pair(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_most_threads_are_a_number_or_auto() {
        assert_eq!(parse_threads_max("auto"), Ok(ThreadsMax::Auto));
        assert_eq!(parse_threads_max("4096"), Ok(ThreadsMax::Number(4096)));
        for bad in ["", "0", "-1", "4097", "Auto", "1.5", "99999999999"] {
            assert!(parse_threads_max(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_index_is_a_script_in_the_public_folder() {
        for good in ["index.php", "app/front.php"] {
            assert!(parse_index(good).is_ok(), "{good}");
        }
        for bad in ["", "index.html", "/index.php", "../a.php", ".hidden.php"] {
            assert!(parse_index(bad).is_err(), "{bad}");
        }
    }
}
