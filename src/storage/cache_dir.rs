//! Default directory for compiled kernels, tables and other data that can be regenerated.

use std::env;
use std::path::PathBuf;

/// Returns `$FEEDWATER_CACHE`, else `$XDG_CACHE_HOME/feedwater`, else `~/.cache/feedwater`. Returns
/// `None` if none of these variables and `$HOME` is set.
pub fn directory() -> Option<PathBuf> {
    let from =
        |variable: &str| env::var_os(variable).filter(|it| !it.is_empty()).map(PathBuf::from);
    from("FEEDWATER_CACHE")
        .or_else(|| from("XDG_CACHE_HOME").map(|cache| cache.join("feedwater")))
        .or_else(|| from("HOME").map(|home| home.join(".cache/feedwater")))
}
