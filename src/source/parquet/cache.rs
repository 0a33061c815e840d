//! Cache of decompressed pages with a memory limit. The limit includes pages that are being read
//! and spare buffers.

use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::FileError;
use super::page::Values;

/// Cache of pages, keyed by number, with LRU eviction.
pub struct Cache {
    limit: u64,
    state: Mutex<PageCacheState>,
    /// Signals that a page became evictable or was loaded.
    changed: Condvar,
}

#[derive(Default)]
struct PageCacheState {
    /// Total size of all buffers in bytes: cached, being read and spare.
    used: u64,
    clock: u64,
    slots: HashMap<u64, Slot>,
    /// For each time of `clock` at which a cached page was last used, the number of this page. LRU
    /// eviction follows this order.
    order: BTreeMap<u64, u64>,
    spare: Vec<Vec<u8>>,
    /// Pages whose values have all been read. If not all pages fit into memory, these pages are
    /// evicted first. Sequential reading then cycles through a few buffers that stay in the CPU's
    /// caches.
    done: Vec<u64>,
    all_fit: bool,
    waiting: u32,
    #[cfg(test)]
    most_used: u64,
}

enum Slot {
    /// A thread is reading the page.
    Coming,
    /// The page is loaded. `left` of its values have not been read yet, assuming that each is read
    /// once.
    There { block: Arc<Block>, used_at: u64, left: usize },
}

/// Bytes of a page, and the positions of its values.
pub struct Block {
    buffer: Vec<u8>,
    len: usize,
    pub values: Arc<Values>,
}

/// Page that is pinned while this value is alive. A thread must not pin two pages, because the
/// second could wait forever for memory that pinned pages occupy.
pub struct Held<'a> {
    block: Option<Arc<Block>>,
    key: u64,
    used: bool,
    cache: &'a Cache,
}

/// Two buffers that a thread has borrowed, and the number of the page that the thread loads into
/// them.
struct Loan<'a> {
    body: Vec<u8>,
    stored: Vec<u8>,
    key: Option<u64>,
    cache: &'a Cache,
}

impl Cache {
    /// Creates an empty cache with a limit in bytes.
    pub fn new(limit: u64) -> Self {
        Self { limit, state: Mutex::default(), changed: Condvar::new() }
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the page if it is cached.
    pub fn find(&self, key: u64) -> Option<Held<'_>> {
        let block = self.lock().find(key)?;
        Some(self.held(key, block))
    }

    /// Returns the page. If it is not cached, `make` reads it into a buffer of `size` bytes, with a
    /// second buffer of `stored` bytes. Both buffers together must be within the limit. If several
    /// threads request the same page, only one of them reads it.
    pub fn load(
        &self,
        key: u64,
        size: usize,
        stored: usize,
        make: impl FnOnce(&mut [u8], &mut [u8]) -> Result<Arc<Values>, FileError>,
    ) -> Result<Held<'_>, FileError> {
        let mut state = self.lock();
        loop {
            if let Some(block) = state.find(key) {
                drop(state);
                return Ok(self.held(key, block));
            }
            if !state.slots.contains_key(&key) {
                break;
            }
            state = self.wait(state);
        }
        state.slots.insert(key, Slot::Coming);
        let mut loan = self.lend(state, size, stored, Some(key));
        let (body, room) = (&mut loan.body[..size], &mut loan.stored[..stored]);
        let values = make(body, room)?;
        let block = Arc::new(Block { buffer: std::mem::take(&mut loan.body), len: size, values });
        loan.key = None;
        let mut state = self.lock();
        state.keep(key, block.clone());
        drop(state);
        Ok(self.held(key, block))
    }

    /// Sets the total size of all pages of the source, in bytes.
    pub fn expect(&self, bytes: u64) {
        self.lock().all_fit = bytes <= self.limit;
    }

    /// Calls `with` with two buffers of these sizes in bytes. Both buffers together must be within
    /// the limit.
    pub fn borrow<T>(
        &self,
        size: usize,
        stored: usize,
        with: impl FnOnce(&mut [u8], &mut [u8]) -> T,
    ) -> T {
        let mut loan = self.lend(self.lock(), size, stored, None);
        with(&mut loan.body[..size], &mut loan.stored[..stored])
    }

    /// Whether two buffers of these sizes in bytes are within the limit.
    pub fn fits(&self, size: usize, stored: usize) -> bool {
        (taken(size) + taken(stored)) as u64 <= self.limit
    }

    /// Allocates both buffers at once. If threads allocated one after the other, two threads with
    /// one buffer each would deadlock.
    fn lend<'a>(
        &'a self,
        mut state: MutexGuard<'a, PageCacheState>,
        size: usize,
        stored: usize,
        key: Option<u64>,
    ) -> Loan<'a> {
        let wanted = [taken(size), taken(stored)];
        let mut found: [Option<Vec<u8>>; 2] = [None, None];
        loop {
            let mut missing = 0;
            for (buffer, len) in found.iter_mut().zip(wanted) {
                *buffer = buffer.take().or_else(|| state.take_spare(len));
                missing += if buffer.is_none() { len } else { 0 };
            }
            if missing > 0 && !state.all_fit && state.let_go_done() {
                continue;
            }
            if state.used + missing as u64 <= self.limit {
                state.used += missing as u64;
                #[cfg(test)]
                {
                    state.most_used = state.most_used.max(state.used);
                }
                drop(state);
                let take = |number: usize, found: &mut [Option<Vec<u8>>; 2]| {
                    found[number].take().unwrap_or_else(|| vec![0; wanted[number]])
                };
                let (body, stored) = (take(0, &mut found), take(1, &mut found));
                return Loan { body, stored, key, cache: self };
            }
            if state.let_go() {
                continue;
            }
            // A spare buffer may be larger than needed. Freeing it makes memory available for a
            // smaller buffer.
            let larger = found
                .iter_mut()
                .zip(wanted)
                .find_map(|(buffer, len)| buffer.take_if(|buffer| buffer.len() > len));
            if let Some(buffer) = larger {
                state.used -= buffer.len() as u64;
            } else {
                state.spare.extend(found.iter_mut().filter_map(Option::take));
                state = self.wait(state);
            }
        }
    }

    fn held(&self, key: u64, block: Arc<Block>) -> Held<'_> {
        Held { block: Some(block), key, used: true, cache: self }
    }

    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, PageCacheState>,
    ) -> MutexGuard<'a, PageCacheState> {
        state.waiting += 1;
        let mut state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        state
    }

    /// Ignores poisoning, because every change leaves the state consistent.
    fn lock(&self) -> MutexGuard<'_, PageCacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, state: MutexGuard<'_, PageCacheState>) {
        if state.waiting > 0 {
            self.changed.notify_all();
        }
    }
}

impl PageCacheState {
    fn find(&mut self, key: u64) -> Option<Arc<Block>> {
        let Some(Slot::There { block, used_at, .. }) = self.slots.get_mut(&key) else {
            return None;
        };
        self.clock += 1;
        self.order.remove(used_at);
        self.order.insert(self.clock, key);
        *used_at = self.clock;
        Some(block.clone())
    }

    fn keep(&mut self, key: u64, block: Arc<Block>) {
        self.clock += 1;
        self.order.insert(self.clock, key);
        let left = block.values.len();
        self.slots.insert(key, Slot::There { block, used_at: self.clock, left });
    }

    fn count(&mut self, key: u64) {
        if let Some(Slot::There { left, .. }) = self.slots.get_mut(&key) {
            let before = std::mem::replace(left, left.saturating_sub(1));
            if before == 1 {
                self.done.push(key);
            }
        }
    }

    /// Returns a spare buffer with at least `len` and at most `2 * len` bytes.
    fn take_spare(&mut self, len: usize) -> Option<Vec<u8>> {
        let place = self.spare.iter().position(|it| (len..=2 * len).contains(&it.len()))?;
        Some(self.spare.swap_remove(place))
    }

    /// Frees a spare buffer. If there is none, evicts a page, whose buffer becomes spare. Returns
    /// false if all pages are in use.
    fn let_go(&mut self) -> bool {
        if let Some(buffer) = self.spare.pop() {
            self.used -= buffer.len() as u64;
            return true;
        }
        // The order begins with the least recently used page, which is nearly always unpinned.
        // Therefore the search usually ends at the first page.
        let free = self.order.values().copied().find(|key| self.is_free(*key));
        free.is_some_and(|key| self.remove(key))
    }

    /// Evicts a page whose values have all been read. Its buffer becomes spare.
    fn let_go_done(&mut self) -> bool {
        while let Some(key) = self.done.pop() {
            if self.is_free(key)
                && matches!(self.slots.get(&key), Some(Slot::There { left: 0, .. }))
            {
                return self.remove(key);
            }
        }
        false
    }

    fn is_free(&self, key: u64) -> bool {
        matches!(self.slots.get(&key), Some(Slot::There { block, .. }) if Arc::strong_count(block) == 1)
    }

    fn remove(&mut self, key: u64) -> bool {
        let Some(Slot::There { block, used_at, .. }) = self.slots.remove(&key) else {
            return false;
        };
        self.order.remove(&used_at);
        if let Ok(Block { buffer, .. }) = Arc::try_unwrap(block) {
            self.spare.push(buffer);
        }
        true
    }
}

impl Held<'_> {
    /// Returns the positions of the values without counting a value of the page as read.
    pub fn unused(mut self) -> Arc<Values> {
        self.used = false;
        self.values.clone()
    }
}

impl Deref for Held<'_> {
    type Target = Block;

    fn deref(&self) -> &Block {
        self.block.as_deref().expect("present until the drop")
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // A thread starts to wait only while it holds this lock. Therefore every waiting thread
        // notices that the pin is released and the value is counted.
        let mut state = self.cache.lock();
        self.block = None;
        if self.used {
            state.count(self.key);
        }
        self.cache.tell(state);
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        let mut state = self.cache.lock();
        for buffer in [std::mem::take(&mut self.body), std::mem::take(&mut self.stored)] {
            if !buffer.is_empty() {
                state.spare.push(buffer);
            }
        }
        if let Some(key) = self.key {
            state.slots.remove(&key);
        }
        self.cache.tell(state);
    }
}

impl Block {
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

/// Returns the size of the buffer that is allocated for `len` bytes. There are eight sizes per
/// doubling, so buffers can be reused.
pub fn taken(len: usize) -> usize {
    if len == 0 {
        return 0;
    }
    let step = (len.next_power_of_two() / 16).max(4096);
    len.next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    /// Loads a page that consists of `len` equal bytes.
    fn page(cache: &Cache, key: u64, len: usize, made: &AtomicUsize) -> Vec<u8> {
        let page = cache.load(key, len, len / 2, |body, stored| {
            made.fetch_add(1, Ordering::Relaxed);
            assert_eq!((body.len(), stored.len()), (len, len / 2));
            stored.fill(99);
            body.fill(key as u8);
            Ok(Arc::default())
        });
        page.unwrap().bytes().to_vec()
    }

    #[test]
    fn pages_are_read_once_and_the_least_recently_used_is_evicted() {
        let (cache, made) = (Cache::new(4 * 4096), AtomicUsize::new(0));
        let at = |key, expected| {
            assert_eq!(page(&cache, key, 4000, &made), [key as u8; 4000]);
            assert_eq!(made.load(Ordering::Relaxed), expected, "{key}");
        };
        at(1, 1);
        at(2, 2);
        at(1, 2);
        at(3, 3);
        at(1, 3);
        // The limit allows three cached pages and a buffer for reading. Loading page 4 evicts the
        // least recently used page, page 2.
        at(4, 4);
        at(1, 4);
        at(2, 5);
        assert!(cache.find(1).is_some() && cache.find(3).is_none());
    }

    #[test]
    fn many_threads_never_exceed_the_limit() {
        let (cache, made) = (Cache::new(100_000), AtomicUsize::new(0));
        thread::scope(|scope| {
            for start in 0..8 {
                let (cache, made) = (&cache, &made);
                scope.spawn(move || {
                    for step in 0..400 {
                        let key = (start * 7 + step * 3) % 23;
                        let len = 1000 + 2500 * key as usize;
                        assert_eq!(page(cache, key, len, made), vec![key as u8; len]);
                        let sum = cache.borrow(len, 9, |body, rest| body.len() + rest.len());
                        assert_eq!(sum, len + 9);
                    }
                });
            }
        });
        let state = cache.lock();
        assert!(state.most_used <= 100_000 && state.most_used > 90_000, "{}", state.most_used);
        assert_eq!(state.waiting, 0);
    }

    #[test]
    fn a_page_that_failed_is_retried_by_the_next_reader() {
        let cache = Cache::new(10_000);
        for _ in 0..3 {
            let bad = cache.load(1, 5000, 0, |_, _| Err(FileError::corrupt(7, "no")));
            assert_eq!(bad.err().unwrap().offset, 7);
        }
        assert_eq!(page(&cache, 1, 4000, &AtomicUsize::new(0)).len(), 4000);
        assert!(cache.fits(4000, 4000) && !cache.fits(8000, 8000));
    }
}
