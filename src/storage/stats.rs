//! What was asked of servers, and of the disk that stands for them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

/// What this process has asked of servers since it began; all 0 where every file is local.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StorageStats {
    /// Requests that were sent, those that were sent again among them.
    pub requests: u64,
    /// Requests that were sent again, since the one before failed.
    pub retries: u64,
    /// Bytes of objects that came whole.
    pub bytes: u64,
    /// Ranges and objects that were read from the disk cache in the place of a request.
    pub cache_hits: u64,
    /// Ranges and objects that were not in the disk cache.
    pub cache_misses: u64,
    /// Entries of the disk cache that did not match their checksum, and were thrown away.
    pub cache_damaged: u64,
}

/// The counters behind [`StorageStats`].
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
    /// Those of the process.
    pub fn get() -> &'static Self {
        static COUNTERS: Counters = Counters {
            requests: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
        };
        &COUNTERS
    }

    #[cfg(feature = "remote")]
    pub fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

/// What this process has asked of servers so far.
pub fn stats() -> StorageStats {
    let Counters { requests, retries, bytes, hits, misses, damaged } = Counters::get();
    let [requests, retries, bytes, cache_hits, cache_misses, cache_damaged] =
        [requests, retries, bytes, hits, misses, damaged].map(|it| it.load(Ordering::Relaxed));
    StorageStats { requests, retries, bytes, cache_hits, cache_misses, cache_damaged }
}

static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Notes what the user should know and what need not end anything.
#[cfg(feature = "remote")]
pub(super) fn warn(text: String) {
    let mut warnings = WARNINGS.lock().unwrap_or_else(PoisonError::into_inner);
    if !warnings.contains(&text) {
        warnings.push(text);
    }
}

/// What went wrong so far without ending anything: a disk cache that cannot be written.
pub fn warnings() -> Vec<String> {
    WARNINGS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
