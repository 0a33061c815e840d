//! Sources that a pipeline file can name.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Source;
use super::bad_shards::BadShards;
use super::page::Sealed;
use crate::error::Result;
use crate::storage::Storage;

/// Source that a pipeline file can name: a key of `[source]` with one path or a list of paths, and
/// settings next to the key.
pub trait Configured: Source + Sealed + Sized + 'static {
    /// Key of the source.
    const KEY: &'static str;
    /// Settings next to the key. Settings that are omitted have their defaults.
    type Settings: Serialize + DeserializeOwned + Default + Clone + Debug + Send + Sync + 'static;

    /// Whether a folder with files of this format is opened as this source. If not, the folder is
    /// opened as a folder of images.
    const FOLDERS: bool = false;

    /// Whether this source can read a file, according to its name and first bytes. `head` is the
    /// first [`HEAD_BYTES`] bytes, or the whole file if it is shorter.
    fn recognises(name: &str, head: &[u8]) -> bool {
        let _ = (name, head);
        false
    }

    /// Resolves relative paths in the settings of a pipeline file against `base`, the folder of the
    /// file.
    fn relative_to(settings: &mut Self::Settings, base: &Path) {
        let _ = (settings, base);
    }

    /// Opens the source. All its files are read through this storage handle.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io) if a file cannot be read.
    /// [`Error::Config`](crate::Error::Config) if paths or settings are invalid, or if there are no
    /// samples.
    fn open_with(paths: &[PathBuf], settings: &Self::Settings, storage: &Storage) -> Result<Self>;

    /// Like [`open_with`](Self::open_with), with a policy for bad shards. The default supports only
    /// [`BadShards::Error`].
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`open_with`](Self::open_with), and
    /// [`Error::Config`](crate::Error::Config) if the source has no shards.
    fn open_shards(
        paths: &[PathBuf],
        settings: &Self::Settings,
        storage: &Storage,
        bad: BadShards,
    ) -> Result<Self> {
        bad.check_unset(Self::KEY)?;
        Self::open_with(paths, settings, storage)
    }

    /// Like [`open_shards`](Self::open_shards), for a source whose fields and keys are read, but
    /// not its images and labels. A source that needs no images for this accepts files without
    /// images. The default is `open_shards`.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`open_shards`](Self::open_shards).
    fn open_fields(
        paths: &[PathBuf],
        settings: &Self::Settings,
        storage: &Storage,
        bad: BadShards,
    ) -> Result<Self> {
        Self::open_shards(paths, settings, storage, bad)
    }

    /// Like [`open_with`](Self::open_with), through a new storage handle with default settings.
    fn open(paths: &[PathBuf], settings: &Self::Settings) -> Result<Self> {
        Self::open_with(paths, settings, &Storage::default())
    }
}

/// Number of bytes at the start of a file that are used to recognise its format.
pub const HEAD_BYTES: usize = 1024;
