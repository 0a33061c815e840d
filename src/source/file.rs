//! Reads one regular file or one object into a page, which is a buffer for encoded bytes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::page::{check_size, too_large};
use super::{Expected, Heads, HostPage, Identity, Page, RemoteReads, Source};
use crate::error::{DataError, Reason};
use crate::storage::{self, Fetch, Stamp, Storage};

/// Longest path or URL in bytes: twice Linux's limit for paths.
pub const MOST_PATH_BYTES: usize = 8 << 10;

/// Source whose samples are individual files. Given the paths of the files, this trait implements
/// prefetching, header reads and version tags.
pub trait Files: Source {
    /// Storage handle through which the files are read.
    fn storage(&self) -> &Storage;

    /// Returns the path or URL of a sample.
    fn path(&self, index: u64) -> PathBuf;

    /// Returns the name of a sample's file without folder and last extension. `None` if it is not
    /// UTF-8, or if the sample has no file.
    fn stem(&self, index: u64) -> Option<String> {
        stem(&self.path(index))
    }

    /// Returns the version of an object, if the listing contained it. Default `None`.
    fn stamp(&self, index: u64) -> Option<Stamp> {
        let _ = index;
        None
    }
}

impl<T: Files> RemoteReads for T {
    fn expect(&self, index: u64, limit: u64) -> Option<Expected> {
        let path = self.path(index);
        storage::is_url(&path).then(|| expect(self.storage(), path, self.stamp(index), limit))
    }
}

impl<T: Files> Heads for T {
    fn read_head(
        &self,
        index: u64,
        page: &mut HostPage,
        most: usize,
        limit: u64,
    ) -> Result<u64, DataError> {
        read_head(self.storage(), &self.path(index), page, most, limit)
    }
}

impl<T: Files> Identity for T {
    fn path(&self, index: u64) -> Option<PathBuf> {
        Some(Files::path(self, index))
    }

    fn key(&self, index: u64) -> Result<Option<String>, DataError> {
        Ok(self.stem(index))
    }

    fn version(&self, index: u64) -> Option<String> {
        self.stamp(index).map(|it| it.to_string()).or_else(|| version(&self.path(index)))
    }
}

/// Returns the name of a file without folder and last extension, if it is UTF-8.
pub fn stem(path: &Path) -> Option<String> {
    let name = match path.to_str().filter(|_| storage::is_url(path)) {
        // The query of a URL may contain slashes, so it is removed first.
        Some(url) => url.split(['?', '#']).next()?.rsplit('/').next()?,
        None => path.file_name()?.to_str()?,
    };
    Path::new(name).file_stem()?.to_str().map(Into::into)
}

/// Implements [`Source::read`] for a source of individual files.
pub fn read_sample(
    source: &impl Files,
    index: u64,
    page: &mut dyn Page,
    limit: u64,
) -> Result<(), DataError> {
    let (storage, path) = (source.storage(), source.path(index));
    match source.stamp(index) {
        Some(stamp) => read_object(storage, (&path, Some(stamp)), page, limit),
        None => read(storage, &path, page, limit),
    }
}

/// Reads the whole file. If the file shrinks while it is read, only the remaining bytes are
/// returned. If the file grows, only its old size is read.
pub fn read(
    storage: &Storage,
    path: &Path,
    page: &mut dyn Page,
    limit: u64,
) -> Result<(), DataError> {
    if storage::is_url(path) {
        return read_object(storage, (path, None), page, limit);
    }
    let file = storage.open(path).map_err(unreadable)?;
    let bytes = file.stamp().map_err(unreadable)?.len;
    check_size(bytes, limit)?;
    let len = file.read_at(page.space(bytes as usize)?, 0).map_err(unreadable)?;
    page.truncate(len);
    Ok(())
}

/// Returns the version of a local file: its length, modification time, inode, and time of last
/// change.
fn version(path: &Path) -> Option<String> {
    if storage::is_url(path) {
        return None;
    }
    storage::version(path).ok()
}

/// Reads the first bytes of a local file. Returns the length of the whole file.
fn read_head(
    storage: &Storage,
    path: &Path,
    page: &mut HostPage,
    most: usize,
    limit: u64,
) -> Result<u64, DataError> {
    let file = storage.open(path).map_err(unreadable)?;
    let bytes = file.stamp().map_err(unreadable)?.len;
    check_size(bytes, limit)?;
    let head = usize::try_from(bytes).map_or(most, |bytes| bytes.min(most));
    let len = file.read_at(page.space(head)?, 0).map_err(unreadable)?;
    page.truncate(len);
    Ok(bytes)
}

/// Reads the whole object in one request. If `stamp` is given, an object with another version is an
/// error.
fn read_object(
    storage: &Storage,
    (url, stamp): (&Path, Option<Stamp>),
    page: &mut dyn Page,
    limit: u64,
) -> Result<(), DataError> {
    let fetch = storage.fetch(url, stamp, limit).map_err(unreadable)?;
    take(fetch, limit, page)
}

/// Starts to read the whole object. An object larger than `limit` is not prefetched: it is read
/// when the closure is called.
fn expect(storage: &Storage, url: PathBuf, stamp: Option<Stamp>, limit: u64) -> Expected {
    let fetch = storage.fetch(&url, stamp, limit);
    let storage = storage.clone();
    Box::new(move |page, most| {
        match fetch.map_err(unreadable).and_then(|it| take(it, limit.min(most), page)) {
            Err(DataError { reason: Reason::Oversized, .. }) if most > limit => {
                read_object(&storage, (&url, stamp), page, most)
            }
            read => read,
        }
    })
}

fn take(fetch: Fetch, limit: u64, page: &mut dyn Page) -> Result<(), DataError> {
    let bytes = fetch.wait().map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => too_large(&error.to_string(), limit),
        _ => unreadable(error),
    })?;
    check_size(bytes.len() as u64, limit)?;
    page.space(bytes.len())?.copy_from_slice(&bytes);
    Ok(())
}

fn unreadable(error: io::Error) -> DataError {
    DataError::io(&error)
}

/// Whether nothing exists at a local path. False if the path cannot be inspected.
pub fn is_missing(path: &Path) -> bool {
    let missing = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    fs::metadata(path).is_err_and(|error| missing.contains(&error.kind()))
}

/// Returns the size of the largest file in bytes. Of local files, at most 4096 evenly spaced ones
/// are inspected, which takes a few milliseconds. Of objects, at most 256 are queried concurrently,
/// and objects count as 0 bytes if their server does not answer soon. Opening fails if no server
/// answers. It does not fail for a single unreachable URL, because that is a sample error.
pub fn largest(storage: &Storage, count: u64, path: impl Fn(u64) -> PathBuf) -> u64 {
    let most = if count > 0 && storage::is_url(&path(0)) { 256 } else { 4096 };
    let spread = |i: u64| match count <= most {
        true => i,
        false => (u128::from(i) * u128::from(count) / u128::from(most)) as u64,
    };
    let paths: Vec<PathBuf> = (0..count.min(most)).map(|i| path(spread(i))).collect();
    let (lens, cancelled) = storage::opening_apart(|| storage.lens(&paths));
    if let Some(problem) = cancelled.filter(|_| lens.iter().all(Result::is_err)) {
        storage::fail_opening(problem);
    }
    lens.into_iter().filter_map(Result::ok).max().unwrap_or(0)
}
