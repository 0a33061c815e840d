//! Compressed files as files of the bytes that they hold, which are read at any place.
//!
//! * A decoder only runs forwards. What it gives is kept in blocks of 1 MiB, so reads that follow one another, from any
//!   number of threads, cost one pass. A read before all decoders of its file goes on at the nearest mark behind it, and
//!   so does one far ahead: reads in any order unpack half a distance of marks each, on average.
//! * Marks are kept while decoders pass: every 4 MiB of a file, farther apart when there are too many; of Zstandard only
//!   where a frame begins, so a file of one frame has none but its beginning.
//! * Memory is bounded by [`Unpacker::memory_bytes`] and by one decoder and block for each thread that reads.
//! * A file is verified as far as it is unpacked, where a decoder passes the checksums in it.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::{File, Place, Stamp};
use decoder::{Decoder, Mark};

mod decoder;

/// Bytes that are unpacked, kept and forgotten at once.
const BLOCK: u64 = 1 << 20;

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// gzip, as `.tar.gz`.
    Gzip,
    /// zlib, as TensorFlow writes records on demand.
    Zlib,
    /// Zstandard, as `.tar.zst`.
    Zstd,
}

/// What the compressed files of a source share: blocks, decoders and marks, and the bounds of their memory.
pub struct Unpacker {
    limits: Limits,
    state: Mutex<State>,
    /// A decoder has moved on, or was put away.
    moved: Condvar,
}

/// The most bytes that are kept of each sort. One is kept however large it is.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Unpacked bytes.
    pub blocks: usize,
    /// Places where decoders can go on, 43 KiB each.
    pub marks: usize,
    /// Decoders that wait: 170 KiB each of gzip; the window and as much of Zstandard, mostly 2 to 8 MiB.
    pub decoders: usize,
}

/// A compressed file, whose bytes are those that it holds.
pub struct Unpacked {
    file: Box<File>,
    number: usize,
    packing: Packing,
    unpacker: Arc<Unpacker>,
}

struct State {
    /// By file and number.
    blocks: HashMap<(usize, u64), Block>,
    block_bytes: usize,
    /// Those that wait, by file; the one that was used last is the last.
    waiting: Vec<(usize, Decoder)>,
    running: Vec<Running>,
    /// By file and byte.
    marks: BTreeMap<(usize, u64), Arc<Mark>>,
    mark_bytes: usize,
    /// Bytes between marks.
    distance: u64,
    /// Bytes of the files whose end was met.
    ends: HashMap<usize, u64>,
    /// Counts uses.
    clock: u64,
}

struct Block {
    bytes: Arc<Vec<u8>>,
    used: u64,
}

/// A decoder that a thread drives.
struct Running {
    number: usize,
    at: u64,
    id: u64,
}

/// Takes a decoder off the list of those that run, whatever happens to it.
struct Turn<'a> {
    unpacker: &'a Unpacker,
    id: u64,
}

impl Packing {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Gzip, Self::Zlib, Self::Zstd];

    /// How a file that begins so may be compressed.
    pub fn of(first: &[u8]) -> Option<Self> {
        match first {
            [0x1f, 0x8b, 8, ..] => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstd),
            [0x78, flags, ..] if u16::from_be_bytes([0x78, *flags]).is_multiple_of(31) => {
                Some(Self::Zlib)
            }
            _ => None,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { blocks: 64 << 20, marks: 32 << 20, decoders: 32 << 20 }
    }
}

impl Unpacker {
    /// With nothing kept yet.
    pub fn new(limits: Limits) -> Arc<Self> {
        let state = State {
            blocks: HashMap::new(),
            block_bytes: 0,
            waiting: Vec::new(),
            running: Vec::new(),
            marks: BTreeMap::new(),
            mark_bytes: 0,
            distance: 4 * BLOCK,
            ends: HashMap::new(),
            clock: 0,
        };
        Arc::new(Self { limits, state: Mutex::new(state), moved: Condvar::new() })
    }

    /// The bytes that this compressed file holds. A file that is opened twice has one number.
    pub fn open(self: &Arc<Self>, file: File, number: usize, packing: Packing) -> File {
        let unpacker = Arc::clone(self);
        File(Place::Unpacked(Unpacked { file: Box::new(file), number, packing, unpacker }))
    }

    /// The most memory that is kept between reads.
    pub fn memory_bytes(&self) -> u64 {
        (self.limits.blocks + self.limits.marks + self.limits.decoders) as u64
    }

    /// A block of the file, shorter where the file ends in it and empty after the end.
    fn block(&self, file: &Unpacked, number: u64) -> io::Result<Arc<Vec<u8>>> {
        let key = (file.number, number);
        let target = number * BLOCK;
        let mut state = self.lock();
        let (mut decoder, turn) = loop {
            if let Some(bytes) = state.kept(key) {
                return Ok(bytes);
            }
            if state.ends.get(&file.number).is_some_and(|&end| end <= target) {
                return Ok(Arc::default());
            }
            let (start, waiting) = state.nearest(file.number, target);
            // One that is on its way there already.
            let nearer =
                |it: &Running| it.number == file.number && (start..=target).contains(&it.at);
            if state.running.iter().any(nearer) {
                state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.clock += 1;
            let id = state.clock;
            state.running.push(Running { number: file.number, at: start, id });
            // From here on it leaves the list with its turn.
            let turn = Turn { unpacker: self, id };
            let waiting = waiting.map(|place| state.waiting.remove(place).1);
            let mark = state.marks.get(&(file.number, start)).cloned();
            drop(state);
            let decoder = match (waiting, mark) {
                (Some(decoder), _) => decoder,
                (None, Some(mark)) => Decoder::resume(&mark)?,
                (None, None) => Decoder::new(file.packing)?,
            };
            break (decoder, turn);
        };
        loop {
            let from = decoder.at();
            let end = (from / BLOCK + 1) * BLOCK;
            let mut bytes = vec![0; (end - from) as usize];
            let len = decoder.read(&file.file, &mut bytes)?;
            let ended = len < bytes.len();
            bytes.truncate(len);
            let bytes = Arc::new(bytes);
            let mut state = self.lock();
            if from.is_multiple_of(BLOCK) && len > 0 {
                state.keep((file.number, from / BLOCK), &bytes, self.limits.blocks);
            }
            if ended {
                state.ends.insert(file.number, from + len as u64);
            }
            state.mark(file.number, &decoder, self.limits.marks);
            if from == target || ended {
                state.put_away(file.number, decoder, self.limits.decoders);
                drop(state);
                drop(turn);
                return Ok(if from == target { bytes } else { Arc::default() });
            }
            state.running.iter_mut().filter(|it| it.id == turn.id).for_each(|it| it.at = end);
            drop(state);
            self.moved.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Unpacked {
    /// As [`File::read_at`], of the bytes that the file holds.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] where the compressed file is cut, [`io::ErrorKind::InvalidData`] where it is
    /// damaged; both say the compressed byte.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut len = 0;
        while len < buffer.len() {
            let at = offset + len as u64;
            let bytes = self.unpacker.block(self, at / BLOCK)?;
            let Some(bytes) = bytes.get((at % BLOCK) as usize..).filter(|it| !it.is_empty()) else {
                break;
            };
            let count = bytes.len().min(buffer.len() - len);
            buffer[len..len + count].copy_from_slice(&bytes[..count]);
            len += count;
        }
        Ok(len)
    }

    /// The stamp of the compressed file.
    pub fn stamp(&self) -> io::Result<Stamp> {
        self.file.stamp()
    }
}

impl fmt::Debug for Unpacked {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Unpacked({:?}, {:?})", self.file, self.packing)
    }
}

impl State {
    fn kept(&mut self, key: (usize, u64)) -> Option<Arc<Vec<u8>>> {
        self.clock += 1;
        let block = self.blocks.get_mut(&key)?;
        block.used = self.clock;
        Some(Arc::clone(&block.bytes))
    }

    fn keep(&mut self, key: (usize, u64), bytes: &Arc<Vec<u8>>, limit: usize) {
        self.clock += 1;
        let block = Block { bytes: Arc::clone(bytes), used: self.clock };
        self.block_bytes += bytes.len();
        if let Some(before) = self.blocks.insert(key, block) {
            self.block_bytes -= before.bytes.len();
        }
        while self.block_bytes > limit && self.blocks.len() > 1 {
            let oldest = self.blocks.iter().min_by_key(|(_, block)| block.used);
            let Some(key) = oldest.map(|(key, _)| *key) else { return };
            if let Some(block) = self.blocks.remove(&key) {
                self.block_bytes -= block.bytes.len();
            }
        }
    }

    /// The last place at or before a byte where a decoder can start, and which waiting one, if it is one.
    fn nearest(&self, number: usize, target: u64) -> (u64, Option<usize>) {
        let marks = self.marks.range((number, 0)..=(number, target));
        let mark = marks.last().map_or(0, |((_, at), _)| *at);
        let waiting = self.waiting.iter().enumerate();
        let waiting = waiting.filter(|(_, (file, decoder))| {
            *file == number && (mark..=target).contains(&decoder.at())
        });
        match waiting.max_by_key(|(_, (_, decoder))| decoder.at()) {
            Some((place, (_, decoder))) => (decoder.at(), Some(place)),
            None => (mark, None),
        }
    }

    /// Keeps where the decoder can go on, unless there is a mark near.
    fn mark(&mut self, number: usize, decoder: &Decoder, limit: usize) {
        let before = self.marks.range((number, 0)..=(number, decoder.at())).last();
        let from = before.map_or(0, |((_, at), _)| *at) + self.distance;
        // Nothing is cloned where another decoder has marked what lies ahead.
        let Some(mark) = decoder.mark(from) else { return };
        self.mark_bytes += mark.bytes();
        self.marks.insert((number, mark.at), Arc::new(mark));
        while self.mark_bytes > limit && self.marks.len() > 1 {
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

    fn put_away(&mut self, number: usize, decoder: Decoder, limit: usize) {
        self.waiting.push((number, decoder));
        let mut bytes: usize = self.waiting.iter().map(|(_, decoder)| decoder.bytes()).sum();
        while bytes > limit && self.waiting.len() > 1 {
            bytes -= self.waiting.remove(0).1.bytes();
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.unpacker.lock().running.retain(|it| it.id != self.id);
        self.unpacker.moved.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use miniz_oxide::deflate::compress_to_vec_zlib;

    #[test]
    fn what_is_kept_stays_within_the_limits() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a");
        let bytes: Vec<u8> = (0..40u64 << 20).map(|it| (it.wrapping_mul(it) >> 9) as u8).collect();
        std::fs::write(&path, compress_to_vec_zlib(&bytes, 1)).unwrap();
        let limits = Limits { blocks: 3 << 20, marks: 140_000, decoders: 400_000 };
        let unpacker = Unpacker::new(limits);
        let open = |number| unpacker.open(File::open(&path).unwrap(), number, Packing::Zlib);
        for step in 1..60u64 {
            let offset = (step * 7919 * 7919) % bytes.len() as u64;
            let mut buffer = [0];
            open(step as usize % 3).read_exact_at(&mut buffer, offset).unwrap();
            assert_eq!(buffer[0], bytes[offset as usize]);
            let state = unpacker.lock();
            let held = |sizes: &mut dyn Iterator<Item = usize>| sizes.sum::<usize>();
            let blocks = held(&mut state.blocks.values().map(|it| it.bytes.len()));
            let marks = held(&mut state.marks.values().map(|it| it.bytes()));
            let decoders = held(&mut state.waiting.iter().map(|it| it.1.bytes()));
            assert_eq!((blocks, marks), (state.block_bytes, state.mark_bytes));
            assert!(blocks <= limits.blocks && marks <= limits.marks, "{blocks} {marks}");
            assert!(decoders <= limits.decoders, "{decoders}");
            assert!(state.running.is_empty());
        }
        let state = unpacker.lock();
        assert!(state.distance > 4 * BLOCK && !state.marks.is_empty());
    }
}
