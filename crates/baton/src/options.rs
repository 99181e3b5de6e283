//! Every option: its name, help, range and default. A configuration file uses the same names.

use std::path::PathBuf;

use baton_dispatch::autoscale::ScaleLimits;
use baton_server::TrustedProxy;
use clap::builder::{Resettable, Str};
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum, value_parser};

use crate::admin::place::{Asked, At};
use crate::listen::{self, Listen};
use crate::routes::{HostPattern, PathPattern};
use crate::values::{
    Pair, ScriptPath, ThreadsMax, parse_index, parse_name, parse_pair, parse_threads_max,
};
use crate::watch::DEFAULT_PATTERN;

#[derive(Parser)]
#[command(name = "baton", version, about, args_override_self = true)]
pub struct CommandLine {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Serve one application, or those of a configuration file
    Serve(Box<ServeArguments>),
    /// Say what is wrong with a configuration file, if anything, and where
    Check {
        /// The file
        #[arg(value_name = "FILE", default_value = CONFIG_FILE)]
        file: PathBuf,
    },
    /// Tell how a running server is, and its applications
    Status(ControlOptions),
    /// List the threads of a running server, and what they are doing; add some, or remove some
    #[command(args_conflicts_with_subcommands = true)]
    Threads {
        #[command(subcommand)]
        change: Option<ThreadsCommand>,

        #[command(flatten)]
        options: ControlOptions,

        /// Only this application's
        #[arg(long, value_name = "NAME")]
        app: Option<String>,
    },
    /// Restart applications with new code and php.ini, without losing a request, and wait for it
    Restart {
        #[command(flatten)]
        options: ControlOptions,

        /// Only this application
        #[arg(long, value_name = "NAME")]
        app: Option<String>,
    },
    /// Have a running server read its configuration anew
    Reload(ControlOptions),
    /// Start as many threads as there may be, give each a request, tell what breaks, and go back
    Rehearse(RehearseOptions),
    /// Load a server with requests, and tell how fast and how late its replies come
    Load(Box<baton_load::LoadOptions>),
}

/// How a running server is reached.
#[derive(Args, Clone, Debug)]
#[command(args_override_self = true)]
pub struct Reach {
    /// Its admin API: unix:/path or HOST:PORT, as given to `baton serve --admin` [default: the one server of this account]
    #[arg(long, value_name = "ADDR", value_parser = At::parse)]
    pub admin: Option<At>,

    /// File with the token that it asks for
    #[arg(long, value_name = "FILE")]
    pub admin_token_file: Option<PathBuf>,
}

/// A question to a running server.
#[derive(Args, Clone, Debug)]
#[command(args_override_self = true)]
pub struct ControlOptions {
    #[command(flatten)]
    pub reach: Reach,

    /// Print the reply as it is, in JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand)]
pub enum ThreadsCommand {
    /// Add threads, which the load does not take away again
    Add(ChangeOptions),
    /// Remove threads: idle ones at once, busy ones when they are free
    Remove(ChangeOptions),
}

/// Which threads, and how many.
#[derive(Args, Clone, Debug)]
pub struct ChangeOptions {
    #[command(flatten)]
    pub control: ControlOptions,

    /// The application, where there are several
    #[arg(long, value_name = "NAME")]
    pub app: Option<String>,

    /// The worker, by its name or script [default: the threads that start any script afresh]
    #[arg(long, value_name = "NAME")]
    pub worker: Option<String>,

    /// How many, 1 to 4096
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=4096))]
    pub count: u32,
}

/// What is rehearsed.
#[derive(Args, Clone, Debug)]
pub struct RehearseOptions {
    /// What each thread is asked for: http://host[:port][/path], or unix:/path/of/socket[:/path]
    #[arg(default_value = "http://127.0.0.1:8080/")]
    pub url: String,

    #[command(flatten)]
    pub reach: Reach,

    /// The application, where there are several
    #[arg(long, value_name = "NAME")]
    pub app: Option<String>,

    /// The worker, by its name or script [default: the threads that start any script afresh]
    #[arg(long, value_name = "NAME")]
    pub worker: Option<String>,

    /// How many threads, 1 to 4096 [default: max_threads, unless that is auto]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=4096))]
    pub threads: Option<u32>,
}

/// Read by `baton serve` where neither PATH nor --config is given.
pub const CONFIG_FILE: &str = "baton.toml";

const APPLICATION: &str = "Application";
const SERVER: &str = "Server";
const LIMITS: &str = "Limits and timeouts";
const LOGS: &str = "Logs";

/// The command line of `baton serve`.
#[derive(Args, Clone, Debug)]
#[command(args_override_self = true)]
pub struct ServeArguments {
    /// File with options and applications, in TOML [default: baton.toml where that exists and no PATH is given]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    #[command(flatten)]
    pub app: AppOptions,

    #[command(flatten)]
    pub server: ServerOptions,
}

/// What each application may have its own of. In a file: at the top for all, or in `[apps.NAME]`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = APPLICATION)]
pub struct AppOptions {
    /// The application's folder, with index.php or public/index.php in it, or its one script [default: the folder of
    /// the configuration file, or this one]
    #[arg(value_name = "PATH", help_heading = Resettable::<Str>::Reset)]
    pub root: Option<PathBuf>,

    /// Language of the application [default: found out]
    #[arg(long = "type", id = "type", value_name = "TYPE", value_enum)]
    pub language: Option<Language>,

    /// Script that answers for paths without a file, in the public folder
    #[arg(long, value_name = "FILE", default_value = "index.php", value_parser = parse_index)]
    pub index: String,

    /// PHP script that boots once in each thread and then handles requests in a loop with frankenphp_handle_request();
    /// absolute, or relative to the application's folder. It gets `/` and all paths without a file; other scripts start
    /// afresh for each request
    #[arg(long, value_name = "FILE")]
    pub worker: Option<ScriptPath>,

    /// Requests after which a thread is replaced, against memory leaks, 1 to 4294967295 [default: unlimited]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub max_requests: Option<u32>,

    /// Always so many threads, 1 to 4096, instead of num_threads and max_threads; a worker has as many of its own
    /// [default: between those two]
    #[arg(long, value_name = "N", value_parser = threads(), allow_negative_numbers = true)]
    pub threads: Option<u32>,

    /// Threads to start with, and the least, 1 to 4096; a worker has as many of its own [default: twice the cores; 2 for
    /// the other scripts beside a worker]
    #[arg(long, value_name = "N", value_parser = threads(), allow_negative_numbers = true)]
    pub num_threads: Option<u32>,

    /// The most threads, 1 to 4096, to which the load may raise their number; auto: as many as fit into memory
    /// [default: auto]
    #[arg(long, value_name = "N", value_parser = parse_threads_max, allow_negative_numbers = true)]
    pub max_threads: Option<ThreadsMax>,

    /// Threads of each process, 1 to 256, in a language that has them: a PHP process has 1. They start and stop together, so
    /// all numbers of threads are multiples of it; the default ones are rounded up
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = threads_per_process(), allow_negative_numbers = true)]
    pub threads_per_process: u32,

    /// How long threads above the least may be idle before they are stopped, a few at a time, in milliseconds, 100 to
    /// 86400000
    #[arg(long, value_name = "MS", default_value_t = ScaleLimits::IDLE_MS_MAX_DEFAULT, value_parser = ms(100))]
    pub idle_ms_max: u64,

    /// Account that application processes run as when started as root; never root
    #[arg(long, value_name = "NAME", default_value = "www-data")]
    pub user: String,

    /// Environment variable of the application, NAME=VALUE; may be repeated. Of the front's own it gets only PATH,
    /// LANG, LC_ALL, TZ, TMPDIR, HOME, USER, PHPRC, PHP_INI_SCAN_DIR and RUST_BACKTRACE
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub env: Vec<Pair>,

    /// PHP setting as in php.ini, NAME=VALUE; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub ini: Vec<Pair>,

    /// PHP setting that scripts cannot change, NAME=VALUE; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub ini_admin: Vec<Pair>,

    /// php.ini to read instead of the distribution's for web servers (php-cgi's)
    #[arg(long, value_name = "FILE")]
    pub ini_file: Option<PathBuf>,

    /// Serve static files through symbolic links that leave the application's folder
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, action = ArgAction::Set,
          default_value_t = false, default_missing_value = "true", hide_possible_values = true)]
    pub follow_symlinks: bool,

    /// Give an idempotent request whose process died, with nothing sent yet, to another thread once
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, action = ArgAction::Set,
          default_value_t = false, default_missing_value = "true", hide_possible_values = true)]
    pub retry: bool,

    /// Development: restart the application when files change that match, such as src/**/*.php, a folder, or !FOLDER for
    /// all but that; relative to its folder; may be repeated. Hidden folders, node_modules and the application's own var
    /// and storage only count where they are named. On the command line without a pattern: **/*.{env,php,twig,yaml,yml}
    #[arg(long, value_name = "PATTERN", num_args = 0..=1, require_equals = true, default_missing_value = DEFAULT_PATTERN)]
    pub watch: Vec<String>,

    /// A thread idle for longer goes first once, in milliseconds, 1 to 86400000
    #[arg(long, value_name = "MS", default_value_t = 10_000, value_parser = ms(1))]
    pub rotate_ms: u64,

    /// How long clients may use a static file without asking again, in seconds, 0 to 31536000 [default: left to them]
    #[arg(long, value_name = "S", value_parser = value_parser!(u32).range(0..=31_536_000))]
    pub static_max_age_s: Option<u32>,

    /// How long files, and that a path has none, are remembered, in milliseconds, 0 to 60000
    #[arg(long, value_name = "MS", default_value_t = 1_000, value_parser = value_parser!(u64).range(0..=60_000))]
    pub path_cache_ms: u64,

    /// How long a request may take, waiting included, in milliseconds, 100 to 86400000; 504 beyond
    #[arg(long, value_name = "MS", default_value_t = 60_000, value_parser = ms(100), help_heading = LIMITS)]
    pub deadline_ms: u64,

    /// How long a thread over its deadline has to end by itself, in milliseconds, 0 to 86400000; its process is killed
    /// beyond
    #[arg(long, value_name = "MS", default_value_t = 5_000, value_parser = ms(0), help_heading = LIMITS)]
    pub kill_grace_ms: u64,

    /// How long an offered request may lie untaken, in milliseconds, 10 to 60000; another thread gets it beyond
    #[arg(long, value_name = "MS", default_value_t = 250, value_parser = value_parser!(u64).range(10..=60_000),
          help_heading = LIMITS)]
    pub offer_ms: u64,

    /// Requests that may wait for a thread, 0 to 1000000; 503 with Retry-After beyond
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = value_parser!(u32).range(0..=1_000_000),
          help_heading = LIMITS)]
    pub queue_len_max: u32,

    /// How long a request may wait for a thread, in milliseconds, 1 to 86400000; 503 with Retry-After beyond, at once where the
    /// queue is known to be so slow
    #[arg(long, value_name = "MS", default_value_t = 10_000, value_parser = ms(1), help_heading = LIMITS)]
    pub queue_wait_ms_max: u64,
}

/// What there is one of, for all applications. In a file: at the top.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = SERVER)]
pub struct ServerOptions {
    /// Address to listen on: HOST:PORT, :PORT (all IPv4 addresses), unix:/path, or systemd[:NAME] for sockets that
    /// systemd passes, which otherwise replace all others; " proxy_protocol" behind it if each connection begins with
    /// that, " mode=0660" for a unix socket's permissions; may be repeated
    #[arg(long, value_name = "ADDR", value_parser = listen::parse, default_value = "127.0.0.1:8080")]
    pub listen: Vec<Listen>,

    /// Proxy that may speak for clients: an address, a network such as 10.0.0.0/8, or unix for all peers on unix
    /// sockets; may be repeated
    #[arg(long, value_name = "CIDR")]
    pub trusted_proxies: Vec<TrustedProxy>,

    /// Header in which a trusted proxy speaks for its clients. It must set or remove each of these; may be repeated
    #[arg(long, value_name = "NAME", value_enum, default_values_t = TrustedHeader::DEFAULT)]
    pub trusted_headers: Vec<TrustedHeader>,

    /// Address of the admin API: unix:/path, HOST:PORT, or off. Its socket is for this account alone; on TCP it needs
    /// --admin-token-file [default: PID.sock in $RUNTIME_DIRECTORY; without that in /run/baton for root, else in
    /// $XDG_RUNTIME_DIR/baton or /tmp/baton-UID]
    #[arg(long, value_name = "ADDR", value_parser = Asked::parse)]
    pub admin: Option<Asked>,

    /// File with the token that clients of the admin API have to show, 16 to 1024 letters, digits and signs; others must
    /// not be able to read it [default: none is asked for]
    #[arg(long, value_name = "FILE")]
    pub admin_token_file: Option<PathBuf>,

    /// I/O threads, 1 to 64 [default: a quarter of the cores, at least 1]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=64))]
    pub io_threads: Option<u16>,

    /// Application threads, those of all applications together, 1 to 65536: however high the load, they share these
    #[arg(long, value_name = "N", default_value_t = 4_096, value_parser = value_parser!(u32).range(1..=65_536),
          allow_negative_numbers = true)]
    pub threads_max: u32,

    /// Where large request bodies are kept while they arrive [default: $TMPDIR, or /tmp]
    #[arg(long, value_name = "DIR")]
    pub temp_dir: Option<PathBuf>,

    /// Connections at once, 1 to 1000000; more wait in the listen backlog
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = value_parser!(u32).range(1..=1_000_000),
          help_heading = LIMITS)]
    pub connections_max: u32,

    /// Requests on one connection, 1 to 4294967295; the last answer says close
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = value_parser!(u32).range(1..),
          help_heading = LIMITS)]
    pub requests_per_connection_max: u32,

    /// How long a request's head may take to arrive, in milliseconds, 10 to 86400000; 408 beyond
    #[arg(long, value_name = "MS", default_value_t = 10_000, value_parser = ms(10), help_heading = LIMITS)]
    pub header_ms: u64,

    /// How long a request's body may pause, in milliseconds, 10 to 86400000; 408 beyond
    #[arg(long, value_name = "MS", default_value_t = 30_000, value_parser = ms(10), help_heading = LIMITS)]
    pub body_ms: u64,

    /// How long a connection may be idle between requests, in milliseconds, 10 to 86400000; it is closed beyond
    #[arg(long, value_name = "MS", default_value_t = 75_000, value_parser = ms(10), help_heading = LIMITS)]
    pub keep_alive_ms: u64,

    /// How long a client may take no bytes of its reply, in milliseconds, 10 to 86400000; the connection is closed
    /// beyond
    #[arg(long, value_name = "MS", default_value_t = 30_000, value_parser = ms(10), help_heading = LIMITS)]
    pub write_ms: u64,

    /// Largest request target, in bytes, 64 to 32768; 414 beyond
    #[arg(long, value_name = "BYTES", default_value_t = 8_192, value_parser = value_parser!(u32).range(64..=32_768),
          help_heading = LIMITS)]
    pub target_bytes_max: u32,

    /// Largest request head, in bytes, 256 to 49152; 431 beyond
    #[arg(long, value_name = "BYTES", default_value_t = 32_768, value_parser = value_parser!(u32).range(256..=49_152),
          help_heading = LIMITS)]
    pub head_bytes_max: u32,

    /// Most request headers, 1 to 128; 431 beyond
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = value_parser!(u32).range(1..=128),
          help_heading = LIMITS)]
    pub headers_max: u32,

    /// Largest request body, in bytes; 413 beyond
    #[arg(long, value_name = "BYTES", default_value_t = 128 * 1024 * 1024, help_heading = LIMITS)]
    pub body_bytes_max: u64,

    /// What the front may hold of finished replies for slow clients, all together, in bytes; beyond, threads wait for
    /// their clients
    #[arg(long, value_name = "BYTES", default_value_t = 64 * 1024 * 1024, help_heading = LIMITS)]
    pub reply_spill_bytes_max: usize,

    /// How long a shutdown waits for running requests, in milliseconds, 0 to 86400000; they are cut beyond
    #[arg(long, value_name = "MS", default_value_t = 30_000, value_parser = ms(0), help_heading = LIMITS)]
    pub shutdown_grace_ms: u64,

    /// File for the log instead of standard error
    #[arg(long, value_name = "FILE", help_heading = LOGS)]
    pub log: Option<PathBuf>,

    /// Form of the log; auto: human on a terminal, else JSON
    #[arg(long, value_enum, default_value_t = LogFormat::Auto, help_heading = LOGS)]
    pub log_format: LogFormat,

    /// File for the access log; - for standard output [default: none]
    #[arg(long, value_name = "FILE", help_heading = LOGS)]
    pub access_log: Option<PathBuf>,

    /// Form of the access log
    #[arg(long, value_enum, default_value_t = AccessFormat::Combined, help_heading = LOGS)]
    pub access_log_format: AccessFormat,
}

/// A worker of an application, in a file: `[[apps.NAME.workers]]`.
#[derive(Args, Clone, Debug)]
pub struct WorkerOptions {
    /// PHP script that boots once in each thread and then handles requests in a loop; absolute, or relative to the
    /// application's folder. The first worker gets `/` and all paths without a file, the others what names their script
    #[arg(long, value_name = "FILE", required = true)]
    pub file: ScriptPath,

    /// Its name in logs [default: that of the script]
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    pub name: Option<String>,

    /// Always so many threads of its own, 1 to 4096 [default: as the application]
    #[arg(long, value_name = "N", value_parser = threads())]
    pub threads: Option<u32>,

    /// Its threads to start with, and the least, 1 to 4096 [default: as the application]
    #[arg(long, value_name = "N", value_parser = threads())]
    pub num_threads: Option<u32>,

    /// The most threads that it may have, 1 to 4096, or auto [default: as the application]
    #[arg(long, value_name = "N", value_parser = parse_threads_max)]
    pub max_threads: Option<ThreadsMax>,

    /// Requests after which one of its threads is replaced, 1 to 4294967295 [default: that of the application]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub max_requests: Option<u32>,
}

/// Which requests an application gets, in a file: `[[routes]]`. The first one that fits counts.
#[derive(Args, Clone, Debug)]
pub struct RouteOptions {
    /// Host of the request, without a port: a name, or *.example for all names below example [default: any]
    #[arg(long, value_name = "HOST", value_parser = HostPattern::parse)]
    pub host: Option<HostPattern>,

    /// Path of the request, decoded: /exactly, or /beginning* [default: any]
    #[arg(long, value_name = "PATH", value_parser = PathPattern::parse)]
    pub path: Option<PathPattern>,

    /// The application: the NAME of an [apps.NAME]
    #[arg(long, value_name = "NAME", required = true)]
    pub app: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Language {
    Php,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Auto,
    Human,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AccessFormat {
    Common,
    Combined,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TrustedHeader {
    XForwardedFor,
    XForwardedProto,
    XForwardedPort,
    /// Not among those by default: many proxies that set the others pass this one on as the client wrote it, and links
    /// in mails would lead to a host of the client's choice.
    XForwardedHost,
    Forwarded,
}

impl TrustedHeader {
    const DEFAULT: [TrustedHeader; 4] = [
        TrustedHeader::XForwardedFor,
        TrustedHeader::XForwardedProto,
        TrustedHeader::XForwardedPort,
        TrustedHeader::Forwarded,
    ];

    pub fn name(self) -> &'static str {
        match self {
            TrustedHeader::XForwardedFor => "x-forwarded-for",
            TrustedHeader::XForwardedProto => "x-forwarded-proto",
            TrustedHeader::XForwardedPort => "x-forwarded-port",
            TrustedHeader::XForwardedHost => "x-forwarded-host",
            TrustedHeader::Forwarded => "forwarded",
        }
    }
}

fn threads() -> clap::builder::RangedI64ValueParser<u32> {
    value_parser!(u32).range(1..=i64::from(ScaleLimits::THREADS_AUTO_MAX))
}

fn threads_per_process() -> clap::builder::RangedI64ValueParser<u32> {
    value_parser!(u32).range(1..=i64::from(baton_handoff::layout::THREADS_MAX))
}

fn ms(least: u64) -> clap::builder::RangedU64ValueParser<u64> {
    const DAY_MS: u64 = 86_400_000;
    value_parser!(u64).range(least..=DAY_MS)
}

/// Whether what a more particular place says of one option takes back what a more general one says of another: `threads`
/// fixes the number that the other two let move.
pub fn takes_back(upper: &str, lower: &str) -> bool {
    let moving = ["num_threads", "max_threads"];
    (upper == "threads" && moving.contains(&lower))
        || (moving.contains(&upper) && lower == "threads")
}

impl ServerOptions {
    pub fn io_thread_count(&self) -> usize {
        self.io_threads
            .map_or_else(|| (cores() as usize / 4).max(1), usize::from)
    }
}

pub fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn every_option_has_help() {
        let command = CommandLine::command();
        let serve = command.find_subcommand("serve").expect("serve");
        for argument in serve.get_arguments() {
            assert!(
                argument.get_help().is_some(),
                "{} has no help",
                argument.get_id()
            );
        }
    }
}
