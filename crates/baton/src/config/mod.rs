//! What is to be served: the options of the command line and of a file, put together and checked.
//!
//! The definitions in [`crate::options`] are the one source of names, ranges, defaults and help.
//! [`document`] reads a file by them and remembers where each value was; [`layer`] lets the more
//! particular win; [`threads`] says between which numbers those of a pool may move; [`build`] makes of both what the server runs, and finds what cannot work.
//! Everything here can be done again while the server runs, and compared with what it runs.

mod build;
mod document;
mod layer;
mod problem;
#[cfg(test)]
mod reference;
mod script;
mod table;
#[cfg(test)]
mod tests;
mod threads;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use baton_dispatch::autoscale::ScaleLimits;
use clap::ArgMatches;

use crate::account::Account;
use crate::options::{AppOptions, CONFIG_FILE, ServeArguments, ServerOptions};
use crate::project::Project;
use crate::routes::Routes;
use document::Document;
use layer::Layer;
use problem::{Problems, Source};

pub use script::Script;

/// All that the server is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    pub server: ServerOptions,
    /// At least one.
    pub apps: Vec<Arc<AppConfig>>,
    pub routes: Routes,
}

/// An application as configured, and as found in its folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppConfig {
    pub project: Project,
    pub options: AppOptions,
    /// `None`: the front's own.
    pub account: Option<Account>,
    /// How many threads other scripts than workers' may have.
    pub limits: ScaleLimits,
    pub workers: Vec<WorkerConfig>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerConfig {
    /// For logs.
    pub name: String,
    pub script: Script,
    pub limits: ScaleLimits,
    /// After which a thread is replaced.
    pub max_requests: Option<u32>,
}

impl Configuration {
    /// For the person who had it checked.
    pub fn summary(&self) -> String {
        let names = self.apps.iter().map(|app| app.project.name.as_str());
        let listen = self
            .server
            .listen
            .iter()
            .map(|listen| listen.at.to_string());
        format!(
            "serves {} on {}",
            names.collect::<Vec<_>>().join(", "),
            listen.collect::<Vec<_>>().join(", ")
        )
    }
}

impl AppConfig {
    /// Threads that all its pools together have at least.
    pub fn threads_min(&self) -> u32 {
        let workers = self.workers.iter().map(|worker| worker.limits.threads_min);
        self.limits.threads_min + workers.sum::<u32>()
    }
}

/// What `baton serve` was given: the command line, and the file that it names or that lies here.
pub struct Given {
    file: Option<PathBuf>,
    command_line: Layer,
}

impl Given {
    pub fn new(arguments: &ServeArguments, matches: &ArgMatches) -> Self {
        let here = Path::new(CONFIG_FILE);
        let file = match (&arguments.config, &arguments.app.root) {
            (Some(file), _) => Some(file.clone()),
            (None, None) if here.is_file() => Some(here.to_owned()),
            (None, _) => None,
        };
        Self {
            file,
            command_line: Layer::of_command_line(matches),
        }
    }

    /// Reads the file, and looks into the folders, now. Each line of an error is one problem.
    pub fn load(&self) -> Result<Configuration, Vec<String>> {
        load(self.file.as_deref(), &self.command_line)
    }
}

/// For `baton check`.
pub fn of_file(file: &Path) -> Result<Configuration, Vec<String>> {
    load(Some(file), &Layer::default())
}

fn load(file: Option<&Path>, command_line: &Layer) -> Result<Configuration, Vec<String>> {
    let source = file
        .map(Source::read)
        .transpose()
        .map_err(|error| vec![error])?;
    let mut problems = Problems::default();
    let document = match &source {
        Some(source) => Document::read(source, &mut problems),
        None => Some(Document::default()),
    };
    let folder = source.as_ref().map_or(Path::new(""), Source::folder);
    let configuration = document
        .and_then(|document| build::configuration(&document, command_line, folder, &mut problems));
    match configuration {
        Some(configuration) if problems.is_empty() => Ok(configuration),
        _ => Err(problems.into_lines(source.as_ref())),
    }
}

/// A message of the command line's parser, without what it prints around it.
pub fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text.lines().map(str::trim);
    let useful: Vec<_> = lines
        .filter(|line| !line.is_empty())
        .take_while(|line| !line.starts_with("Usage") && !line.starts_with("For more information"))
        .collect();
    useful.join("; ").replace("error: ", "")
}
