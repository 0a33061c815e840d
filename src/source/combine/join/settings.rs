//! Settings of joined sources in a pipeline file.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::Joined;
use crate::error::Result;
use crate::source::combine::settings::{Selection, within};
use crate::source::settings::{Any, Given, value};
use crate::source::{BadShards, CLASS_TO_INDEX, Configured, Directory, Source, SourceSettings};
use crate::storage::Storage;

/// Settings of a [`Joined`] source. In a pipeline file they are in `[source.join]`, beside the
/// second source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JoinSettings {
    /// Field of the first source with the key of a sample, a text or an integer. It may have a path
    /// into JSON: `meta:id`. Default: `__key__`, the own key of a sample, which is the name of its
    /// file without folder and last extension, or in `webdataset` the name in the archive up to the
    /// first dot of the last part, with folders. `__index__` is the index of a sample in its
    /// source, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Field of the second source with the key. Default: the same as `key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_key: Option<String>,
    /// Text before the names of the fields of the second source, such as `text.`. Default: empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// Handling of samples of the first source without a partner in the second one. Default `keep`.
    pub missing: MissingPartner,
}

/// Handling of samples of the first source whose key no sample of the second source has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum MissingPartner {
    /// The sample has no values of joined fields. Columns have their `default`, and without one the
    /// sample fails.
    #[default]
    Keep,
    /// The sample is left out when the source is opened, and counted.
    Drop,
}

impl JoinSettings {
    /// Key of a joined source in a pipeline file.
    pub(crate) const KEY: &'static str = "join";

    /// Keys beside the second source in a pipeline file.
    pub(crate) const KEYS: [&'static str; 4] = ["key", "other_key", "prefix", "missing"];
}

impl SourceSettings {
    /// Joins the fields of another source by key, see [`Joined`].
    pub fn join(self, other: SourceSettings, settings: JoinSettings) -> Self {
        let is_selected = self.to_table().is_ok_and(|table| {
            // `class_to_index` beside `directory` is a setting of this source.
            let is_selection =
                |key: &&&str| self.key() != Directory::KEY || **key != CLASS_TO_INDEX;
            Selection::KEYS.iter().filter(is_selection).any(|key| table.contains_key(*key))
        });
        // In a table of a pipeline file, a join precedes a selection.
        let source = if is_selected { Self::concat(vec![self]) } else { self };
        Self(Arc::new(Joining { source, other, settings }))
    }
}

/// A source with the fields of another one.
#[derive(Debug)]
struct Joining {
    source: SourceSettings,
    other: SourceSettings,
    settings: JoinSettings,
}

impl Joining {
    fn joined(&self, source: Arc<dyn Source>, storage: &Storage) -> Result<Arc<dyn Source>> {
        let other = self.other.open_fields(storage).map_err(|it| within(it, JoinSettings::KEY))?;
        Ok(Arc::new(Joined::new(source, other, &self.settings)?))
    }
}

impl Any for Joining {
    fn key(&self) -> &'static str {
        self.source.key()
    }

    fn paths(&self) -> &[PathBuf] {
        self.source.paths()
    }

    /// Several joins of one source are an array, in their order.
    fn table(&self) -> Result<Table> {
        let mut table = self.source.to_table()?;
        let mut join = self.other.to_table()?;
        if let Value::Table(settings) = value("source.join", &self.settings)? {
            join.extend(settings);
        }
        let joins = match table.remove(JoinSettings::KEY) {
            None => Value::Table(join),
            Some(Value::Array(before)) => {
                Value::Array(before.into_iter().chain([Value::Table(join)]).collect())
            }
            Some(before) => Value::Array(vec![before, Value::Table(join)]),
        };
        table.insert(JoinSettings::KEY.into(), joins);
        Ok(table)
    }

    fn open(&self, storage: &Storage) -> Result<Arc<dyn Source>> {
        self.joined(self.source.open_with(storage)?, storage)
    }

    fn open_fields(&self, storage: &Storage, _: BadShards) -> Result<Arc<dyn Source>> {
        self.joined(self.source.open_fields(storage)?, storage)
    }

    fn give(&self, given: &mut Given<'_>) -> Option<Arc<dyn Any>> {
        let (source, other) = (self.source.given(given), self.other.given(given));
        Some(Arc::new(Self { source, other, settings: self.settings.clone() }))
    }
}
