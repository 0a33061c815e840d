//! Statistics of requests to servers and of the disk cache.

use std::iter::Sum;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use super::watch::RequestWatcher;

/// Statistics of the requests through a [`Storage`](super::Storage) handle since it was created.
/// All are 0 if every file is local.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StorageStats {
    /// Number of requests that were sent, including retries.
    pub requests: u64,
    /// Number of retries after failed requests.
    pub retries: u64,
    /// Number of bytes of objects that arrived completely.
    pub bytes: u64,
    /// Number of ranges and objects that were read from the disk cache.
    pub cache_hits: u64,
    /// Number of ranges and objects that were not in the disk cache.
    pub cache_misses: u64,
    /// Number of entries of the disk cache that were deleted because their checksum did not match.
    pub cache_damaged: u64,
}

/// Statistics and warnings about the requests of a handle.
#[derive(Default)]
pub(crate) struct Activity {
    pub(super) counters: Counters,
    pub(super) watch: RequestWatcher,
    warnings: Mutex<Vec<String>>,
}

/// Counters from which [`StorageStats`] is created.
#[derive(Default)]
pub(super) struct Counters {
    pub requests: AtomicU64,
    pub retries: AtomicU64,
    pub bytes: AtomicU64,
    pub hits: AtomicU64,
    pub misses: AtomicU64,
    pub damaged: AtomicU64,
}

impl Counters {
    #[cfg(feature = "remote")]
    pub fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

impl Activity {
    /// Current values of the counters.
    pub fn stats(&self) -> StorageStats {
        let Counters { requests, retries, bytes, hits, misses, damaged } = &self.counters;
        let [requests, retries, bytes, cache_hits, cache_misses, cache_damaged] =
            [requests, retries, bytes, hits, misses, damaged].map(|it| it.load(Ordering::Relaxed));
        StorageStats { requests, retries, bytes, cache_hits, cache_misses, cache_damaged }
    }

    /// Records a warning for the user.
    pub fn warn(&self, text: String) {
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        if !warnings.contains(&text) {
            warnings.push(text);
        }
    }

    /// Warnings that were recorded so far.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Sum for StorageStats {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, it| Self {
            requests: sum.requests + it.requests,
            retries: sum.retries + it.retries,
            bytes: sum.bytes + it.bytes,
            cache_hits: sum.cache_hits + it.cache_hits,
            cache_misses: sum.cache_misses + it.cache_misses,
            cache_damaged: sum.cache_damaged + it.cache_damaged,
        })
    }
}
