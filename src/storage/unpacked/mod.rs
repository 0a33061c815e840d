//! Compressed files as files of the bytes that they hold, which are read at any place.
//!
//! * A decoder only runs forwards. What it gives is kept in blocks of 1 MiB, so reads that follow one another, from any
//!   number of threads, cost one pass. A read before all decoders of its file goes on at the nearest mark behind it, and
//!   so does one far ahead: reads in any order unpack half a distance of marks each, on average.
//! * Marks are kept while decoders pass: every 4 MiB of a file, farther apart when there are too many; of Zstandard only
//!   where a frame begins, so a file of one frame has none but its beginning.
//! * A thread that would wait for another one's decoder unpacks what will be needed next instead, where reads follow one
//!   another from file to file: from the next mark on, else in the next files that [`Unpacker::list`] names. So in that
//!   order as many decoders run as threads read. It goes back to its own read after each block. Damage that is met so is
//!   an error only of those reads that come to it. Reads in any other order do not wait for this, nor lose memory to it.
//! * Memory is bounded by [`Unpacker::memory_bytes`] and by one decoder and block for each thread that reads.
//! * A file is verified as far as it is unpacked, where a decoder passes the checksums in it.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use super::{File, Place, Stamp, Storage};
use state::{State, Work};

mod decoder;
mod sequence;
mod state;
#[cfg_attr(not(feature = "zstd"), path = "zstd_disabled.rs")]
mod zstd;

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
    /// Opens the files that are unpacked ahead.
    storage: Storage,
    limits: Limits,
    files: OnceLock<Vec<Option<Listed>>>,
    state: Mutex<State>,
    /// A decoder has moved on, or was put away.
    moved: Condvar,
}

/// The most bytes that are kept of each sort. One is kept however large it is.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Unpacked bytes.
    pub blocks: usize,
    /// Unpacked bytes that no read has come to yet; where there is less room than 1 MiB nothing is unpacked ahead.
    pub ahead: usize,
    /// Places where decoders can go on, 43 KiB each.
    pub marks: usize,
    /// Decoders that wait: 170 KiB each of gzip; the window and as much of Zstandard, mostly 2 to 8 MiB.
    pub decoders: usize,
}

/// A compressed file, whose bytes are those that it holds.
pub struct Unpacked {
    file: Arc<File>,
    number: usize,
    packing: Packing,
    unpacker: Arc<Unpacker>,
}

/// A compressed file that is read after others.
pub struct Listed {
    path: PathBuf,
    packing: Packing,
    open: Option<Arc<File>>,
}

/// A block, by file and number.
type Key = (usize, u64);

/// Takes a decoder off the list of those that run, whatever happens to it.
struct Turn<'a> {
    unpacker: &'a Unpacker,
    work: Work,
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
        Self { blocks: 64 << 20, ahead: 64 << 20, marks: 32 << 20, decoders: 32 << 20 }
    }
}

impl Unpacker {
    /// With nothing kept yet. Files that are unpacked ahead are opened through this handle.
    pub fn new(storage: Storage, limits: Limits) -> Arc<Self> {
        let state = Mutex::new(State::new(limits));
        Arc::new(Self { storage, limits, files: OnceLock::new(), state, moved: Condvar::new() })
    }

    /// The bytes that this compressed file holds. A file that is opened twice has one number.
    pub fn open(self: &Arc<Self>, file: File, number: usize, packing: Packing) -> File {
        let unpacker = Arc::clone(self);
        File(Place::Unpacked(Unpacked { file: Arc::new(file), number, packing, unpacker }))
    }

    /// The files of all numbers, from 0 on, which are often read one after another; `None` where one is not compressed.
    /// Said once; what is said later is ignored.
    pub fn list(&self, files: Vec<Option<Listed>>) {
        let count = files.len();
        if self.files.set(files).is_ok() {
            self.lock().list(count);
        }
    }

    /// The most memory that is kept between reads.
    pub fn memory_bytes(&self) -> u64 {
        let Limits { blocks, ahead, marks, decoders } = self.limits;
        let listed = self.files.get().map_or(0, |files| {
            let paths = files.iter().flatten().map(|it| it.path.capacity());
            files.capacity() * size_of::<Option<Listed>>() + paths.sum::<usize>()
        });
        (blocks + ahead + marks + decoders + listed) as u64
    }

    /// A block of the file, shorter where the file ends in it and empty after the end.
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

    /// Takes a decoder to the block that its work is for, and gives that; one block on where nobody waits for it.
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

    /// What fails here fails once more where it is read.
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

    /// From here on the decoder leaves the list of those that run, whatever happens.
    fn turn(&self, work: Work, state: MutexGuard<State>) -> Turn<'_> {
        drop(state);
        Turn { unpacker: self, work }
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

impl Listed {
    /// The file at this path; where it is open already, from [`Unpacker::open`], it is not opened anew.
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
