//! What is wrong with a configuration, and where.

use std::path::{Path, PathBuf};

/// A configuration file.
pub struct Source {
    pub path: PathBuf,
    pub text: String,
}

impl Source {
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        Ok(Self {
            path: path.to_owned(),
            text,
        })
    }

    /// What relative paths in it begin at; empty: where we are.
    pub fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }

    /// Both count from 1; columns are characters.
    pub fn line_and_column(&self, offset: usize) -> (usize, usize) {
        // A span begins at a character.
        let before = self.text.get(..offset).unwrap_or(&self.text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = before.matches('\n').count() + 1;
        (line, before[line_start..].chars().count() + 1)
    }
}

/// Problems are gathered, so that all of them can be told.
#[derive(Default)]
pub struct Problems(Vec<Problem>);

struct Problem {
    at: Option<usize>,
    message: String,
    /// Another place that it is about.
    about: Option<usize>,
}

impl Problems {
    /// At a byte of the file; `None`: not in it.
    pub fn add(&mut self, at: Option<usize>, message: impl Into<String>) {
        self.0.push(Problem {
            at,
            message: message.into(),
            about: None,
        });
    }

    /// As [`Problems::add`]; the line of another place follows the message.
    pub fn add_about(&mut self, at: Option<usize>, message: &str, about: Option<usize>) {
        self.0.push(Problem {
            at,
            message: message.into(),
            about,
        });
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// One line for each, `file:line:column: what is wrong`, in the order of the file.
    pub fn into_lines(mut self, source: Option<&Source>) -> Vec<String> {
        self.0.sort_by_key(|problem| problem.at);
        let line = |problem: Problem| {
            let place = |at: Option<usize>| Some(source?.line_and_column(at?));
            let mut text = problem.message;
            if let Some((line, _)) = place(problem.about) {
                text = format!("{text} {line}");
            }
            match (source, place(problem.at)) {
                (Some(source), Some((line, column))) => {
                    format!("{}:{line}:{column}: {text}", source.path.display())
                }
                _ => text,
            }
        };
        let mut lines: Vec<String> = self.0.into_iter().map(line).collect();
        lines.dedup();
        lines
    }
}

/// The known word that was meant, if one is near.
pub fn nearest<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    const NEAR_MIN: f64 = 0.6;
    let nearness = |known: &&str| strsim::normalized_damerau_levenshtein(word, known);
    known
        .map(|known| (nearness(&known), known))
        .filter(|(nearness, _)| *nearness >= NEAR_MIN)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_lines_and_columns() {
        let source = Source {
            path: "x".into(),
            text: "a\n\u{e9}\u{e9} = 1\n".into(),
        };
        let at = |offset| source.line_and_column(offset);
        assert_eq!((at(0), at(2), at(7)), ((1, 1), (2, 1), (2, 4)));
        assert_eq!(at(1000), (3, 1));
    }

    #[test]
    fn near_words_are_found_and_far_ones_are_not() {
        let known = || ["threads", "io_threads", "retry", "access_log"].into_iter();
        assert_eq!(nearest("thread", known()), Some("threads"));
        assert_eq!(nearest("access-log", known()), Some("access_log"));
        assert_eq!(nearest("io_treads", known()), Some("io_threads"));
        assert_eq!(nearest("memory_limit", known()), None);
    }
}
