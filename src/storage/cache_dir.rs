//! Where compiled kernels, tables and other things that can be made again are kept.

use std::env;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

static OVERRIDE: Mutex<Option<PathBuf>> = Mutex::new(None);

/// `$FEEDWATER_CACHE`, else `$XDG_CACHE_HOME/feedwater`, else `~/.cache/feedwater`; `None` where no variable says it.
pub fn directory() -> Option<PathBuf> {
    if let Some(directory) = OVERRIDE.lock().unwrap_or_else(PoisonError::into_inner).clone() {
        return Some(directory);
    }
    let from =
        |variable: &str| env::var_os(variable).filter(|it| !it.is_empty()).map(PathBuf::from);
    from("FEEDWATER_CACHE")
        .or_else(|| from("XDG_CACHE_HOME").map(|cache| cache.join("feedwater")))
        .or_else(|| from("HOME").map(|home| home.join(".cache/feedwater")))
}

/// Keeps them here, whatever the environment says.
pub fn override_directory(directory: PathBuf) {
    *OVERRIDE.lock().unwrap_or_else(PoisonError::into_inner) = Some(directory);
}
