//! Every option: its name, help, range and default. A configuration file uses the same names.

use std::path::PathBuf;

use baton_server::TrustedProxy;
use clap::{Args, Parser, Subcommand, ValueEnum, value_parser};

use crate::listen::{self, Listen};

#[derive(Parser)]
#[command(name = "baton", version, about, args_override_self = true)]
pub struct CommandLine {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Serve an application: a folder with index.php or public/index.php, or a single script
    Serve(Box<ServeOptions>),
}

#[derive(Args, Clone, Debug)]
#[command(args_override_self = true)]
pub struct ServeOptions {
    /// The application's folder, or its one script; `root` in a file
    #[arg(default_value = ".")]
    pub path: PathBuf,

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

    /// File with options: `name = value` in TOML, names as here with _ for -
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Application threads, 1 to 4096 [default: twice the cores]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=4096))]
    pub threads: Option<u32>,

    /// I/O threads, 1 to 64 [default: a quarter of the cores, at least 1]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=64))]
    pub io_threads: Option<u16>,

    /// Account that application processes run as when started as root; never root
    #[arg(long, value_name = "NAME", default_value = "www-data")]
    pub user: String,

    /// Environment variable of the application, NAME=VALUE; may be repeated. Of the front's own it gets only PATH,
    /// LANG, LC_ALL, TZ, TMPDIR, HOME and USER
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub env: Vec<String>,

    /// PHP setting as in php.ini, name=value; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub ini: Vec<String>,

    /// PHP setting that scripts cannot change; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub ini_admin: Vec<String>,

    /// php.ini to read instead of the distribution's for the embed SAPI
    #[arg(long, value_name = "FILE")]
    pub ini_file: Option<PathBuf>,

    /// Serve static files through symbolic links that leave the application's folder
    #[arg(long)]
    pub follow_symlinks: bool,

    /// How long a request may take, waiting included, in milliseconds, 100 to 86400000
    #[arg(long, value_name = "MS", default_value_t = 60_000, value_parser = ms(100))]
    pub deadline_ms: u64,

    /// How long a thread over its deadline has to end by itself before its process is killed, 0 to 86400000
    #[arg(long, value_name = "MS", default_value_t = 5_000, value_parser = ms(0))]
    pub kill_grace_ms: u64,

    /// How long an offered request may lie untaken before another thread gets it, 10 to 60000
    #[arg(long, value_name = "MS", default_value_t = 250, value_parser = value_parser!(u64).range(10..=60_000))]
    pub offer_ms: u64,

    /// Requests that may wait for a thread, 0 to 1000000
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = value_parser!(u32).range(0..=1_000_000))]
    pub queue_len_max: u32,

    /// How long a request may wait for a thread, in milliseconds, 1 to 86400000
    #[arg(long, value_name = "MS", default_value_t = 10_000, value_parser = ms(1))]
    pub queue_wait_ms_max: u64,

    /// A thread idle for longer goes first once, in milliseconds, 1 to 86400000
    #[arg(long, value_name = "MS", default_value_t = 10_000, value_parser = ms(1))]
    pub rotate_ms: u64,

    /// Give an idempotent request whose process died, with nothing sent yet, to another thread once
    #[arg(long)]
    pub retry: bool,

    /// How long clients may use a static file without asking again, in seconds, 0 to 31536000 [default: left to them]
    #[arg(long, value_name = "S", value_parser = value_parser!(u32).range(0..=31_536_000))]
    pub static_max_age_s: Option<u32>,

    /// How long files, and that a path has none, are remembered, in milliseconds, 0 to 60000
    #[arg(long, value_name = "MS", default_value_t = 1_000, value_parser = value_parser!(u64).range(0..=60_000))]
    pub path_cache_ms: u64,

    /// Connections at once, 1 to 1000000; more wait in the listen backlog
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub connections_max: u32,

    /// Requests on one connection, 1 to 4294967295
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = value_parser!(u32).range(1..))]
    pub requests_per_connection_max: u32,

    /// How long a request's head may take to arrive, in milliseconds, 10 to 86400000
    #[arg(long, value_name = "MS", default_value_t = 10_000, value_parser = ms(10))]
    pub header_ms: u64,

    /// How long a request's body may pause, in milliseconds, 10 to 86400000
    #[arg(long, value_name = "MS", default_value_t = 30_000, value_parser = ms(10))]
    pub body_ms: u64,

    /// How long a connection may be idle between requests, in milliseconds, 10 to 86400000
    #[arg(long, value_name = "MS", default_value_t = 75_000, value_parser = ms(10))]
    pub keep_alive_ms: u64,

    /// How long a client may take no bytes of its reply, in milliseconds, 10 to 86400000
    #[arg(long, value_name = "MS", default_value_t = 30_000, value_parser = ms(10))]
    pub write_ms: u64,

    /// Largest request target, in bytes, 64 to 32768; 414 beyond
    #[arg(long, value_name = "BYTES", default_value_t = 8_192, value_parser = value_parser!(u32).range(64..=32_768))]
    pub target_bytes_max: u32,

    /// Largest request head, in bytes, 256 to 49152; 431 beyond
    #[arg(long, value_name = "BYTES", default_value_t = 32_768, value_parser = value_parser!(u32).range(256..=49_152))]
    pub head_bytes_max: u32,

    /// Most request headers, 1 to 128; 431 beyond
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = value_parser!(u32).range(1..=128))]
    pub headers_max: u32,

    /// Largest request body, in bytes; 413 beyond
    #[arg(long, value_name = "BYTES", default_value_t = 128 * 1024 * 1024)]
    pub body_bytes_max: u64,

    /// Where large request bodies are kept while they arrive
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    pub temp_dir: PathBuf,

    /// What the front may hold of finished replies for slow clients, all together, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 64 * 1024 * 1024)]
    pub reply_spill_bytes_max: usize,

    /// How long a shutdown waits for running requests, in milliseconds, 0 to 86400000
    #[arg(long, value_name = "MS", default_value_t = 30_000, value_parser = ms(0))]
    pub shutdown_grace_ms: u64,

    /// File for the log instead of standard error
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,

    /// Form of the log; auto: human on a terminal, else JSON
    #[arg(long, value_enum, default_value_t = LogFormat::Auto)]
    pub log_format: LogFormat,

    /// File for the access log; - for standard output [default: none]
    #[arg(long, value_name = "FILE")]
    pub access_log: Option<PathBuf>,

    /// Form of the access log
    #[arg(long, value_enum, default_value_t = AccessFormat::Combined)]
    pub access_log_format: AccessFormat,
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

fn ms(least: u64) -> clap::builder::RangedU64ValueParser<u64> {
    const DAY_MS: u64 = 86_400_000;
    value_parser!(u64).range(least..=DAY_MS)
}

fn parse_pair(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((name, _)) if !name.trim().is_empty() && !text.contains(['\n', '\0']) => {
            Ok(text.into())
        }
        _ => Err("expected NAME=VALUE on one line".into()),
    }
}

impl ServeOptions {
    pub fn thread_count(&self) -> u32 {
        self.threads.unwrap_or_else(|| 2 * cores())
    }

    pub fn io_thread_count(&self) -> usize {
        self.io_threads
            .map_or_else(|| (cores() as usize / 4).max(1), usize::from)
    }
}

fn cores() -> u32 {
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
