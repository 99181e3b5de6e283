//! The shape of a configuration file: options at the top, `[apps.NAME]` with `[[apps.NAME.workers]]`
//! below, and `[[routes]]`.

use std::ops::Range;
use std::path::Path;

use clap::Args;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Problems, Source};
use super::table::{Schema, Table};
use crate::options::{AppOptions, RouteOptions, ServerOptions, WorkerOptions};
use crate::values::parse_name;

/// The top of a file: all options but those that only a command line has.
#[derive(Args)]
pub struct TopOptions {
    #[command(flatten)]
    app: AppOptions,
    #[command(flatten)]
    server: ServerOptions,
}

#[derive(Default)]
pub struct Document {
    pub top: Table,
    /// In the order of the file. `None`: the file has no `[apps]`, so its top is the one app.
    pub apps: Option<Vec<AppTable>>,
    /// Those of the one app, where there is no `[apps]`.
    pub workers: Vec<Table>,
    pub routes: Vec<Table>,
}

pub struct AppTable {
    pub name: String,
    pub table: Table,
    pub workers: Vec<Table>,
}

impl Document {
    /// `None`: it is no TOML.
    pub fn read(source: &Source, problems: &mut Problems) -> Option<Self> {
        let (document, errors) = DeTable::parse_recoverable(&source.text);
        if !errors.is_empty() {
            let mut values = Vec::new();
            spans_of_values(document.get_ref(), &source.text, &mut values);
            add_syntax_errors(source, &errors, &values, problems);
            // What is left of it would be full of mistakes that nobody made.
            return None;
        }
        let mut reader = Reader {
            folder: source.folder(),
            problems,
        };
        Some(reader.document(document.get_ref()))
    }
}

/// The first one of each line and of each value: a list that is not closed swallows what follows it, and each
/// line of that would be another.
fn add_syntax_errors(
    source: &Source,
    errors: &[toml::de::Error],
    values: &[Range<usize>],
    problems: &mut Problems,
) {
    let (mut lines, mut faulty) = (Vec::new(), Vec::new());
    let mut in_order: Vec<_> = errors
        .iter()
        .map(|error| (error.span().map_or(0, |span| span.start), error.message()))
        .collect();
    in_order.sort_by_key(|(at, _)| *at);
    for (at, message) in in_order {
        let (line, _) = source.line_and_column(at);
        let value = values
            .iter()
            .find(|value| (value.start..=value.end).contains(&at));
        let is_first = !lines.contains(&line) && value.is_none_or(|value| !faulty.contains(&value));
        lines.push(line);
        faulty.extend(value);
        if is_first {
            problems.add(Some(at), message);
        }
    }
}

/// Those behind an equals sign, whole.
fn spans_of_values(table: &DeTable<'_>, text: &str, spans: &mut Vec<Range<usize>>) {
    let starts_with = |span: &Range<usize>, start| {
        let found = text.get(span.clone());
        found.is_some_and(|found| found.starts_with(start))
    };
    for value in table.values() {
        match value.get_ref() {
            DeValue::Table(table) if !starts_with(&value.span(), "{") => {
                spans_of_values(table, text, spans);
            }
            DeValue::Array(list) if starts_with(&value.span(), "[[") => {
                for element in list.iter() {
                    match element.get_ref() {
                        DeValue::Table(table) => spans_of_values(table, text, spans),
                        _ => spans.push(element.span()),
                    }
                }
            }
            _ => spans.push(value.span()),
        }
    }
}

struct Reader<'r> {
    folder: &'r Path,
    problems: &'r mut Problems,
}

impl Reader<'_> {
    fn document(&mut self, document: &DeTable<'_>) -> Document {
        let schema = Schema {
            tables: &["apps", "routes", "workers"],
            elsewhere: |key| match key {
                "config" => Some("of the command line"),
                "host" | "path" | "app" => Some("of [[routes]]"),
                "file" | "name" => Some("of [[apps.NAME.workers]]"),
                _ => None,
            },
            ..Schema::of::<TopOptions>()
        };
        let top = Table::read(document, None, &schema, self.folder, self.problems);
        let apps = document.get("apps").map(|apps| self.apps(apps));
        if apps.is_some() {
            for key in ["root", "worker"] {
                if top.layer.has(key) {
                    let place = top.place_of(key);
                    let message = format!("`{key}` is of one app: it belongs into [apps.NAME]");
                    self.problems.add(place, message);
                }
            }
            if let Some(workers) = document.get("workers") {
                let message = "workers are of one app: [[apps.NAME.workers]]";
                self.problems.add(Some(workers.span().start), message);
            }
        }
        let workers = match &apps {
            None => self.workers(document, &top),
            Some(_) => Vec::new(),
        };
        let routes = self.tables::<RouteOptions>(document, "routes", "[[routes]]");
        Document {
            top,
            apps,
            workers,
            routes,
        }
    }

    fn apps(&mut self, apps: &Spanned<DeValue<'_>>) -> Vec<AppTable> {
        let DeValue::Table(table) = apps.get_ref() else {
            let message = "`apps` is expected to hold tables: [apps.NAME]";
            self.problems.add(Some(apps.span().start), message);
            return Vec::new();
        };
        if table.is_empty() {
            let message = "there is no app in it; expected [apps.NAME]";
            self.problems.add(Some(apps.span().start), message);
        }
        let mut in_order: Vec<_> = table.iter().collect();
        in_order.sort_by_key(|(name, _)| name.span().start);
        in_order
            .into_iter()
            .filter_map(|(name, value)| self.app(name, value))
            .collect()
    }

    fn app(
        &mut self,
        name: &Spanned<impl AsRef<str>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<AppTable> {
        let (at, name) = (Some(name.span().start), name.get_ref().as_ref());
        if let Err(reason) = parse_name(name) {
            self.problems
                .add(at, format!("the app's name {name:?}: {reason}"));
        }
        let DeValue::Table(table) = value.get_ref() else {
            let message = format!("`{name}` is expected to be a table: [apps.{name}]");
            self.problems.add(at, message);
            return None;
        };
        let schema = Schema {
            tables: &["workers"],
            elsewhere: |key| match key {
                "routes" | "apps" => Some("of the top of the file"),
                "host" | "path" | "app" => Some("of [[routes]]"),
                "file" | "name" => Some("of [[apps.NAME.workers]]"),
                _ => is_server_key(key).then_some("of the server, for the top of the file"),
            },
            ..Schema::of::<AppOptions>()
        };
        let read = Table::read(table, at, &schema, self.folder, self.problems);
        if !read.layer.has("root") {
            let message = format!("`root` is missing: the folder of the app `{name}`");
            self.problems.add(at, message);
        }
        let workers = self.workers(table, &read);
        Some(AppTable {
            name: name.to_owned(),
            table: read,
            workers,
        })
    }

    fn workers(&mut self, table: &DeTable<'_>, app: &Table) -> Vec<Table> {
        if let Some(workers) = table.get("workers")
            && app.layer.has("worker")
        {
            let message = "`worker` is the short form of one of `workers`; use one of them";
            self.problems.add(Some(workers.span().start), message);
        }
        self.tables::<WorkerOptions>(table, "workers", "[[apps.NAME.workers]]")
    }

    fn tables<A: Args>(&mut self, table: &DeTable<'_>, key: &str, form: &str) -> Vec<Table> {
        let Some(value) = table.get(key) else {
            return Vec::new();
        };
        let DeValue::Array(list) = value.get_ref() else {
            let message = format!("`{key}` is expected to be a list of tables: {form}");
            self.problems.add(Some(value.span().start), message);
            return Vec::new();
        };
        let schema = Schema::of::<A>();
        let mut tables = Vec::new();
        for element in list.iter() {
            let at = Some(element.span().start);
            match element.get_ref() {
                DeValue::Table(table) => {
                    tables.push(Table::read(table, at, &schema, self.folder, self.problems));
                }
                _ => self.problems.add(at, format!("expected a table: {form}")),
            }
        }
        tables
    }
}

fn is_server_key(key: &str) -> bool {
    let server = Schema::of::<ServerOptions>();
    super::layer::find(&server.command, key).is_some()
}
