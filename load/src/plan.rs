//! What a run does: options and scenario put together, checked, and made ready.

use std::path::Path;

use serde::Serialize;

use crate::check::{Check, Expect};
use crate::file;
use crate::load::Load;
use crate::mix::Mix;
use crate::options::{LoadOptions, Scenario, Target as TargetSpec};
use crate::request::{BODY_BYTES_MAX, Body, Parts, Request};
use crate::span::Span;
use crate::url::Url;

const TARGETS_MAX: usize = 1_000;
const WEIGHT_MAX: u32 = 1_000_000;

pub struct Plan {
    pub url: Url,
    pub load: Load,
    pub targets: Vec<Target>,
    pub mix: Mix,
    pub configuration: Configuration,
}

pub struct Target {
    pub request: Request,
    /// Replies to HEAD have no body.
    pub bodiless: bool,
    pub check: Check,
}

/// What was asked for, as it is saved with the figures.
#[derive(Clone, Debug, Serialize)]
pub struct Configuration {
    pub url: String,
    pub scenario: Option<String>,
    #[serde(flatten)]
    pub load: Load,
    pub targets: Vec<TargetSpec>,
}

impl Plan {
    pub fn new(options: &LoadOptions) -> Result<Plan, String> {
        let file = options.scenario.as_deref();
        let scenario = file.map(Scenario::read).transpose()?;
        let has_scenario = scenario.is_some();
        let scenario = scenario.unwrap_or_default();
        let url = options.url.clone().or(scenario.url);
        let url =
            url.ok_or("a URL is missing: http://host:port/path or unix:/path/of/socket:/path")?;
        let load = Load::new(options.load.clone().or(scenario.load))?;
        let mut specs = match has_scenario {
            true => scenario.targets,
            false => command_line_targets(options, &url)?,
        };
        if specs.len() > TARGETS_MAX {
            return Err(format!("more than {TARGETS_MAX} targets"));
        }
        for spec in &mut specs {
            complete(spec, options, &scenario.expect, has_scenario)?;
        }
        if has_scenario || !options.request.targets.is_empty() {
            put_below(&mut specs, &url)?;
        }
        let targets = specs
            .iter()
            .map(|spec| target(spec, &url, !load.keep_alive));
        Ok(Plan {
            targets: targets.collect::<Result<_, _>>()?,
            mix: mix(&load, &specs)?,
            configuration: Configuration {
                url: url.to_string(),
                scenario: file.map(|path| path.display().to_string()),
                load: load.clone(),
                targets: specs,
            },
            load,
            url,
        })
    }
}

/// The URL's path goes before those of several targets.
fn put_below(specs: &mut [TargetSpec], url: &Url) -> Result<(), String> {
    let prefix = url.path.trim_end_matches('/');
    if prefix.contains('?') {
        return Err(format!(
            "`{url}`: a URL whose path goes before those of the targets can have no query"
        ));
    }
    for spec in specs {
        spec.path.insert_str(0, prefix);
    }
    Ok(())
}

fn command_line_targets(options: &LoadOptions, url: &Url) -> Result<Vec<TargetSpec>, String> {
    let request = &options.request;
    let plain = |path: &str| TargetSpec::plain(path.into());
    if request.targets.is_empty() {
        return Ok(vec![plain(&url.path)]);
    }
    let weighted = request.targets.iter().map(|text| {
        let (weight, path) = text.split_once(':').unwrap_or(("", ""));
        match weight.parse() {
            Ok(weight) => Ok(TargetSpec {
                weight,
                ..plain(path)
            }),
            Err(_) => Err(format!(
                "`{text}` is no target; write WEIGHT:PATH, such as 3:/path"
            )),
        }
    });
    weighted.collect()
}

/// Adds what the command line and the scenario say for all targets.
fn complete(
    spec: &mut TargetSpec,
    options: &LoadOptions,
    of_all: &Expect,
    scenario: bool,
) -> Result<(), String> {
    let request = &options.request;
    if scenario
        && (request.method.is_some() || request.body.is_some() || request.body_file.is_some())
    {
        return Err("method and body belong to the targets of the scenario file".into());
    }
    if !scenario {
        spec.method = request.method.clone();
        spec.body = request.body.clone();
        spec.body_file = request.body_file.clone();
    }
    spec.headers.extend(request.headers.iter().cloned());
    let expect = std::mem::take(&mut spec.expect);
    spec.expect = expect.or(&options.expect).or(of_all);
    Ok(())
}

fn mix(load: &Load, specs: &[TargetSpec]) -> Result<Mix, String> {
    let mut entries = Vec::new();
    for target in specs {
        let wrong = |wrong: String| format!("target `{}`: {wrong}", target.path);
        if !(1..=WEIGHT_MAX).contains(&target.weight) {
            return Err(wrong(format!(
                "the weight must be within 1 to {WEIGHT_MAX}"
            )));
        }
        if let Some(window) = target.window {
            window.check().map_err(wrong)?;
            if load.duration.is_none() {
                return Err(wrong("a window needs a duration of the load".into()));
            }
        }
        entries.push((target.weight, target.window));
    }
    let mix = Mix::new(entries);
    mix.check(load.duration.map_or(1, Span::ns))?;
    Ok(mix)
}

fn target(spec: &TargetSpec, url: &Url, close: bool) -> Result<Target, String> {
    let wrong = |wrong: String| format!("target `{}`: {wrong}", spec.path);
    let headers = spec
        .headers
        .iter()
        .map(|line| header(line))
        .collect::<Result<Vec<_>, _>>();
    let from_file = spec
        .body_file
        .as_deref()
        .map(|path: &Path| file::read(path, BODY_BYTES_MAX));
    let from_file = from_file.transpose().map_err(wrong)?;
    let body = match (&spec.body, &from_file) {
        (Some(_), Some(_)) => return Err(wrong("body and body_file exclude each other".into())),
        (Some(text), None) => Body::Text(text),
        (None, Some(bytes)) => Body::Bytes(bytes),
        (None, None) => Body::None,
    };
    let method = match (&spec.method, &body) {
        (Some(method), _) => method.as_str(),
        (None, Body::None) => "GET",
        (None, _) => "POST",
    };
    let request = Request::new(&Parts {
        method,
        path: &spec.path,
        host: &url.server.host_field(),
        headers: &headers.map_err(wrong)?,
        body,
        parameters: &spec.parameters,
        close,
    });
    Ok(Target {
        request: request.map_err(wrong)?,
        bodiless: method == "HEAD",
        check: spec.expect.check().map_err(wrong)?,
    })
}

fn header(line: &str) -> Result<(String, String), String> {
    let (name, value) = line.split_once(':').ok_or_else(|| {
        format!(
            "`{}` is no header; write `Name: value`",
            line.escape_default()
        )
    })?;
    Ok((name.into(), value.trim_matches([' ', '\t']).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(change: impl FnOnce(&mut LoadOptions)) -> LoadOptions {
        let mut options = LoadOptions {
            url: Some("http://127.0.0.1:8080/a?b".parse().expect("good")),
            ..LoadOptions::default()
        };
        change(&mut options);
        options
    }

    fn bytes(target: &Target) -> String {
        match &target.request {
            Request::Fixed(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Request::Template(template) => {
                let mut out = Vec::new();
                template.write(&mut fastrand::Rng::with_seed(1), &mut out);
                String::from_utf8_lossy(&out).into_owned()
            }
        }
    }

    fn wrong(change: impl FnOnce(&mut LoadOptions)) -> String {
        Plan::new(&options(change)).err().expect("refused")
    }

    #[test]
    fn nothing_has_to_be_said_but_where_to() {
        let plan = Plan::new(&options(|_| ())).expect("good");
        assert_eq!(plan.load.connections_max(), 50);
        assert_eq!(plan.load.duration, Some(Span::seconds(10)));
        assert_eq!(plan.load.drain, plan.load.timeout);
        assert_eq!(
            bytes(&plan.targets[0]),
            "GET /a?b HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n"
        );
        assert!(wrong(|options| options.url = None).contains("URL"));
    }

    #[test]
    fn stages_and_counts_say_how_long() {
        let plan = Plan::new(&options(|options| {
            options.load.connections = "5s:10,5s:0".parse().ok()
        }))
        .expect("good");
        assert_eq!(plan.load.duration, Some(Span::seconds(10)));
        let plan = Plan::new(&options(|options| options.load.requests = Some(5))).expect("good");
        assert_eq!((plan.load.duration, plan.load.requests), (None, Some(5)));
    }

    #[test]
    fn a_number_of_requests_at_a_rate_has_an_end() {
        let end = |rate: &str, requests, duration: Option<&str>| {
            let plan = Plan::new(&options(|options| {
                options.load.rate = rate.parse().ok();
                options.load.requests = Some(requests);
                options.load.duration = duration.and_then(|text| text.parse().ok());
            }));
            plan.expect("good")
                .load
                .sending_ns()
                .map(|ns| ns / 1_000_000)
        };
        // With the 10 s that late ones may take.
        assert_eq!(end("100", 101, None), Some(11_000));
        assert_eq!(end("100", 101, Some("500ms")), Some(500));
        assert_eq!(end("2s:100,1s:0", 1_000_000, Some("1h")), Some(13_000));
        assert_eq!(
            end("1", 1_000_000_000, None),
            Some(7 * 24 * 3_600_000 + 10_000)
        );
    }

    #[test]
    fn several_targets_lie_below_the_url() {
        let plan = Plan::new(&options(|options| {
            options.url = "unix:/run/x:/app/".parse().ok();
            options.request.targets = vec!["3:/x".into(), "1:/y?z".into()];
            options.request.headers = vec!["Host: h".into()];
        }));
        let plan = plan.expect("good");
        assert_eq!(
            bytes(&plan.targets[0]),
            "GET /app/x HTTP/1.1\r\nHost: h\r\n\r\n"
        );
        assert!(bytes(&plan.targets[1]).starts_with("GET /app/y?z "));
        assert!(wrong(|options| options.request.targets = vec!["1:/x".into()]).contains("query"));
        for bad in ["/x", "x:/x", "1:", "0:/x"] {
            let wrong = wrong(|options| {
                options.url = "http://h".parse().ok();
                options.request.targets = vec![bad.into()];
            });
            assert!(wrong.contains("target"), "{bad}: {wrong}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert!(
            wrong(|options| options.load.connections = "0".parse().ok()).contains("connections")
        );
        assert!(
            wrong(|options| options.load.connections = "1000001".parse().ok())
                .contains("connections")
        );
        assert!(wrong(|options| options.load.rate = "0".parse().ok()).contains("rate"));
        assert!(wrong(|options| options.load.threads = Some(0)).contains("threads"));
        assert!(wrong(|options| options.load.threads = Some(51)).contains("threads"));
        assert!(wrong(|options| options.load.pipeline = Some(0)).contains("pipeline"));
        assert!(wrong(|options| options.load.requests = Some(0)).contains("requests"));
        assert!(wrong(|options| options.load.duration = "0s".parse().ok()).contains("duration"));
        assert!(wrong(|options| options.load.warm_up = "10s".parse().ok()).contains("warm-up"));
        assert!(wrong(|options| options.load.timeout = "0s".parse().ok()).contains("timeout"));
        assert!(
            wrong(|options| options.request.body_file = Some("/nonexistent".into()))
                .contains("/nonexistent")
        );
        assert!(
            wrong(|options| options.request.body_file = Some("/dev/zero".into()))
                .contains("larger")
        );
        assert!(
            wrong(|options| options.request.headers = vec!["no colon".into()]).contains("header")
        );
        assert!(
            wrong(|options| options.scenario = Some("/nonexistent".into()))
                .contains("/nonexistent")
        );
        assert!(
            wrong(|options| {
                options.load.pipeline = Some(2);
                options.load.keep_alive = Some(false);
            })
            .contains("keep-alive")
        );
    }

    /// The scenario files of the benchmarks, each by its own name.
    #[test]
    fn the_six_loads_are_plans() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/scenarios");
        for (name, connections_max, seconds) in [
            ("hello", 400, 30),
            ("database", 200, 60),
            ("external-api", 1000, 50),
            ("computation", 150, 45),
            ("hanging", 500, 60),
            ("timeouts", 500, 60),
        ] {
            let path = folder.join(format!("{name}.toml"));
            let plan = Plan::new(&options(|options| {
                options.url = "http://h".parse().ok();
                options.scenario = Some(path);
            }));
            let plan = plan.unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
            assert_eq!(plan.load.connections_max(), connections_max, "{name}");
            assert_eq!(plan.load.duration, Some(Span::seconds(seconds)), "{name}");
            assert!(
                bytes(&plan.targets[0]).starts_with("GET /work.php"),
                "{name}"
            );
        }
    }

    #[test]
    fn the_example_of_the_manual_is_a_plan() {
        let manual = include_str!("../../docs/load.md");
        let example = manual
            .split("```toml\n")
            .nth(1)
            .and_then(|rest| rest.split("```").next());
        let file = std::env::temp_dir().join(format!("baton-load-manual-{}", std::process::id()));
        std::fs::write(&file, example.expect("an example")).expect("written");
        let plan = Plan::new(&options(|options| {
            options.url = "http://h/shop".parse().ok();
            options.scenario = Some(file.clone());
        }));
        std::fs::remove_file(&file).expect("removed");
        let plan = plan.unwrap_or_else(|wrong| panic!("{wrong}"));
        assert!(bytes(&plan.targets[0]).starts_with("GET /shop/search?page="));
        assert!(bytes(&plan.targets[1]).starts_with("POST /shop/orders "));
    }

    #[test]
    fn mistakes_in_a_scenario_are_named() {
        for (text, reason) in [
            ("", "target"),
            ("[load]\nconnection = 5", "connection"),
            (
                "[load]\nconnections = \"5s\"\n[[target]]\npath = \"/\"",
                "connections",
            ),
            (
                "[[target]]\npath = \"/{a}\"\nparameters = { b = { min = 1, max = 2 } }",
                "no parameter `a`",
            ),
            (
                "[[target]]\npath = \"/\"\nwindow = { every = \"2s\", from = \"0s\", to = \"1s\" }",
                "1 s after the start",
            ),
            ("[[target]]\nweight = 1", "path"),
            (
                "[[target]]\npath = \"/\"\nbody = \"a\"\nbody_file = \"b\"",
                "b",
            ),
        ] {
            let path = std::env::temp_dir()
                .join(format!("baton-load-{}-{reason}.toml", std::process::id()).replace('`', ""));
            std::fs::write(&path, text).expect("written");
            let wrong = wrong(|options| {
                options.url = "http://h".parse().ok();
                options.scenario = Some(path.clone());
            });
            std::fs::remove_file(&path).expect("removed");
            assert!(wrong.contains(reason), "{text}: {wrong}");
        }
    }
}
