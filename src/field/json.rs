//! Extracts one value from JSON text. The rest of the text is parsed but not stored.

use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::Step;
use super::format::unfit;
use super::number::Number;
use super::writer::{Writer, quoted};
use crate::error::DataError;

/// Writes the value at the end of a path. The path begins at the member `member` of the value, or
/// at the value itself. Returns false if the value is null or an empty text, or if an object or an
/// array on the path does not have the member or the entry.
pub fn write(
    text: &[u8],
    member: Option<&str>,
    path: &[Step],
    to: &mut Writer<'_>,
) -> Result<bool, DataError> {
    read(text, (member, path), &mut Cell { to, error: None })
}

/// Passes the value at the end of a path to `target`. `member` and `path` are as for [`write`].
/// Returns false if the value is missing.
pub fn read(
    text: &[u8],
    (member, path): (Option<&str>, &[Step]),
    target: &mut impl Target,
) -> Result<bool, DataError> {
    let mut parser = serde_json::Deserializer::from_slice(text);
    let value = Value { path: Path { member, steps: path }, target: &mut *target, in_all: false };
    let result = value.deserialize(&mut parser).and_then(|it| parser.end().map(|()| it));
    match (target.error().take(), result) {
        (Some(error), _) => Err(error),
        (None, Ok(found)) => Ok(found),
        (None, Err(problem)) if problem.is_data() => {
            // A position in the text of the field would look like a position in the file.
            let text = problem.to_string();
            Err(unfit(text.rsplit_once(" at line ").map_or(&*text, |(text, _)| text)))
        }
        (None, Err(problem)) => {
            // Python's `str` writes texts in single quotes.
            let start = text.trim_ascii_start();
            let is_python = [&b"{'"[..], b"['"].iter().any(|it| start.starts_with(it));
            let hint = if is_python { "; write it with json.dumps, not with str" } else { "" };
            Err(unfit(format!("is not JSON: {problem}{hint}")))
        }
    }
}

/// Whether a text is probably meant as a list of texts: valid JSON that begins with a bracket, or a
/// bracket and a quote. Other texts may begin with a bracket too, such as captions with `[sic]`.
pub fn may_be_texts(text: &[u8]) -> bool {
    let Some(inside) = text.trim_ascii_start().strip_prefix(b"[") else { return false };
    // What begins like a list of texts, but is not JSON, is a mistake of its writer.
    matches!(inside.trim_ascii_start().first(), Some(b'"' | b'\''))
        || serde_json::from_slice::<IgnoredAny>(text).is_ok()
}

/// Destination of the value at the end of a path.
pub trait Target {
    /// Takes the value. `in_all`: whether it is an entry of a list, because a step before was
    /// `[*]`. Returns false if the value is missing.
    fn take<'de, D: Deserializer<'de>>(&mut self, from: D, in_all: bool) -> Result<bool, D::Error>;

    /// Begins the list of a step `[*]`.
    fn enter(&mut self) -> Result<(), DataError>;

    /// Ends the list of a step `[*]`, which has `len` entries.
    fn leave(&mut self, len: usize) -> Result<(), DataError>;

    /// Error of the target. It is stored here, because errors of serde contain only a text.
    fn error(&mut self) -> &mut Option<DataError>;

    /// Converts a result of the target.
    fn result<T, E: serde::de::Error>(&mut self, result: Result<T, DataError>) -> Result<T, E> {
        result.map_err(|error| {
            *self.error() = Some(error);
            E::custom("the writer failed")
        })
    }
}

/// Cell that takes the value.
struct Cell<'w, 'a> {
    to: &'w mut Writer<'a>,
    error: Option<DataError>,
}

impl Target for Cell<'_, '_> {
    fn take<'de, D: Deserializer<'de>>(&mut self, from: D, in_all: bool) -> Result<bool, D::Error> {
        from.deserialize_any(Leaf { target: self, in_all, depth: 0 })
    }

    fn enter(&mut self) -> Result<(), DataError> {
        self.to.enter()
    }

    fn leave(&mut self, len: usize) -> Result<(), DataError> {
        self.to.leave(len)
    }

    fn error(&mut self) -> &mut Option<DataError> {
        &mut self.error
    }
}

/// The rest of a path.
#[derive(Clone, Copy)]
struct Path<'p> {
    member: Option<&'p str>,
    steps: &'p [Step],
}

/// First step of a path.
enum First<'p> {
    Member(&'p str),
    Entry(usize),
    All,
}

impl<'p> Path<'p> {
    fn split(self) -> Option<(First<'p>, Path<'p>)> {
        if let Some(name) = self.member {
            return Some((First::Member(name), Path { member: None, ..self }));
        }
        let (first, steps) = self.steps.split_first()?;
        let first = match first {
            Step::Member(name) => First::Member(name),
            Step::Entry(entry) => First::Entry(*entry),
            Step::All => First::All,
        };
        Some((first, Path { member: None, steps }))
    }
}

/// Follows a path through a JSON value to the value at its end.
struct Value<'p, 't, T> {
    path: Path<'p>,
    target: &'t mut T,
    /// Whether a step before was `[*]`.
    in_all: bool,
}

impl<'de, T: Target> DeserializeSeed<'de> for Value<'_, '_, T> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<bool, D::Error> {
        let Self { path, target, in_all } = self;
        match path.split() {
            None => target.take(from, in_all),
            Some((First::Member(name), path)) => {
                from.deserialize_any(Member { name, rest: Value { path, target, in_all } })
            }
            Some((First::Entry(entry), path)) => {
                from.deserialize_any(Entry { entry, rest: Value { path, target, in_all } })
            }
            Some((First::All, path)) => {
                from.deserialize_any(All { rest: Value { path, target, in_all: true } })
            }
        }
    }
}

impl<'p, T> Value<'p, '_, T> {
    fn again(&mut self) -> Value<'p, '_, T> {
        Value { path: self.path, target: &mut *self.target, in_all: self.in_all }
    }
}

/// Reads a member of an object.
struct Member<'p, 't, T> {
    name: &'p str,
    rest: Value<'p, 't, T>,
}

impl<'de, T: Target> Visitor<'de> for Member<'_, '_, T> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with the member {:?}", self.name)
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<bool, A::Error> {
        let mut found = None;
        while let Some(is_wanted) = members.next_key_seed(IsName(self.name))? {
            if !is_wanted {
                members.next_value::<IgnoredAny>()?;
                continue;
            }
            if found.is_some() {
                return Err(A::Error::custom(format!("the member {:?} is given twice", self.name)));
            }
            found = Some(members.next_value_seed(self.rest.again())?);
        }
        Ok(found.unwrap_or(false))
    }
}

/// Compares the name of a member without storing it.
struct IsName<'p>(&'p str);

impl<'de> DeserializeSeed<'de> for IsName<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<bool, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for IsName<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a member")
    }

    fn visit_str<E>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}

/// Reads an entry of an array.
struct Entry<'p, 't, T> {
    entry: usize,
    rest: Value<'p, 't, T>,
}

impl<'de, T: Target> Visitor<'de> for Entry<'_, '_, T> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array with the entry {}", self.entry)
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<bool, A::Error> {
        for _ in 0..self.entry {
            if entries.next_element::<IgnoredAny>()?.is_none() {
                return Ok(false);
            }
        }
        let found = entries.next_element_seed(self.rest)?.unwrap_or(false);
        while entries.next_element::<IgnoredAny>()?.is_some() {}
        Ok(found)
    }
}

/// Reads all entries of an array.
struct All<'p, 't, T> {
    rest: Value<'p, 't, T>,
}

impl<'de, T: Target> Visitor<'de> for All<'_, '_, T> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut entries: A) -> Result<bool, A::Error> {
        let entered = self.rest.target.enter();
        self.rest.target.result(entered)?;
        let mut len = 0;
        loop {
            match entries.next_element_seed(self.rest.again())? {
                None => break,
                Some(true) => len += 1,
                Some(false) => {
                    return Err(A::Error::custom(format!(
                        "entry {len} of the list is missing or null"
                    )));
                }
            }
        }
        let left = self.rest.target.leave(len);
        self.rest.target.result(left)?;
        Ok(true)
    }
}

/// Writes a value at the end of a path.
struct Leaf<'t, 'w, 'a> {
    target: &'t mut Cell<'w, 'a>,
    in_all: bool,
    /// Nesting depth of the value below the end of the path.
    depth: usize,
}

impl Leaf<'_, '_, '_> {
    fn number<E: serde::de::Error>(self, number: Number) -> Result<bool, E> {
        let written = self.target.to.number(number);
        self.target.result(written).map(|()| true)
    }
}

impl<'de> DeserializeSeed<'de> for Leaf<'_, '_, '_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<bool, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Leaf<'_, '_, '_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, a text or a list")
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<bool, E> {
        self.number(Number::Integer(value.into()))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<bool, E> {
        self.number(Number::Integer(value.into()))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<bool, E> {
        self.number(Number::Integer(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<bool, E> {
        self.number(Number::Float(value))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<bool, E> {
        let is_whole = self.depth == 0 && !self.in_all;
        if is_whole && text.is_empty() {
            return Ok(false);
        }
        let written = match is_whole || self.target.to.takes_lists_of_texts() {
            true => self.target.to.text(text),
            false => Err(self.target.to.mismatch(&quoted(text))),
        };
        self.target.result(written).map(|()| true)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<bool, A::Error> {
        let entered = self.target.enter();
        self.target.result(entered)?;
        let mut len = 0;
        loop {
            let Self { in_all, depth, .. } = self;
            let entry = Leaf { target: &mut *self.target, in_all, depth: depth + 1 };
            match entries.next_element_seed(entry)? {
                None => break,
                Some(true) => len += 1,
                Some(false) => {
                    return Err(A::Error::custom(format!("entry {len} of the list is null")));
                }
            }
        }
        let left = self.target.leave(len);
        self.target.result(left)?;
        Ok(true)
    }

    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<bool, A::Error> {
        Err(A::Error::custom(
            "the value is an object; name one of its members in field, after a colon",
        ))
    }
}
