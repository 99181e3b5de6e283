//! Which questions there are, and what each may be asked with.

use std::borrow::Cow;

use super::reply::Reply;
use crate::app::Change;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    Health,
    Ready {
        app: Option<String>,
    },
    Status,
    Apps,
    Threads {
        app: Option<String>,
    },
    Thread {
        id: String,
    },
    Change {
        change: Change,
        app: Option<String>,
        worker: Option<String>,
    },
    Decisions {
        app: Option<String>,
    },
    Metrics,
    Restart {
        app: Option<String>,
    },
    Reload,
}

/// What a resource does by one method.
struct Action {
    method: &'static str,
    parameters: &'static [&'static str],
    call: fn(&mut Parameters<'_>) -> Result<Call, Reply>,
}

const fn action(
    method: &'static str,
    parameters: &'static [&'static str],
    call: fn(&mut Parameters<'_>) -> Result<Call, Reply>,
) -> Action {
    Action {
        method,
        parameters,
        call,
    }
}

/// No state changes by GET.
const RESOURCES: &[(&str, &[Action])] = &[
    ("/healthz", &[action("GET", &[], |_| Ok(Call::Health))]),
    (
        "/readyz",
        &[action("GET", &["app"], |given| {
            let app = given.take("app");
            Ok(Call::Ready { app })
        })],
    ),
    ("/status", &[action("GET", &[], |_| Ok(Call::Status))]),
    ("/apps", &[action("GET", &[], |_| Ok(Call::Apps))]),
    (
        "/threads",
        &[
            action("GET", &["app"], |given| {
                let app = given.take("app");
                Ok(Call::Threads { app })
            }),
            action("PUT", &["app", "worker", "count"], |given| {
                given.change(Change::Add)
            }),
            action("DELETE", &["app", "worker", "count"], |given| {
                given.change(Change::Remove)
            }),
        ],
    ),
    (
        "/decisions",
        &[action("GET", &["app"], |given| {
            let app = given.take("app");
            Ok(Call::Decisions { app })
        })],
    ),
    ("/metrics", &[action("GET", &[], |_| Ok(Call::Metrics))]),
    (
        "/workers/restart",
        &[action("POST", &["app"], |given| {
            let app = given.take("app");
            Ok(Call::Restart { app })
        })],
    ),
    ("/reload", &[action("POST", &[], |_| Ok(Call::Reload))]),
];

/// More threads than an app may have.
const COUNT_MAX: u32 = 4096;

/// One thread.
const THREAD: &[Action] = &[action("GET", &[], |given| {
    let id = given.rest.to_owned();
    Ok(Call::Thread { id })
})];

/// Paths are those of FrankenPHP's admin API too, for tools that were made for it.
const ALIAS: &str = "/frankenphp";

/// # Errors
/// The answer that says what is wrong.
pub fn parse(method: &str, path: &str, query: Option<&str>) -> Result<Call, Reply> {
    let path = match path.strip_prefix(ALIAS) {
        Some(rest) if rest.starts_with('/') => rest,
        _ => path,
    };
    let (actions, rest) = actions_of(path).ok_or_else(|| unknown_path(path))?;
    let wanted = if method == "HEAD" { "GET" } else { method };
    let action = actions.iter().find(|action| action.method == wanted);
    let action = action.ok_or_else(|| wrong_method(path, actions))?;
    let mut parameters = Parameters::read(query.unwrap_or_default(), action.parameters)?;
    parameters.rest = rest;
    (action.call)(&mut parameters)
}

fn actions_of(path: &str) -> Option<(&'static [Action], &str)> {
    let known = RESOURCES.iter().find(|(known, _)| *known == path);
    if let Some((_, actions)) = known {
        return Some((actions, ""));
    }
    let id = path.strip_prefix("/threads/")?;
    (!id.is_empty() && !id.contains('/')).then_some((THREAD, id))
}

#[cold]
fn unknown_path(path: &str) -> Reply {
    let known: Vec<&str> = RESOURCES.iter().map(|(path, _)| *path).collect();
    let detail = format!(
        "There is no {path:?}, but {} and /threads/ID.",
        known.join(", ")
    );
    Reply::problem(404, &detail)
}

#[cold]
fn wrong_method(path: &str, actions: &[Action]) -> Reply {
    let mut methods = Vec::new();
    for action in actions {
        methods.push(action.method);
        if action.method == "GET" {
            methods.push("HEAD");
        }
    }
    let allow = methods.join(", ");
    Reply::problem(405, &format!("{path} takes {allow}.")).with("Allow", allow)
}

/// Each at most once, and only those that are known.
struct Parameters<'q> {
    given: Vec<(Cow<'q, str>, Cow<'q, str>)>,
    /// What is behind the path of the resource.
    rest: &'q str,
}

impl<'q> Parameters<'q> {
    fn read(query: &'q str, known: &[&str]) -> Result<Self, Reply> {
        let mut given: Vec<(Cow<'q, str>, Cow<'q, str>)> = Vec::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            if !known.contains(&&*name) {
                let takes = match known {
                    [] => "none".to_owned(),
                    known => known.join(", "),
                };
                let detail = format!("There is no parameter {name:?} here; it takes {takes}.");
                return Err(Reply::problem(400, &detail));
            }
            if given.iter().any(|(other, _)| *other == name) {
                let detail = format!("The parameter {name:?} is there twice.");
                return Err(Reply::problem(400, &detail));
            }
            given.push((name, value));
        }
        Ok(Self { given, rest: "" })
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.given.iter().position(|(given, _)| given == name)?;
        Some(self.given.swap_remove(at).1.into_owned())
    }

    /// Of the number of threads, by one if nothing is said.
    fn change(&mut self, change: fn(u32) -> Change) -> Result<Call, Reply> {
        let count = match self.take("count") {
            None => 1,
            Some(text) => parse_count(&text)?,
        };
        Ok(Call::Change {
            change: change(count),
            app: self.take("app"),
            worker: self.take("worker"),
        })
    }
}

fn parse_count(text: &str) -> Result<u32, Reply> {
    // A sign would be understood as well.
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let count = is_plain.then(|| text.parse().ok()).flatten();
    let count = count.filter(|count| (1..=COUNT_MAX).contains(count));
    count.ok_or_else(|| {
        let detail = format!("The count is {text:?}; expected a number from 1 to {COUNT_MAX}.");
        Reply::problem(400, &detail)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(method: &str, target: &str) -> Result<Call, u16> {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        parse(method, path, query).map_err(|reply| reply.status())
    }

    #[test]
    fn questions_are_understood() {
        assert_eq!(of("GET", "/threads"), Ok(Call::Threads { app: None }));
        let shop = Call::Threads {
            app: Some("shop & co".into()),
        };
        assert_eq!(of("HEAD", "/threads?app=shop+%26%20co"), Ok(shop));
        let one = Call::Thread { id: "1.7".into() };
        assert_eq!(of("GET", "/frankenphp/threads/1.7"), Ok(one));
        let restart = Call::Restart { app: None };
        assert_eq!(of("POST", "/frankenphp/workers/restart"), Ok(restart));
        assert_eq!(of("POST", "/reload?"), Ok(Call::Reload));
        let add = Call::Change {
            change: Change::Add(1),
            app: None,
            worker: None,
        };
        assert_eq!(of("PUT", "/threads"), Ok(add));
        let remove = Call::Change {
            change: Change::Remove(4096),
            app: Some("a".into()),
            worker: Some("/w.php".into()),
        };
        let target = "/frankenphp/threads?count=4096&worker=/w.php&app=a";
        assert_eq!(of("DELETE", target), Ok(remove));
    }

    #[test]
    fn what_is_no_question_is_refused() {
        for (method, target, status) in [
            ("GET", "/", 404),
            ("GET", "/frankenphp", 404),
            ("GET", "/frankenphp/frankenphp/threads", 404),
            ("GET", "/Threads", 404),
            ("GET", "/threads/", 404),
            ("GET", "/threads/1/2", 404),
            ("GET", "/workers/restart", 405),
            ("PATCH", "/threads", 405),
            ("POST", "/threads/1.1", 405),
            ("get", "/status", 405),
            ("GET", "/status?app=a", 400),
            ("GET", "/threads?app=a&app=a", 400),
            ("GET", "/threads?app", 200),
            ("GET", "/threads?ap%70=a&count=1", 400),
            ("POST", "/reload?now", 400),
            ("PUT", "/threads?count=", 400),
            ("PUT", "/threads?count=0", 400),
            ("PUT", "/threads?count=-1", 400),
            ("PUT", "/threads?count=%2B1", 400),
            ("PUT", "/threads?count=1.5", 400),
            ("PUT", "/threads?count=NaN", 400),
            ("PUT", "/threads?count=4097", 400),
            ("DELETE", "/threads?count=1000000000", 400),
            ("DELETE", "/threads?count=99999999999999999999", 400),
            ("PUT", "/threads/1.1", 405),
        ] {
            let refused = of(method, target).err();
            let expected = (status != 200).then_some(status);
            assert_eq!(refused, expected, "{method} {target}");
        }
    }
}
