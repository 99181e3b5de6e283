//! A table of a file as options: which keys there may be, and what their values may be, is what
//! the command line's definitions say.

use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Args, Command};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::layer::{Kind, Layer, command_of, find, is_list};
use super::problem::{Problems, nearest};
use crate::admin::place::Asked;
use crate::listen::Listen;

/// What a table may hold.
pub struct Schema {
    pub command: Command,
    /// Keys that are no options, but have tables below them.
    pub tables: &'static [&'static str],
    /// Says of a key that is not for this table where it belongs.
    pub elsewhere: fn(&str) -> Option<&'static str>,
}

impl Schema {
    pub fn of<A: Args>() -> Self {
        Self {
            command: command_of::<A>(),
            tables: &[],
            elsewhere: |_| None,
        }
    }
}

/// A table that was read.
#[derive(Default)]
pub struct Table {
    /// Where it begins.
    pub at: Option<usize>,
    pub layer: Layer,
    /// Nothing is wrong with its keys and values.
    pub is_sound: bool,
    /// The keys that were there, and where their values are.
    places: Vec<(String, Vec<usize>)>,
}

impl Table {
    /// Where the key's value is.
    pub fn place_of(&self, key: &str) -> Option<usize> {
        self.place_of_nth(key, 0)
    }

    /// Where one value of a list is.
    pub fn place_of_nth(&self, key: &str, n: usize) -> Option<usize> {
        let (_, places) = self.places.iter().find(|(known, _)| known == key)?;
        places.get(n).copied()
    }

    /// Reads the options in `table`; relative paths begin at `folder`.
    pub fn read(
        table: &DeTable<'_>,
        at: Option<usize>,
        schema: &Schema,
        folder: &Path,
        problems: &mut Problems,
    ) -> Self {
        let mut read = Self {
            at,
            ..Self::default()
        };
        let problems_before = problems.len();
        for (key, value) in table {
            let (name, key_at) = (key.get_ref().as_ref(), Some(key.span().start));
            if schema.tables.contains(&name) {
                continue;
            }
            let Some(argument) = find(&schema.command, name) else {
                problems.add(key_at, unknown(name, schema));
                continue;
            };
            if matches!(value.get_ref(), DeValue::Array(values) if values.is_empty())
                && !argument.get_default_values().is_empty()
            {
                problems.add(
                    key_at,
                    format!("`{name}` is an empty list; leave it out for the default"),
                );
            }
            let mut texts = texts_of(argument, value, problems);
            // What is wrong is left out, so that the rest can be looked at.
            texts.retain(|(text, place)| {
                let valid = validate(argument, text);
                if let Err(reason) = &valid {
                    problems.add(Some(*place), format!("`{name}`: {reason}"));
                }
                valid.is_ok()
            });
            let places = texts.iter().map(|(_, place)| *place).collect();
            let values = texts
                .into_iter()
                .map(|(text, _)| below(folder, argument, text));
            read.layer.set(name, values.collect());
            read.places.push((name.to_owned(), places));
        }
        for argument in schema.command.get_arguments() {
            let name = argument.get_id().as_str();
            if argument.is_required_set() && !table.contains_key(name) {
                problems.add(at, format!("`{name}` is missing: {}", meaning(argument)));
            }
        }
        read.is_sound = problems.len() == problems_before;
        read
    }
}

#[cold]
fn unknown(name: &str, schema: &Schema) -> String {
    if let Some(place) = (schema.elsewhere)(name) {
        return format!("`{name}` does not belong here: it is a key {place}");
    }
    let options = schema.command.get_arguments();
    let keys = options.map(|argument| argument.get_id().as_str());
    let mut known: Vec<&str> = keys.chain(schema.tables.iter().copied()).collect();
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("unknown key `{name}`; did you mean `{near}`?"),
        None => {
            known.sort_unstable();
            format!("unknown key `{name}`; expected one of {}", known.join(", "))
        }
    }
}

/// A value as the command line would have it, and where each part of it is.
fn texts_of(
    argument: &Arg,
    value: &Spanned<DeValue<'_>>,
    problems: &mut Problems,
) -> Vec<(OsString, usize)> {
    let kind = Kind::of(argument);
    let mut texts = Vec::new();
    let mut add = |value: &Spanned<DeValue<'_>>, prefix: Option<&str>| {
        let at = value.span().start;
        match text_of(kind, prefix.is_some(), value.get_ref()) {
            Some(text) => {
                let text = prefix.map(|name| format!("{name}={text}")).unwrap_or(text);
                texts.push((text.into(), at));
            }
            None => problems.add(Some(at), wrong_type(argument, prefix, value.get_ref())),
        }
    };
    match value.get_ref() {
        DeValue::Array(values) if is_list(argument) => {
            values.iter().for_each(|value| add(value, None));
        }
        DeValue::Table(values) if kind == Kind::Pair => {
            for (name, value) in values {
                add(value, Some(name.get_ref()));
            }
        }
        _ => add(value, None),
    }
    texts
}

/// `None`: it is of the wrong type. In a table of names with values `is_named`.
fn text_of(kind: Kind, is_named: bool, value: &DeValue<'_>) -> Option<String> {
    let number = |number: &toml::de::DeInteger<'_>| {
        i128::from_str_radix(number.as_str(), number.radix()).ok()
    };
    match (kind, value) {
        (Kind::Flag, DeValue::Boolean(flag)) => Some(flag.to_string()),
        (Kind::Number, DeValue::Integer(integer)) => number(integer).map(|n| n.to_string()),
        (Kind::NumberOrAuto, DeValue::Integer(integer)) => number(integer).map(|n| n.to_string()),
        (Kind::Text | Kind::NumberOrAuto | Kind::Pair, DeValue::String(text)) => {
            Some(text.to_string())
        }
        (Kind::Pair, DeValue::Integer(integer)) if is_named => {
            number(integer).map(|n| n.to_string())
        }
        (Kind::Pair, DeValue::Float(float)) if is_named => Some(float.as_str().to_owned()),
        // As php.ini understands it.
        (Kind::Pair, DeValue::Boolean(flag)) if is_named => Some(u8::from(*flag).to_string()),
        _ => None,
    }
}

/// `name`: of a value in a table of names with values.
fn wrong_type(argument: &Arg, name: Option<&str>, value: &DeValue<'_>) -> String {
    let one = match Kind::of(argument) {
        Kind::Pair if name.is_some() => "a string, a number, or true or false",
        Kind::Flag => "true or false",
        Kind::Number => "a whole number",
        Kind::NumberOrAuto => "a whole number or \"auto\"",
        Kind::Text => "a string",
        Kind::Pair => "\"NAME=VALUE\", a list of these, or a table of names with values",
    };
    let more = match is_list(argument) && Kind::of(argument) != Kind::Pair {
        true => ", or a list of these",
        false => "",
    };
    let found = match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    };
    let name = name.unwrap_or(argument.get_id().as_str());
    format!("`{name}` is {found}; expected {one}{more}")
}

/// Asks the definition; what is wrong and what was expected, if something is.
fn validate(argument: &Arg, text: &OsString) -> Result<(), String> {
    let mut command = Command::new("value")
        .no_binary_name(true)
        .arg(argument.clone().required(false));
    let given = match argument.get_long() {
        Some(long) => {
            let mut option = OsString::from(format!("--{long}="));
            option.push(text);
            option
        }
        None => text.clone(),
    };
    let arguments = match argument.is_positional() {
        true => vec![OsString::from("--"), given],
        false => vec![given],
    };
    let Err(error) = command.try_get_matches_from_mut(arguments) else {
        return Ok(());
    };
    if let Some(ContextValue::Strings(known)) = error.get(ContextKind::ValidValue) {
        let shown = text.to_string_lossy();
        let near = nearest(&shown, known.iter().map(String::as_str));
        let hint = near.map_or(String::new(), |near| format!("; did you mean {near}?"));
        return Err(format!("{shown:?} is none of {}{hint}", known.join(", ")));
    }
    match error.source().map(ToString::to_string) {
        Some(reason) if reason.contains("digit") || reason.contains("number too") => {
            let shown = text.to_string_lossy();
            Err(format!(
                "{shown} is out of range; expected {}",
                meaning(argument)
            ))
        }
        Some(reason) => Err(reason),
        None => Err(format!("a value is expected: {}", meaning(argument))),
    }
}

/// What an option is, within a message: the beginning of its help.
fn meaning(argument: &Arg) -> String {
    let help = argument.get_help().map(ToString::to_string);
    let help = help.unwrap_or_default();
    let help = help.split(" [default").next().unwrap_or_default();
    let sentence = help.split(". ").next().unwrap_or_default();
    let part = sentence.split(';').next().unwrap_or_default();
    let mut letters = part.chars();
    match (letters.next(), letters.next()) {
        // Of an abbreviation all letters are large.
        (Some(first), Some(second)) if second.is_lowercase() || second == ' ' => {
            let first = first.to_ascii_lowercase();
            [first, second].into_iter().chain(letters).collect()
        }
        _ => part.to_owned(),
    }
}

/// Relative paths in a file begin at its folder, whoever reads it from where.
fn below(folder: &Path, argument: &Arg, text: OsString) -> OsString {
    let kind = argument.get_value_parser().type_id();
    if kind == std::any::TypeId::of::<PathBuf>() && text != "-" {
        return folder.join(text).into();
    }
    let is_address =
        kind == std::any::TypeId::of::<Listen>() || kind == std::any::TypeId::of::<Asked>();
    let socket = text.to_str().and_then(|text| text.strip_prefix("unix:"));
    match socket {
        Some(path) if is_address && !path.is_empty() => {
            format!("unix:{}", folder.join(path).display()).into()
        }
        _ => text,
    }
}
