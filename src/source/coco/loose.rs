//! Values in the forms that annotation tools write: whole numbers as floats or texts, and null or
//! -1 for a missing value.

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::source::label::MOST_NAME_BYTES;

/// JSON value of any type. Floats that are whole numbers become integers.
#[derive(Default)]
pub enum Loose {
    #[default]
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    /// List or object.
    Nested,
}

/// Largest float up to which every whole number is exact.
const MOST_WHOLE: f64 = (1u64 << 53) as f64;

impl Loose {
    /// Returns the value as a number.
    pub fn float(&self) -> Option<f64> {
        match self {
            Loose::Integer(number) => Some(*number as f64),
            Loose::Float(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the value as a number of pixels. 0, null and -1 mean unknown and return 0.
    ///
    /// # Errors
    ///
    /// The error is a predicate for a message, such as "is -3".
    pub fn side(&self) -> Result<u32, String> {
        match self {
            Loose::Null | Loose::Integer(-1 | 0) => Ok(0),
            Loose::Integer(side) => u32::try_from(*side).map_err(|_| self.is()),
            _ => Err(self.is()),
        }
    }

    /// Returns the value as a flag. Null is false.
    ///
    /// # Errors
    ///
    /// The error is a predicate for a message, such as "is a list or an object".
    pub fn flag(&self) -> Result<bool, String> {
        match self {
            Loose::Null => Ok(false),
            Loose::Bool(flag) => Ok(*flag),
            Loose::Integer(number) => Ok(*number != 0),
            _ => Err(self.is()),
        }
    }

    /// Returns the value as a predicate for messages, such as "is null".
    pub fn is(&self) -> String {
        match self {
            Loose::Null => "is null".into(),
            Loose::Bool(flag) => format!("is {flag}"),
            Loose::Integer(number) => format!("is {number}"),
            Loose::Float(number) => format!("is {number}"),
            Loose::Text(text) => format!("is {text:?}"),
            Loose::Nested => "is a list or an object".into(),
        }
    }
}

/// IDs of one kind, such as image IDs. Either all are whole numbers or all are texts. Texts are
/// numbered in the order in which they occur.
#[derive(Default)]
pub struct Ids {
    texts: Vec<String>,
    numbers: HashMap<String, i64>,
    /// First ID that is a whole number, if there is one.
    number: Option<i64>,
}

impl Ids {
    /// Returns the number that stands for an ID: the ID itself, or the position of a text among the
    /// texts. Returns `None` if the ID is null.
    ///
    /// # Errors
    ///
    /// The error is a predicate for a message which states why the value is not an ID.
    pub fn number(&mut self, id: Loose) -> Result<Option<i64>, String> {
        let number = match id {
            Loose::Null => return Ok(None),
            Loose::Integer(number) => number,
            Loose::Text(text) => match text.parse::<i64>() {
                Ok(number) if number.to_string() == text => number,
                _ => return self.text(text).map(Some),
            },
            other => return Err(format!("{}; it must be a whole number or a string", other.is())),
        };
        if let Some(text) = self.texts.first() {
            let problem = format!("is the number {number}, but another id is the text {text:?}");
            return Err(format!("{problem}; make all ids numbers, or all ids texts"));
        }
        self.number.get_or_insert(number);
        Ok(Some(number))
    }

    fn text(&mut self, text: String) -> Result<i64, String> {
        if text.len() > MOST_NAME_BYTES {
            return Err(format!(
                "is a text of {} bytes; the maximum is {MOST_NAME_BYTES} bytes",
                text.len()
            ));
        }
        if let Some(number) = self.number {
            let problem = format!("is the text {text:?}, but another id is the number {number}");
            return Err(format!("{problem}; make all ids numbers, or all ids texts"));
        }
        if let Some(&number) = self.numbers.get(&text) {
            return Ok(number);
        }
        let number = self.texts.len() as i64;
        self.texts.push(text.clone());
        self.numbers.insert(text, number);
        Ok(number)
    }

    /// Whether the IDs are texts that are not numbers.
    pub fn are_texts(&self) -> bool {
        !self.texts.is_empty()
    }

    /// Returns the ID as text, without quotes.
    pub fn plain(&self, number: i64) -> String {
        let text = usize::try_from(number).ok().and_then(|number| self.texts.get(number));
        text.cloned().unwrap_or_else(|| number.to_string())
    }

    /// Returns the ID as the file contains it, for messages. Texts are quoted.
    pub fn written(&self, number: i64) -> String {
        match self.are_texts() {
            true => format!("{:?}", self.plain(number)),
            false => number.to_string(),
        }
    }
}

impl<'de> Deserialize<'de> for Loose {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(LooseVisitor)
    }
}

struct LooseVisitor;

impl<'de> Visitor<'de> for LooseVisitor {
    type Value = Loose;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Loose, E> {
        Ok(Loose::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Loose, E> {
        Ok(Loose::Bool(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Loose, E> {
        Ok(Loose::Integer(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Loose, E> {
        Ok(i64::try_from(number).map_or(Loose::Float(number as f64), Loose::Integer))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Loose, E> {
        Ok(match number.fract() == 0.0 && number.abs() <= MOST_WHOLE {
            true => Loose::Integer(number as i64),
            false => Loose::Float(number),
        })
    }

    fn visit_str<E>(self, text: &str) -> Result<Loose, E> {
        Ok(Loose::Text(text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Loose, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Loose::Nested)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Loose, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Loose::Nested)
    }
}
