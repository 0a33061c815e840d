//! What is kept of the files: blocks, decoders that wait, marks; and which of it gives way.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::decoder::{Decoder, Mark};
use super::sequence::Sequence;
use super::{BLOCK, Key, Limits, Packing};

#[cfg(test)]
mod tests;

pub struct State {
    limits: Limits,
    sequence: Sequence,
    blocks: HashMap<Key, Block>,
    /// Bytes of the blocks that are not ahead, and of those that are.
    block_bytes: usize,
    ahead_bytes: usize,
    /// The one that was used last is the last.
    waiting: Vec<Waiting>,
    /// Bytes of the largest one that has waited.
    decoder_bytes: usize,
    running: Vec<Running>,
    /// By file and byte.
    marks: BTreeMap<(usize, u64), Arc<Mark>>,
    mark_bytes: usize,
    /// Bytes between marks.
    distance: u64,
    /// Bytes of the files whose end was met.
    ends: HashMap<usize, u64>,
    /// Files that failed when they were unpacked ahead: that is left to who reads them.
    spoiled: HashSet<usize>,
    /// Counts uses.
    clock: u64,
}

struct Block {
    bytes: Arc<Vec<u8>>,
    used: u64,
    /// No read has come to it yet.
    ahead: bool,
}

/// A decoder that no thread drives.
struct Waiting {
    number: usize,
    decoder: Decoder,
    ahead: bool,
}

/// A decoder that a thread drives.
struct Running {
    number: usize,
    at: u64,
    id: u64,
    ahead: bool,
}

/// A way to a block: for the thread that asked for it.
pub struct Work {
    /// Of the decoder, among those that run.
    pub id: u64,
    pub key: Key,
    /// Whether the block is one that nobody waits for.
    pub ahead: bool,
    waiting: Option<Decoder>,
    mark: Option<Arc<Mark>>,
}

impl State {
    /// With nothing kept, of files that are read in any order.
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

    /// From now on this many files may be read one after another.
    pub fn list(&mut self, files: usize) {
        self.sequence = Sequence::new(files);
        self.release();
    }

    /// A block is asked for: what it leaves behind is no longer ahead.
    pub fn follow(&mut self, key: Key) {
        if self.sequence.follow(key) {
            self.release();
        }
    }

    /// A block that is kept.
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

    /// The way to a block, unless a decoder is on its way there already.
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

    /// The way to the next block that will be needed, that is not kept and that no decoder is on its way to; `None` where
    /// there is no room for it, or reads do not follow one another. `has` says which files can be unpacked.
    pub fn look_ahead(&mut self, has: impl Fn(usize) -> bool) -> Option<Work> {
        let next = self.next_ahead(has)?;
        self.begin(next, true)
    }

    /// That block.
    fn next_ahead(&self, has: impl Fn(usize) -> bool) -> Option<Key> {
        let helping = self.running.iter().filter(|it| it.ahead).count();
        let room = self.limits.ahead.saturating_sub(self.ahead_bytes);
        if (helping + 1) * BLOCK as usize > room {
            return None;
        }
        let mut places = self.sequence.next().filter(|(number, _)| has(*number));
        places.find_map(|place| self.free(place))
    }

    /// The first block of a file, from this one on, that can be unpacked ahead.
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
            // The next place from which another decoder can go.
            let mut marks = self.marks.range((number, target + 1)..=(number, u64::MAX));
            block = marks.next()?.0.1.div_ceil(BLOCK);
        }
        None
    }

    /// Whether all decoders that are needed now can wait at the same time, with one more.
    fn has_room_for_a_decoder(&self) -> bool {
        let needed = self.running.len() + self.waiting.iter().filter(|it| it.ahead).count() + 1;
        needed * self.decoder_bytes <= self.limits.decoders
    }

    /// A decoder has given these bytes of a file, which begin there.
    pub fn passed(&mut self, work: &Work, from: u64, bytes: &Arc<Vec<u8>>, decoder: &Decoder) {
        let (number, block) = work.key;
        let key = (number, from / BLOCK);
        // What lies before a block that nobody waits for is over, or is not needed yet.
        let wanted = !work.ahead || key.1 == block;
        if from.is_multiple_of(BLOCK) && !bytes.is_empty() && wanted {
            self.keep(key, bytes, work.ahead);
        }
        self.mark(number, decoder);
        self.running.iter_mut().filter(|it| it.id == work.id).for_each(|it| it.at = decoder.at());
    }

    /// The file has this many bytes.
    pub fn ended(&mut self, number: usize, bytes: u64) {
        self.ends.insert(number, bytes);
    }

    /// The file is not unpacked ahead any more.
    pub fn spoil(&mut self, number: usize) {
        self.spoiled.insert(number);
    }

    /// The decoder waits until it is needed again.
    pub fn put_away(&mut self, number: usize, decoder: Decoder, ahead: bool) {
        let next = (number, decoder.at() / BLOCK);
        let ahead = ahead && self.sequence.is_ahead(next);
        if ahead && self.blocks.contains_key(&next) {
            // Another one has been from here on.
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

    /// A thread drives this decoder no more.
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

    /// Forgets the blocks that were not used for the longest time, as many as are too many.
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

    /// What the front has passed, and all where there is none any more, is not ahead.
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

    /// The last place at or before a byte where a decoder can start, and which waiting one, if it is one.
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

    /// Keeps where the decoder can go on, unless there is a mark near.
    fn mark(&mut self, number: usize, decoder: &Decoder) {
        let before = self.marks.range((number, 0)..=(number, decoder.at())).last();
        let from = before.map_or(0, |((_, at), _)| *at) + self.distance;
        // Nothing is cloned where another decoder has marked what lies ahead.
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
    /// The decoder to drive.
    pub fn decoder(&mut self, packing: Packing) -> io::Result<Decoder> {
        match (self.waiting.take(), &self.mark) {
            (Some(decoder), _) => Ok(decoder),
            (None, Some(mark)) => Decoder::resume(mark),
            (None, None) => Decoder::new(packing),
        }
    }
}
