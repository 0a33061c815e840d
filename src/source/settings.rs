//! Sources as a pipeline file names them.

use std::fmt::{self, Debug};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::{Sealed, Source};
use crate::error::{Error, Redacted, Result};
use crate::storage::{self, Storage};

/// A source that a pipeline file can name: a key of `[source]` with a path or a list of paths, and settings beside it.
pub trait Configured: Source + Sealed + Sized + 'static {
    /// The key.
    const KEY: &'static str;
    /// What stands beside the key; what is left out has its default.
    type Settings: Serialize + DeserializeOwned + Default + Clone + Debug + Send + Sync + 'static;

    /// Whether a folder of such files is one source too, and not a folder of images.
    const FOLDERS: bool = false;

    /// Whether a file of this name, which begins with these bytes, is one of this source's; `head` has the first
    /// [`HEAD_BYTES`], or all there are.
    fn recognises(name: &str, head: &[u8]) -> bool {
        let _ = (name, head);
        false
    }

    /// Makes paths in the settings, which are relative to the folder of a pipeline file where they stand in one, what they are
    /// elsewhere.
    fn relative_to(settings: &mut Self::Settings, base: &Path) {
        let _ = (settings, base);
    }

    /// Opens the source, and all its files through this handle.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] where a file cannot be read, [`Error::Config`] where paths or settings cannot be, or there are no
    /// samples.
    fn open_with(paths: &[PathBuf], settings: &Self::Settings, storage: &Storage) -> Result<Self>;

    /// As [`open_with`](Self::open_with), through a new handle with the default settings.
    fn open(paths: &[PathBuf], settings: &Self::Settings) -> Result<Self> {
        Self::open_with(paths, settings, &Storage::default())
    }
}

/// Bytes of a file by which it is recognised.
pub const HEAD_BYTES: usize = 1024;

/// `[source]`: which source, where it lies, and its settings.
#[derive(Clone, Debug)]
pub struct SourceSettings(pub(super) Arc<dyn Any>);

/// Settings of any source.
pub(super) trait Any: Debug + Send + Sync {
    fn key(&self) -> &'static str;
    fn paths(&self) -> &[PathBuf];
    fn table(&self) -> Result<Table>;
    fn open(&self, storage: &Storage) -> Result<Arc<dyn Source>>;
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

    /// The key that names the source, or `mixture` or `concat`.
    pub fn key(&self) -> &'static str {
        self.0.key()
    }

    /// Where it lies; nowhere where it is made of other sources.
    pub fn paths(&self) -> &[PathBuf] {
        self.0.paths()
    }

    /// The table under `[source]` that says the same, with every setting written out.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] where a value is beyond TOML: an integer of 2^63 or more, a path that is not Unicode.
    pub fn to_table(&self) -> Result<Table> {
        self.0.table()
    }

    /// Opens the source, through a new handle with the default settings.
    ///
    /// # Errors
    ///
    /// Those of [`Configured::open`].
    pub fn open(&self) -> Result<Arc<dyn Source>> {
        self.open_with(&Storage::default())
    }

    /// Opens the source, and all its files through this handle.
    ///
    /// # Errors
    ///
    /// Those of [`Configured::open`].
    pub fn open_with(&self, storage: &Storage) -> Result<Arc<dyn Source>> {
        storage::opening(|| self.0.open(storage))
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
        let place = match self.paths() {
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
}

pub(super) fn value(key: &str, from: &impl Serialize) -> Result<Value> {
    Value::try_from(from).map_err(|error| Error::config(key, error.to_string()))
}

/// The whole path of what a relative path means in the folder of a pipeline file; `None` where there is nothing of that name,
/// or the path is not relative.
#[cfg_attr(not(feature = "all-sources"), allow(dead_code, reason = "only some sources need it"))]
pub(super) fn beside(base: &Path, path: &Path) -> Option<PathBuf> {
    let relative = !path.as_os_str().is_empty() && path.is_relative() && !storage::is_url(path);
    let whole = relative.then(|| std::path::absolute(base.join(path)).ok()).flatten()?;
    whole.exists().then_some(whole)
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
