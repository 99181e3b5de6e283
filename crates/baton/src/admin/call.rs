//! Which questions there are, and what each may be asked with.

use std::borrow::Cow;

use super::reply::Reply;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    Health,
    Ready { app: Option<String> },
    Status,
    Apps,
    Threads { app: Option<String> },
    Thread { id: String },
    Metrics,
    Restart { app: Option<String> },
    Reload,
}

/// What a resource does by one method.
struct Action {
    method: &'static str,
    parameters: &'static [&'static str],
    call: fn(&mut Parameters<'_>) -> Result<Call, Reply>,
}

const fn get(
    parameters: &'static [&'static str],
    call: fn(&mut Parameters<'_>) -> Result<Call, Reply>,
) -> Action {
    Action {
        method: "GET",
        parameters,
        call,
    }
}

const fn post(
    parameters: &'static [&'static str],
    call: fn(&mut Parameters<'_>) -> Result<Call, Reply>,
) -> Action {
    Action {
        method: "POST",
        parameters,
        call,
    }
}

/// No state changes by GET.
const RESOURCES: &[(&str, &[Action])] = &[
    ("/healthz", &[get(&[], |_| Ok(Call::Health))]),
    (
        "/readyz",
        &[get(&["app"], |given| {
            Ok(Call::Ready {
                app: given.take("app"),
            })
        })],
    ),
    ("/status", &[get(&[], |_| Ok(Call::Status))]),
    ("/apps", &[get(&[], |_| Ok(Call::Apps))]),
    (
        "/threads",
        &[get(&["app"], |given| {
            Ok(Call::Threads {
                app: given.take("app"),
            })
        })],
    ),
    ("/metrics", &[get(&[], |_| Ok(Call::Metrics))]),
    (
        "/workers/restart",
        &[post(&["app"], |given| {
            Ok(Call::Restart {
                app: given.take("app"),
            })
        })],
    ),
    ("/reload", &[post(&[], |_| Ok(Call::Reload))]),
];

/// One thread.
const THREAD: &[Action] = &[get(&[], |given| {
    Ok(Call::Thread {
        id: given.rest.to_owned(),
    })
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
        ] {
            let refused = of(method, target).err();
            let expected = (status != 200).then_some(status);
            assert_eq!(refused, expected, "{method} {target}");
        }
    }
}
