//! Settings of sources in a pipeline file.

use std::fmt::{self, Debug};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use toml::{Table, Value};

use super::configured::Configured;
use super::{BadShards, Source};
use crate::error::{Error, Redacted, Result};
use crate::storage::{self, Storage};

#[cfg(feature = "beton")]
pub use super::beton::BetonSettings;
#[cfg(feature = "coco")]
pub use super::coco::CocoSettings;
pub use super::combine::{JoinSettings, MissingPartner};
pub use super::directory::DirectorySettings;
pub use super::label::LabelSort;
pub use super::list::{FileListSettings, ListFormat};
#[cfg(feature = "lmdb")]
pub use super::lmdb::{LmdbSettings, LmdbValues};
#[cfg(feature = "npy")]
pub use super::npy::NpySettings;
#[cfg(feature = "parquet")]
pub use super::parquet::ParquetSettings;
#[cfg(feature = "recordio")]
pub use super::recordio::{RecordIoLabel, RecordIoSettings};
#[cfg(feature = "tfrecord")]
pub use super::tfrecord::TfRecordSettings;
pub use super::webdataset::WebDatasetSettings;

/// Value of `[source]`: the source, its paths and its settings.
#[derive(Clone, Debug)]
pub struct SourceSettings(pub(super) Arc<dyn Any>);

/// Function that returns the custom source of the program with a given name.
pub(super) type Given<'a> = dyn FnMut(&str) -> Option<Arc<dyn Source>> + 'a;

/// Settings of a source of any type.
pub(super) trait Any: Debug + Send + Sync {
    fn key(&self) -> &'static str;
    fn paths(&self) -> &[PathBuf];
    fn table(&self) -> Result<Table>;
    fn open(&self, storage: &Storage) -> Result<Arc<dyn Source>>;

    /// Opens the source with a policy for bad shards. By default, a policy is an error, for sources
    /// without shards.
    fn open_shards(&self, storage: &Storage, bad: BadShards) -> Result<Arc<dyn Source>> {
        bad.check_unset(self.key())?;
        self.open(storage)
    }

    /// Opens the source for its fields and keys only, as in [`Configured::open_fields`]. The
    /// default opens it as usual.
    fn open_fields(&self, storage: &Storage, bad: BadShards) -> Result<Arc<dyn Source>> {
        match bad {
            BadShards::Error => self.open(storage),
            bad => self.open_shards(storage, bad),
        }
    }

    /// Returns the same settings with custom sources of the program, which `given` returns by name.
    /// `None`, the default, if the settings name no custom source.
    fn give(&self, given: &mut Given<'_>) -> Option<Arc<dyn Any>> {
        let _ = given;
        None
    }
}

struct Of<S: Configured> {
    paths: Vec<PathBuf>,
    settings: S::Settings,
}

impl SourceSettings {
    /// Settings for a source of type `S` at these paths.
    pub fn new<S: Configured>(paths: Vec<PathBuf>, settings: S::Settings) -> Self {
        Self(Arc::new(Of::<S> { paths, settings }))
    }

    /// Returns the settings with a policy for bad shards.
    pub fn on_bad_shard(self, policy: BadShards) -> Self {
        match policy {
            BadShards::Error => self,
            policy => Self(Arc::new(Tolerant { source: self, policy })),
        }
    }

    /// Key of the source, or `mixture`, `concat` or `own`.
    pub fn key(&self) -> &'static str {
        self.0.key()
    }

    /// Paths of the source; empty if it combines other sources or is a custom source of the
    /// program.
    pub fn paths(&self) -> &[PathBuf] {
        self.0.paths()
    }

    /// Converts to the equivalent TOML table under `[source]`, which contains every setting.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if TOML cannot represent a value, which applies to integers of 2^63 or
    /// more. A path that is not Unicode is written as a `file://` URL.
    pub fn to_table(&self) -> Result<Table> {
        self.0.table()
    }

    /// Opens the source through a new storage handle with default settings.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Configured::open`].
    pub fn open(&self) -> Result<Arc<dyn Source>> {
        self.open_with(&Storage::default())
    }

    /// Opens the source. All its files are read through this storage handle.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Configured::open`].
    pub fn open_with(&self, storage: &Storage) -> Result<Arc<dyn Source>> {
        storage::opening(|| self.0.open(storage))
    }

    /// Opens the source like [`open_with`](Self::open_with), for its fields and keys only.
    pub(super) fn open_fields(&self, storage: &Storage) -> Result<Arc<dyn Source>> {
        storage::opening(|| self.0.open_fields(storage, BadShards::Error))
    }

    /// Returns the settings with the custom sources that `given` returns by name.
    pub(super) fn given(&self, given: &mut Given<'_>) -> Self {
        self.0.give(given).map_or_else(|| self.clone(), Self)
    }
}

impl PartialEq for SourceSettings {
    fn eq(&self, other: &Self) -> bool {
        matches!((self.to_table(), other.to_table()), (Ok(one), Ok(two)) if one == two)
    }
}

impl<S: Configured> Debug for Of<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(S::KEY)
            .field("paths", &self.paths.iter().map(|it| Redacted::path(it)).collect::<Vec<_>>())
            .field("settings", &format_args!("{}", Redacted::new(format!("{:?}", self.settings))))
            .finish()
    }
}

impl<S: Configured> Any for Of<S> {
    fn key(&self) -> &'static str {
        S::KEY
    }

    fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    fn table(&self) -> Result<Table> {
        let paths: Vec<PathBuf> = self.paths().iter().map(|it| storage::written_path(it)).collect();
        let place = match &paths[..] {
            [path] => value(self.key(), path)?,
            paths => value(self.key(), &paths)?,
        };
        let mut table = Table::from_iter([(self.key().to_string(), place)]);
        if let Value::Table(settings) = value("source", &self.settings)? {
            table.extend(settings);
        }
        Ok(table)
    }

    fn open(&self, storage: &Storage) -> Result<Arc<dyn Source>> {
        Ok(Arc::new(S::open_with(&self.paths, &self.settings, storage)?))
    }

    fn open_shards(&self, storage: &Storage, bad: BadShards) -> Result<Arc<dyn Source>> {
        Ok(Arc::new(S::open_shards(&self.paths, &self.settings, storage, bad)?))
    }

    fn open_fields(&self, storage: &Storage, bad: BadShards) -> Result<Arc<dyn Source>> {
        Ok(Arc::new(S::open_fields(&self.paths, &self.settings, storage, bad)?))
    }
}

/// Settings of a source with a policy for bad shards.
#[derive(Debug)]
struct Tolerant {
    source: SourceSettings,
    policy: BadShards,
}

impl Any for Tolerant {
    fn key(&self) -> &'static str {
        self.source.key()
    }

    fn paths(&self) -> &[PathBuf] {
        self.source.paths()
    }

    fn table(&self) -> Result<Table> {
        let mut table = self.source.to_table()?;
        table.insert(BadShards::KEY.into(), self.policy.name().into());
        Ok(table)
    }

    fn open(&self, storage: &Storage) -> Result<Arc<dyn Source>> {
        self.source.0.open_shards(storage, self.policy)
    }

    fn open_fields(&self, storage: &Storage, _: BadShards) -> Result<Arc<dyn Source>> {
        self.source.0.open_fields(storage, self.policy)
    }

    fn give(&self, given: &mut Given<'_>) -> Option<Arc<dyn Any>> {
        Some(Arc::new(Self { source: self.source.given(given), policy: self.policy }))
    }
}

pub(super) fn value(key: &str, from: &impl Serialize) -> Result<Value> {
    Value::try_from(from).map_err(|error| Error::config(key, error.to_string()))
}

/// Resolves a relative path against the folder of a pipeline file. Returns `None` if the path is
/// not relative, or if nothing exists at the result.
#[cfg_attr(not(feature = "all-sources"), allow(dead_code, reason = "only some sources need it"))]
pub(super) fn beside(base: &Path, path: &Path) -> Option<PathBuf> {
    let relative = !path.as_os_str().is_empty() && path.is_relative() && !storage::is_url(path);
    let whole = relative.then(|| std::path::absolute(base.join(path)).ok()).flatten()?;
    whole.exists().then_some(whole)
}

/// Returns the path of a source that accepts exactly one path.
pub(super) fn only<'a>(key: &str, paths: &'a [PathBuf]) -> Result<&'a PathBuf> {
    match paths {
        [path] => Ok(path),
        _ => {
            let problem = format!("takes one path, has {}", paths.len());
            Err(Error::config(format!("source.{key}"), problem))
        }
    }
}
