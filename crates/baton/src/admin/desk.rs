//! The thread that answers what may take a while: it waits for supervisors and I/O threads, and reads /proc.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::thread;

use baton_server::{ConnId, Handle};
use serde::Serialize;

use super::call::Call;
use super::look::Look;
use super::reply::Reply;
use super::service::{Answer, Question};
use super::usage::Usage;
use super::{Inside, apps, metrics, scaling, status, threads};
use crate::app::{App, Command, Pool};
use crate::gateway::Sites;

pub struct Desk {
    inside: Arc<Inside>,
    answers: Handle<Answer>,
    usage: Usage,
    is_reloading: Arc<AtomicBool>,
}

impl Desk {
    /// It ends when nobody can ask any more.
    pub fn start(
        inside: Arc<Inside>,
        asked: Receiver<Question>,
        answers: Handle<Answer>,
    ) -> Result<(), String> {
        let mut desk = Self {
            inside,
            answers,
            usage: Usage::default(),
            is_reloading: Arc::default(),
        };
        let run = move || {
            for question in asked {
                desk.handle(question);
            }
        };
        let started = thread::Builder::new().name("admin".into()).spawn(run);
        started
            .map(drop)
            .map_err(|error| format!("cannot start a thread: {error}"))
    }

    fn handle(&mut self, question: Question) {
        let Question { conn, call } = question;
        let inside = &self.inside;
        let reply = match call {
            Call::Reload => return self.reload(conn),
            Call::Health => status::health(),
            Call::Ready { app } => status::readiness(inside, app.as_deref()),
            Call::Status => status::status(inside),
            Call::Apps => apps::list(inside),
            Call::Threads { app } => self.threads(app.as_deref()),
            Call::Thread { id } => self.thread(&id),
            Call::Change {
                change,
                app,
                worker,
            } => scaling::change(inside, change, app.as_deref(), worker.as_deref()),
            Call::Decisions { app } => scaling::decisions(inside, app.as_deref()),
            Call::Metrics => metrics::text(inside),
            Call::Restart { app } => restart(inside, app.as_deref()),
        };
        self.answers.post(0, Answer { conn, reply });
    }

    fn threads(&mut self, app: Option<&str>) -> Reply {
        let sites = self.inside.live.sites();
        match pools_named(&sites, app) {
            Ok(pools) => {
                let look = Look::at(pools.into_iter().cloned().collect());
                threads::list(&self.inside, &look, &mut self.usage)
            }
            Err(reply) => reply,
        }
    }

    fn thread(&mut self, id: &str) -> Reply {
        let sites = self.inside.live.sites();
        let number = threads::pool_of(id);
        let pool = sites.pools().find(|pool| Some(pool.number) == number);
        let found = pool.and_then(|pool| {
            let look = Look::at(vec![pool.clone()]);
            threads::one(&self.inside, &look, &mut self.usage, id)
        });
        found.unwrap_or_else(|| {
            let detail = format!("There is no thread {id:?}; GET /threads lists them.");
            Reply::problem(404, &detail)
        })
    }

    /// On a thread of its own: other questions do not wait for it.
    fn reload(&self, conn: ConnId) {
        if self.is_reloading.swap(true, Ordering::AcqRel) {
            let reply = Reply::problem(409, "A reload is under way.");
            return self.answers.post(0, Answer { conn, reply });
        }
        let (inside, answers) = (self.inside.clone(), self.answers.clone());
        let is_reloading = self.is_reloading.clone();
        let run = move || {
            #[derive(Serialize)]
            struct Reloaded {
                result: String,
            }
            let reply = match (inside.reload)() {
                Ok(result) => Reply::json(200, &Reloaded { result }),
                Err(errors) => {
                    let detail =
                        "The configuration was not reloaded; the server goes on as before.";
                    Reply::problems(422, detail, &errors)
                }
            };
            is_reloading.store(false, Ordering::Release);
            answers.post(0, Answer { conn, reply });
        };
        let started = thread::Builder::new().name("reload".into()).spawn(run);
        if let Err(error) = started {
            self.is_reloading.store(false, Ordering::Release);
            let reply = Reply::problem(500, &format!("cannot start a thread: {error}"));
            self.answers.post(0, Answer { conn, reply });
        }
    }
}

/// # Errors
/// The answer that there is no such app.
pub fn app_named<'s>(sites: &'s Sites, name: &str) -> Result<&'s App, Reply> {
    let mut apps = sites.list.iter().map(|site| &*site.app);
    let found = apps.find(|app| app.config.project.name == name);
    found.ok_or_else(|| {
        let detail = format!("There is no app {name:?}, but {}.", sites.names());
        Reply::problem(404, &detail)
    })
}

/// That app, or all.
///
/// # Errors
/// The answer that there is no such app.
pub fn apps_named<'s>(sites: &'s Sites, name: Option<&str>) -> Result<Vec<&'s App>, Reply> {
    match name {
        None => Ok(sites.list.iter().map(|site| &*site.app).collect()),
        Some(name) => Ok(vec![app_named(sites, name)?]),
    }
}

/// Of an app, or of all.
///
/// # Errors
/// The answer that there is no such app.
pub fn pools_named<'s>(sites: &'s Sites, name: Option<&str>) -> Result<Vec<&'s Arc<Pool>>, Reply> {
    match name {
        None => Ok(sites.pools().collect()),
        Some(name) => Ok(app_named(sites, name)?.pools().collect()),
    }
}

/// New processes first, so that no request is lost; `GET /apps` tells how it goes.
fn restart(inside: &Inside, name: Option<&str>) -> Reply {
    #[derive(Serialize)]
    struct Restarting<'a> {
        restarting: Vec<&'a str>,
    }
    let sites = inside.live.sites();
    let apps = match apps_named(&sites, name) {
        Ok(apps) => apps,
        Err(reply) => return reply,
    };
    let supervisors = apps.iter().flat_map(|app| app.pools());
    for supervisor in supervisors.filter_map(|pool| Pool::supervisor(pool)) {
        supervisor.tell(Command::Restart {
            reason: "asked for by the admin API".into(),
            only_by_app: false,
        });
    }
    let names = apps.iter().map(|app| &*app.config.project.name);
    Reply::json(
        202,
        &Restarting {
            restarting: names.collect(),
        },
    )
}
