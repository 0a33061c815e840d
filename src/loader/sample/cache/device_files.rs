//! Cache of files whose coded data is in device memory.

use std::sync::atomic::{AtomicU64, Ordering};

use super::stats::CacheStats;
use super::store::{Kept, Store};
use crate::header::Header;
use crate::plan::DeviceFilesPlan;

/// Usual size of what the host keeps of a file, in bytes.
const USUAL_BYTES: u64 = 1024;

/// Host part of the cache of files in device memory: what the host needs to plan a sample and to
/// describe it to the kernels. The route that decodes the files owns the device memory.
pub(in crate::loader) struct DeviceFiles {
    store: Store,
    /// Maximum size of the coded data in device memory, and its present size, in bytes.
    limit: u64,
    taken: AtomicU64,
    /// Size in bytes of the smallest file that did not fit into the free device memory.
    unfit: AtomicU64,
}

impl DeviceFiles {
    /// Creates an empty cache for `numbers` different sample numbers.
    pub fn new(plan: DeviceFilesPlan, numbers: u64) -> Self {
        let DeviceFilesPlan { device_bytes, host_bytes, .. } = plan;
        Self {
            store: Store::new(host_bytes, numbers, 0),
            limit: device_bytes as u64,
            taken: AtomicU64::new(0),
            unfit: AtomicU64::new(u64::MAX),
        }
    }

    /// Returns what the host keeps of a file. Counts a hit or a miss.
    pub fn get(&self, number: u64, epoch: u32) -> Option<Kept> {
        self.store.get(number, epoch)
    }

    /// Whether the file of a sample is in device memory. Does not count as a hit or a miss.
    pub fn holds(&self, number: u64) -> bool {
        self.store.holds(number)
    }

    /// Whether the file of a sample is not kept yet, and its coded data of `bytes` bytes could be.
    pub fn has_room(&self, number: u64, bytes: u64) -> bool {
        bytes < self.unfit.load(Ordering::Relaxed) && self.store.has_room(number, USUAL_BYTES)
    }

    /// Records that coded data of `bytes` bytes did not fit into the free device memory. Data of
    /// this size is not offered again until memory is [given back](Self::given_back).
    pub fn did_not_fit(&self, bytes: u64) {
        self.unfit.fetch_min(bytes, Ordering::Relaxed);
    }

    /// Records that device memory was given back.
    pub fn given_back(&self) {
        self.unfit.store(u64::MAX, Ordering::Relaxed);
    }

    /// Stores what the host keeps of a file that takes `bytes` bytes of device memory. Returns
    /// false if there is no space, or if the file is kept already.
    pub fn keep(&self, number: u64, header: &Header, kept: &[u8], bytes: u64) -> bool {
        let Header { size, orientation, .. } = *header;
        let is_kept = self.store.keep(number, size, orientation, None, kept).is_some();
        if is_kept {
            self.taken.fetch_add(bytes, Ordering::Relaxed);
        }
        is_kept
    }

    /// Statistics of the cache. The memory is that on the device.
    pub fn stats(&self) -> CacheStats {
        let taken_bytes = self.taken.load(Ordering::Relaxed);
        let host = self.store.stats();
        CacheStats { limit_bytes: self.limit, taken_bytes, kept_bytes: taken_bytes, ..host }
    }
}
