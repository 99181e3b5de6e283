//! `docs/configuration.md`: its tables are written from the definitions of the options, by
//! `make docs`; a test fails while they differ. What is between its tables is written by hand.

use std::path::{Path, PathBuf};

use clap::{Arg, Command};

use super::document::TopOptions;
use super::layer::{Kind, command_of, is_list};
use crate::options::{AppOptions, RouteOptions, WorkerOptions};

const BEGIN: &str = "<!-- table: ";
const END: &str = "<!-- end -->";

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md")
}

/// The page with its tables written anew. Each is between its name and an end, in comments.
fn with_tables(page: &str) -> String {
    let mut out = String::new();
    let mut rest = page;
    while let Some(at) = rest.find(BEGIN) {
        let name_at = at + BEGIN.len();
        let name_end = name_at + rest[name_at..].find(" -->").expect("an end of the comment");
        let end = name_end + rest[name_end..].find(END).expect("an end of the table");
        out.push_str(&rest[..name_end]);
        out.push_str(" -->\n");
        out.push_str(&table(&rest[name_at..name_end]));
        rest = &rest[end..];
        out.push_str(END);
        rest = &rest[END.len()..];
    }
    out + rest
}

fn table(name: &str) -> String {
    let of_heading = |heading: &str| {
        let shown =
            move |argument: &Arg| argument.get_help_heading().unwrap_or("Application") == heading;
        rows(
            &command_of::<TopOptions>(),
            heading == "Limits and timeouts",
            shown,
        )
    };
    match name {
        "workers" => rows(&command_of::<WorkerOptions>(), false, |_| true),
        "routes" => rows(&command_of::<RouteOptions>(), false, |_| true),
        heading => of_heading(heading),
    }
}

/// With `whose`, the table says what is the server's and what an app may have its own of.
fn rows(command: &Command, whose: bool, shown: impl Fn(&Arg) -> bool) -> String {
    let apps = command_of::<AppOptions>();
    let mut table = match whose {
        true => String::from("| key | of | value | default | |\n|---|---|---|---|---|\n"),
        false => String::from("| key | value | default | |\n|---|---|---|---|\n"),
    };
    for argument in command.get_arguments().filter(|argument| shown(argument)) {
        let id = argument.get_id().as_str();
        let is_of_app = super::layer::find(&apps, id).is_some();
        let whose = match (whose, is_of_app) {
            (true, true) => " app |",
            (true, false) => " server |",
            (false, _) => "",
        };
        let (help, default) = help_and_default(argument);
        let value = value_of(argument);
        table.push_str(&format!(
            "| `{id}` |{whose} {value} | {default} | {help} |\n"
        ));
    }
    table
}

fn value_of(argument: &Arg) -> String {
    let values = argument.get_possible_values();
    let names: Vec<_> = values
        .iter()
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    let one = match Kind::of(argument) {
        Kind::Flag => "true or false".into(),
        Kind::Number => "number".into(),
        Kind::NumberOrAuto => "number, or `auto`".into(),
        Kind::Pair => return "table, or list of `NAME=VALUE`".into(),
        Kind::Text if !names.is_empty() => names.join(", "),
        Kind::Text => "string".into(),
    };
    match is_list(argument) {
        true => format!("{one}, or list"),
        false => one,
    }
}

/// A default that is no value stands behind the help, in brackets.
fn help_and_default(argument: &Arg) -> (String, String) {
    let help = argument
        .get_help()
        .expect("every option has help")
        .to_string();
    // On the command line an option is repeated, in a file it is a list.
    let help = help.replace("; may be repeated", "").replace('|', "\\|");
    if argument.is_required_set() {
        return (help, "required".into());
    }
    if let Some((help, default)) = help.split_once(" [default: ") {
        return (help.to_owned(), default.trim_end_matches(']').to_owned());
    }
    let values = argument.get_default_values().iter();
    let values: Vec<_> = values
        .map(|value| format!("`{}`", value.to_string_lossy()))
        .collect();
    (help, values.join(", "))
}

#[test]
fn the_tables_of_the_documentation_are_those_of_the_definitions() {
    let path = page();
    let found = std::fs::read_to_string(&path).expect("docs/configuration.md");
    let wanted = with_tables(&found);
    if std::env::var_os("BATON_WRITE_DOCS").is_some() {
        std::fs::write(&path, &wanted).expect("written");
        return;
    }
    assert!(
        found == wanted,
        "docs/configuration.md is not up to date: run `make docs`"
    );
    for argument in command_of::<TopOptions>().get_arguments() {
        let row = format!("\n| `{}` |", argument.get_id());
        assert!(wanted.contains(&row), "no row for {}", argument.get_id());
    }
}

#[test]
fn the_examples_of_the_documentation_are_good() {
    let text = std::fs::read_to_string(page()).expect("docs/configuration.md");
    let examples: Vec<&str> = text
        .split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    assert!(!examples.is_empty());
    for example in examples {
        let source = super::Source {
            path: "example".into(),
            text: example.to_owned(),
        };
        let mut problems = super::Problems::default();
        // The folders that it is about are not there, so it can only be read.
        let _ = super::Document::read(&source, &mut problems);
        let lines = problems.into_lines(Some(&source));
        assert!(lines.is_empty(), "{lines:#?} in:\n{example}");
    }
}
