//! `baton`: the front process, and the load tester (`baton_load`).
//!
//! In the order in which a request meets them: [`gateway`] is the service that runs on the I/O
//! threads, [`routes`] say which application a request is for, [`app`] is the application behind it
//! with its pools of threads, their processes and supervisors; [`machine`] is what these may use of it.
//! [`serve`] puts them together, [`fleet`] has all supervisors, [`live`] is what is served now, and
//! [`reload`] puts something else in its place; [`watch`] restarts an application when its files change;
//! [`admin`] is the interface to see and steer it all, over what the I/O threads count
//! ([`counters`]), and [`ctl`] the same from the shell;
//! [`options`] with their [`values`], [`config`], [`listen`] and [`project`] say what to serve and
//! where, [`server_config`] what the I/O threads are told of it; [`systemd`] passes sockets and hears how it goes.

#![forbid(unsafe_code)]

mod access_log;
mod account;
mod admin;
mod app;
mod config;
mod counters;
mod ctl;
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
mod server_config;
mod systemd;
mod terminal;
mod values;
mod watch;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use options::{Command, CommandLine, ThreadsCommand};

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
        Command::Status(options) => told(ctl::status(&options)),
        Command::Threads {
            change,
            options,
            app,
        } => told(match change {
            None => ctl::threads(&options, app.as_deref()),
            Some(ThreadsCommand::Add(options)) => ctl::change_threads("PUT", &options),
            Some(ThreadsCommand::Remove(options)) => ctl::change_threads("DELETE", &options),
        }),
        Command::Restart { options, app } => told(ctl::restart(&options, app.as_deref())),
        Command::Reload(options) => told(ctl::reload(&options)),
        Command::Rehearse(options) => told(ctl::rehearse(&options)),
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

fn told(outcome: Result<(), String>) -> Result<(), Vec<String>> {
    outcome.map_err(|reason| vec![format!("baton: {reason}")])
}

fn refuse_command_line(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        let line = config::one_line(error);
        let given = std::env::args_os().nth(1).unwrap_or_default();
        let commands = CommandLine::command();
        let mut known = commands.get_subcommands().map(clap::Command::get_name);
        let command = known.find(|name| given == *name).unwrap_or("serve");
        eprintln!("baton: {line}; see `baton {command} --help`");
    } else {
        // Help or the version; nothing can be done if the terminal is gone.
        let _ = error.print();
    }
    ExitCode::from(error.exit_code() as u8)
}
