//! What is kept in host memory from epoch to epoch: files as they were read, and decoded images.
//!
//! Each sentence with a test in `tests/cache/`:
//!
//! * What is in a cache stays in it: nothing is replaced (MinIO, in Mohan et al., "Analyzing and mitigating data stalls
//!   in DNN training", VLDB 2021). Replacing the oldest would give no hit at all to a shuffled set that is a little
//!   larger than the cache.
//! * A cache takes what it has room for, first come, first kept. It never holds more than its limit, its table included.
//! * A hit asks the source for nothing; neither does the second epoch of a set that fits, but for samples that were still
//!   being made for the first when it began.
//! * Batches have the same bytes with a cache as without one, whatever is in it.
//! * A sample that cannot be read, or whose header says that it cannot be used, is not kept: it is read again each time,
//!   and has the same fault. An image that cannot be decoded whole is not kept decoded; where its window can be decoded,
//!   it is, as without a cache.
//! * An image in the decoded cache is not put into the encoded one too.
//! * With `presize` the chain sees the smaller image, kept or not: batches do not depend on what is kept.
//! * Samples that have the same original ([`Source::original`](crate::source::Source::original)) are kept once.
//! * On a device an image that was kept decoded comes by the route `cpu`: its window is uploaded.

use crate::plan::CacheSettings;

use super::stats::CacheStats;

use store::Store;

pub(super) use store::Kept;

mod store;

/// The caches of a loader, for all its threads.
pub(super) struct Caches {
    /// Files as they were read.
    pub encoded: Option<Store>,
    /// Decoded images.
    pub decoded: Option<Store>,
}

impl Caches {
    /// Empty caches for a source with so many originals.
    pub fn new(settings: &CacheSettings, originals: u64) -> Self {
        let store = |limit: Option<u64>| limit.map(|limit| Store::new(limit, originals));
        Self { encoded: store(settings.encoded), decoded: store(settings.decoded) }
    }

    /// Whether there is any.
    pub fn are_there(&self) -> bool {
        self.encoded.is_some() || self.decoded.is_some()
    }

    /// Whether one of them holds a sample with this original, so that its source will not be asked for it.
    pub fn hold(&self, original: u64) -> bool {
        [&self.encoded, &self.decoded].into_iter().flatten().any(|store| store.holds(original))
    }

    /// What they have done so far.
    pub fn stats(&self) -> Vec<CacheStats> {
        let named = [("encoded", &self.encoded), ("decoded", &self.decoded)];
        let there = named.into_iter().filter_map(|(name, store)| Some((name, store.as_ref()?)));
        there.map(|(cache, store)| CacheStats { cache, ..store.stats() }).collect()
    }
}
