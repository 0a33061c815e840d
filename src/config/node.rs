//! Deserializer of TOML values. Its errors contain the full key and the data for a suggestion.

use std::collections::HashSet;
use std::fmt;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{
    DeserializeOwned, Deserializer, Error as _, Expected, IntoDeserializer, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_path_to_error::Track;
use toml::Value;

use super::equivalents;
use super::former;
use super::homes;
use super::ranges;
use crate::error::{Error, nearest};
use crate::op;

/// TOML value to deserialize.
pub struct Node(Value);

/// Deserializer that tracks the key of the value being read.
pub type Tracked<'a, 'b> = serde_path_to_error::Deserializer<'a, 'b, Node>;

/// Error in a TOML value. Its key is relative to the value that is being deserialized.
#[derive(Debug, Default)]
pub struct NodeError {
    path: String,
    text: String,
    /// Unknown key, and the known keys. [`NodeError::into_error`] formats the message.
    unknown: Option<(Box<str>, Vec<&'static str>)>,
    /// Operator whose settings are being read, if any.
    operator: Option<Box<str>>,
    /// The value that was found instead of an integer that is not negative.
    /// [`NodeError::into_error`] states the range of the setting.
    instead: Option<Box<str>>,
}

/// Deserializes a value.
pub fn read<T: DeserializeOwned>(value: Value) -> Result<T, NodeError> {
    read_with(value, |value| T::deserialize(value))
}

/// Deserializes a value with a function. Adds the tracked key to an error.
pub fn read_with<T>(
    value: Value,
    read: impl FnOnce(Tracked) -> Result<T, NodeError>,
) -> Result<T, NodeError> {
    let mut track = Track::new();
    let tracked = Tracked::new(Node(value), &mut track);
    read(tracked).map_err(|problem| match track.path() {
        path if path.iter().next().is_none() => problem,
        path => problem.at(&path.to_string()),
    })
}

/// Error for a key that is not in `known`.
pub fn unknown(key: &str, known: &[&'static str]) -> NodeError {
    NodeError {
        path: key.into(),
        unknown: Some((key.into(), known.to_vec())),
        ..NodeError::default()
    }
}

impl NodeError {
    /// Error for a choice that is not in `known`.
    pub fn unknown_choice(noun: &str, found: &str, known: &[&str]) -> Self {
        let found = &shortened(found);
        let is_view = || ["view", "image"].contains(&found.as_str()) && known.contains(&"mask");
        let text = match equivalents::choice(found, known).or_else(|| nearest(found, known)) {
            _ if is_view() => format!("unknown {noun} {found}; {}", homes::VIEW),
            Some(name) => {
                let name = former::choice(name, known);
                format!("unknown {noun} {found}, did you mean {name}?")
            }
            None => {
                let known = former::current(known).join(", ");
                format!("unknown {noun} {found}, choose one of {known}")
            }
        };
        Self::custom(text)
    }

    /// Error for an unknown operator. Suggests the nearest operator, or the equivalent of another
    /// library's operator.
    pub fn unknown_operator(found: &str) -> Self {
        let found = &shortened(found);
        match equivalents::operator(found) {
            Some(answer) => Self::custom(format!("unknown operator {found}; {answer}")),
            None => Self::unknown_choice("operator", found, op::NAMES),
        }
    }

    /// Sets the operator whose settings are being read.
    pub fn of_operator(mut self, name: &str) -> Self {
        self.operator = Some(name.into());
        self
    }

    /// Prefixes the error's key with the key of the table or list that contains the value.
    pub fn at(mut self, key: &str) -> Self {
        self.path = join(key, &self.path);
        self
    }

    /// Adds further names to the known keys that the message lists or suggests.
    pub fn or_known(mut self, more: &[&'static str]) -> Self {
        if let Some((_, known)) = &mut self.unknown {
            known.extend(more);
        }
        self
    }

    /// Converts to an error with the full key. `key` is the key of the value that was deserialized.
    pub fn into_error(self, key: &str) -> Error {
        let full = join(key, &self.path);
        let text = match (self.unknown, self.instead) {
            (Some((key, known)), _) => homes::view(&full, &key).map_or_else(
                || unknown_key(&key, &known, self.operator.as_deref(), !full.contains('.')),
                |answer| format!("unknown key; {answer}"),
            ),
            (None, Some(found)) => match ranges::wanted(&full) {
                Some(wanted) => format!("must be {wanted}, is {found}"),
                None => self.text,
            },
            (None, None) => self.text,
        };
        Error::config(full, text)
    }
}

/// Error message for an unknown key. `is_top` states whether it stands outside of all sections.
fn unknown_key(key: &str, known: &[&'static str], operator: Option<&str>, is_top: bool) -> String {
    if let Some(name) = known.iter().find(|it| it.eq_ignore_ascii_case(key)) {
        return format!("unknown key, did you mean {}?", former::name(name));
    }
    let elsewhere = || match is_top {
        true => homes::operator(key),
        false => homes::section(key),
    };
    let answer = homes::of(key).or_else(|| equivalents::key(key, operator)).or_else(elsewhere);
    match answer {
        Some(answer) => format!("unknown key; {answer}"),
        None => match nearest(key, known) {
            Some(name) => format!("unknown key, did you mean {}?", former::name(name)),
            None => {
                let mut seen = HashSet::new();
                let is_first = |it: &&'static str| former::name(it) == *it && seen.insert(*it);
                let known: Vec<_> = known.iter().copied().filter(is_first).collect();
                format!("unknown key, the known keys are {}", known.join(", "))
            }
        },
    }
}

/// Text from the file, shortened and without control characters, for a message.
fn shortened(text: &str) -> String {
    const MOST: usize = 80;
    let printable = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
    let mut short: String = printable.take(MOST).collect();
    if text.chars().count() > MOST {
        short.push('…');
    }
    short
}

/// Joins the key of a table or list and the key of a value inside of it.
pub fn join(key: &str, path: &str) -> String {
    match (key.is_empty(), path.is_empty(), path.starts_with('[')) {
        (true, _, _) => path.into(),
        (_, true, _) => key.into(),
        (_, _, true) => format!("{key}{path}"),
        _ => format!("{key}.{path}"),
    }
}

/// Name of a value's type, for messages.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Array(_) => "a list",
        Value::Table(_) => "a table",
        other => other.type_str(),
    }
}

impl IntoDeserializer<'_, NodeError> for Node {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.text)
    }
}

impl std::error::Error for NodeError {}

impl serde::de::Error for NodeError {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self { text: text.to_string(), ..Self::default() }
    }

    fn invalid_type(found: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        let is_unsigned = ["u32", "u64", "usize"].contains(&wanted.to_string().as_str());
        let wanted = match wanted.to_string().as_str() {
            "u32" => format!("an integer from 0 to {}", u32::MAX),
            "u64" | "usize" => "an integer from 0 up".to_string(),
            "i64" => "an integer".to_string(),
            "f32" | "f64" => "a number".to_string(),
            "a sequence" => "a list".to_string(),
            "path string" => "a path".to_string(),
            other if other.starts_with("struct ") || other == "a map" => "a table".to_string(),
            other => other.to_string(),
        };
        let found = match found {
            Unexpected::Str(text) => format!("string {:?}", shortened(text)),
            Unexpected::Seq => "a list".to_string(),
            Unexpected::Map => "a table".to_string(),
            found => found.to_string(),
        };
        let text = format!("must be {wanted}, is {found}");
        Self { instead: is_unsigned.then(|| found.into()), ..Self::custom(text) }
    }

    fn invalid_value(found: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        Self::invalid_type(found, wanted)
    }

    fn invalid_length(len: usize, wanted: &dyn Expected) -> Self {
        // serde's text for a list that is too long is "3 elements in sequence".
        let wanted = wanted.to_string();
        let wanted = wanted.trim_end_matches(" in sequence");
        Self::custom(format!("must be {wanted}, but has the length {len}"))
    }

    fn unknown_variant(found: &str, known: &'static [&'static str]) -> Self {
        Self::unknown_choice("choice", found, known)
    }

    /// The tracked path already ends with the unknown key, so the path in this error is empty.
    fn unknown_field(key: &str, known: &'static [&'static str]) -> Self {
        Self { path: String::new(), ..unknown(key, known) }
    }

    fn duplicate_field(key: &'static str) -> Self {
        Self::custom(former::twice(key)).at(key)
    }

    fn missing_field(key: &'static str) -> Self {
        Self::custom("is missing").at(key)
    }
}

impl<'de> Deserializer<'de> for Node {
    type Error = NodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NodeError> {
        match self.0 {
            Value::String(text) => visitor.visit_string(text),
            Value::Integer(value) => visitor.visit_i64(value),
            Value::Float(value) => visitor.visit_f64(value),
            Value::Boolean(value) => visitor.visit_bool(value),
            Value::Datetime(value) => {
                Err(NodeError::invalid_type(Unexpected::Other(&format!("date {value}")), &visitor))
            }
            Value::Array(values) => {
                let mut elements = SeqDeserializer::new(values.into_iter().map(Node));
                let read = visitor.visit_seq(&mut elements)?;
                // The visitor of an array ignores further elements.
                elements.end()?;
                Ok(read)
            }
            Value::Table(table) => {
                let entries = table.into_iter().map(|(key, value)| (key, Node(value)));
                visitor.visit_map(MapDeserializer::new(entries))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NodeError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, NodeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, NodeError> {
        match self.0 {
            Value::String(text) => visitor.visit_enum(text.into_deserializer()),
            other => {
                let (known, found) = (former::current(known).join(", "), type_name(&other));
                Err(NodeError::custom(format!("must be one of {known}, is {found}")))
            }
        }
    }

    /// Structs that derive `Deserialize` also accept lists, and read the fields by their order. A
    /// pipeline file names every setting.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, NodeError> {
        match self.0 {
            Value::Array(_) => Err(NodeError::invalid_type(Unexpected::Seq, &"a table")),
            _ => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}
