//! The configuration file: options by another way. What a file says is given to the same parser
//! as the command line, which wins, so that both have one set of names, ranges and messages.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches};

use crate::options::{Command, CommandLine, ServeOptions};

/// The options, or the exit code after help or an error has been printed.
pub fn parse_command_line() -> Result<ServeOptions, ExitCode> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    parse(&arguments).map_err(|error| {
        if error.use_stderr() {
            eprintln!("baton: {}; see `baton serve --help`", one_line(&error));
        } else {
            // Help or the version; nothing can be done if the terminal is gone.
            let _ = error.print();
        }
        ExitCode::from(error.exit_code() as u8)
    })
}

fn parse(arguments: &[OsString]) -> Result<ServeOptions, clap::Error> {
    let matches = CommandLine::command().try_get_matches_from(arguments)?;
    let options = options_of(&matches)?;
    let Some(file) = &options.config else {
        return Ok(options);
    };
    let given = matches
        .subcommand_matches("serve")
        .expect("the only command");
    let mut all = arguments.to_vec();
    all.extend(arguments_of_file(file, given)?);
    let matches = CommandLine::command()
        .try_get_matches_from(all)
        .map_err(|error| fail(&format!("{}: {}", file.display(), one_line(&error))))?;
    options_of(&matches)
}

fn options_of(matches: &ArgMatches) -> Result<ServeOptions, clap::Error> {
    let Command::Serve(options) = CommandLine::from_arg_matches(matches)?.command;
    Ok(*options)
}

/// What the file says and the command line does not, as arguments.
fn arguments_of_file(file: &Path, given: &ArgMatches) -> Result<Vec<OsString>, clap::Error> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| fail(&format!("{}: {error}", file.display())))?;
    let table: toml::Table = toml::from_str(&text)
        .map_err(|error| fail(&format!("{}: {}", file.display(), error.to_string().trim())))?;
    let mut arguments = Vec::new();
    for (key, value) in &table {
        let on_command_line = given.try_contains_id(key).is_ok()
            && given.value_source(key) == Some(ValueSource::CommandLine);
        if key == "root" {
            let path = value.as_str().ok_or("a path is expected");
            let path = path.map_err(|wrong| fail(&format!("{}: root: {wrong}", file.display())))?;
            if given.value_source("path") != Some(ValueSource::CommandLine) {
                arguments.push(path.into());
            }
            continue;
        }
        if key == "config" || key == "path" {
            return Err(fail(&format!(
                "{}: `{key}` belongs on the command line",
                file.display()
            )));
        }
        if !on_command_line {
            append(&mut arguments, key, value)
                .map_err(|wrong| fail(&format!("{}: {key}: {wrong}", file.display())))?;
        }
    }
    Ok(arguments)
}

fn append(
    arguments: &mut Vec<OsString>,
    key: &str,
    value: &toml::Value,
) -> Result<(), &'static str> {
    let option = format!("--{}", key.replace('_', "-"));
    match value {
        toml::Value::Boolean(true) => arguments.push(option.into()),
        toml::Value::Boolean(false) => {}
        toml::Value::String(text) => arguments.push(format!("{option}={text}").into()),
        toml::Value::Integer(number) => arguments.push(format!("{option}={number}").into()),
        toml::Value::Array(values) => {
            for value in values {
                append(arguments, key, value)?;
            }
        }
        _ => return Err("a string, a number, true, false or a list of these is expected"),
    }
    Ok(())
}

fn fail(message: &str) -> clap::Error {
    clap::Error::raw(
        clap::error::ErrorKind::ValueValidation,
        format!("{message}\n"),
    )
}

/// The first line of a message, without its "error: ".
fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines: Vec<_> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let useful = lines
        .iter()
        .take_while(|line| !line.starts_with("Usage") && !line.starts_with("For more information"));
    useful
        .copied()
        .collect::<Vec<_>>()
        .join("; ")
        .replace("error: ", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(file: &str, more: &[&str]) -> Result<ServeOptions, String> {
        let dir =
            std::env::temp_dir().join(format!("baton-config-{}-{:p}", std::process::id(), file));
        std::fs::create_dir_all(&dir).expect("temporary folder");
        let path = dir.join("baton.toml");
        std::fs::write(&path, file).expect("written");
        let mut arguments: Vec<OsString> = vec!["baton".into(), "serve".into(), "--config".into()];
        arguments.push(path.into());
        arguments.extend(more.iter().map(OsString::from));
        let result = parse(&arguments).map_err(|error| error.to_string());
        std::fs::remove_dir_all(&dir).expect("removed");
        result
    }

    #[test]
    fn the_file_speaks_where_the_command_line_is_silent() {
        let file = "threads = 3\ndeadline_ms = 500\nlisten = [\"127.0.0.1:1\", \"127.0.0.1:2\"]\nretry = true\n";
        let options = parsed(file, &["--deadline-ms", "700"]).expect("good");
        assert_eq!(
            (options.threads, options.deadline_ms, options.retry),
            (Some(3), 700, true)
        );
        assert_eq!(options.listen.len(), 2);
        let options = parsed(file, &["--listen", "127.0.0.1:9"]).expect("good");
        assert_eq!(options.listen.len(), 1);
        let file = "root = \"/srv/a\"\nthreads = 3";
        let options = parsed(file, &[]).expect("good");
        assert_eq!(options.path, std::path::Path::new("/srv/a"));
        let options = parsed(file, &["/srv/b"]).expect("good");
        assert_eq!(options.path, std::path::Path::new("/srv/b"));
    }

    #[test]
    fn mistakes_are_named() {
        assert!(
            parsed("root = 3", &[])
                .expect_err("type")
                .contains("a path is expected")
        );
        assert!(
            parsed("thread = 3", &[])
                .expect_err("unknown")
                .contains("--threads")
        );
        assert!(
            parsed("threads = 0", &[])
                .expect_err("range")
                .contains("1..=4096")
        );
        assert!(
            parsed("threads = [", &[])
                .expect_err("syntax")
                .contains("line 1")
        );
        assert!(
            parsed("threads = {}", &[])
                .expect_err("type")
                .contains("threads")
        );
    }
}
