//! Lists folders.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::storage::{self, Storage};

/// Lists a folder and all folders below it.
pub fn walk(
    storage: &Storage,
    path: PathBuf,
    above: &mut HashSet<(u64, u64)>,
    folders: &mut Vec<(PathBuf, Entries)>,
) -> Result<()> {
    let identity = identity(&path)?;
    if !above.insert(identity) {
        return Ok(());
    }
    let mut entries = list(storage, &path)?;
    let below = std::mem::take(&mut entries.folders);
    folders.push((path.clone(), entries));
    below.into_iter().try_for_each(|name| walk(storage, path.join(name), above, folders))?;
    above.remove(&identity);
    Ok(())
}

/// Entries of a folder.
pub struct Entries {
    pub files: Vec<OsString>,
    pub folders: Vec<OsString>,
    /// Names of the pipes, sockets and devices in the folder.
    pub special: Vec<OsString>,
}

/// Device and inode of a folder, which identify it independently of its path.
pub fn identity(path: &Path) -> Result<(u64, u64)> {
    let metadata = fs::metadata(path).map_err(|error| Error::io(path, &error))?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Lists the files and the folders in a folder, without hidden entries. Both lists are in byte
/// order of names. A dangling link is listed, and becomes a sample error when it is read.
pub fn list(storage: &Storage, path: &Path) -> Result<Entries> {
    let listed = storage.list_all_kinds(path).map_err(|error| Error::io(path, &error))?;
    let (entries, special) = listed;
    let (folders, files): (Vec<_>, Vec<_>) = entries.into_iter().partition(|it| it.folder);
    let names = |entries: Vec<storage::Entry>| entries.into_iter().map(|it| it.name).collect();
    Ok(Entries { files: names(files), folders: names(folders), special })
}
