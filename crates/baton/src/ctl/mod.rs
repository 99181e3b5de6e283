//! `baton status`, `threads`, `restart`, `reload` and `rehearse`: the admin API from the shell.

mod client;
mod rehearse;
mod shown;
mod table;

use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::admin::place::{self, At};
use crate::admin::token::Token;
use crate::options::{ChangeOptions, ControlOptions, Reach};
use client::{Client, Reply};

pub use rehearse::rehearse;

/// A restart may wait for requests that are running, and for code that is loaded.
const RESTART_BOUND: Duration = Duration::from_secs(120);

/// The state of the server, and of its apps.
pub fn status(options: &ControlOptions) -> Result<(), String> {
    let reply = connect(&options.reach)?.ask("GET", "/status", &[])?;
    print(options, &reply, shown::status)
}

/// The threads of an app, or of all.
pub fn threads(options: &ControlOptions, app: Option<&str>) -> Result<(), String> {
    let reply = connect(&options.reach)?.ask("GET", "/threads", &of_app(app))?;
    print(options, &reply, shown::threads)
}

/// More threads (PUT) or fewer (DELETE).
pub fn change_threads(method: &str, options: &ChangeOptions) -> Result<(), String> {
    let count = options.count.to_string();
    let mut parameters = of_app(options.app.as_deref());
    parameters.extend(options.worker.iter().map(|worker| ("worker", &**worker)));
    parameters.push(("count", &count));
    let reply = connect(&options.control.reach)?.ask(method, "/threads", &parameters)?;
    print(&options.control, &reply, shown::changed)
}

/// Restarts an app, or all, and waits until no old process serves any more.
pub fn restart(options: &ControlOptions, app: Option<&str>) -> Result<(), String> {
    let client = connect(&options.reach)?;
    let before = failures(&client.ask("GET", "/apps", &[])?.value, app);
    let begun = client.ask("POST", "/workers/restart", &of_app(app))?;
    let until = Instant::now() + RESTART_BOUND;
    loop {
        let now = client.ask("GET", "/apps", &[])?.value;
        if failures(&now, app) > before {
            let reasons =
                pools(&now, app).filter_map(|pool| pool["last_failure"]["reason"].as_str());
            let reasons = reasons.collect::<Vec<_>>().join("; ");
            return Err(format!(
                "the restart failed, the old processes go on: {}",
                table::readable(&reasons)
            ));
        }
        // Of a supervisor that has not answered in time nothing is known.
        if pools(&now, app).all(|pool| pool["restarting"] == false) {
            return print(options, &begun, shown::restarted);
        }
        if Instant::now() >= until {
            let seconds = RESTART_BOUND.as_secs();
            return Err(format!(
                "the restart is not over after {seconds} s; `baton status` tells how it goes"
            ));
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Has the server read its configuration anew.
pub fn reload(options: &ControlOptions) -> Result<(), String> {
    let reply = connect(&options.reach)?.ask("POST", "/reload", &[])?;
    print(options, &reply, shown::reloaded)
}

fn of_app(app: Option<&str>) -> Vec<(&'static str, &str)> {
    app.map(|app| ("app", app)).into_iter().collect()
}

fn pools<'v>(apps: &'v Value, name: Option<&str>) -> impl Iterator<Item = &'v Value> {
    let apps = apps["apps"].as_array().into_iter().flatten();
    let apps = apps.filter(move |app| name.is_none_or(|name| app["name"] == name));
    apps.flat_map(|app| app["pools"].as_array().into_iter().flatten())
}

fn failures(apps: &Value, name: Option<&str>) -> u64 {
    let pools = pools(apps, name);
    pools
        .filter_map(|pool| pool["restarts_failed"].as_u64())
        .sum()
}

fn print(
    options: &ControlOptions,
    reply: &Reply,
    shown: impl Fn(&Value) -> String,
) -> Result<(), String> {
    use std::io::Write;
    let mut out = std::io::stdout();
    // Nobody reads on, as with `| head`: no reason to complain.
    let _ = match options.json {
        true => out.write_all(&reply.raw),
        false => out.write_all(shown(&reply.value).as_bytes()),
    };
    Ok(())
}

fn connect(reach: &Reach) -> Result<Client, String> {
    let at = match &reach.admin {
        Some(at) => at.clone(),
        None => only_one()?,
    };
    let token = reach.admin_token_file.as_deref().map(Token::read);
    Ok(Client {
        at,
        token: token.transpose()?,
    })
}

fn only_one() -> Result<At, String> {
    let mut running = place::running();
    match (running.len(), running.pop()) {
        (1, Some(path)) => Ok(At::Unix(path)),
        (_, Some(last)) => {
            running.push(last);
            let all = running
                .iter()
                .map(|path| format!("unix:{}", path.display()));
            Err(format!(
                "several servers run: {}; say which by --admin",
                all.collect::<Vec<_>>().join(", ")
            ))
        }
        (_, None) => Err(format!(
            "no server of this account has its socket in {}; where is it? --admin says so",
            place::folder().display()
        )),
    }
}
