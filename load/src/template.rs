//! Bytes with holes, into which values are drawn.

use std::collections::BTreeMap;

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::field::is_visible;

const PARAMETERS_MAX: usize = 16;
const CHOICES_MAX: usize = 10_000;
const CHOICE_BYTES_MAX: usize = 1_024;

/// By name.
pub type Parameters = BTreeMap<String, Values>;

/// What a parameter is drawn from, each value as likely as any other.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Values {
    /// Whole numbers, both ends included.
    Range(Range),
    Choice(Vec<Choice>),
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    pub min: u64,
    pub max: u64,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Choice {
    Number(u64),
    Text(String),
}

pub struct Template {
    parts: Vec<Part>,
    sources: Vec<Source>,
    /// The length of the body without its parameters.
    body_fixed_bytes: u64,
    /// Parameters in the body, as often as they occur.
    body_values: Vec<usize>,
}

enum Part {
    Text(Vec<u8>),
    Value(usize),
    /// The length of the body.
    Length,
}

/// What a parameter is drawn from, in bytes.
enum Source {
    Range(Range),
    Choice(Vec<Vec<u8>>),
}

impl Template {
    /// Appends one request, its parameters drawn anew. A parameter has one value throughout the request.
    pub fn write(&self, rng: &mut Rng, out: &mut Vec<u8>) {
        let mut values = [0_u64; PARAMETERS_MAX];
        for (value, source) in values.iter_mut().zip(&self.sources) {
            *value = match source {
                Source::Range(range) => rng.u64(range.min..=range.max),
                Source::Choice(choices) => rng.usize(..choices.len()) as u64,
            };
        }
        let mut number = itoa::Buffer::new();
        for part in &self.parts {
            let bytes = match part {
                Part::Text(text) => text,
                Part::Value(index) => match &self.sources[*index] {
                    Source::Range(_) => number.format(values[*index]).as_bytes(),
                    Source::Choice(choices) => &choices[values[*index] as usize],
                },
                Part::Length => number.format(self.body_bytes(&values)).as_bytes(),
            };
            out.extend_from_slice(bytes);
        }
    }

    fn body_bytes(&self, values: &[u64]) -> u64 {
        let drawn = self
            .body_values
            .iter()
            .map(|index| match &self.sources[*index] {
                Source::Range(_) => u64::from(values[*index].checked_ilog10().unwrap_or(0)) + 1,
                Source::Choice(choices) => choices[values[*index] as usize].len() as u64,
            });
        self.body_fixed_bytes + drawn.sum::<u64>()
    }

    /// It is always the same.
    pub fn is_fixed(&self) -> bool {
        self.sources.is_empty()
    }
}

impl Source {
    fn new(name: &str, values: &Values) -> Result<Source, String> {
        if name.is_empty()
            || !name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        {
            let name = name.escape_default();
            return Err(format!(
                "`{name}` is no parameter name: letters, digits and _ are"
            ));
        }
        match values {
            Values::Range(Range { min, max }) if min > max => Err(format!(
                "the parameter `{name}`: min {min} is more than max {max}"
            )),
            Values::Range(range) => Ok(Source::Range(*range)),
            Values::Choice(choices) if choices.is_empty() || choices.len() > CHOICES_MAX => Err(
                format!("the parameter `{name}` needs 1 to {CHOICES_MAX} choices"),
            ),
            Values::Choice(choices) => {
                let bytes = choices.iter().map(|choice| {
                    choice
                        .bytes()
                        .map_err(|wrong| format!("the parameter `{name}`: {wrong}"))
                });
                Ok(Source::Choice(bytes.collect::<Result<_, _>>()?))
            }
        }
    }
}

impl Choice {
    fn bytes(&self) -> Result<Vec<u8>, String> {
        match self {
            Choice::Number(number) => Ok(number.to_string().into_bytes()),
            Choice::Text(text) if text.len() > CHOICE_BYTES_MAX => {
                Err(format!("a choice is longer than {CHOICE_BYTES_MAX} bytes"))
            }
            Choice::Text(text) if !is_visible(text) => Err(format!(
                "`{}` has characters that must be written as %XX",
                text.escape_default()
            )),
            Choice::Text(text) => Ok(text.clone().into_bytes()),
        }
    }
}

/// Puts a template together, front to back.
pub struct Builder<'a> {
    parameters: &'a Parameters,
    used: Vec<bool>,
    parts: Vec<Part>,
    /// Text that no part has yet.
    text: Vec<u8>,
    /// Where the body begins: that part, and so many bytes into it.
    body: Option<(usize, usize)>,
}

impl<'a> Builder<'a> {
    pub fn new(parameters: &'a Parameters) -> Builder<'a> {
        Builder {
            parameters,
            used: vec![false; parameters.len()],
            parts: vec![],
            text: vec![],
            body: None,
        }
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
    }

    /// `{name}` becomes a value where there is such a parameter, and stays what it is elsewhere.
    pub fn text(&mut self, mut text: &str) {
        while let Some(open) = text.find('{') {
            let (before, rest) = text.split_at(open);
            self.bytes(before.as_bytes());
            let name = rest[1..].split_once('}').map(|(name, _)| name);
            let index =
                name.and_then(|name| self.parameters.keys().position(|known| known == name));
            match (name, index) {
                (Some(name), Some(index)) => {
                    self.used[index] = true;
                    self.part(Part::Value(index));
                    text = &rest[name.len() + 2..];
                }
                _ => {
                    self.bytes(b"{");
                    text = &rest[1..];
                }
            }
        }
        self.bytes(text.as_bytes());
    }

    /// The length of the body that is yet to come.
    pub fn length(&mut self) {
        self.part(Part::Length);
    }

    /// What follows is the body.
    pub fn begin_body(&mut self) {
        self.body = Some((self.parts.len(), self.text.len()));
    }

    fn part(&mut self, part: Part) {
        self.parts.push(Part::Text(std::mem::take(&mut self.text)));
        self.parts.push(part);
    }

    pub fn build(mut self) -> Result<Template, String> {
        self.parts.push(Part::Text(self.text));
        if self.parameters.len() > PARAMETERS_MAX {
            return Err(format!("more than {PARAMETERS_MAX} parameters"));
        }
        let sources = self
            .parameters
            .iter()
            .map(|(name, values)| Source::new(name, values));
        let sources = sources.collect::<Result<Vec<_>, _>>()?;
        let unused = self
            .parameters
            .keys()
            .zip(&self.used)
            .find(|(_, used)| !**used);
        if let Some((name, _)) = unused {
            return Err(format!(
                "the parameter `{name}` is not used; write {{{name}}} in path, headers or body"
            ));
        }
        let (first, before) = self.body.unwrap_or((self.parts.len(), 0));
        let mut template = Template {
            parts: vec![],
            sources,
            body_fixed_bytes: 0,
            body_values: vec![],
        };
        for part in &self.parts[first..] {
            match part {
                Part::Text(text) => template.body_fixed_bytes += text.len() as u64,
                Part::Value(index) => template.body_values.push(*index),
                Part::Length => {}
            }
        }
        template.body_fixed_bytes -= before as u64;
        self.parts
            .retain(|part| !matches!(part, Part::Text(text) if text.is_empty()));
        template.parts = self.parts;
        Ok(template)
    }
}
