//! `baton`: the front process.
//!
//! In the order in which a request meets them: [`gateway`] is the service that runs on the I/O
//! threads, [`app`] is the application behind it with its processes and their supervisor.
//! [`serve`] puts them together; [`options`], [`config_file`], [`listen`] and [`project`] say what to serve and where;
//! [`systemd`] passes sockets and hears how it goes.

#![forbid(unsafe_code)]

mod access_log;
mod account;
mod app;
mod config_file;
mod gateway;
mod listen;
mod logs;
mod options;
mod project;
mod serve;
mod systemd;

use std::process::ExitCode;

fn main() -> ExitCode {
    let options = match config_file::parse_command_line() {
        Ok(options) => options,
        Err(exit) => return exit,
    };
    match serve::run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("baton: {problem}");
            ExitCode::FAILURE
        }
    }
}
