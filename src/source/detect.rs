//! What lies at a path.

use std::path::Path;

use super::{DISABLED, Directory, HEAD_BYTES, KEYS, SourceSettings, recognise};
use crate::error::{Error, Result};
use crate::storage::{self, Storage};

/// Files of a folder that are looked at.
const LOOKS: usize = 16;

/// The source that lies at a path, with the settings that it has by default.
///
/// A file is known by its first bytes or by its name. A folder is what its own files are, of which the first few are
/// looked at; where those are no source's, or there are none, it is a directory of images.
///
/// # Errors
///
/// [`Error::Io`] where the path cannot be read, [`Error::Config`] where a file is none of any source.
pub fn detect(path: &Path) -> Result<SourceSettings> {
    detect_with(path, &Storage::default())
}

/// As [`detect`], with a handle through which is looked at what lies there.
///
/// # Errors
///
/// Those of [`detect`].
pub fn detect_with(path: &Path, storage: &Storage) -> Result<SourceSettings> {
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
            absent => format!("; this build is without {}", absent.join(", ")),
        };
        let problem = format!(
            "{} is of no source that is known by its content or name; name the source in a pipeline file: one of {}{absent}",
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
