//! Statistics of the caches.

use serde::Serialize;

use crate::measure::{EPOCHS, push_latest};

/// Contents, hits and misses of one cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CacheStats {
    /// `encoded`, `decoded`, `device`, `fields` or `row_index`.
    pub cache: &'static str,
    /// Maximum memory of the cache, in bytes. The footprint has a row with this number. The memory
    /// of `device` is device memory. 0 for
    /// `fields`, which are part of the cache `encoded`, or of `decoded` if there is no other.
    pub limit_bytes: u64,
    /// Allocated memory, in bytes, including the table and blocks that are not full yet. 0 for
    /// `fields`, whose memory counts in the cache that they are part of.
    pub taken_bytes: u64,
    /// Size of the cached samples, in bytes.
    pub kept_bytes: u64,
    /// Number of cached samples.
    pub samples: u64,
    /// Number of lookups that found the sample.
    pub hits: u64,
    /// Number of lookups that did not find the sample.
    pub misses: u64,
    /// Hits and misses of each of the latest [`Stats::EPOCHS`](crate::loader::Stats::EPOCHS)
    /// epochs. The counts of the last epoch may still grow. Hits and misses of earlier epochs are
    /// only in `hits` and `misses`.
    pub epochs: Vec<CacheEpoch>,
    /// Number of row indexes that did not match their files. Those images were decoded without an
    /// index.
    pub rejected: u64,
}

/// Hits and misses of one epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CacheEpoch {
    /// The epoch, from 0.
    pub epoch: u32,
    /// Number of lookups that found the sample.
    pub hits: u64,
    /// Number of lookups that did not find the sample.
    pub misses: u64,
}

/// Hits and misses of a store, in total and by epoch.
#[derive(Default)]
pub struct Asked {
    pub hits: u64,
    pub misses: u64,
    /// Latest epochs, in the order in which they began.
    pub epochs: Vec<CacheEpoch>,
}

impl Asked {
    /// Counts a lookup in an epoch.
    pub fn count(&mut self, epoch: u32, hit: bool) {
        self.hits += u64::from(hit);
        self.misses += u64::from(!hit);
        // Workers are at most a few epochs apart, so the search begins with the latest epoch.
        if !self.epochs.iter().rev().any(|it| it.epoch == epoch) {
            let begun = CacheEpoch { epoch, ..CacheEpoch::default() };
            push_latest(&mut self.epochs, EPOCHS, begun);
        }
        let counts = self.epochs.iter_mut().rev().find(|it| it.epoch == epoch);
        if let Some(counts) = counts {
            counts.hits += u64::from(hit);
            counts.misses += u64::from(!hit);
        }
    }
}
