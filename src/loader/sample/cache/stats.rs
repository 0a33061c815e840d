//! Counts of the caches.

use serde::Serialize;

/// Contents, hits and misses of one cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CacheStats {
    /// `encoded`, `decoded` or `row_index`.
    pub cache: &'static str,
    /// Most bytes that the cache may allocate: its row of the footprint.
    pub limit_bytes: u64,
    /// Allocated bytes, including the table and blocks that are not full yet.
    pub taken_bytes: u64,
    /// Bytes of the cached samples.
    pub kept_bytes: u64,
    /// Cached samples.
    pub samples: u64,
    /// Lookups that found the sample.
    pub hits: u64,
    /// Lookups that did not find the sample.
    pub misses: u64,
    /// Hits and misses of each of the latest [`Stats::EPOCHS`](crate::loader::Stats::EPOCHS) epochs. Those of the last may still grow. Earlier epochs
    /// are only in `hits` and `misses`.
    pub epochs: Vec<CacheEpoch>,
    /// Row indexes that did not fit their files. Those images were decoded without one.
    pub rejected: u64,
}

/// Counts of [`CacheStats`] for one epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CacheEpoch {
    /// The epoch, from 0.
    pub epoch: u32,
    /// Lookups that found the sample.
    pub hits: u64,
    /// Lookups that did not find the sample.
    pub misses: u64,
}
