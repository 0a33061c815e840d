//! Random access to the uncompressed bytes of compressed files.
//!
//! * A decoder only runs forwards. Its output is stored in blocks of 1 MiB, so if any number of
//!   threads read a file sequentially, the file is decompressed once. A read before the positions
//!   of all decoders of its file, or far after them, resumes decompression at the nearest mark
//!   before the read. Random reads therefore decompress half the distance between marks on average.
//! * Marks are stored while decoders run: every 4 MiB of a file, and farther apart if marks take
//!   too much memory. In Zstandard files marks are only at starts of frames, so a file with one
//!   frame has a mark only at its beginning.
//! * If files are read sequentially, a thread that would wait for the decoder of another thread
//!   decompresses upcoming blocks instead. It starts at the next mark of the file, or else in the
//!   next files of [`Unpacker::list`]. So every reading thread can run a decoder. After each block
//!   the thread returns to its own read. If an upcoming block is damaged, only reads of this block
//!   fail. If files are not read sequentially, nothing is decompressed before it is read.
//! * Memory is bounded by [`Unpacker::memory_bytes`], and by one decoder and one block per reading
//!   thread.
//! * A decoder verifies the checksums in the part of a file that it decompresses. The rest of the
//!   file is not verified.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use super::{Backend, File, Identity, Stamp, Storage};
use unpacked_state::{UnpackedState, Work};

mod decoder;
mod sequence;
mod unpacked_state;
#[cfg_attr(not(feature = "zstd"), path = "zstd_disabled.rs")]
mod zstd;

/// Size in bytes of a block, which is the unit of decompression, caching and eviction.
const BLOCK: u64 = 1 << 20;

/// Compression format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// gzip, as in `.tar.gz`.
    Gzip,
    /// zlib, which TensorFlow's record files may use.
    Zlib,
    /// Zstandard, as in `.tar.zst`.
    Zstd,
}

/// State that the compressed files of a source share: blocks, decoders, marks and their memory
/// limits.
pub struct Unpacker {
    /// Storage handle that opens files whose blocks are decompressed ahead of reads.
    storage: Storage,
    limits: Limits,
    files: OnceLock<Vec<Option<Listed>>>,
    state: Mutex<UnpackedState>,
    /// Signals that a decoder has advanced or has become idle.
    moved: Condvar,
}

/// Memory limits in bytes for cached blocks, marks and idle decoders. A single block, mark or
/// decoder is cached even if it exceeds its limit.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Decompressed blocks.
    pub blocks: usize,
    /// Limit for decompressed blocks that no read has reached yet. With a limit below 1 MiB,
    /// nothing is decompressed before it is read.
    pub ahead: usize,
    /// Limit for marks. A mark takes 43 KiB.
    pub marks: usize,
    /// Limit for idle decoders. A gzip decoder takes 170 KiB. A Zstandard decoder takes twice the
    /// window size of the compressed frame, usually 2 to 8 MiB.
    pub decoders: usize,
}

/// A compressed file that is read as its uncompressed bytes.
pub struct Unpacked {
    file: Arc<File>,
    number: usize,
    packing: Packing,
    unpacker: Arc<Unpacker>,
}

/// A compressed file in a sequence of files.
pub struct Listed {
    path: PathBuf,
    packing: Packing,
    open: Option<Arc<File>>,
}

/// File number and block number.
type Key = (usize, u64);

/// Guard of a running decoder. When it is dropped, the decoder no longer counts as running.
struct Turn<'a> {
    unpacker: &'a Unpacker,
    work: Work,
}

impl Packing {
    /// All formats.
    pub const ALL: [Self; 3] = [Self::Gzip, Self::Zlib, Self::Zstd];

    /// Returns the compression format of a file with these first bytes.
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
        Self { blocks: 64 << 20, ahead: 64 << 20, marks: 32 << 20, decoders: 32 << 20 }
    }
}

impl Unpacker {
    /// Creates an empty unpacker. Files whose blocks are decompressed ahead of reads are opened
    /// through `storage`.
    pub fn new(storage: Storage, limits: Limits) -> Arc<Self> {
        let state = Mutex::new(UnpackedState::new(limits));
        Arc::new(Self { storage, limits, files: OnceLock::new(), state, moved: Condvar::new() })
    }

    /// Opens the uncompressed bytes of a compressed file. `number` identifies the file. If a file
    /// is opened several times, the number must be the same each time.
    pub fn open(self: &Arc<Self>, file: File, number: usize, packing: Packing) -> File {
        let unpacker = Arc::clone(self);
        File(Backend::Unpacked(Unpacked { file: Arc::new(file), number, packing, unpacker }))
    }

    /// Sets the sequence in which files are often read: the files in the order of their numbers,
    /// from 0. `None` stands for a file that is not compressed. Later calls have no effect.
    pub fn list(&self, files: Vec<Option<Listed>>) {
        let count = files.len();
        if self.files.set(files).is_ok() {
            self.lock().list(count);
        }
    }

    /// Largest memory that is held between reads, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let Limits { blocks, ahead, marks, decoders } = self.limits;
        let listed = self.files.get().map_or(0, |files| {
            let paths = files.iter().flatten().map(|it| it.path.capacity());
            files.capacity() * size_of::<Option<Listed>>() + paths.sum::<usize>()
        });
        (blocks + ahead + marks + decoders + listed) as u64
    }

    /// Returns a block of a file. The block is shorter if the file ends in it, and empty after the
    /// end.
    fn block(&self, file: &Unpacked, number: u64) -> io::Result<Arc<Vec<u8>>> {
        let key = (file.number, number);
        let mut state = self.lock();
        state.follow(key);
        loop {
            if let Some(bytes) = state.kept(key) {
                return Ok(bytes);
            }
            if state.is_over(key) {
                return Ok(Arc::default());
            }
            if let Some(work) = state.begin(key, false) {
                let turn = self.turn(work, state);
                return self.unpack(&file.file, file.packing, turn);
            }
            let work = state.look_ahead(|it| it == file.number || self.listed(it).is_some());
            state = match work {
                Some(work) => {
                    let turn = self.turn(work, state);
                    self.unpack_ahead(file, turn);
                    self.lock()
                }
                None => self.moved.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Runs a decoder until it has decompressed the block that `turn.work` names, and returns this
    /// block. If `turn.work.ahead` is true, no thread waits for the block. The decoder then
    /// decompresses only one block, and the result is empty unless this is the block that
    /// `turn.work` names.
    fn unpack(&self, file: &File, packing: Packing, mut turn: Turn) -> io::Result<Arc<Vec<u8>>> {
        let work = &mut turn.work;
        let (number, target) = (work.key.0, work.key.1 * BLOCK);
        let mut decoder = work.decoder(packing)?;
        loop {
            let from = decoder.at();
            let end = (from / BLOCK + 1) * BLOCK;
            let mut bytes = vec![0; (end - from) as usize];
            let len = decoder.read(file, &mut bytes)?;
            let ended = len < bytes.len();
            bytes.truncate(len);
            let bytes = Arc::new(bytes);
            let mut state = self.lock();
            state.passed(work, from, &bytes, &decoder);
            if ended {
                state.ended(number, from + len as u64);
            }
            if from == target || ended || work.ahead {
                state.stop(work.id);
                if !ended {
                    state.put_away(number, decoder, work.ahead);
                }
                return Ok(if from == target { bytes } else { Arc::default() });
            }
            drop(state);
            self.moved.notify_all();
        }
    }

    /// Decompresses blocks before they are read. Errors are ignored, because they occur again when
    /// the file is read.
    fn unpack_ahead(&self, file: &Unpacked, turn: Turn) {
        let number = turn.work.key.0;
        let done = match self.listed(number).filter(|_| number != file.number) {
            None => self.unpack(&file.file, file.packing, turn),
            Some(it) => {
                it.file(&self.storage).and_then(|file| self.unpack(&file, it.packing, turn))
            }
        };
        if done.is_err() {
            self.lock().spoil(number);
        }
    }

    fn listed(&self, number: usize) -> Option<&Listed> {
        self.files.get()?.get(number)?.as_ref()
    }

    /// Registers a decoder as running until the guard is dropped.
    fn turn(&self, work: Work, state: MutexGuard<UnpackedState>) -> Turn<'_> {
        drop(state);
        Turn { unpacker: self, work }
    }

    fn lock(&self) -> MutexGuard<'_, UnpackedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Unpacked {
    /// Implements [`File::read_at`] for the uncompressed bytes.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] if the compressed file is truncated,
    /// [`io::ErrorKind::InvalidData`] if it is damaged. Both messages name the position in the
    /// compressed file.
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

    /// Identity of the compressed file.
    pub fn identity(&self) -> io::Result<Identity> {
        self.file.identity()
    }

    /// Length and version of the compressed file.
    pub fn stamp(&self) -> io::Result<Stamp> {
        self.file.stamp()
    }
}

impl Listed {
    /// Describes the file at `path`. If [`Unpacker::open`] has already opened it, pass it as
    /// `open`, so it is not opened again.
    pub fn new(path: PathBuf, packing: Packing, open: Option<&File>) -> Self {
        let open = open.and_then(|file| match &file.0 {
            Backend::Unpacked(it) => Some(Arc::clone(&it.file)),
            _ => None,
        });
        Self { path, packing, open }
    }

    fn file(&self, storage: &Storage) -> io::Result<Arc<File>> {
        match &self.open {
            Some(file) => Ok(Arc::clone(file)),
            None => storage.open(&self.path).map(Arc::new),
        }
    }
}

impl fmt::Debug for Unpacked {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Unpacked({:?}, {:?})", self.file, self.packing)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.unpacker.lock().stop(self.work.id);
        self.unpacker.moved.notify_all();
    }
}
