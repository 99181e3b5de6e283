//! What can be asked for: options of the command line, and a scenario file with the same names.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::check::Expect;
use crate::file;
use crate::mix::Window;
use crate::profile::Profile;
use crate::span::Span;
use crate::template::Parameters;
use crate::url::Url;

const SCENARIO_BYTES_MAX: u64 = 16 * 1024 * 1024;

#[derive(Args, Clone, Debug, Default)]
pub struct LoadOptions {
    /// Where to: http://host[:port][/path], or unix:/path/of/socket[:/path]
    pub url: Option<Url>,

    /// Scenario in TOML: targets with random parameters, and any of the options; the command line wins
    #[arg(long, value_name = "FILE")]
    pub scenario: Option<PathBuf>,

    #[command(flatten)]
    pub load: Shape,

    #[command(flatten)]
    pub request: RequestOptions,

    #[command(flatten)]
    pub expect: Expect,

    /// Report as JSON on standard output, with the histograms and what was asked for
    #[arg(long)]
    pub json: bool,

    /// File for the report as JSON
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,

    /// No progress while running
    #[arg(long, short)]
    pub quiet: bool,
}

/// How much, how long. In a scenario file: the table `[load]`.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Shape {
    /// Open connections, 1 to 1000000, or stages of them: 20s:100,10s:0 ramps from 0 to 100 in 20 s, then to 0 in 10 s
    /// [default: 50]
    #[arg(long, short, value_name = "N|STAGES")]
    pub connections: Option<Profile>,

    /// Requests per second, or stages of them, sent whether or not replies have come (open loop). Without it, each
    /// connection sends its next request when its reply is there (closed loop)
    #[arg(long, short, value_name = "N|STAGES")]
    pub rate: Option<Profile>,

    /// Network threads, 1 to 256 [default: half of the cores, at most 8]
    #[arg(long, short, value_name = "N")]
    pub threads: Option<usize>,

    /// How long to send, warm-up included, such as 500ms, 10s or 1m30s [default: 10s, or as long as the stages]
    #[arg(long, short, value_name = "DURATION")]
    pub duration: Option<Span>,

    /// How many requests to send, instead of how long
    #[arg(long, short = 'n', value_name = "N")]
    pub requests: Option<u64>,

    /// Requests that a connection sends ahead of their replies, 1 to 1024 [default: 1]
    #[arg(long, value_name = "N")]
    pub pipeline: Option<usize>,

    /// Keep connections open between requests; otherwise each has a connection of its own [default: true]
    #[arg(long, value_name = "BOOL")]
    pub keep_alive: Option<bool>,

    /// Load at the beginning that is left out of the figures [default: 0s]
    #[arg(long, value_name = "DURATION")]
    pub warm_up: Option<Span>,

    /// How long a connection may take to be made [default: 5s]
    #[arg(long, value_name = "DURATION")]
    pub connect_timeout: Option<Span>,

    /// How long a reply may take, counted from when its request was sent [default: 10s]
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<Span>,

    /// How long to wait for the last replies when sending is over [default: the timeout]
    #[arg(long, value_name = "DURATION")]
    pub drain: Option<Span>,

    /// Beginning of the random numbers: the same one draws the same parameters on each thread [default: 1]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// One request for all targets of the command line.
#[derive(Args, Clone, Debug, Default)]
pub struct RequestOptions {
    /// Method [default: GET, or POST with a body]
    #[arg(long, short, value_name = "METHOD")]
    pub method: Option<String>,

    /// Header field `Name: value`; may be repeated
    #[arg(long = "header", short = 'H', value_name = "FIELD")]
    pub headers: Vec<String>,

    /// Body
    #[arg(long, value_name = "TEXT", conflicts_with = "body_file")]
    pub body: Option<String>,

    /// File with the body, up to 64 MiB
    #[arg(long, value_name = "FILE")]
    pub body_file: Option<PathBuf>,

    /// Ask for this path too, as often as its weight says: 3:/path. May be repeated; the URL's path goes before each
    #[arg(
        long = "target",
        value_name = "WEIGHT:PATH",
        conflicts_with = "scenario"
    )]
    pub targets: Vec<String>,
}

/// A scenario file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// Used when the command line has none.
    pub url: Option<Url>,
    pub load: Shape,
    /// For targets that expect nothing of their own.
    pub expect: Expect,
    #[serde(rename = "target")]
    pub targets: Vec<Target>,
}

/// `[[target]]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    #[serde(default = "one")]
    pub weight: u32,
    pub method: Option<String>,
    pub path: String,
    #[serde(default)]
    pub headers: Vec<String>,
    pub body: Option<String>,
    /// Relative to the scenario file.
    pub body_file: Option<PathBuf>,
    #[serde(default)]
    pub parameters: Parameters,
    pub window: Option<Window>,
    #[serde(default)]
    pub expect: Expect,
}

fn one() -> u32 {
    1
}

impl Target {
    pub fn plain(path: String) -> Target {
        Target {
            weight: 1,
            method: None,
            path,
            headers: vec![],
            body: None,
            body_file: None,
            parameters: Default::default(),
            window: None,
            expect: Expect::default(),
        }
    }
}

impl Scenario {
    pub fn read(path: &Path) -> Result<Scenario, String> {
        let bytes = file::read(path, SCENARIO_BYTES_MAX)?;
        let text =
            String::from_utf8(bytes).map_err(|_| format!("{}: not UTF-8", path.display()))?;
        let mut scenario: Scenario = toml::from_str(&text)
            .map_err(|error| format!("{}: {}", path.display(), error.to_string().trim_end()))?;
        if scenario.targets.is_empty() {
            return Err(format!(
                "{}: at least one [[target]] with a path is needed",
                path.display()
            ));
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        for target in &mut scenario.targets {
            target.body_file = target.body_file.take().map(|file| folder.join(file));
        }
        Ok(scenario)
    }
}

impl Shape {
    /// What `self` leaves open is as in `other`.
    pub fn or(self, other: Shape) -> Shape {
        Shape {
            connections: self.connections.or(other.connections),
            rate: self.rate.or(other.rate),
            threads: self.threads.or(other.threads),
            duration: self.duration.or(other.duration),
            requests: self.requests.or(other.requests),
            pipeline: self.pipeline.or(other.pipeline),
            keep_alive: self.keep_alive.or(other.keep_alive),
            warm_up: self.warm_up.or(other.warm_up),
            connect_timeout: self.connect_timeout.or(other.connect_timeout),
            timeout: self.timeout.or(other.timeout),
            drain: self.drain.or(other.drain),
            seed: self.seed.or(other.seed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        load: LoadOptions,
    }

    #[test]
    fn options_are_consistent_and_explained() {
        let command = Line::command();
        command.clone().debug_assert();
        for argument in command.get_arguments() {
            assert!(
                argument.get_help().is_some(),
                "{} has no help",
                argument.get_id()
            );
        }
    }

    #[test]
    fn the_line_of_the_manual_is_understood() {
        let text = "load http://127.0.0.1:8080/x --connections 50 --threads 2 --duration 10s --rate 5000 --json -H A:b";
        let line = Line::try_parse_from(text.split(' ')).expect("good").load;
        assert_eq!(line.load.connections, Some(Profile::constant(50)));
        assert_eq!(line.load.duration, Some(Span::seconds(10)));
        assert!(line.json);
        let stages = "load unix:/run/x.sock -c 20s:100,30s:200,10s:0 --target 3:/a --target 1:/b";
        let line = Line::try_parse_from(stages.split(' ')).expect("good").load;
        assert_eq!(line.request.targets.len(), 2);
        for bad in [
            "load ftp://x",
            "load http://x --rate fast",
            "load http://x --duration 10",
            "load http://x --expect-status ok",
        ] {
            assert!(Line::try_parse_from(bad.split(' ')).is_err(), "{bad}");
        }
    }
}
