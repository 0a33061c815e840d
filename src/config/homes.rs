//! Sections in which settings stand, for settings that are written elsewhere.

use serde::de::{Deserialize, Deserializer, Error as _, Visitor, value};
use serde::forward_to_deserialize_any;

use super::SECTIONS;
use super::former;
use crate::op::NAMES;
use crate::op::combine::NAMES as COMBINATORS;
use crate::plan::Settings;
use crate::source::settings::JoinSettings;
use crate::source::{BadShards, COMBINATIONS, KEYS, OWN, Selection};

/// Suggestion for a setting that stands in another section than the one where it was found. `None`
/// if no section has a setting with this name.
pub fn of(key: &str) -> Option<String> {
    // A section and a setting of another section may have the same name, as `cache` does.
    if SECTIONS.contains(&key) {
        return None;
    }
    let is_same = |it: &&'static str| it.eq_ignore_ascii_case(key);
    let found = settings().into_iter().filter_map(|(section, keys)| {
        keys.into_iter().find(is_same).map(|key| (section, former::name(key)))
    });
    let found: Vec<_> = found.collect();
    let name = found.first()?.1;
    let sections: Vec<_> = found.iter().map(|(section, _)| format!("[{section}]")).collect();
    Some(format!("write {name} under {}", sections.join(" or ")))
}

/// Suggestion for the name of a section in another section. `None` if no section has this name.
pub fn section(key: &str) -> Option<String> {
    SECTIONS.into_iter().find(|section| *section == key && key != "device").map(|section| {
        let header = match section {
            "chain" | "batch_operators" | "column" | "view" => format!("[[{section}]]"),
            _ => format!("[{section}]"),
        };
        format!("{section} is a section of its own: write {header}")
    })
}

/// Suggestion for a setting of a view in a `[[column]]`. `full` is the whole key.
pub fn view(full: &str, key: &str) -> Option<&'static str> {
    let is_of_view = full.starts_with("column[") && ["chain", "count", "pixels"].contains(&key);
    is_of_view.then_some(VIEW)
}

/// Where a view stands in a pipeline file.
pub const VIEW: &str = "a view is a section of its own: write [[view]] instead of [[column]], \
                        without kind, and [[view.chain]] before each of its operators";

/// Suggestion for the name of an operator that stands outside of all sections. `None` if no
/// operator has this name.
pub fn operator(key: &str) -> Option<String> {
    let is_operator = NAMES.contains(&key) || COMBINATORS.contains(&key);
    is_operator.then(|| format!("write [[chain]] with op = \"{key}\""))
}

/// Every section with the keys of its settings, former names included.
fn settings() -> [(&'static str, Vec<&'static str>); 8] {
    let defaults = Settings::default();
    let Settings { device: _, loader, decode, output, targets, columns: _, cache, limits, storage } =
        &defaults;
    let source = KEYS
        .iter()
        .chain(&COMBINATIONS)
        .chain(&[OWN, BadShards::KEY, JoinSettings::KEY])
        .chain(&Selection::KEYS);
    [
        ("source", source.copied().collect()),
        ("loader", keys(loader)),
        ("decode", keys(decode)),
        ("output", keys(output)),
        ("targets", keys(targets)),
        ("cache", keys(cache)),
        ("limits", keys(limits)),
        ("storage", keys(storage)),
    ]
}

/// Keys of a section: the fields that its type asks a deserializer for.
fn keys<'de, T: Deserialize<'de>>(_: &T) -> Vec<&'static str> {
    let mut keys = Vec::new();
    // This deserializer only stores the fields, so it always returns an error.
    let _ = T::deserialize(Fields(&mut keys));
    keys
}

/// Deserializer that stores the names of a struct's fields.
struct Fields<'a>(&'a mut Vec<&'static str>);

impl<'de> Deserializer<'de> for Fields<'_> {
    type Error = value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, value::Error> {
        Err(value::Error::custom("not a struct"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, value::Error> {
        self.0.extend(fields);
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
