//! Processes files in parallel.

use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::error::Result;
use crate::storage::{self, OpeningOf};
use crate::threads::in_parts;

/// Number of threads that process files at URLs at the same time. These threads mostly wait for the
/// network.
const WALKS: usize = 8;

/// Calls `make` with each file and its number, in parallel on all processors. Returns the results
/// in order.
///
/// # Errors
///
/// Returns the error of the first file that fails. After an error no further files are started,
/// because a server that refuses requests or a disk that fails usually affects all files.
pub fn of_each<T: Send>(
    files: &[PathBuf],
    make: impl Fn(usize, &PathBuf) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let threads = match files.iter().any(|path| storage::is_url(path)) {
        true => WALKS,
        false => thread::available_parallelism().map_or(1, usize::from),
    };
    let threads = threads.min(files.len());
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let opening = OpeningOf::current();
    let work = || {
        let mut made = Vec::new();
        while !failed.load(Ordering::Relaxed)
            && let number = next.fetch_add(1, Ordering::Relaxed)
            && let Some(path) = files.get(number)
        {
            let result = make(number, path);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            made.push((number, result));
        }
        made
    };
    let made = in_parts(threads, |_| opening.within(work));
    let made = made.into_iter().flat_map(|it| it.unwrap_or_else(|panic| resume_unwind(panic)));
    let mut made: Vec<(usize, Result<T>)> = made.collect();
    // Files are started in order, so all files before a failed file have been started. Therefore
    // the error that is returned does not depend on timing.
    made.sort_unstable_by_key(|(number, _)| *number);
    made.into_iter().map(|(_, made)| made).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn the_first_error_is_returned_and_no_further_file_is_started() {
        let files: Vec<PathBuf> = (0..10_000).map(|number| format!("{number}").into()).collect();
        let begun = AtomicUsize::new(0);
        let error = of_each(&files, |number, path| {
            begun.fetch_add(1, Ordering::Relaxed);
            match number {
                0..100 => Ok(()),
                _ => Err(Error::config(path.display().to_string(), "is wrong")),
            }
        });
        assert!(matches!(error, Err(Error::Config(error)) if error.key == "100"));
        assert!(begun.into_inner() < 10_000);
        assert_eq!(of_each(&files, |number, _| Ok(number)).unwrap(), Vec::from_iter(0..10_000));
    }
}
