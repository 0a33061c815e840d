//! Sources as a pipeline file names them.

use std::fmt::{self, Debug};
use std::path::PathBuf;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::Source;
use crate::error::{Error, Result};

/// A source that a pipeline file can name: a key of `[source]` with a path or a list of paths, and settings beside it.
pub trait Configured: Source + Sized + 'static {
    /// The key.
    const KEY: &'static str;
    /// What stands beside the key; what is left out has its default.
    type Settings: Serialize + DeserializeOwned + Default + Clone + Debug + Send + Sync + 'static;

    /// Opens the source.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] where a file cannot be read, [`Error::Config`] where paths or settings cannot be, or there are no
    /// samples.
    fn open(paths: &[PathBuf], settings: &Self::Settings) -> Result<Self>;
}

/// The settings of a source that has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoSettings {}

/// `[source]`: which source, where it lies, and its settings.
#[derive(Clone, Debug)]
pub struct SourceSettings(Arc<dyn Any>);

/// Settings of any source.
trait Any: Debug + Send + Sync {
    fn key(&self) -> &'static str;
    fn paths(&self) -> &[PathBuf];
    fn settings(&self) -> Result<Table>;
    fn open(&self) -> Result<Arc<dyn Source>>;
}

struct Of<S: Configured> {
    paths: Vec<PathBuf>,
    settings: S::Settings,
}

impl SourceSettings {
    /// Of this type, at these paths.
    pub fn new<S: Configured>(paths: Vec<PathBuf>, settings: S::Settings) -> Self {
        Self(Arc::new(Of::<S> { paths, settings }))
    }

    /// The key that names the source.
    pub fn key(&self) -> &'static str {
        self.0.key()
    }

    /// Where it lies.
    pub fn paths(&self) -> &[PathBuf] {
        self.0.paths()
    }

    /// The table under `[source]` that says the same, with every setting written out.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] where a value is beyond TOML: an integer of 2^63 or more, a path that is not Unicode.
    pub fn to_table(&self) -> Result<Table> {
        let place = match self.paths() {
            [path] => value(self.key(), path)?,
            paths => value(self.key(), &paths)?,
        };
        let mut table = Table::from_iter([(self.key().to_string(), place)]);
        table.extend(self.0.settings()?);
        Ok(table)
    }

    /// Opens the source.
    ///
    /// # Errors
    ///
    /// Those of [`Configured::open`].
    pub fn open(&self) -> Result<Arc<dyn Source>> {
        self.0.open()
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
            .field("paths", &self.paths)
            .field("settings", &self.settings)
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

    fn settings(&self) -> Result<Table> {
        match value("source", &self.settings)? {
            Value::Table(table) => Ok(table),
            _ => Ok(Table::new()),
        }
    }

    fn open(&self) -> Result<Arc<dyn Source>> {
        Ok(Arc::new(S::open(&self.paths, &self.settings)?))
    }
}

fn value(key: &str, from: &impl Serialize) -> Result<Value> {
    Value::try_from(from).map_err(|error| Error::config(key, error.to_string()))
}

/// The path of a source that lies at one place.
pub(super) fn only<'a>(key: &str, paths: &'a [PathBuf]) -> Result<&'a PathBuf> {
    match paths {
        [path] => Ok(path),
        _ => {
            let problem = format!("takes one path, has {}", paths.len());
            Err(Error::config(format!("source.{key}"), problem))
        }
    }
}
