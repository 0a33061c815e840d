//! Choice of CUDA libraries and of the directory for compiled kernels.

use std::env;
use std::path::PathBuf;
use std::sync::Arc;

use super::library_name::{LibraryName, NAMES};
use crate::file::check_private_folder;
use crate::storage;

/// Settings for the files from which CUDA libraries are opened, and the directory in which compiled
/// kernels are cached. Passed to [`Device::open_with`](super::Device::open_with) and to
/// [`LoaderBuilder::runtime`](crate::loader::LoaderBuilder::runtime). Cheap to clone.
///
/// * If this value has no path for a library, the environment variable for that library
///   (`FEEDWATER_LIBNVJPEG` and similar) is read. If that variable is not set either, the default
///   search is used. If this value has no directory, compiled kernels are cached in
///   `$FEEDWATER_CACHE`, otherwise in `$XDG_CACHE_HOME/feedwater`, otherwise in
///   `~/.cache/feedwater`.
/// * Several `Runtime` values in one process may specify different files for nvJPEG, NVRTC and
///   NVML. Each loader uses the files of its own `Runtime`. A library stays open until the process
///   ends.
/// * A process has only one CUDA driver. Using a `Runtime` that specifies a second driver is an
///   error.
#[derive(Clone, Debug, Default)]
pub struct Runtime(Arc<Named>);

#[derive(Clone, Debug, Default)]
struct Named {
    libraries: [Option<PathBuf>; NAMES],
    cache_directory: Option<PathBuf>,
}

impl Runtime {
    /// Opens the library `name` from this file only. If the file does not open, that is an error.
    #[must_use]
    pub fn with_library(mut self, name: LibraryName, file: impl Into<PathBuf>) -> Self {
        Arc::make_mut(&mut self.0).libraries[name as usize] = Some(file.into());
        self
    }

    /// Sets the directory for compiled kernels.
    #[must_use]
    pub fn with_cache_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        Arc::make_mut(&mut self.0).cache_directory = Some(directory.into());
        self
    }

    /// Returns the reason why the directory for compiled kernels is unusable, or `None` if it can
    /// be used or is not set.
    pub(crate) fn cache_warning(&self) -> Option<String> {
        let directory = self.cache_directory()?;
        check_private_folder(&directory).err().map(|error| error.to_string())
    }

    /// Returns the directory for compiled kernels, or `None` if none is set.
    pub(super) fn cache_directory(&self) -> Option<PathBuf> {
        self.0.cache_directory.clone().or_else(storage::cache_directory)
    }

    /// Returns the file that this value or the environment specifies for a library. If a file is
    /// specified, no other file may be used.
    pub(super) fn file_of(&self, name: LibraryName) -> Option<PathBuf> {
        let named = self.0.libraries[name as usize].clone();
        named.or_else(|| from_env(name.variable()))
    }

    /// Returns the setting or variable that specifies the file of a library, for error messages.
    pub(super) fn named_by(&self, name: LibraryName) -> &'static str {
        match self.0.libraries[name as usize] {
            Some(_) => "the runtime",
            None => name.variable(),
        }
    }
}

/// Returns the path in an environment variable. An empty variable counts as not set.
pub(super) fn from_env(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}
