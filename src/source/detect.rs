//! Detects the type of the source at a path.

use std::path::Path;

use super::{DISABLED, Directory, HEAD_BYTES, KEYS, SourceSettings, recognise};
use crate::error::{Error, Result};
use crate::storage::{self, Storage};

/// Number of files of a folder that are inspected.
const LOOKS: usize = 16;

/// Detects the source at a path, and returns it with default settings. The path is read through
/// `storage`.
///
/// A file is recognised by its first bytes or its name. A folder is recognised by its first few
/// files. If none of these files belongs to a source, the folder is treated as a directory of
/// images.
///
/// # Errors
///
/// [`Error::Io`] if the path cannot be read, [`Error::Config`] if the file belongs to no known
/// source.
pub fn detect(path: &Path, storage: &Storage) -> Result<SourceSettings> {
    storage::opening(|| look(path, storage))
}

fn look(path: &Path, storage: &Storage) -> Result<SourceSettings> {
    let io = |error| Error::io(path, &error);
    let is_folder = storage.are_folders(&[path.into()]).into_iter().next();
    if is_folder.transpose().map_err(io)?.unwrap_or(false) {
        let entries = storage.list(path).map_err(io)?;
        let files = entries.iter().filter(|entry| !entry.folder).take(LOOKS);
        let found = files.filter_map(|entry| {
            let head = head(&path.join(&entry.name), storage).ok()?;
            recognise(path, &entry.name.to_string_lossy(), &head, true)
        });
        let images = || SourceSettings::new::<Directory>(vec![path.into()], Default::default());
        return Ok(found.into_iter().next().unwrap_or_else(images));
    }
    let head = head(path, storage).map_err(io)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    recognise(path, &name, &head, false).ok_or_else(|| {
        let absent = match DISABLED {
            [] => String::new(),
            absent => format!("; disabled in this build: {}", absent.join(", ")),
        };
        let problem = format!(
            "cannot detect the kind of source of {} by content or name; write a pipeline \
             file in which the key of the source is one of {}{absent}",
            path.display(),
            KEYS.join(", ")
        );
        Error::config("source", problem)
    })
}

fn head(path: &Path, storage: &Storage) -> std::io::Result<Vec<u8>> {
    let mut head = vec![0; HEAD_BYTES];
    let len = storage.open(path)?.read_at(&mut head, 0)?;
    head.truncate(len);
    Ok(head)
}
