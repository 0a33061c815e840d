//! Where compiled kernels, tables and other things that can be made again are kept, unless a handle says it.

use std::env;
use std::path::PathBuf;

/// `$FEEDWATER_CACHE`, else `$XDG_CACHE_HOME/feedwater`, else `~/.cache/feedwater`; `None` where no variable says it.
pub fn directory() -> Option<PathBuf> {
    let from =
        |variable: &str| env::var_os(variable).filter(|it| !it.is_empty()).map(PathBuf::from);
    from("FEEDWATER_CACHE")
        .or_else(|| from("XDG_CACHE_HOME").map(|cache| cache.join("feedwater")))
        .or_else(|| from("HOME").map(|home| home.join(".cache/feedwater")))
}
