//! Values of settings: counts that may be chosen by the loader, and policies.

use std::fmt;

use serde::de::{self, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Count that is fixed, or that the loader chooses from measurements. In TOML an integer or
/// `"auto"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoCount {
    /// The loader chooses, within the plan's [`Bounds`](super::Bounds).
    Auto,
    /// Fixed number.
    Fixed(usize),
}

/// Maximum of `loader.num_workers` and `loader.prefetch`.
pub(super) const MOST: usize = 1024;

/// Expected values, for messages.
const WANTED: &str = "an integer from 1 to 1024 or \"auto\"";

impl AutoCount {
    /// Returns the number if the count is fixed, else `None`.
    pub fn fixed(self) -> Option<usize> {
        match self {
            AutoCount::Auto => None,
            AutoCount::Fixed(number) => Some(number),
        }
    }
}

impl From<usize> for AutoCount {
    fn from(number: usize) -> Self {
        AutoCount::Fixed(number)
    }
}

impl fmt::Display for AutoCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AutoCount::Auto => f.write_str("auto"),
            AutoCount::Fixed(number) => number.fmt(f),
        }
    }
}

impl Serialize for AutoCount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            AutoCount::Auto => serializer.serialize_str("auto"),
            AutoCount::Fixed(number) => number.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for AutoCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AutoCountVisitor)
    }
}

struct AutoCountVisitor;

impl Visitor<'_> for AutoCountVisitor {
    type Value = AutoCount;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(WANTED)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<AutoCount, E> {
        let number = usize::try_from(value);
        number.map(AutoCount::Fixed).map_err(|_| E::invalid_value(Unexpected::Signed(value), &self))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<AutoCount, E> {
        let number = usize::try_from(value);
        number
            .map(AutoCount::Fixed)
            .map_err(|_| E::invalid_value(Unexpected::Unsigned(value), &self))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<AutoCount, E> {
        match value {
            "auto" => Ok(AutoCount::Auto),
            other => Err(E::invalid_value(Unexpected::Str(other), &self)),
        }
    }
}

/// Handling of the samples that do not fill the last batch of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum LastBatch {
    /// The samples are dropped. With several shards, even more samples may be dropped, because all
    /// shards must have the same number of samples.
    #[default]
    Drop,
    /// The shard's last sample is repeated until the batch is full. The repeated samples are marked
    /// as padding. All shards are padded to the same number of batches.
    Pad,
    /// The samples form a smaller batch.
    Partial,
}

/// Handling of unusable samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OnError {
    /// The loader ends with the sample's error.
    #[default]
    Stop,
    /// Another sample, chosen by (seed, epoch, index), replaces the unusable one. Batches stay
    /// full, and no other sample changes its position.
    Skip,
    /// Zeros replace the unusable sample. Its label is `ignore_label`, and the sample is marked.
    Substitute,
    /// The unusable sample is removed, so its batch is shorter. A batch without samples is skipped.
    /// Not allowed with batch operators, which need pairs of samples.
    Drop,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_round_trip_through_toml() {
        for (count, text) in [(AutoCount::Auto, "\"auto\""), (AutoCount::Fixed(4), "4")] {
            assert_eq!(serde_json::to_string(&count).unwrap(), text);
            assert_eq!(serde_json::from_str::<AutoCount>(text).unwrap(), count);
            assert_eq!(count.to_string(), text.trim_matches('"'));
        }
        for (text, found) in [("\"4\"", "string \"4\""), ("-4", "integer `-4`"), ("null", "null")] {
            let words = serde_json::from_str::<AutoCount>(text).unwrap_err().to_string();
            assert!(words.contains(found) && words.contains(WANTED), "{words}");
        }
    }
}
