//! Map from numbers to bytes, with a memory limit and without eviction. A number stands for the
//! file or the image of a sample, or for its fields.
//!
//! Bytes are stored consecutively in blocks, each of which is one allocation. A part of a block is
//! filled outside of the lock, so threads copy concurrently. Filled parts are read without the lock
//! too.

use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::{Bytes, BytesMut};

use super::stats::{Asked, CacheStats};
use crate::error::{Tolerated, reserve};
use crate::geometry::{Orientation, Size};

/// A block has `limit / BLOCK_PART` bytes, where `limit` is the limit of the store. The result is
/// clamped to the following range.
const BLOCK_PART: u64 = 16;
/// Minimum size of a block, in bytes.
const LEAST_BLOCK_BYTES: u64 = 64 << 10;
/// Maximum size of a block, in bytes.
const MOST_BLOCK_BYTES: u64 = 16 << 20;
/// Maximum number of blocks whose free space is used. A further block takes the place of the
/// fullest one, whose free space then stays unused.
const MOST_OPEN: usize = 8;
/// Number of entries (descriptions of cached samples) that are allocated together, as a segment.
const SEGMENT: usize = 64;
/// The hash table has one bucket for this many bytes of the limit, in a store of files or images. A
/// bucket takes 4 bytes, so the table takes a thousandth of the limit.
const BYTES_PER_BUCKET: u64 = 4096;
/// Size of the pages in which the system allocates memory, in bytes.
const PAGE_BYTES: u64 = 4096;
/// Size of the header that the allocator adds to an allocation, in bytes.
const HEADER_BYTES: u64 = 128;
const ENTRY_BYTES: u64 = segment_cost() / SEGMENT as u64;
/// Positions of samples, and of fields of samples, in statistics.
const SAMPLES: usize = 0;
const FIELDS: usize = 1;

/// A cache of samples with a limit in bytes, for many threads.
pub(in crate::loader) struct Store {
    limit: u64,
    /// Numbers from this one on stand for the fields of samples.
    fields_from: Option<u64>,
    state: RwLock<StoreState>,
    /// Lookups of samples, and of their fields.
    asked: [Mutex<Asked>; 2],
}

/// A cached sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::loader) struct Kept {
    /// Size of the image, in pixels.
    pub size: Size,
    /// Orientation that is still to be applied to the cached image.
    pub orientation: Orientation,
    /// Damage that was accepted when the image was decoded.
    pub tolerated: Option<Tolerated>,
    pub bytes: Bytes,
}

struct StoreState {
    /// For each bucket: the index of its newest entry, plus one. 0 if the bucket is empty.
    buckets: Vec<u32>,
    segments: Vec<Vec<Entry>>,
    /// Unused ends of the blocks that still have space.
    open: Vec<BytesMut>,
    taken: u64,
    /// Contents: samples, and fields of samples.
    held: [Held; 2],
}

/// Number and total size in bytes of some contents of a store.
#[derive(Clone, Copy, Default)]
struct Held {
    bytes: u64,
    samples: u64,
}

struct Entry {
    number: u64,
    /// Index of the next older entry in the same bucket, plus one. 0 if there is none.
    older: u32,
    /// The cached sample. Its bytes are empty while they are being copied, and after they were
    /// dropped.
    kept: Kept,
}

impl Store {
    /// Creates an empty store of files or images, for at most `limit` bytes and for `numbers`
    /// different sample numbers. Further `fields` numbers stand for the fields of samples.
    pub fn new(limit: u64, numbers: u64, fields: u64) -> Self {
        let all = numbers.saturating_add(fields);
        Self { fields_from: Some(numbers), ..Self::with_table(limit, all, BYTES_PER_BUCKET) }
    }

    /// Creates an empty store for at most `limit` bytes and for `numbers` different sample numbers.
    /// The table of the store takes 4 bytes for each `bytes_per_bucket` bytes of the limit.
    pub fn with_table(limit: u64, numbers: u64, bytes_per_bucket: u64) -> Self {
        let buckets = (limit / bytes_per_bucket).min(numbers).clamp(1, 1 << 27);
        let taken = block_cost(4 * buckets);
        let mut table = Vec::new();
        // If the table cannot be allocated, the cache stays empty.
        let _ = reserve::resize(&mut table, if taken <= limit { buckets as usize } else { 0 });
        let buckets = table;
        let taken = if buckets.is_empty() { 0 } else { taken };
        let (segments, open) = (Vec::new(), Vec::new());
        let held = Default::default();
        let state = RwLock::new(StoreState { buckets, segments, open, taken, held });
        Self { limit, fields_from: None, state, asked: Default::default() }
    }

    /// Returns the cached sample with this number. Counts a hit or a miss.
    pub fn get(&self, number: u64, epoch: u32) -> Option<Kept> {
        let kept = self.read().find(number).map(|entry| entry.kept.clone());
        let kept = kept.filter(|kept| !kept.bytes.is_empty());
        self.asked(self.part(number)).count(epoch, kept.is_some());
        kept
    }

    /// Whether nothing is cached.
    pub fn is_empty(&self) -> bool {
        self.read().all().samples == 0
    }

    /// Whether a sample with this number is cached. Does not count as a hit or a miss.
    pub fn holds(&self, number: u64) -> bool {
        self.read().find(number).is_some_and(|entry| !entry.kept.bytes.is_empty())
    }

    /// Whether `bytes` bytes could be stored now under this number.
    pub fn has_room(&self, number: u64, bytes: u64) -> bool {
        let state = self.read();
        bytes > 0 && state.find(number).is_none() && state.room(self.limit, bytes).is_some()
    }

    /// Stores a copy of the bytes and returns it. `None` if there is no space or if the number is
    /// already cached.
    pub fn keep(
        &self,
        number: u64,
        size: Size,
        orientation: Orientation,
        tolerated: Option<Tolerated>,
        bytes: &[u8],
    ) -> Option<Bytes> {
        // A full cache is the usual case and needs no write lock.
        if !self.has_room(number, bytes.len() as u64) {
            return None;
        }
        let mut state = self.write();
        if state.find(number).is_some() {
            return None;
        }
        let mut cell = state.cell(self.limit, bytes.len())?;
        let kept = Kept { size, orientation, tolerated, bytes: Bytes::new() };
        let place = state.add(number, kept);
        drop(state);
        cell.extend_from_slice(bytes);
        let copy = cell.freeze();
        let mut state = self.write();
        state.segments[place / SEGMENT][place % SEGMENT].kept.bytes = copy.clone();
        let held = &mut state.held[self.part(number)];
        held.bytes += bytes.len() as u64;
        held.samples += 1;
        Some(copy)
    }

    /// Drops the bytes of the sample with this number, and never stores bytes under this number
    /// again. The memory is not reused.
    pub fn drop_for_good(&self, number: u64) {
        let mut state = self.write();
        let Some(place) = state.place(number) else { return };
        let bytes = mem::take(&mut state.segments[place / SEGMENT][place % SEGMENT].kept.bytes);
        if !bytes.is_empty() {
            let held = &mut state.held[self.part(number)];
            held.bytes -= bytes.len() as u64;
            held.samples -= 1;
        }
    }

    /// Calls `each` with the bytes of all samples, in the order in which they were stored.
    pub fn for_each(&self, mut each: impl FnMut(&[u8])) {
        let mut at = 0;
        // The lock is not held while `each` runs.
        while let Some(bytes) = { self.read().entry(at).map(|it| it.kept.bytes.clone()) } {
            each(&bytes);
            at += 1;
        }
    }

    /// Size of the cache, and statistics of its samples. The caller sets the name.
    pub fn stats(&self) -> CacheStats {
        let taken_bytes = self.read().taken;
        CacheStats { limit_bytes: self.limit, taken_bytes, ..self.stats_of(SAMPLES) }
    }

    /// Statistics of the fields of samples, without the memory of the cache.
    pub fn field_stats(&self) -> CacheStats {
        self.stats_of(FIELDS)
    }

    fn stats_of(&self, part: usize) -> CacheStats {
        let (hits, misses, mut epochs) = {
            let asked = self.asked(part);
            (asked.hits, asked.misses, asked.epochs.clone())
        };
        epochs.sort_by_key(|it| it.epoch);
        let Held { bytes, samples } = self.read().held[part];
        CacheStats {
            cache: "",
            limit_bytes: 0,
            taken_bytes: 0,
            kept_bytes: bytes,
            samples,
            hits,
            misses,
            epochs,
            rejected: 0,
        }
    }

    /// Whether a number stands for a sample or for its fields.
    fn part(&self, number: u64) -> usize {
        if self.fields_from.is_some_and(|from| number >= from) { FIELDS } else { SAMPLES }
    }

    fn read(&self) -> RwLockReadGuard<'_, StoreState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, StoreState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn asked(&self, part: usize) -> MutexGuard<'_, Asked> {
        self.asked[part].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoreState {
    fn find(&self, number: u64) -> Option<&Entry> {
        self.place(number).and_then(|place| self.entry(place))
    }

    fn place(&self, number: u64) -> Option<usize> {
        let mut at = *self.buckets.get(self.bucket(number))?;
        while let Some(place) = at.checked_sub(1).map(|place| place as usize) {
            let entry = self.entry(place)?;
            if entry.number == number {
                return Some(place);
            }
            at = entry.older;
        }
        None
    }

    fn entry(&self, place: usize) -> Option<&Entry> {
        self.segments.get(place / SEGMENT)?.get(place % SEGMENT)
    }

    /// Bucket of a sample number, by Fibonacci hashing.
    fn bucket(&self, number: u64) -> usize {
        let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((u128::from(hash) * self.buckets.len() as u128) >> 64) as usize
    }

    /// Returns the numbers of bytes that must be allocated to store `bytes` bytes: for a new
    /// segment of entries, and for a new block. Each is 0 if nothing must be allocated. `None` if
    /// they exceed the limit.
    fn room(&self, limit: u64, bytes: u64) -> Option<(u64, u64)> {
        if self.buckets.is_empty() || self.entries() >= u32::MAX as usize - 1 {
            return None;
        }
        let is_full = self.segments.last().is_none_or(|last| last.len() == SEGMENT);
        let segment = if is_full { segment_cost() } else { 0 };
        let left = limit.checked_sub(self.taken)?.checked_sub(segment)?;
        if self.open.iter().any(|block| block.capacity() as u64 >= bytes) {
            return Some((segment, 0));
        }
        // A large sample gets its own block, so that the rest of another block is not wasted.
        let usual = (limit / BLOCK_PART).clamp(LEAST_BLOCK_BYTES, MOST_BLOCK_BYTES);
        let wanted = if bytes > usual / 4 { bytes } else { usual };
        let most = |left: u64| (left / PAGE_BYTES * PAGE_BYTES).saturating_sub(HEADER_BYTES);
        // The last block leaves space for the entries of its samples, assuming their mean size.
        let Held { bytes: kept, samples } = self.all();
        let mean = (kept + bytes) / (samples + 1);
        let entries = u128::from(left) * u128::from(ENTRY_BYTES) / u128::from(mean + ENTRY_BYTES);
        let spared = most(left.saturating_sub(entries as u64 + segment_cost()));
        let block = wanted.min(if spared < bytes { most(left).min(bytes) } else { spared });
        (block >= bytes).then_some((segment, block))
    }

    /// Number and size of all contents.
    fn all(&self) -> Held {
        let [samples, fields] = self.held;
        Held { bytes: samples.bytes + fields.bytes, samples: samples.samples + fields.samples }
    }

    /// Takes a part of a block, with space for `bytes` bytes.
    fn cell(&mut self, limit: u64, bytes: usize) -> Option<BytesMut> {
        let (segment, block) = self.room(limit, bytes as u64)?;
        // A failed allocation counts as a full cache.
        let mut entries = Vec::new();
        if segment > 0 {
            reserve::reserve(&mut entries, SEGMENT).ok()?;
        }
        let new = reserve::buffer(block as usize).ok()?;
        if segment > 0 {
            self.segments.push(entries);
        }
        if block > 0 {
            if self.open.len() == MOST_OPEN {
                let rooms = self.open.iter().map(BytesMut::capacity).enumerate();
                if let Some((fullest, _)) = rooms.min_by_key(|&(_, room)| room) {
                    self.open.swap_remove(fullest);
                }
            }
            self.open.push(new);
        }
        self.taken += segment + if block > 0 { block_cost(block) } else { 0 };
        // Use the first block with enough space, so older blocks are filled first.
        let at = self.open.iter().position(|block| block.capacity() >= bytes)?;
        let rest = self.open[at].split_off(bytes);
        let cell = mem::replace(&mut self.open[at], rest);
        if self.open[at].capacity() == 0 {
            self.open.remove(at);
        }
        Some(cell)
    }

    /// Adds an entry to the last segment. Returns its index.
    fn add(&mut self, number: u64, kept: Kept) -> usize {
        let place = self.entries();
        let bucket = self.bucket(number);
        let entry = Entry { number, older: self.buckets[bucket], kept };
        if let Some(last) = self.segments.last_mut() {
            last.push(entry);
        }
        self.buckets[bucket] = place as u32 + 1;
        place
    }

    fn entries(&self) -> usize {
        let before = self.segments.len().saturating_sub(1) * SEGMENT;
        before + self.segments.last().map_or(0, Vec::len)
    }
}

/// Bytes of system memory for an allocation of `bytes` bytes.
fn block_cost(bytes: u64) -> u64 {
    (bytes + HEADER_BYTES).next_multiple_of(PAGE_BYTES)
}

/// Memory for a segment of entries, and for its element in the list of segments, in bytes. The
/// element counts four times, because the list doubles when it is full.
const fn segment_cost() -> u64 {
    (SEGMENT * size_of::<Entry>() + 4 * size_of::<Vec<Entry>>()) as u64
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::super::stats::CacheEpoch;
    use super::*;
    use crate::measure::EPOCHS;

    const SIZE: Size = Size::new(1, 1);

    /// Content for tests. `number` determines the length and the values.
    fn content(number: u64, most: u64) -> Vec<u8> {
        let len = 1 + number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % most;
        (0..len).map(|at| (number + at) as u8).collect()
    }

    #[test]
    fn many_threads_never_exceed_the_limit_and_get_back_what_was_put_in() {
        for (limit, most, numbers) in [
            (1 << 20, 3000, 2000),
            (40 << 20, 200_000, 1000),
            (9 << 20, 2 << 20, 50),
            (200_000, 900, 1000),
        ] {
            let store = Store::new(limit, numbers, 0);
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4)
                    .map(|thread: u64| {
                        let store = &store;
                        scope.spawn(move || {
                            for step in 0..numbers {
                                let number = (step * 7 + thread * 501) % numbers;
                                let bytes = content(number, most);
                                if let Some(kept) = store.get(number, 0) {
                                    assert!(kept.bytes == bytes, "number {number}");
                                } else if let Some(copy) =
                                    store.keep(number, SIZE, Orientation::UPRIGHT, None, &bytes)
                                {
                                    assert!(copy == bytes, "number {number}");
                                }
                            }
                        })
                    })
                    .collect();
                let watch = scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        assert!(store.stats().taken_bytes <= limit);
                    }
                });
                for thread in threads {
                    thread.join().unwrap();
                }
                done.store(true, Ordering::Relaxed);
                watch.join().unwrap();
            });
            let stats = store.stats();
            assert!(stats.taken_bytes <= limit && stats.kept_bytes <= stats.taken_bytes);
            assert_eq!(stats.hits + stats.misses, 4 * numbers);
            let there: Vec<_> =
                (0..numbers).filter_map(|it| Some((it, store.get(it, 1)?))).collect();
            assert_eq!(there.len() as u64, stats.samples);
            let bytes: u64 = there.iter().map(|(_, kept)| kept.bytes.len() as u64).sum();
            assert_eq!(bytes, stats.kept_bytes);
            assert!(there.iter().all(|(number, kept)| kept.bytes == content(*number, most)));
            // Besides the table, less than the largest sample plus a few percent is wasted.
            let used = stats.kept_bytes + stats.samples * ENTRY_BYTES;
            assert!(used + most + limit / 16 + 16_384 >= limit, "{stats:?}");
        }
    }

    #[test]
    fn nothing_is_evicted_and_what_does_not_fit_is_not_stored() {
        let store = Store::new(64 << 10, 100, 0);
        let put = |number: u64, len: usize| {
            store.keep(number, SIZE, Orientation::UPRIGHT, None, &vec![number as u8; len]).is_some()
        };
        assert!(!put(0, 0) && !put(1, 70_000) && put(2, 30_000));
        assert!(!put(2, 10), "already cached");
        assert!(!put(3, 40_000) && store.has_room(3, 10_000) && put(3, 10_000));
        let kept = |number| store.get(number, 7).map(|kept| kept.bytes.len());
        assert_eq!([kept(2), kept(3), kept(1)], [Some(30_000), Some(10_000), None]);
        let stats = store.stats();
        assert_eq!((stats.samples, stats.kept_bytes), (2, 40_000));
        assert_eq!(stats.epochs, [CacheEpoch { epoch: 7, hits: 2, misses: 1 }]);
    }

    #[test]
    fn totals_count_all_epochs_and_the_latest_are_listed() {
        let store = Store::new(64 << 10, 100, 0);
        store.keep(1, SIZE, Orientation::UPRIGHT, None, b"a");
        let epochs = 5000;
        for epoch in 0..epochs {
            assert!(store.get(1, epoch).is_some() && store.get(2, epoch).is_none());
        }
        let stats = store.stats();
        assert_eq!((stats.hits, stats.misses), (epochs.into(), epochs.into()));
        let kept: Vec<_> = stats.epochs.iter().map(|it| (it.epoch, it.hits, it.misses)).collect();
        let latest = epochs - EPOCHS as u32..epochs;
        assert_eq!(kept, latest.map(|epoch| (epoch, 1, 1)).collect::<Vec<_>>());
    }

    #[test]
    fn a_limit_too_small_for_the_table_caches_nothing() {
        let store = Store::new(100, 1 << 40, 0);
        assert!(store.keep(1, SIZE, Orientation::UPRIGHT, None, b"a").is_none());
        assert_eq!((store.get(1, 0), store.stats().taken_bytes), (None, 0));
    }

    /// With 10 million sample numbers and a limit of 1 GiB, the table takes a thousandth of the
    /// limit.
    #[test]
    fn the_table_is_a_small_part_of_the_limit() {
        let store = Store::new(1 << 30, 10_000_000, 0);
        assert!(store.stats().taken_bytes <= (1 << 30) / 1000);
    }
}
