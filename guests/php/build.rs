//! Compiles the C side against the distribution's PHP headers and links the program to its embed library.
//!
//! `BATON_PHP_CONFIG` names another `php-config` to build for.

use std::path::{Path, PathBuf};
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

const REMEDY: &str = "Remedy: apt-get install php8.2-dev libphp8.2-embed php8.2-opcache";

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

    println!("cargo::rustc-link-search=native={}", php.link_dir.display());
    println!("cargo::rustc-link-lib=dylib={}", php.link_name);
}

struct Php {
    includes: Vec<String>,
    link_dir: PathBuf,
    link_name: String,
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
        let prefix = ask(&config, "--prefix").unwrap_or_else(|| "/usr".to_owned());
        let link_dir = Path::new(&prefix).join("lib");
        // Debian names it after the version; PHP's own `make install` does not.
        let link_name = [format!("php8.{minor}"), "php".to_owned()]
            .into_iter()
            .find(|name| link_dir.join(format!("lib{name}.so")).exists())
            .ok_or_else(|| {
                format!(
                    "PHP's embed library is missing (no libphp8.{minor}.so in {})",
                    link_dir.display()
                )
            })?;
        Ok(Php {
            includes,
            link_dir,
            link_name,
        })
    }
}

/// One answer of `php-config`, or `None` where there is none.
fn ask(config: &str, question: &str) -> Option<String> {
    let output = Command::new(config).arg(question).output().ok()?;
    let answer = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !answer.is_empty()).then_some(answer)
}
