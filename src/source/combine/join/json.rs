//! Finds the key in a JSON text. The rest of the text is parsed but not stored.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::field::Step;

/// Returns the key at the end of a path. The path begins at the member `member` of the value, or at
/// the value itself. `None` if the value is null or an empty text, or if there is no such value.
///
/// # Errors
///
/// A message if the text is not JSON, or if the value is neither a text nor an integer.
pub fn key(text: &[u8], member: Option<&str>, steps: &[Step]) -> Result<Option<String>, String> {
    let mut parser = serde_json::Deserializer::from_slice(text);
    let found = Find { member, steps }.deserialize(&mut parser);
    found.and_then(|key| parser.end().map(|()| key)).map_err(|error| {
        let text = error.to_string();
        match error.is_data() {
            // A position in the text would look like a position in the file.
            true => text.rsplit_once(" at line ").map_or(&*text, |(text, _)| text).into(),
            false => format!("is not in JSON: {text}"),
        }
    })
}

/// Message for a value that is no key.
pub fn unfit(found: &str) -> String {
    format!("is {found}; a key is a text or an integer")
}

/// The rest of the path to the key.
#[derive(Clone, Copy)]
struct Find<'p> {
    member: Option<&'p str>,
    steps: &'p [Step],
}

impl<'p> Find<'p> {
    /// Name of the member that the path leads to, and the path behind it.
    fn member(self) -> Option<(&'p str, Self)> {
        match (self.member, self.steps) {
            (Some(name), steps) => Some((name, Find { member: None, steps })),
            (None, [Step::Member(name), steps @ ..]) => Some((name, Find { member: None, steps })),
            _ => None,
        }
    }

    fn is_end(self) -> bool {
        self.member.is_none() && self.steps.is_empty()
    }

    fn end<E: Error>(self, key: Result<String, &str>) -> Result<Option<String>, E> {
        match key {
            _ if !self.is_end() => Err(E::custom(
                "is not at the path, because a value before it is neither an object nor an array",
            )),
            Ok(key) if key.is_empty() => Ok(None),
            Ok(key) => Ok(Some(key)),
            Err(found) => Err(E::custom(unfit(found))),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Find<'_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Option<String>, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Find<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or an integer")
    }

    fn visit_unit<E>(self) -> Result<Option<String>, E> {
        Ok(None)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Option<String>, E> {
        self.end(Ok(text.into()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Option<String>, E> {
        self.end(Ok(number.to_string()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Option<String>, E> {
        self.end(Ok(number.to_string()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Option<String>, E> {
        self.end(Err(&format!("the float {number}")))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Option<String>, E> {
        self.end(Err(&format!("the boolean {value}")))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Option<String>, A::Error> {
        let Some((wanted, rest)) = self.member() else {
            return Err(A::Error::custom(unfit("an object")));
        };
        let mut found = None;
        while let Some(name) = members.next_key::<String>()? {
            if name != wanted {
                members.next_value::<IgnoredAny>()?;
            } else if found.is_some() {
                let problem = format!("is ambiguous, because the member {wanted:?} is given twice");
                return Err(A::Error::custom(problem));
            } else {
                found = Some(members.next_value_seed(rest)?);
            }
        }
        Ok(found.flatten())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Option<String>, A::Error> {
        let (None, [Step::Entry(entry), steps @ ..]) = (self.member, self.steps) else {
            return Err(A::Error::custom(unfit("a list")));
        };
        let mut found = None;
        for number in 0_usize.. {
            let entry = match number == *entry {
                true => entries.next_element_seed(Find { member: None, steps })?,
                false => entries.next_element::<IgnoredAny>()?.map(|_| None),
            };
            match entry {
                None => break,
                Some(key) => found = found.or(key),
            }
        }
        Ok(found)
    }
}
