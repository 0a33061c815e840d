//! Keys of samples: the values by which two sources are joined.

use std::fmt::Display;

use super::json::{self, unfit};
use crate::error::{DataError, Error, Reason, Result};
use crate::field::numpy::Numbers;
use crate::field::{FieldPath, FieldValue, Flat, Step};
use crate::source::Source;

/// Name that stands for the own key of a sample, in place of a field.
pub const OWN_KEY: &str = "__key__";

/// Name that stands for the index of a sample, in place of a field.
pub const INDEX_KEY: &str = "__index__";

/// Longest key in bytes. Keys are paths, names and numbers.
const MOST_BYTES: usize = 8 << 10;

/// Largest size of a text or a file with a key in bytes, while a source is opened.
pub const MOST_FIELD_BYTES: u64 = 16 << 20;

/// Where a source has the keys of its samples.
pub enum Key {
    /// The own key of a sample, [`Identity::key`](crate::source::custom::Identity::key).
    Own,
    /// The index of a sample in its source, from 0.
    Index,
    /// A field, with a path into its value if it is JSON.
    Field { name: String, steps: Vec<Step> },
}

impl Key {
    /// Parses the setting `setting`, and checks that the source has such keys.
    pub fn new(source: &dyn Source, text: Option<&str>, setting: &str) -> Result<Self> {
        let wrong = |problem: String| Error::config(setting, problem);
        let schema = source.schema();
        // A field that the user names is the key, even if it is called like the own key.
        let is_field = schema.iter().any(|field| field.name == OWN_KEY);
        let Some(text) = text.filter(|text| *text != OWN_KEY || is_field) else {
            let first = (!source.is_empty()).then(|| source.key(0)).transpose();
            return match first.map(Option::flatten) {
                Ok(Some(_)) => Ok(Self::Own),
                Ok(None) => Err(wrong(format!(
                    "is the own key of each sample, but {}; name the field with the key, or write \
                     {INDEX_KEY:?} for the index of a sample. The fields are {}",
                    keyless(source),
                    listed(schema.iter().map(|field| &field.name))
                ))),
                Err(error) => {
                    let (location, problem) = (source.location(0), error.problem);
                    Err(wrong(format!("cannot be read from {location}: {problem}")))
                }
            };
        };
        if text == INDEX_KEY {
            return Ok(Self::Index);
        }
        let count = |name: &str| schema.iter().filter(|field| field.name == name).count();
        // A field whose own name contains a colon has precedence over a path.
        let (name, steps) = match count(text) {
            0 => {
                let path: FieldPath = text.parse().map_err(wrong)?;
                (path.name, path.steps)
            }
            _ => (text.to_string(), Vec::new()),
        };
        if steps.contains(&Step::All) {
            return Err(wrong(format!("is {text:?}; a key is one value, so it cannot have [*]")));
        }
        match count(&name) {
            1 => Ok(Self::Field { name, steps }),
            0 => Err(wrong(format!(
                "is {text:?}, but the fields of {} are {}",
                source.describe(),
                listed(schema.iter().map(|field| &field.name))
            ))),
            _ => Err(wrong(format!(
                "is {text:?}, but {} has it twice; rename one of the fields",
                source.describe()
            ))),
        }
    }

    /// Name of the field that is the key. `None` if it is only a part of the field.
    pub fn field(&self) -> Option<&str> {
        match self {
            Key::Field { name, steps } if steps.is_empty() => Some(name),
            _ => None,
        }
    }

    /// Name of the field that contains the key.
    pub fn within(&self) -> Option<&str> {
        match self {
            Key::Field { name, .. } => Some(name),
            Key::Own | Key::Index => None,
        }
    }

    /// Reads the key of a sample. `None` if it has none.
    pub fn read(
        &self,
        source: &dyn Source,
        index: u64,
        buffer: &mut Vec<u8>,
        limit: u64,
    ) -> Result<Option<String>, DataError> {
        match self {
            Key::Own => source.key(index).and_then(checked),
            Key::Index => Ok(Some(index.to_string())),
            Key::Field { name, .. } => {
                let Some(fields) = source.fields() else { return Ok(None) };
                let mut key = None;
                fields.read_fields(index, &[name], buffer, limit, &mut |_, value| {
                    key = self.of_value(value)?;
                    Ok(())
                })?;
                Ok(key)
            }
        }
    }

    /// Converts a value of the field to a key. `None` if it has none.
    pub fn of_value(&self, value: FieldValue<'_>) -> Result<Option<String>, DataError> {
        let Key::Field { name, steps } = self else { return Ok(None) };
        let key = text_of(value, steps).map_err(|problem| {
            DataError::new(Reason::Field, format!("the key in the field {name:?} {problem}"))
        })?;
        checked(key)
    }
}

/// Why the first sample of a source has no own key. A sample with a file of its own has one, unless
/// the name of the file is not UTF-8.
fn keyless(source: &dyn Source) -> String {
    let first = (!source.is_empty()).then(|| source.part(0));
    let path = first.and_then(|(part, index)| part.identity()?.path(index));
    match path {
        Some(_) => format!("the file name of {} is not UTF-8", source.location(0)),
        None => format!("the samples of {} have no own key", source.describe()),
    }
}

/// Returns an error for a key that is too long.
fn checked(key: Option<String>) -> Result<Option<String>, DataError> {
    match key {
        Some(key) if key.len() > MOST_BYTES => {
            let len = key.len();
            let problem = format!("the key has {len} bytes; the maximum is {MOST_BYTES} bytes");
            Err(DataError::new(Reason::Field, problem))
        }
        key => Ok(key),
    }
}

/// Converts a value to a key. An integer is written in decimal digits, so it equals the text with
/// these digits.
fn text_of(value: FieldValue<'_>, steps: &[Step]) -> Result<Option<String>, String> {
    match value {
        FieldValue::Json(text) if text.trim_ascii().is_empty() => Ok(None),
        FieldValue::Json(text) => json::key(text, None, steps),
        FieldValue::JsonMember(text, name) => json::key(text, Some(name), steps),
        FieldValue::Text(text) if !steps.is_empty() => match text.trim().is_empty() {
            true => Ok(None),
            false => json::key(text.as_bytes(), None, steps),
        },
        _ if !steps.is_empty() => Err("is not JSON, so the path leads nowhere".into()),
        FieldValue::Text("") | FieldValue::Bytes([]) => Ok(None),
        FieldValue::Text(text) => Ok(Some(text.into())),
        FieldValue::Bytes(bytes) => match str::from_utf8(bytes) {
            Ok(text) => Ok(Some(text.into())),
            Err(_) => Err(unfit("bytes that are not UTF-8")),
        },
        FieldValue::Integer(number) => Ok(Some(number.to_string())),
        FieldValue::Integers(&[number]) | FieldValue::Tensor(Flat::Integers(&[number]), _) => {
            Ok(Some(number.to_string()))
        }
        FieldValue::Tensor(Flat::Bytes(&[number]), _) => Ok(Some(number.to_string())),
        FieldValue::Array(file) => {
            let array = Numbers::parse(file).map_err(|error| error.problem)?;
            array.only_integer().map(Some).ok_or_else(|| unfit("an array of numbers"))
        }
        FieldValue::Float(number) => Err(unfit(&format!("the float {number}"))),
        FieldValue::Floats(&[number]) => Err(unfit(&format!("the float {number}"))),
        FieldValue::Doubles(&[number]) => Err(unfit(&format!("the float {number}"))),
        _ => Err(unfit("a list of numbers")),
    }
}

/// At most 20 names, for messages.
pub fn listed(names: impl ExactSizeIterator<Item = impl Display>) -> String {
    const MOST: usize = 20;
    let count = names.len();
    let shown: Vec<String> = names.take(MOST).map(|name| name.to_string()).collect();
    match count {
        0 => "none".into(),
        1..=MOST => shown.join(", "),
        _ => format!("{} and {} more", shown.join(", "), count - MOST),
    }
}
