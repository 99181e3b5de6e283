//! Compiles the C side against the distribution's PHP headers, and finds the program that it will be taken into.
//!
//! `BATON_PHP_CONFIG` names another `php-config` to build for.

use std::path::Path;
use std::process::{Command, exit};

const SOURCES: [&str; 12] = [
    "lifecycle.c",
    "worker.c",
    "turn.c",
    "clocks.c",
    "settings.c",
    "request.c",
    "sapi.c",
    "variables.c",
    "filter.c",
    "functions.c",
    "opcache.c",
    "timeouts.c",
];

const REMEDY: &str = "Remedy: apt-get install php8.2-cgi php8.2-dev php8.2-opcache";

fn main() {
    println!("cargo::rerun-if-env-changed=BATON_PHP_CONFIG");
    println!("cargo::rerun-if-changed=csrc");
    println!("cargo::rerun-if-changed=../../crates/guest/include/baton_guest.h");

    let php = Php::find().unwrap_or_else(|reason| {
        // One plain line: a panic would bury it.
        eprintln!("error: {reason}. {REMEDY}");
        exit(1);
    });

    let mut build = cc::Build::new();
    build
        .std("gnu11")
        .warnings(true)
        .extra_warnings(true)
        .flag_if_supported("-Wno-unused-parameter") // PHP's function macros name parameters that few functions use
        .define("_GNU_SOURCE", None)
        .define(
            "BATON_VERSION",
            Some(concat!("\"", env!("CARGO_PKG_VERSION"), "\"")),
        )
        .include("../../crates/guest/include")
        .files(SOURCES.iter().map(|name| Path::new("csrc").join(name)));
    for include in &php.includes {
        // As system headers: their warnings are not ours to fix.
        build.flag("-isystem").flag(include);
    }
    build.compile("baton_php");

    println!("cargo::rustc-env=BATON_PHP_PROGRAM={}", php.program);
    println!("cargo::rustc-env=BATON_PHP_PACKAGE=php8.{}-cgi", php.minor);
}

struct Php {
    includes: Vec<String>,
    /// PHP's program for web servers.
    program: String,
    minor: String,
}

impl Php {
    fn find() -> Result<Self, String> {
        let config = match std::env::var("BATON_PHP_CONFIG") {
            Ok(path) => path,
            Err(_) => ["php-config8.2", "php-config"]
                .into_iter()
                .find(|name| ask(name, "--version").is_some())
                .ok_or("PHP's headers are missing (no php-config8.2, no php-config)")?
                .to_owned(),
        };
        let version =
            ask(&config, "--version").ok_or_else(|| format!("`{config} --version` fails"))?;
        let mut parts = version.split('.');
        let (Some("8"), Some(minor)) = (parts.next(), parts.next()) else {
            return Err(format!(
                "{config} is for PHP {version}, but PHP 8 is needed"
            ));
        };
        let includes = ask(&config, "--includes")
            .ok_or_else(|| format!("`{config} --includes` fails"))?
            .split_whitespace()
            .map(|flag| flag.trim_start_matches("-I").to_owned())
            .collect();
        let cli =
            ask(&config, "--php-binary").ok_or_else(|| format!("`{config} --php-binary` fails"))?;
        let folder = Path::new(&cli).parent().unwrap_or(Path::new("/usr/bin"));
        // Debian names it after the version; PHP's own `make install` does not.
        let program = [format!("php-cgi8.{minor}"), "php-cgi".to_owned()]
            .into_iter()
            .map(|name| folder.join(name))
            .find(|path| path.exists())
            .ok_or_else(|| format!("PHP's CGI program is missing from {}", folder.display()))?
            .display()
            .to_string();
        Ok(Php {
            includes,
            program,
            minor: minor.to_owned(),
        })
    }
}

/// One answer of `php-config`, or `None` where there is none.
fn ask(config: &str, question: &str) -> Option<String> {
    let output = Command::new(config).arg(question).output().ok()?;
    let answer = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !answer.is_empty()).then_some(answer)
}
