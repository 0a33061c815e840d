//! Random access to the uncompressed bytes of compressed files.
//!
//! * A decoder only runs forwards. Its output is stored in blocks of 1 MiB, so sequential reads from any number of
//!   threads cost one pass. A read before all decoders of its file, or far ahead of them, resumes at the nearest mark
//!   before it. Random reads therefore decompress half the distance between marks on average.
//! * Marks are stored while decoders pass: every 4 MiB of a file, farther apart when there are too many. For Zstandard
//!   only at frame starts, so a file of one frame has a mark only at its beginning.
//! * If files are read sequentially, a thread that would wait for another one's decoder decompresses what will be
//!   needed next instead: from the next mark on, else in the next files of [`Unpacker::list`]. In that order as many
//!   decoders run as threads read. The thread returns to its own read after each block. Damage found this way is an
//!   error only of reads that reach it. Reads in any other order do not wait for this, and it takes no memory from
//!   them.
//! * Memory is bounded by [`Unpacker::memory_bytes`] and by one decoder and block per reading thread.
//! * A file is verified as far as it is decompressed, whenever a decoder passes a checksum in it.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use super::{File, Identity, Place, Stamp, Storage};
use state::{State, Work};

mod decoder;
mod sequence;
mod state;
#[cfg_attr(not(feature = "zstd"), path = "zstd_disabled.rs")]
mod zstd;

/// Unit of decompression, caching and eviction, in bytes.
const BLOCK: u64 = 1 << 20;

/// Compression format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// gzip, as `.tar.gz`.
    Gzip,
    /// zlib, optional in TensorFlow's record files.
    Zlib,
    /// Zstandard, as `.tar.zst`.
    Zstd,
}

/// State shared by the compressed files of a source: blocks, decoders, marks and their memory limits.
pub struct Unpacker {
    /// Opens the files that are decompressed ahead of reads.
    storage: Storage,
    limits: Limits,
    files: OnceLock<Vec<Option<Listed>>>,
    state: Mutex<State>,
    /// Signals that a decoder has moved on or was put away.
    moved: Condvar,
}

/// Maximum number of bytes cached of each kind. One item is cached however large it is.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Decompressed blocks.
    pub blocks: usize,
    /// Decompressed bytes that no read has reached yet. Below 1 MiB nothing is decompressed ahead.
    pub ahead: usize,
    /// Marks, 43 KiB each.
    pub marks: usize,
    /// Idle decoders: 170 KiB each for gzip; the window and as much again for Zstandard, usually 2 to 8 MiB.
    pub decoders: usize,
}

/// Compressed file, read as its uncompressed bytes.
pub struct Unpacked {
    file: Arc<File>,
    number: usize,
    packing: Packing,
    unpacker: Arc<Unpacker>,
}

/// Compressed file in a sequence of files.
pub struct Listed {
    path: PathBuf,
    packing: Packing,
    open: Option<Arc<File>>,
}

/// Block, by file and number.
type Key = (usize, u64);

/// Guard of a running decoder. Dropping it removes the decoder from the list of running ones.
struct Turn<'a> {
    unpacker: &'a Unpacker,
    work: Work,
}

impl Packing {
    /// All formats.
    pub const ALL: [Self; 3] = [Self::Gzip, Self::Zlib, Self::Zstd];

    /// Compression format of a file with these first bytes.
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
    /// Creates an empty unpacker. Files that are decompressed ahead are opened through this handle.
    pub fn new(storage: Storage, limits: Limits) -> Arc<Self> {
        let state = Mutex::new(State::new(limits));
        Arc::new(Self { storage, limits, files: OnceLock::new(), state, moved: Condvar::new() })
    }

    /// Opens the uncompressed bytes of this compressed file. A file that is opened twice has one number.
    pub fn open(self: &Arc<Self>, file: File, number: usize, packing: Packing) -> File {
        let unpacker = Arc::clone(self);
        File(Place::Unpacked(Unpacked { file: Arc::new(file), number, packing, unpacker }))
    }

    /// Sets the files of all numbers, from 0 on, which are often read in sequence. `None` for a file that is not
    /// compressed. Later calls have no effect.
    pub fn list(&self, files: Vec<Option<Listed>>) {
        let count = files.len();
        if self.files.set(files).is_ok() {
            self.lock().list(count);
        }
    }

    /// Maximum memory held between reads, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let Limits { blocks, ahead, marks, decoders } = self.limits;
        let listed = self.files.get().map_or(0, |files| {
            let paths = files.iter().flatten().map(|it| it.path.capacity());
            files.capacity() * size_of::<Option<Listed>>() + paths.sum::<usize>()
        });
        (blocks + ahead + marks + decoders + listed) as u64
    }

    /// Block of the file. Shorter if the file ends in it, and empty after the end.
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

    /// Drives a decoder to the block that its work is for and returns that block. Stops one block further if nobody
    /// waits for it.
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

    /// Errors are ignored: they recur when the file is read.
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

    /// Registers the decoder as running until the guard is dropped.
    fn turn(&self, work: Work, state: MutexGuard<State>) -> Turn<'_> {
        drop(state);
        Turn { unpacker: self, work }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Unpacked {
    /// [`File::read_at`] for the uncompressed bytes.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] if the compressed file is truncated, [`io::ErrorKind::InvalidData`] if it is
    /// damaged. Both messages name the compressed byte.
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

    /// Stamp of the compressed file.
    pub fn stamp(&self) -> io::Result<Stamp> {
        self.file.stamp()
    }
}

impl Listed {
    /// File at this path. If it is already open from [`Unpacker::open`], it is not opened again.
    pub fn new(path: PathBuf, packing: Packing, open: Option<&File>) -> Self {
        let open = open.and_then(|file| match &file.0 {
            Place::Unpacked(it) => Some(Arc::clone(&it.file)),
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
