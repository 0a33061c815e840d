//! Bookkeeping of the used and free ranges of a block of memory. The block itself belongs to the
//! pool (`pool.rs`).

use std::collections::BTreeMap;

/// Block of `capacity` bytes with first-fit allocation. Pieces may be freed in any order. Pieces
/// begin at multiples of the alignment, and their lengths are rounded up to multiples of it.
#[derive(Debug)]
pub(super) struct Arena {
    capacity: usize,
    align: usize,
    /// Free ranges: the length of each, by its offset. Adjacent free ranges are joined into one.
    free: BTreeMap<usize, usize>,
    used: usize,
    peak: usize,
}

impl Arena {
    pub fn new(capacity: usize, align: usize) -> Self {
        let free = if capacity > 0 { BTreeMap::from([(0, capacity)]) } else { BTreeMap::new() };
        Self { capacity, align, free, used: 0, peak: 0 }
    }

    /// Allocates a piece and returns its offset, or `None` if no gap is long enough.
    pub fn take(&mut self, bytes: usize) -> Option<usize> {
        let bytes = self.rounded(bytes)?;
        let (&offset, &len) = self.free.iter().find(|(_, len)| **len >= bytes)?;
        self.free.remove(&offset);
        if len > bytes {
            self.free.insert(offset + bytes, len - bytes);
        }
        self.used += bytes;
        self.peak = self.peak.max(self.used);
        Some(offset)
    }

    /// Frees a piece that `take` returned for `bytes` bytes.
    pub fn give(&mut self, offset: usize, bytes: usize) {
        let Some(bytes) = self.rounded(bytes) else { return };
        self.used -= bytes;
        let (mut start, mut end) = (offset, offset + bytes);
        if let Some((&before, &len)) = self.free.range(..offset).next_back()
            && before + len == offset
        {
            self.free.remove(&before);
            start = before;
        }
        if let Some(len) = self.free.remove(&end) {
            end += len;
        }
        self.free.insert(start, end - start);
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    pub fn used(&self) -> usize {
        self.used
    }

    pub fn peak(&self) -> usize {
        self.peak
    }

    /// Rounds a length up to the alignment. An empty piece takes one unit of the alignment, because
    /// every piece needs its own offset.
    fn rounded(&self, bytes: usize) -> Option<usize> {
        bytes.max(1).checked_next_multiple_of(self.align)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_full_block_refuses_and_a_freed_piece_can_be_allocated_again() {
        let mut arena = Arena::new(1024, 256);
        assert_eq!(arena.take(1), Some(0));
        assert_eq!(arena.take(768), Some(256));
        assert_eq!(arena.take(1), None);
        arena.give(0, 1);
        assert_eq!(arena.take(257), None);
        assert_eq!(arena.take(256), Some(0));
        assert_eq!((arena.used(), arena.peak()), (1024, 1024));
    }

    proptest! {
        #[test]
        fn pieces_never_overlap_and_gaps_grow_together(steps in prop::collection::vec((any::<bool>(), 0usize..3000), 1..200)) {
            let mut arena = Arena::new(16384, 256);
            let mut live: Vec<(usize, usize)> = Vec::new();
            for (take, value) in steps {
                if take {
                    if let Some(offset) = arena.take(value) {
                        prop_assert!(offset % 256 == 0 && offset + value <= 16384);
                        for &(other, bytes) in &live {
                            prop_assert!(offset + value <= other || other + bytes <= offset);
                        }
                        live.push((offset, value.max(1)));
                    }
                } else if !live.is_empty() {
                    let (offset, bytes) = live.swap_remove(value % live.len());
                    arena.give(offset, bytes);
                }
                prop_assert_eq!(arena.used(), live.iter().map(|(_, bytes)| bytes.next_multiple_of(256)).sum::<usize>());
            }
            for (offset, bytes) in live {
                arena.give(offset, bytes);
            }
            prop_assert_eq!(arena.take(16384), Some(0));
        }
    }
}
