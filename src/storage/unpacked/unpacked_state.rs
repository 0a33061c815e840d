//! Cached blocks, idle decoders and marks of the files, with their eviction.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::decoder::{Decoder, Mark};
use super::sequence::Sequence;
use super::{BLOCK, Key, Limits, Packing};

#[cfg(test)]
mod tests;

pub struct UnpackedState {
    limits: Limits,
    sequence: Sequence,
    blocks: HashMap<Key, Block>,
    /// Total size in bytes of the blocks that reads have reached, and of the blocks that were
    /// decompressed ahead of reads.
    block_bytes: usize,
    ahead_bytes: usize,
    /// Idle decoders. The most recently used one is last.
    waiting: Vec<Waiting>,
    /// Size of the largest decoder that was ever idle, in bytes.
    decoder_bytes: usize,
    running: Vec<Running>,
    /// Marks, ordered by file number and position.
    marks: BTreeMap<(usize, u64), Arc<Mark>>,
    mark_bytes: usize,
    /// Distance between marks, in bytes.
    distance: u64,
    /// Lengths of the files whose end a decoder has reached.
    ends: HashMap<usize, u64>,
    /// Files whose decompression ahead of reads has failed. Later reads report the error.
    spoiled: HashSet<usize>,
    /// Number of uses of blocks so far. Each block stores this number at its last use, for LRU
    /// eviction.
    clock: u64,
}

struct Block {
    bytes: Arc<Vec<u8>>,
    used: u64,
    /// Whether no read has reached the block yet.
    ahead: bool,
}

/// A decoder that no thread is running.
struct Waiting {
    number: usize,
    decoder: Decoder,
    ahead: bool,
}

/// A decoder that a thread is running.
struct Running {
    number: usize,
    at: u64,
    id: u64,
    ahead: bool,
}

/// Task of decompressing a file up to a block, with the idle decoder or the mark to start from.
pub struct Work {
    /// Number that identifies the running decoder.
    pub id: u64,
    pub key: Key,
    /// Whether the block is decompressed ahead of reads, so no thread waits for it.
    pub ahead: bool,
    waiting: Option<Decoder>,
    mark: Option<Arc<Mark>>,
}

impl UnpackedState {
    /// Creates an empty state for files that are read in any order.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            sequence: Sequence::new(0),
            blocks: HashMap::new(),
            block_bytes: 0,
            ahead_bytes: 0,
            waiting: Vec::new(),
            decoder_bytes: 0,
            running: Vec::new(),
            marks: BTreeMap::new(),
            mark_bytes: 0,
            distance: 4 * BLOCK,
            ends: HashMap::new(),
            spoiled: HashSet::new(),
            clock: 0,
        }
    }

    /// Sets the number of files that may be read in sequence.
    pub fn list(&mut self, files: usize) {
        self.sequence = Sequence::new(files);
        self.release();
    }

    /// Records a request for a block. Blocks that sequential reads have passed then count as
    /// reached.
    pub fn follow(&mut self, key: Key) {
        if self.sequence.follow(key) {
            self.release();
        }
    }

    /// Returns a cached block.
    pub fn kept(&mut self, key: Key) -> Option<Arc<Vec<u8>>> {
        self.clock += 1;
        let block = self.blocks.get_mut(&key)?;
        block.used = self.clock;
        Some(Arc::clone(&block.bytes))
    }

    /// Whether the file is known to end before the block.
    pub fn is_over(&self, (number, block): Key) -> bool {
        self.ends.get(&number).is_some_and(|&end| end <= block * BLOCK)
    }

    /// Returns the work of decompressing a file up to a block. Returns `None` if a running decoder
    /// will reach the block anyway.
    pub fn begin(&mut self, key: Key, ahead: bool) -> Option<Work> {
        let (number, target) = (key.0, key.1 * BLOCK);
        let (at, place) = self.nearest(number, target);
        if self.is_under_way(number, at..=target) {
            return None;
        }
        self.clock += 1;
        let id = self.clock;
        self.running.push(Running { number, at, id, ahead });
        let waiting = place.map(|place| self.waiting.remove(place).decoder);
        let mark = self.marks.get(&(number, at)).cloned();
        Some(Work { id, key, ahead, waiting, mark })
    }

    /// Returns the work of decompressing the next block ahead of reads: a block that will be
    /// needed, is not cached, and that no running decoder will reach. Returns `None` if there is no
    /// space for the block, or if reads are not sequential. `has` states which files can be
    /// decompressed.
    pub fn look_ahead(&mut self, has: impl Fn(usize) -> bool) -> Option<Work> {
        let next = self.next_ahead(has)?;
        self.begin(next, true)
    }

    /// Returns the block that [`look_ahead`](Self::look_ahead) would decompress.
    fn next_ahead(&self, has: impl Fn(usize) -> bool) -> Option<Key> {
        let helping = self.running.iter().filter(|it| it.ahead).count();
        let room = self.limits.ahead.saturating_sub(self.ahead_bytes);
        if (helping + 1) * BLOCK as usize > room {
            return None;
        }
        let mut places = self.sequence.next().filter(|(number, _)| has(*number));
        places.find_map(|place| self.free(place))
    }

    /// Returns the first block of a file, from the given one on, that can be decompressed before it
    /// is read.
    fn free(&self, (number, mut block): Key) -> Option<Key> {
        while !self.is_over((number, block))
            && !self.spoiled.contains(&number)
            && self.sequence.is_ahead((number, block))
        {
            if self.blocks.contains_key(&(number, block)) {
                block += 1;
                continue;
            }
            let target = block * BLOCK;
            let (at, place) = self.nearest(number, target);
            if !self.is_under_way(number, at..=target) {
                let fits = place.is_some() || self.has_room_for_a_decoder();
                return fits.then_some((number, block));
            }
            // Continues at the next position at which another decoder can start.
            let mut marks = self.marks.range((number, target + 1)..=(number, u64::MAX));
            block = marks.next()?.0.1.div_ceil(BLOCK);
        }
        None
    }

    /// Whether the memory limit allows all decoders that are needed now, plus one more, to be idle
    /// at the same time.
    fn has_room_for_a_decoder(&self) -> bool {
        let needed = self.running.len() + self.waiting.iter().filter(|it| it.ahead).count() + 1;
        needed * self.decoder_bytes <= self.limits.decoders
    }

    /// Records bytes that a decoder produced for a file from position `from` on.
    pub fn passed(&mut self, work: &Work, from: u64, bytes: &Arc<Vec<u8>>, decoder: &Decoder) {
        let (number, block) = work.key;
        let key = (number, from / BLOCK);
        // A decoder that works ahead of reads caches only its target block. The blocks before the
        // target have already been read, or are not needed yet.
        let wanted = !work.ahead || key.1 == block;
        if from.is_multiple_of(BLOCK) && !bytes.is_empty() && wanted {
            self.keep(key, bytes, work.ahead);
        }
        self.mark(number, decoder);
        self.running.iter_mut().filter(|it| it.id == work.id).for_each(|it| it.at = decoder.at());
    }

    /// Records the length of a file.
    pub fn ended(&mut self, number: usize, bytes: u64) {
        self.ends.insert(number, bytes);
    }

    /// Excludes a file from being decompressed ahead of reads, because this has failed.
    pub fn spoil(&mut self, number: usize) {
        self.spoiled.insert(number);
    }

    /// Stores a decoder as idle until it is needed again.
    pub fn put_away(&mut self, number: usize, decoder: Decoder, ahead: bool) {
        let next = (number, decoder.at() / BLOCK);
        let ahead = ahead && self.sequence.is_ahead(next);
        if ahead && self.blocks.contains_key(&next) {
            // Another decoder has already decompressed the next block, so this decoder is dropped.
            return;
        }
        self.decoder_bytes = self.decoder_bytes.max(decoder.bytes());
        self.waiting.push(Waiting { number, decoder, ahead });
        let mut bytes: usize = self.waiting.iter().map(|it| it.decoder.bytes()).sum();
        while bytes > self.limits.decoders && self.waiting.len() > 1 {
            let others = &self.waiting[..self.waiting.len() - 1];
            let oldest = others.iter().position(|it| !it.ahead).unwrap_or(0);
            bytes -= self.waiting.remove(oldest).decoder.bytes();
        }
    }

    /// Removes a decoder from the list of running ones.
    pub fn stop(&mut self, id: u64) {
        self.running.retain(|it| it.id != id);
    }

    fn keep(&mut self, key: Key, bytes: &Arc<Vec<u8>>, ahead: bool) {
        self.clock += 1;
        if let Some(block) = self.blocks.get_mut(&key) {
            block.used = self.clock;
            return;
        }
        let ahead = ahead && self.sequence.is_ahead(key);
        let block = Block { bytes: Arc::clone(bytes), used: self.clock, ahead };
        self.blocks.insert(key, block);
        *(if ahead { &mut self.ahead_bytes } else { &mut self.block_bytes }) += bytes.len();
        self.forget();
    }

    /// Evicts the least recently used blocks that reads have reached, until the rest is within the
    /// limit.
    fn forget(&mut self) {
        while self.block_bytes > self.limits.blocks {
            let blocks = || self.blocks.iter().filter(|(_, block)| !block.ahead);
            let oldest = blocks().min_by_key(|(_, block)| block.used);
            let Some(key) = oldest.map(|(key, _)| *key).filter(|_| blocks().count() > 1) else {
                return;
            };
            if let Some(block) = self.blocks.remove(&key) {
                self.block_bytes -= block.bytes.len();
            }
        }
    }

    /// Marks the blocks that sequential reads have passed as reached. If reads are no longer
    /// sequential, all blocks count as reached.
    fn release(&mut self) {
        for (key, block) in &mut self.blocks {
            if block.ahead && !self.sequence.is_ahead(*key) {
                block.ahead = false;
                self.ahead_bytes -= block.bytes.len();
                self.block_bytes += block.bytes.len();
            }
        }
        for it in &mut self.waiting {
            it.ahead &= self.sequence.is_ahead((it.number, it.decoder.at() / BLOCK));
        }
        self.forget();
    }

    fn is_under_way(&self, number: usize, bytes: RangeInclusive<u64>) -> bool {
        self.running.iter().any(|it| it.number == number && bytes.contains(&it.at))
    }

    /// Returns the last position at or before `target` at which a decoder can start. Also returns
    /// the index of an idle decoder at this position, if any.
    fn nearest(&self, number: usize, target: u64) -> (u64, Option<usize>) {
        let marks = self.marks.range((number, 0)..=(number, target));
        let mark = marks.last().map_or(0, |((_, at), _)| *at);
        let waiting = self.waiting.iter().enumerate();
        let waiting = waiting.map(|(place, it)| (it.number, it.decoder.at(), place));
        let waiting =
            waiting.filter(|(file, at, _)| *file == number && (mark..=target).contains(at));
        match waiting.max_by_key(|(_, at, _)| *at) {
            Some((_, at, place)) => (at, Some(place)),
            None => (mark, None),
        }
    }

    /// Stores a mark at the decoder's position, unless the distance to the previous mark is too
    /// small.
    fn mark(&mut self, number: usize, decoder: &Decoder) {
        let before = self.marks.range((number, 0)..=(number, decoder.at())).last();
        let from = before.map_or(0, |((_, at), _)| *at) + self.distance;
        // If another decoder has already stored marks for this part of the file, `from` is after
        // the position of `decoder`. Then `mark` returns `None` without cloning anything.
        let Some(mark) = decoder.mark(from) else { return };
        self.mark_bytes += mark.bytes();
        self.marks.insert((number, mark.at), Arc::new(mark));
        while self.mark_bytes > self.limits.marks && self.marks.len() > 1 {
            self.distance = self.distance.saturating_mul(2);
            let (mut last, mut bytes, distance) = (None, 0, self.distance);
            self.marks.retain(|&(number, at), mark| {
                let place = Some((number, at / distance));
                let keeps = at >= distance && place != last;
                if keeps {
                    last = place;
                    bytes += mark.bytes();
                }
                keeps
            });
            self.mark_bytes = bytes;
        }
    }
}

impl Work {
    /// Returns the decoder to run.
    pub fn decoder(&mut self, packing: Packing) -> io::Result<Decoder> {
        match (self.waiting.take(), &self.mark) {
            (Some(decoder), _) => Ok(decoder),
            (None, Some(mark)) => Decoder::resume(mark),
            (None, None) => Decoder::new(packing),
        }
    }
}
