//! The same work for many files, several at a time.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::storage;

/// Files behind URLs that are walked at the same time: a thread mostly waits for the network.
const WALKS: usize = 8;

/// What `make` makes of each file and its number, in their order, by as many threads as there are processors.
pub fn of_each<T: Send>(files: &[PathBuf], make: impl Fn(usize, &PathBuf) -> T + Sync) -> Vec<T> {
    let threads = match files.iter().any(|path| storage::is_url(path)) {
        true => WALKS,
        false => thread::available_parallelism().map_or(1, usize::from),
    };
    let threads = threads.min(files.len());
    let next = AtomicUsize::new(0);
    let work = || {
        let mut made = Vec::new();
        while let number = next.fetch_add(1, Ordering::Relaxed)
            && let Some(path) = files.get(number)
        {
            made.push((number, make(number, path)));
        }
        made
    };
    let mut made: Vec<(usize, T)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|it| it.join().expect("a walk does not panic")).collect()
    });
    made.sort_unstable_by_key(|(number, _)| *number);
    made.into_iter().map(|(_, made)| made).collect()
}
