//! Options that were given in one place: on the command line, or in a table of a file. They are
//! kept as text until it is known what wins, and parsed by the definitions of the command line.

use std::any::TypeId;
use std::ffi::{OsStr, OsString};

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command};

use crate::options::takes_back;
use crate::values::{Pair, ThreadsMax};

/// What the values of an option are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Flag,
    Number,
    NumberOrAuto,
    /// NAME=VALUE.
    Pair,
    Text,
}

impl Kind {
    pub fn of(argument: &Arg) -> Self {
        let parsed = argument.get_value_parser().type_id();
        let is_one_of = |types: &[TypeId]| types.iter().any(|one| parsed == *one);
        if is_one_of(&[TypeId::of::<bool>()]) {
            Kind::Flag
        } else if is_one_of(&[
            TypeId::of::<u16>(),
            TypeId::of::<u32>(),
            TypeId::of::<u64>(),
            TypeId::of::<usize>(),
        ]) {
            Kind::Number
        } else if is_one_of(&[TypeId::of::<ThreadsMax>()]) {
            Kind::NumberOrAuto
        } else if is_one_of(&[TypeId::of::<Pair>()]) {
            Kind::Pair
        } else {
            Kind::Text
        }
    }
}

/// Whether the option can be given more than once.
pub fn is_list(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::Append)
}

/// The definitions of a set of options.
pub fn command_of<A: Args>() -> Command {
    A::augment_args(Command::new("options").no_binary_name(true))
        .disable_help_flag(true)
        .args_override_self(true)
}

#[derive(Clone, Debug)]
struct Given {
    id: String,
    values: Vec<OsString>,
}

#[derive(Clone, Debug, Default)]
pub struct Layer(Vec<Given>);

impl Layer {
    /// What was given on the command line; defaults are not.
    pub fn of_command_line(matches: &ArgMatches) -> Self {
        let is_given =
            |id: &clap::Id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine);
        // A set of options, which clap calls a group, has an id as well, but no values.
        let given = matches.ids().filter(|id| is_given(id)).filter_map(|id| {
            let values = matches.try_get_raw(id.as_str()).ok()??;
            Some(Given {
                id: id.to_string(),
                values: values.map(OsStr::to_owned).collect(),
            })
        });
        Self(given.collect())
    }

    pub fn set(&mut self, id: &str, values: Vec<OsString>) {
        self.0.retain(|given| given.id != id);
        self.0.push(Given {
            id: id.to_owned(),
            values,
        });
    }

    pub fn has(&self, id: &str) -> bool {
        self.0.iter().any(|given| given.id == id)
    }

    /// Both; where both speak this one counts. Of NAME=VALUE options it counts name by name.
    pub fn over(&self, lower: &Self, command: &Command) -> Self {
        let mut all = lower.clone();
        let is_taken_back = |lower: &Given| self.0.iter().any(|u| takes_back(&u.id, &lower.id));
        all.0.retain(|lower| !is_taken_back(lower));
        for upper in &self.0 {
            let mut values = upper.values.clone();
            if is_pair(command, &upper.id)
                && let Some(lower) = all.0.iter().find(|lower| lower.id == upper.id)
            {
                let is_named =
                    |value: &&OsString| upper.values.iter().any(|u| name_of(u) == name_of(value));
                let others = lower.values.iter().filter(|value| !is_named(value));
                values = others.cloned().chain(values).collect();
            }
            all.set(&upper.id, values);
        }
        all
    }

    /// Those that `A` knows, parsed.
    pub fn parse<A: Args>(&self) -> Result<A, clap::Error> {
        let command = command_of::<A>();
        let mut arguments: Vec<OsString> = Vec::new();
        let mut positional = Vec::new();
        for given in &self.0 {
            match find(&command, &given.id) {
                Some(argument) if argument.is_positional() => {
                    positional.extend(given.values.iter().cloned());
                }
                Some(argument) => arguments.extend(given.as_options(argument)),
                None => {}
            }
        }
        if !positional.is_empty() {
            arguments.push("--".into());
            arguments.extend(positional);
        }
        A::from_arg_matches(&command.try_get_matches_from(arguments)?)
    }
}

impl Given {
    fn as_options(&self, argument: &Arg) -> impl Iterator<Item = OsString> {
        let name = format!("--{}=", argument.get_long().unwrap_or_default());
        self.values.iter().map(move |value| {
            let mut option = OsString::from(&name);
            option.push(value);
            option
        })
    }
}

/// By its id, which is its key in a file.
pub fn find<'c>(command: &'c Command, id: &str) -> Option<&'c Arg> {
    command
        .get_arguments()
        .find(|argument| argument.get_id() == id)
}

fn is_pair(command: &Command, id: &str) -> bool {
    find(command, id).is_some_and(|argument| Kind::of(argument) == Kind::Pair)
}

fn name_of(pair: &OsStr) -> Option<&[u8]> {
    use std::os::unix::ffi::OsStrExt;
    let name = pair.as_bytes().split(|byte| *byte == b'=').next();
    name.map(<[u8]>::trim_ascii)
}
