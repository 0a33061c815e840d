//! Decompressed pages in memory, under one limit for all of it: pages that are kept, pages that are being read, and
//! buffers that wait for the next page.

use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::Wrong;
use super::page::Values;

/// Pages by their number. The one that was used least lately goes first.
pub struct Cache {
    limit: u64,
    state: Mutex<State>,
    /// Something may go now, or a page has come.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Bytes of all buffers, wherever they are.
    used: u64,
    clock: u64,
    slots: HashMap<u64, Slot>,
    /// The page that was used at each time.
    order: BTreeMap<u64, u64>,
    spare: Vec<Vec<u8>>,
    waiting: u32,
    #[cfg(test)]
    most_used: u64,
}

enum Slot {
    /// Some thread reads it.
    Coming,
    There { block: Arc<Block>, used_at: u64 },
}

/// A page's bytes and the values in them.
pub struct Block {
    buffer: Vec<u8>,
    len: usize,
    pub values: Arc<Values>,
}

/// A page that stays while this is there. Whoever has one must not ask for another.
pub struct Held<'a> {
    block: Option<Arc<Block>>,
    cache: &'a Cache,
}

/// Two buffers, and a page that is announced with them.
struct Loan<'a> {
    body: Vec<u8>,
    stored: Vec<u8>,
    key: Option<u64>,
    cache: &'a Cache,
}

impl Cache {
    /// An empty one, for this many bytes.
    pub fn new(limit: u64) -> Self {
        Self { limit, state: Mutex::default(), changed: Condvar::new() }
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The page, if it is there.
    pub fn find(&self, key: u64) -> Option<Held<'_>> {
        self.lock().find(key).map(|block| Held { block: Some(block), cache: self })
    }

    /// The page, which `make` reads into `size` bytes with the help of `stored` more, if it is not there. Where two
    /// threads want the same page, one reads it. The two together must be within the limit.
    pub fn load(
        &self,
        key: u64,
        size: usize,
        stored: usize,
        make: impl FnOnce(&mut [u8], &mut [u8]) -> Result<Arc<Values>, Wrong>,
    ) -> Result<Held<'_>, Wrong> {
        let mut state = self.lock();
        loop {
            if let Some(block) = state.find(key) {
                return Ok(Held { block: Some(block), cache: self });
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
        Ok(Held { block: Some(block), cache: self })
    }

    /// Calls `with` with two buffers of so many bytes, which together must be within the limit.
    pub fn borrow<T>(
        &self,
        size: usize,
        stored: usize,
        with: impl FnOnce(&mut [u8], &mut [u8]) -> T,
    ) -> T {
        let mut loan = self.lend(self.lock(), size, stored, None);
        with(&mut loan.body[..size], &mut loan.stored[..stored])
    }

    /// Whether pages of so many bytes can be read at all.
    pub fn fits(&self, size: usize, stored: usize) -> bool {
        (taken(size) + taken(stored)) as u64 <= self.limit
    }

    /// Takes both buffers at once: threads that had one each would wait for one another.
    fn lend<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
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
            if !state.let_go() {
                state.spare.extend(found.iter_mut().filter_map(Option::take));
                state = self.wait(state);
            }
        }
    }

    fn wait<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.waiting += 1;
        let mut state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        state
    }

    /// A thread that ended unexpectedly leaves a state that is whole: every change of it is.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, state: MutexGuard<'_, State>) {
        if state.waiting > 0 {
            self.changed.notify_all();
        }
    }
}

impl State {
    fn find(&mut self, key: u64) -> Option<Arc<Block>> {
        let Some(Slot::There { block, used_at }) = self.slots.get_mut(&key) else { return None };
        self.clock += 1;
        self.order.remove(used_at);
        self.order.insert(self.clock, key);
        *used_at = self.clock;
        Some(block.clone())
    }

    fn keep(&mut self, key: u64, block: Arc<Block>) {
        self.clock += 1;
        self.order.insert(self.clock, key);
        self.slots.insert(key, Slot::There { block, used_at: self.clock });
    }

    /// A buffer of so many bytes, and not of more than twice as many.
    fn take_spare(&mut self, len: usize) -> Option<Vec<u8>> {
        let place = self.spare.iter().position(|it| (len..=2 * len).contains(&it.len()))?;
        Some(self.spare.swap_remove(place))
    }

    /// Gives back a buffer that waits; else lets a page go, whose buffer then waits. Fails where all are in use.
    fn let_go(&mut self) -> bool {
        if let Some(buffer) = self.spare.pop() {
            self.used -= buffer.len() as u64;
            return true;
        }
        // Those in use were used lately: the first is nearly always free.
        let free = self.order.iter().find_map(|(time, key)| match self.slots.get(key) {
            Some(Slot::There { block, .. }) if Arc::strong_count(block) == 1 => Some((*time, *key)),
            _ => None,
        });
        let Some((time, key)) = free else { return false };
        self.order.remove(&time);
        if let Some(Slot::There { block, .. }) = self.slots.remove(&key)
            && let Ok(Block { buffer, .. }) = Arc::try_unwrap(block)
        {
            self.spare.push(buffer);
        }
        true
    }
}

impl Deref for Held<'_> {
    type Target = Block;

    fn deref(&self) -> &Block {
        self.block.as_deref().expect("it is there until the drop")
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // Under the lock, so that nobody begins to wait between the look at the count and this.
        let state = self.cache.lock();
        self.block = None;
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

/// Bytes that are taken for so many: eight steps to the double, so that buffers fit again.
pub fn taken(len: usize) -> usize {
    if len == 0 {
        return 0;
    }
    let step = (len.next_power_of_two() / 16).max(4096);
    len.next_multiple_of(step)
}
