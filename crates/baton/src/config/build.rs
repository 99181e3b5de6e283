//! From tables to what the server runs, and the mistakes that only show when all is put together.

use std::path::Path;
use std::sync::Arc;

use super::document::{Document, TopOptions};
use super::layer::{Layer, command_of};
use super::problem::{Problems, nearest};
use super::script::Script;
use super::table::Table;
use super::threads::Said;
use super::{AppConfig, Configuration, WorkerConfig};
use crate::account;
use crate::options::{AppOptions, RouteOptions, ServerOptions, WorkerOptions};
use crate::project::{self, Project, Sought};
use crate::routes::{Route, Routes};
use crate::watch;

/// `None` only with problems. `folder` is where paths of the file begin.
pub fn configuration(
    document: &Document,
    command_line: &Layer,
    folder: &Path,
    problems: &mut Problems,
) -> Option<Configuration> {
    let command = command_of::<TopOptions>();
    let top = command_line.over(&document.top.layer, &command);
    let server = parse::<ServerOptions>(&top, None, problems);
    if let Some(server) = &server {
        check_server(server, &document.top, problems);
    }
    let mut builder = Builder {
        top: &document.top,
        problems,
    };
    let apps = match &document.apps {
        None => {
            let name = None;
            vec![builder.app(name, &top, folder, &document.top, &document.workers)]
        }
        Some(apps) => {
            for key in ["root", "worker"] {
                if command_line.has(key) {
                    let option = if key == "root" { "PATH" } else { "--worker" };
                    let message = format!(
                        "{option} is of one app, but the file has [apps]: it belongs in there"
                    );
                    builder.problems.add(None, message);
                }
            }
            let app = |app: &super::document::AppTable| {
                let layer = app.table.layer.over(&top, &command);
                builder.app(Some(&app.name), &layer, folder, &app.table, &app.workers)
            };
            apps.iter().map(app).collect()
        }
    };
    let routes = routes(document, problems);
    if let Some(server) = &server {
        check_threads(server, apps.iter().flatten(), &document.top, problems);
    }
    let apps: Option<Vec<_>> = apps.into_iter().map(|app| app.map(Arc::new)).collect();
    let apps = apps.filter(|apps| !apps.is_empty());
    Some(Configuration {
        server: server?,
        apps: apps?,
        routes,
    })
}

/// Each value was looked at before; what is still wrong is wrong with their combination.
fn parse<A: clap::Args>(layer: &Layer, at: Option<usize>, problems: &mut Problems) -> Option<A> {
    match layer.parse() {
        Ok(options) => Some(options),
        Err(error) => {
            problems.add(at, super::one_line(&error));
            None
        }
    }
}

fn check_server(server: &ServerOptions, top: &Table, problems: &mut Problems) {
    if let Some(folder) = &server.temp_dir
        && !folder.is_dir()
    {
        let message = format!("`temp_dir`: {} is not a folder", folder.display());
        problems.add(top.place_of("temp_dir"), message);
    }
    for (n, listen) in server.listen.iter().enumerate() {
        let place = top.place_of_nth("listen", n);
        if server.listen[..n].iter().any(|one| listen.is_taken_by(one)) {
            problems.add(place, "`listen` has this address twice");
        }
        if listen.proxy_protocol && server.trusted_proxies.is_empty() {
            let message = "`listen` with proxy_protocol needs `trusted_proxies` (--trusted-proxies): who may send it";
            problems.add(place, message);
        }
    }
}

fn check_threads<'a>(
    server: &ServerOptions,
    apps: impl Iterator<Item = &'a AppConfig>,
    top: &Table,
    problems: &mut Problems,
) {
    let least: u32 = apps.map(AppConfig::threads_min).sum();
    if least > server.threads_max {
        let message = format!(
            "`threads_max` is {}, but the applications have {least} threads at least",
            server.threads_max
        );
        problems.add(top.place_of("threads_max"), message);
    }
}

struct Builder<'b> {
    top: &'b Table,
    problems: &'b mut Problems,
}

impl Builder<'_> {
    /// Where a value of the app is, or would be.
    fn place(&self, table: &Table, key: &str) -> Option<usize> {
        let own = table.place_of(key);
        own.or_else(|| self.top.place_of(key)).or(table.at)
    }

    fn app(
        &mut self,
        name: Option<&str>,
        layer: &Layer,
        folder: &Path,
        table: &Table,
        workers: &[Table],
    ) -> Option<AppConfig> {
        let options: AppOptions = parse(layer, table.at, self.problems)?;
        let root = match (&options.root, name) {
            (Some(root), _) => root.clone(),
            (None, None) if folder.as_os_str().is_empty() => ".".into(),
            (None, None) => folder.to_owned(),
            // Told when the table was read.
            (None, Some(_)) => return None,
        };
        let sought = Sought {
            language: options.language,
            index: &options.index,
            has_worker: options.worker.is_some() || !workers.is_empty(),
        };
        if let Some(file) = &options.ini_file
            && let Err(error) = std::fs::File::open(file)
        {
            let place = self.place(table, "ini_file");
            let message = format!("`ini_file`: cannot read {}: {error}", file.display());
            self.problems.add(place, message);
        }
        let project = project::find(&root, &sought);
        let project = project.map_err(|reason| {
            let place = self.place(table, "root");
            self.problems.add(place, reason);
        });
        let account = account::for_app_processes(&options.user).map_err(|reason| {
            let place = self.place(table, "user");
            self.problems.add(place, reason);
        });
        let mut project = project.ok()?;
        if let Err(reason) = watch::check(&project.folder, &options.watch) {
            let place = self.place(table, "watch");
            self.problems.add(place, format!("`watch`: {reason}"));
        }
        let workers = self.workers(&project, &root, &options, table, workers);
        let said = Said::of_app(&options);
        let limits = said.limits(&options, !workers.is_empty());
        let limits = limits.map_err(|reason| {
            let keys = [
                "num_threads",
                "max_threads",
                "threads",
                "threads_per_process",
            ];
            let own = keys.iter().find_map(|key| table.place_of(key));
            let place = own.or_else(|| self.place(table, "num_threads"));
            self.problems.add(place, reason);
        });
        if let Some(name) = name {
            project.name = name.to_owned();
        }
        Some(AppConfig {
            project,
            account: account.ok()?,
            limits: limits.ok()?,
            workers,
            options,
        })
    }

    fn workers(
        &mut self,
        project: &Project,
        root: &Path,
        options: &AppOptions,
        table: &Table,
        tables: &[Table],
    ) -> Vec<WorkerConfig> {
        let short = options.worker.clone().map(|file| {
            let worker = WorkerOptions {
                file,
                name: None,
                threads: None,
                num_threads: None,
                max_threads: None,
                max_requests: None,
            };
            (worker, self.place(table, "worker"))
        });
        let long = tables.iter().filter_map(|table| {
            let worker = table.is_sound.then(|| table.layer.parse().ok())??;
            Some((worker, table.place_of("file").or(table.at)))
        });
        let all: Vec<(WorkerOptions, Option<usize>)> = short.into_iter().chain(long).collect();
        let mut workers: Vec<WorkerConfig> = Vec::new();
        for (worker, place) in all {
            let script = match Script::find(&worker.file.0, root, project) {
                Ok(script) => script,
                Err(reason) => {
                    self.problems.add(place, reason);
                    continue;
                }
            };
            let said = Said::of_worker(&worker);
            let name = worker.name.unwrap_or_else(|| script.plain_name());
            if workers.iter().any(|other| other.script == script) {
                self.problems
                    .add(place, "another worker of the app has this script");
            } else if workers.iter().any(|other| other.name == name) {
                let message =
                    format!("another worker of the app is called {name}; give it a `name`");
                self.problems.add(place, message);
            }
            let limits = match said.or(Said::of_app(options)).limits(options, false) {
                Ok(limits) => limits,
                // If it is the app's own mistake, it is told once.
                Err(_) if said.is_silent() => continue,
                Err(reason) => {
                    self.problems.add(place, reason);
                    continue;
                }
            };
            workers.push(WorkerConfig {
                name,
                script,
                limits,
                max_requests: worker.max_requests.or(options.max_requests),
            });
        }
        workers
    }
}

fn routes(document: &Document, problems: &mut Problems) -> Routes {
    let Some(apps) = &document.apps else {
        if let Some(route) = document.routes.first() {
            problems.add(route.at, "routes lead to apps, but there is no [apps.NAME]");
        }
        return Routes::Only;
    };
    if document.routes.is_empty() {
        if let [_, second, ..] = apps.as_slice() {
            let message = "with more than one app, [[routes]] must say which requests each gets";
            problems.add(second.table.at, message);
        }
        return Routes::Only;
    }
    let mut routes: Vec<(Route, &Table)> = Vec::new();
    for table in &document.routes {
        if !table.is_sound {
            continue;
        }
        let Some(options) = parse::<RouteOptions>(&table.layer, table.at, problems) else {
            continue;
        };
        let Some(app) = apps.iter().position(|app| app.name == options.app) else {
            let known = || apps.iter().map(|app| app.name.as_str());
            let hint = match nearest(&options.app, known()) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("expected one of {}", known().collect::<Vec<_>>().join(", ")),
            };
            let message = format!("there is no app {}; {hint}", options.app);
            problems.add(table.place_of("app").or(table.at), message);
            continue;
        };
        let route = Route {
            host: options.host,
            path: options.path,
            app,
        };
        if let Some((_, first)) = routes.iter().find(|(first, _)| first.covers(&route)) {
            problems.add_about(
                table.at,
                "this route is never reached: it is covered by the one in line",
                first.at,
            );
        }
        routes.push((route, table));
    }
    for (n, app) in apps.iter().enumerate() {
        let is_complete = routes.len() == document.routes.len();
        if is_complete && !routes.iter().any(|(route, _)| route.app == n) {
            let message = format!("no route leads to the app {}", app.name);
            problems.add(app.table.at, message);
        }
    }
    Routes::List(routes.into_iter().map(|(route, _)| route).collect())
}
