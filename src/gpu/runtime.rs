//! Choice of CUDA libraries and of the directory for compiled kernels.

use std::env;
use std::path::PathBuf;
use std::sync::Arc;

use super::library_name::{LibraryName, NAMES};
use crate::file::check_private_folder;
use crate::storage;

/// Handle that says which files CUDA libraries are opened from and where compiled kernels are cached. Passed to
/// [`Device::open_with`](super::Device::open_with) and to
/// [`LoaderBuilder::runtime`](crate::loader::LoaderBuilder::runtime). Cheap to clone.
///
/// * A library that the handle does not name comes from the environment (`FEEDWATER_LIBNVJPEG` and similar), else from
///   the default search. Unless the handle names a directory, compiled kernels are cached below `$FEEDWATER_CACHE`,
///   else `$XDG_CACHE_HOME/feedwater`, else `~/.cache/feedwater`.
/// * Handles of one process may name different files for nvJPEG, NVRTC and NVML: each uses its own. A library
///   stays open until the process ends.
/// * A process has one CUDA driver. A handle that names another one than the open one gets an error.
#[derive(Clone, Debug, Default)]
pub struct Runtime(Arc<Named>);

#[derive(Clone, Debug, Default)]
struct Named {
    libraries: [Option<PathBuf>; NAMES],
    cache_directory: Option<PathBuf>,
}

impl Runtime {
    /// Opens `name` from this file and no other. It is an error if the file does not open.
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

    /// Why the directory for compiled kernels is not used, if it is not.
    pub(crate) fn cache_warning(&self) -> Option<String> {
        let directory = self.cache_directory()?;
        check_private_folder(&directory).err().map(|error| error.to_string())
    }

    /// Directory for compiled kernels. `None` if none is set.
    pub(super) fn cache_directory(&self) -> Option<PathBuf> {
        self.0.cache_directory.clone().or_else(storage::cache_directory)
    }

    /// File of a library that is named here or in the environment, so that no other may be used.
    pub(super) fn file_of(&self, name: LibraryName) -> Option<PathBuf> {
        let named = self.0.libraries[name as usize].clone();
        named.or_else(|| from_env(name.variable()))
    }

    /// What names the file of a library, for error messages.
    pub(super) fn named_by(&self, name: LibraryName) -> &'static str {
        match self.0.libraries[name as usize] {
            Some(_) => "the runtime",
            None => name.variable(),
        }
    }
}

/// Path in an environment variable. An empty one counts as not set.
pub(super) fn from_env(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}
