//! Reading one regular file into a page.

use std::path::{Path, PathBuf};

use super::Page;
use crate::error::{Fault, Reason};
use crate::storage::{self, File};

/// Reads the whole file. A file that shrinks meanwhile gives what it has; one that grows, its old size.
pub fn read(path: &Path, page: &mut dyn Page, limit: u64) -> Result<(), Fault> {
    let unreadable = |error: std::io::Error| Fault::new(Reason::Unreadable, error.to_string());
    let file = File::open(path).map_err(unreadable)?;
    let bytes = file.stamp().map_err(unreadable)?.len;
    check_size(bytes, limit)?;
    let len = file.read_at(page.space(bytes as usize), 0).map_err(unreadable)?;
    page.truncate(len);
    Ok(())
}

/// Refuses a sample before memory is taken for it.
pub fn check_size(bytes: u64, limit: u64) -> Result<(), Fault> {
    if bytes > limit {
        let problem = format!("{bytes} bytes, limits.max_file_bytes is {limit}");
        return Err(Fault::new(Reason::Oversized, problem));
    }
    Ok(())
}

/// The largest of at most 4096 files, evenly spread: a few milliseconds, whatever the set.
pub fn largest(count: u64, path: impl Fn(u64) -> PathBuf) -> u64 {
    const MOST: u64 = 4096;
    (0..count.min(MOST))
        .map(|i| {
            if count <= MOST {
                i
            } else {
                (u128::from(i) * u128::from(count) / u128::from(MOST)) as u64
            }
        })
        .filter_map(|index| storage::len(&path(index)).ok())
        .max()
        .unwrap_or(0)
}
