//! Count that is fixed, or that the loader chooses while it runs.

use std::fmt;

use serde::de::{self, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Count that is fixed, or that the loader chooses from measurements. In TOML: an integer or
/// `"auto"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// The loader chooses, within the plan's [`Bounds`](super::Bounds).
    Auto,
    /// Fixed number.
    Fixed(usize),
}

/// Largest allowed value of `loader.workers` and of `loader.prefetch`.
pub(super) const MOST: usize = 1024;

/// Description of the expected values, for error messages.
const WANTED: &str = "an integer from 1 up or \"auto\"";

impl Count {
    /// Returns the number if it is fixed.
    pub fn fixed(self) -> Option<usize> {
        match self {
            Count::Auto => None,
            Count::Fixed(number) => Some(number),
        }
    }
}

impl From<usize> for Count {
    fn from(number: usize) -> Self {
        Count::Fixed(number)
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Count::Auto => f.write_str("auto"),
            Count::Fixed(number) => number.fmt(f),
        }
    }
}

impl Serialize for Count {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Count::Auto => serializer.serialize_str("auto"),
            Count::Fixed(number) => number.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CountVisitor)
    }
}

struct CountVisitor;

impl Visitor<'_> for CountVisitor {
    type Value = Count;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(WANTED)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Count, E> {
        let number = usize::try_from(value);
        number.map(Count::Fixed).map_err(|_| E::invalid_value(Unexpected::Signed(value), &self))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Count, E> {
        let number = usize::try_from(value);
        number.map(Count::Fixed).map_err(|_| E::invalid_value(Unexpected::Unsigned(value), &self))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Count, E> {
        match value {
            "auto" => Ok(Count::Auto),
            other => Err(E::invalid_value(Unexpected::Str(other), &self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_round_trip_through_toml() {
        for (count, text) in [(Count::Auto, "\"auto\""), (Count::Fixed(4), "4")] {
            assert_eq!(serde_json::to_string(&count).unwrap(), text);
            assert_eq!(serde_json::from_str::<Count>(text).unwrap(), count);
            assert_eq!(count.to_string(), text.trim_matches('"'));
        }
        for (text, found) in [("\"4\"", "string \"4\""), ("-4", "integer `-4`"), ("null", "null")] {
            let words = serde_json::from_str::<Count>(text).unwrap_err().to_string();
            assert!(words.contains(found) && words.contains(WANTED), "{words}");
        }
    }
}
