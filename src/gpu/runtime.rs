//! Which CUDA libraries are used, and where compiled kernels are kept.

use std::env;
use std::path::PathBuf;
use std::sync::Arc;

use super::library::{NAMES, Name};
use crate::storage;

/// Which files CUDA's libraries are opened from, and where compiled kernels are kept: a handle that is given to
/// [`Device::open_with`](super::Device::open_with) and to
/// [`LoaderBuilder::runtime`](crate::loader::LoaderBuilder::runtime), and is cheap to clone.
///
/// * A library that the handle does not name is the one that the environment names (`FEEDWATER_LIBNVJPEG` and its kin), else
///   one that is found. Compiled kernels are kept below `$FEEDWATER_CACHE`, else `$XDG_CACHE_HOME/feedwater`, else
///   `~/.cache/feedwater`, unless the handle says where.
/// * Handles of one process may name different files for nvJPEG, NVRTC, NVTX and NVML: each uses its own. A library stays open
///   until the process ends.
/// * A process has one CUDA driver. A handle that names another one than is open already gets an error.
#[derive(Clone, Debug, Default)]
pub struct Runtime(Arc<Named>);

#[derive(Clone, Debug, Default)]
struct Named {
    libraries: [Option<PathBuf>; NAMES],
    cache_directory: Option<PathBuf>,
}

impl Runtime {
    /// Opens this file as a library, and no other: an error where it does not open.
    #[must_use]
    pub fn with_library(mut self, name: Name, file: impl Into<PathBuf>) -> Self {
        Arc::make_mut(&mut self.0).libraries[name as usize] = Some(file.into());
        self
    }

    /// Keeps compiled kernels in this directory.
    #[must_use]
    pub fn with_cache_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        Arc::make_mut(&mut self.0).cache_directory = Some(directory.into());
        self
    }

    /// Where compiled kernels are kept; `None` where nobody says it.
    pub(super) fn cache_directory(&self) -> Option<PathBuf> {
        self.0.cache_directory.clone().or_else(storage::cache_directory)
    }

    /// The file of a library that was named, here or in the environment, so that no other may be used.
    pub(super) fn file_of(&self, name: Name) -> Option<PathBuf> {
        let named = self.0.libraries[name as usize].clone();
        named.or_else(|| from_env(name.variable()))
    }

    /// Who names the file of a library, for errors.
    pub(super) fn named_by(&self, name: Name) -> &'static str {
        match self.0.libraries[name as usize] {
            Some(_) => "the runtime",
            None => name.variable(),
        }
    }
}

/// The path in an environment variable; an empty one counts as not set.
pub(super) fn from_env(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}
