//! Settings of combined sources in a pipeline file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::{Classed, Concat, Mixture, Repeat, Subset};
use crate::error::{Error, Result};
use crate::source::records::matches;
use crate::source::settings::{Any, Given, value};
use crate::source::{BadShards, ClassNames, ClassTable, Source, SourceSettings};
use crate::storage::{self, Storage};

/// Selection of samples: keys that are allowed next to any source key. The selections are applied
/// in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Selection {
    /// Class names in the order of their numbers, or the path of a file with the names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<ClassNames>,
    /// Map from class names to numbers. Next to the key `directory`, `class_to_index` is a setting
    /// of the directory source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class_to_index: Option<BTreeMap<String, i64>>,
    /// Conditions that a sample must meet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<FilterSettings>,
    /// Indices of the samples to select. The samples get the order of this list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subset: Option<Vec<u64>>,
    /// Number of samples to skip at the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip: Option<u64>,
    /// Maximum number of samples to select.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub take: Option<u64>,
    /// Number of repetitions of the selected samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat: Option<u64>,
}

/// Value of `filter`: conditions that a sample must all meet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FilterSettings {
    /// Labels to select. A sample is kept if its label is in this list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<i64>>,
    /// Names of the classes to select. A sample is kept if its class is in this list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<Vec<String>>,
    /// Pattern for the location of a sample: `*` matches any text, `?` any byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
}

/// One source of a mixture with its weight.
#[derive(Clone, Debug, PartialEq)]
pub struct PartSettings {
    /// Weight of the source. Only the ratios of weights matter. Default 1.
    pub weight: f64,
    /// The source.
    pub source: SourceSettings,
}

impl Selection {
    /// All keys of a selection in a pipeline file.
    pub const KEYS: [&str; 7] =
        ["classes", CLASS_TO_INDEX, "filter", "subset", "skip", "take", "repeat"];

    /// Resolves relative paths of a pipeline file against the folder `base`.
    pub fn relative_to(&mut self, base: &Path) {
        if let Some(ClassNames::File(path)) = &mut self.classes {
            *path = storage::join(base, path);
        }
    }

    /// Whether the selection depends on labels or locations, or changes labels.
    fn needs_labels(&self) -> bool {
        self.filter.is_some() || self.classes.is_some() || self.class_to_index.is_some()
    }

    /// Returns the table of classes, if one is set.
    fn table(&self, storage: &Storage) -> Result<Option<ClassTable>> {
        match (&self.classes, &self.class_to_index) {
            (Some(_), Some(_)) => {
                let problem = "and source.class_to_index are both set; remove one of them";
                Err(Error::config("source.classes", problem))
            }
            (Some(ClassNames::List(names)), None) => ClassTable::new(names).map(Some),
            (Some(ClassNames::File(path)), None) => ClassTable::read(path, storage).map(Some),
            (None, Some(indices)) => ClassTable::of_indices(indices).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Applies the selection to a source.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if no sample is left, or if a class or an index does not exist.
    /// [`Error::Io`] if the file of class names cannot be read.
    pub fn of(&self, mut source: Arc<dyn Source>, storage: &Storage) -> Result<Arc<dyn Source>> {
        if let Some(table) = self.table(storage)? {
            source = Arc::new(Classed::new(source, &table)?);
        }
        if let Some(filter) = &self.filter {
            source = Arc::new(filter.of(source)?);
        }
        if let Some(indices) = &self.subset {
            source = Arc::new(Subset::of(source, indices)?);
        }
        if let Some(samples) = self.skip {
            source = Arc::new(Subset::skip(source, samples)?);
        }
        if let Some(samples) = self.take {
            source = Arc::new(Subset::take(source, samples)?);
        }
        if let Some(times) = self.repeat {
            source = Arc::new(Repeat::new(source, times)?);
        }
        Ok(source)
    }
}

impl FilterSettings {
    fn of(&self, source: Arc<dyn Source>) -> Result<Subset> {
        if *self == Self::default() {
            let problem = "is empty; write labels, classes or location";
            return Err(Error::config("source.filter", problem));
        }
        let number = |(place, name): (usize, &String)| {
            let number = source.classes().iter().position(|class| class == name);
            number.map(|number| number as i64).ok_or_else(|| {
                let problem = match source.classes().len() {
                    0 => format!(
                        "is {name}, but the source has no class names; use source.filter.labels \
                         instead"
                    ),
                    count => {
                        format!("is {name}, which is not one of the {count} classes of the source")
                    }
                };
                Error::config(format!("source.filter.classes[{place}]"), problem)
            })
        };
        let of_classes = match &self.classes {
            Some(names) => Some(names.iter().enumerate().map(number).collect::<Result<Vec<_>>>()?),
            None => None,
        };
        let is_in =
            |list: &Option<Vec<i64>>, label| list.as_ref().is_none_or(|list| list.contains(&label));
        // Locations are computed only if there is a pattern, because computing them takes far
        // longer than the other conditions.
        let is_located = |index| {
            let pattern = self.location.as_ref();
            pattern.is_none_or(|it| matches(it.as_bytes(), source.location(index).as_bytes()))
        };
        let is_wanted = |&index: &u64| {
            let label = source.label(index);
            is_in(&self.labels, label) && is_in(&of_classes, label) && is_located(index)
        };
        let chosen = (0..source.len()).filter(is_wanted);
        let labels = match (&self.labels, &of_classes) {
            (Some(labels), Some(classes)) => {
                Some(labels.iter().copied().filter(|label| classes.contains(label)).collect())
            }
            (labels, classes) => labels.clone().or_else(|| classes.clone()),
        };
        Subset::listed("source.filter", source.clone(), chosen, labels)
    }
}

impl SourceSettings {
    /// Mixes sources by weights, see [`Mixture`]. `samples` is the length of the mixture.
    pub fn mixture(parts: Vec<PartSettings>, samples: Option<u64>) -> Self {
        Self(Arc::new(Combination::Mixture { parts, samples }))
    }

    /// Concatenates sources.
    pub fn concat(parts: Vec<SourceSettings>) -> Self {
        Self(Arc::new(Combination::Concat { parts }))
    }

    /// Applies a selection to this source.
    pub fn select(self, selection: Selection) -> Self {
        match selection == Selection::default() {
            true => self,
            false => Self(Arc::new(Selected { source: self, selection })),
        }
    }
}

/// Key of the setting that maps class names to numbers. The directory source has a setting with
/// this key too. If it is set, the source lists only the folders of these classes.
pub(crate) const CLASS_TO_INDEX: &str = "class_to_index";

/// Keys of combined sources.
pub(crate) const COMBINATIONS: [&str; 2] = ["mixture", "concat"];

/// Source with a selection.
#[derive(Debug)]
struct Selected {
    source: SourceSettings,
    selection: Selection,
}

impl Any for Selected {
    fn key(&self) -> &'static str {
        self.source.key()
    }

    fn paths(&self) -> &[PathBuf] {
        self.source.paths()
    }

    fn table(&self) -> Result<Table> {
        let mut table = self.source.to_table()?;
        if let Value::Table(keys) = value("source", &self.selection)? {
            table.extend(keys);
        }
        Ok(table)
    }

    fn open(&self, storage: &Storage) -> Result<Arc<dyn Source>> {
        self.selection.of(self.source.open_with(storage)?, storage)
    }

    fn open_fields(&self, storage: &Storage, _: BadShards) -> Result<Arc<dyn Source>> {
        let source = match self.selection.needs_labels() {
            true => self.source.open_with(storage)?,
            false => self.source.open_fields(storage)?,
        };
        self.selection.of(source, storage)
    }

    fn give(&self, given: &mut Given<'_>) -> Option<Arc<dyn Any>> {
        let source = self.source.given(given);
        Some(Arc::new(Self { source, selection: self.selection.clone() }))
    }
}

/// Combination of several sources.
#[derive(Debug)]
enum Combination {
    Mixture { parts: Vec<PartSettings>, samples: Option<u64> },
    Concat { parts: Vec<SourceSettings> },
}

impl Combination {
    /// Opens all parts with `open`, and combines them.
    fn combined(
        &self,
        open: impl Fn(&SourceSettings) -> Result<Arc<dyn Source>>,
    ) -> Result<Arc<dyn Source>> {
        let part = |(number, part): (usize, &SourceSettings)| {
            open(part).map_err(|error| within(error, &format!("{}[{number}]", self.key())))
        };
        Ok(match self {
            Combination::Concat { parts } => {
                let parts = parts.iter().enumerate().map(part).collect::<Result<_>>()?;
                Arc::new(Concat::new(parts)?)
            }
            Combination::Mixture { parts, samples } => {
                let opened = parts
                    .iter()
                    .enumerate()
                    .map(|(number, it)| Ok((part((number, &it.source))?, it.weight)));
                Arc::new(Mixture::new(opened.collect::<Result<_>>()?, *samples)?)
            }
        })
    }
}

impl Any for Combination {
    fn key(&self) -> &'static str {
        match self {
            Combination::Mixture { .. } => COMBINATIONS[0],
            Combination::Concat { .. } => COMBINATIONS[1],
        }
    }

    fn paths(&self) -> &[PathBuf] {
        &[]
    }

    fn table(&self) -> Result<Table> {
        let mut table = Table::new();
        let parts = match self {
            Combination::Concat { parts } => parts
                .iter()
                .map(|part| part.to_table().map(Value::Table))
                .collect::<Result<Vec<_>>>()?,
            Combination::Mixture { parts, samples } => {
                if let Some(samples) = samples {
                    table.insert("samples".into(), value("source.samples", samples)?);
                }
                let part = |part: &PartSettings| {
                    let mut table = part.source.to_table()?;
                    table.insert("weight".into(), Value::Float(part.weight));
                    Ok(Value::Table(table))
                };
                parts.iter().map(part).collect::<Result<Vec<_>>>()?
            }
        };
        table.insert(self.key().into(), Value::Array(parts));
        Ok(table)
    }

    fn open(&self, storage: &Storage) -> Result<Arc<dyn Source>> {
        self.combined(|part| part.open_with(storage))
    }

    fn open_fields(&self, storage: &Storage, _: BadShards) -> Result<Arc<dyn Source>> {
        self.combined(|part| part.open_fields(storage))
    }

    fn give(&self, given: &mut Given<'_>) -> Option<Arc<dyn Any>> {
        Some(Arc::new(match self {
            Combination::Concat { parts } => {
                Combination::Concat { parts: parts.iter().map(|it| it.given(given)).collect() }
            }
            Combination::Mixture { parts, samples } => {
                let part = |it: &PartSettings| PartSettings {
                    weight: it.weight,
                    source: it.source.given(given),
                };
                Combination::Mixture { parts: parts.iter().map(part).collect(), samples: *samples }
            }
        }))
    }
}

/// Adds the position of the failing part to the key of an error.
pub(super) fn within(error: Error, part: &str) -> Error {
    match error {
        Error::Config(mut error) => {
            if let Some(rest) = error.key.strip_prefix("source") {
                error.key = format!("source.{part}{rest}");
            }
            Error::Config(error)
        }
        error => error,
    }
}
