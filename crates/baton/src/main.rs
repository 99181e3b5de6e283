//! `baton`: the front process, and the load tester (`baton_load`).
//!
//! In the order in which a request meets them: [`gateway`] is the service that runs on the I/O
//! threads, [`routes`] say which application a request is for, [`app`] is the application behind it
//! with its pools of threads, their processes and supervisors; [`machine`] is what these may use of it.
//! [`serve`] puts them together, [`fleet`] has all supervisors, [`live`] is what is served now, and
//! [`reload`] puts something else in its place; [`watch`] restarts an application when its files change;
//! [`options`] with their [`values`], [`config`], [`listen`] and [`project`] say what to serve and
//! where; [`systemd`] passes sockets and hears how it goes.

#![forbid(unsafe_code)]

mod access_log;
mod account;
mod app;
mod config;
mod fleet;
mod gateway;
mod listen;
mod live;
mod logs;
mod machine;
mod options;
mod project;
mod reload;
mod routes;
mod serve;
mod systemd;
mod terminal;
mod values;
mod watch;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use options::{Command, CommandLine};

fn main() -> ExitCode {
    let matches = match CommandLine::command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return refuse_command_line(&error),
    };
    let command = match CommandLine::from_arg_matches(&matches) {
        Ok(line) => line.command,
        Err(error) => return refuse_command_line(&error),
    };
    let outcome = match command {
        Command::Serve(arguments) => {
            let given = matches.subcommand_matches("serve").unwrap_or(&matches);
            serve::run(config::Given::new(&arguments, given)).map_err(|problems| {
                problems
                    .iter()
                    .map(|line| format!("baton: {line}"))
                    .collect()
            })
        }
        Command::Load(options) => return baton_load::run(&options),
        Command::Check { file } => config::of_file(&file).map(|configuration| {
            println!("{}: good; {}", file.display(), configuration.summary());
        }),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(lines) => {
            lines.iter().for_each(|line: &String| eprintln!("{line}"));
            ExitCode::FAILURE
        }
    }
}

fn refuse_command_line(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        let line = config::one_line(error);
        let load = std::env::args_os()
            .nth(1)
            .is_some_and(|command| command == "load");
        let command = if load { "load" } else { "serve" };
        eprintln!("baton: {line}; see `baton {command} --help`");
    } else {
        // Help or the version; nothing can be done if the terminal is gone.
        let _ = error.print();
    }
    ExitCode::from(error.exit_code() as u8)
}
