//! Files that hold many samples each: where every sample lies, and positioned reads.
//!
//! * The table has 24 bytes for a sample. It is made by walking each file once, several files at a time, and kept on
//!   disk (`index.rs`); a file of the same length and time is not walked again. Each file's part stays where it was made
//!   or read to, so that no more memory than the table is taken for it.
//! * A sample is one positioned read, straight into the page. There is no shared cursor: any number of threads may
//!   read at once.
//! * A file behind a URL is walked from its beginning to its end, with the next blocks on their way, and its samples can be
//!   asked for before they are read.
//! * After a read the file must still have the length and the time that it was indexed with. One that was changed or
//!   cut is a fault of the sample, whatever was read.
//! * Of a format that can be compressed, files that are so are read as what they hold (`storage/unpacked/`), from one
//!   bounded memory for all of them.

use std::fmt::Debug;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{
    Configured, Expected, Hints, Identity, LeftOut, LeftOuts, Notes, Page, RemoteReads, Sealed,
    Source, file,
};
use crate::error::{DataError, Error, Reason, Redacted, Result};
use crate::header::PnmHead;
use crate::source::largest::largest;
use crate::source::left_out::none_but;
use crate::storage::unpacked::{Limits, Listed, Packing, Unpacker};
use crate::storage::{Fetch, File, Stamp, Storage, opening};

pub use files::matches;
pub use window::Window;

pub(super) use each::of_each;
pub(super) use files::expand;

use table::{Table, table_of};

mod braces;
mod each;
mod files;
mod forward;
mod index;
#[cfg(any(feature = "lmdb", feature = "tfrecord"))]
pub(in crate::source) mod protobuf;
mod table;
mod window;

/// A format of such files, and its settings in a pipeline file. The table depends on nothing but the file, the key and
/// the settings.
pub trait Format:
    Serialize + DeserializeOwned + Default + Clone + Debug + Send + Sync + 'static
{
    /// The key of `[source]` that names it.
    const KEY: &'static str;

    /// How the names of those files of a directory end that are read.
    const ENDING: &'static str;

    /// Whether a file of this name, which begins with these bytes, is one of this format; `head` has the first
    /// [`HEAD_BYTES`](super::HEAD_BYTES), or all there are.
    fn recognises(name: &str, head: &[u8]) -> bool;

    /// Whether entries carry checksums that hold for what is read.
    const CHECKED: bool;

    /// What stands in the page before the bytes of a sample with this note: for formats whose files do not repeat with
    /// every sample what the decoder must know.
    fn head(_note: u32) -> Option<PnmHead> {
        None
    }

    /// The pixels of a sample with this note, roughly; `None` where the note does not say.
    fn pixels(_note: u32) -> Option<u64> {
        None
    }

    /// Whether files on local disks that are not compressed are mapped.
    const MAPPED: bool = false;

    /// Whether a file with these first bytes, at most 512, may be a compressed one that is read as what it holds.
    /// Asked of files only that begin as a compressed one does.
    fn unpacks(_first: &[u8]) -> bool {
        false
    }

    /// Adds every sample of the file to the table, and counts what is none. Takes no memory for what the file merely
    /// announces.
    fn walk(
        &self,
        window: &mut Window,
        table: &mut Vec<Entry>,
        left_out: &mut LeftOuts,
    ) -> Result<(), FileError>;

    /// Whether [`fill`](Self::fill) is one read of a sample with this note, so that its bytes can be asked for ahead of time.
    fn is_plain(_note: u32) -> bool {
        true
    }

    /// Fills the space from this byte of the file on, as a sample with this note needs it, and gives how many of its bytes
    /// are the image's: those at its front.
    fn fill(&self, _note: u32, file: &File, offset: u64, space: &mut [u8]) -> io::Result<usize> {
        file.read_exact_at(space, offset)?;
        Ok(space.len())
    }
}

/// Where a sample lies in its file. In memory as on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Entry {
    pub(super) offset: u64,
    pub(super) label: i64,
    /// Bytes, or [`DAMAGED`].
    pub(super) len: u32,
    /// CRC-32C of the bytes; where a format has none, the note that [`Format::head`] and [`Format::fill`] read.
    pub(super) crc: u32,
}

/// The length of a sample that its file's own checksum says is not what was written.
const DAMAGED: u32 = u32::MAX;

/// What is wrong with a file as a whole, so that it cannot be a source.
#[derive(Debug)]
pub struct FileError {
    /// The byte where it is.
    pub offset: u64,
    /// What it is, with the way out.
    pub problem: String,
}

/// The samples of many files.
pub struct Records<F> {
    storage: Storage,
    shards: Vec<Shard>,
    largest_bytes: u64,
    unpacker: Arc<Unpacker>,
    /// Whether any of the files lies behind a URL.
    remote: bool,
    left_out: Vec<LeftOut>,
    format: F,
}

struct Shard {
    path: PathBuf,
    file: File,
    packing: Option<Packing>,
    stamp: Stamp,
    entries: Box<[Entry]>,
    /// The first sample after it.
    end: u64,
}

impl Shard {
    /// What the unpacker must know of it, where it is compressed.
    fn listed(&self) -> Option<Listed> {
        Some(Listed::new(self.path.clone(), self.packing?, Some(&self.file)))
    }

    /// Its first sample.
    fn first(&self) -> u64 {
        self.end - self.entries.len() as u64
    }
}

impl Entry {
    /// A sample in these bytes of the file, with their checksum or a note. Fails where there are 4 GiB of them.
    pub fn new(bytes: Range<u64>, label: i64, crc: u32) -> Result<Self, FileError> {
        let (offset, len) = (bytes.start, bytes.end - bytes.start);
        match u32::try_from(len) {
            Ok(len) if len != DAMAGED => Ok(Self { offset, label, len, crc }),
            _ => Err(FileError::new(
                offset,
                format!("a sample of {len} bytes, at most 4 GiB are read"),
            )),
        }
    }

    /// A sample that can never be read, at this byte of the file.
    pub fn damaged(offset: u64) -> Self {
        Self { offset, label: -1, len: DAMAGED, crc: 0 }
    }
}

impl FileError {
    /// At this byte, this.
    pub fn new(offset: u64, problem: impl Into<String>) -> Self {
        Self { offset, problem: problem.into() }
    }
}

impl<F: Format> Records<F> {
    /// Opens the files that the paths mean, and walks those that have no table yet. A path is a file, a directory (its
    /// visible files with the format's ending), or a pattern (`*` and `?` in the last part).
    ///
    /// # Errors
    ///
    /// [`Error::Io`] where a file cannot be read, [`Error::Config`] where there are no samples or a file is not what it
    /// should be.
    pub fn open(paths: &[PathBuf], format: &F) -> Result<Self> {
        Self::open_with(paths, format, &Storage::default())
    }

    /// As [`open`](Self::open), with the handle through which the files are read.
    ///
    /// # Errors
    ///
    /// Those of [`open`](Self::open).
    pub fn open_with(paths: &[PathBuf], format: &F, storage: &Storage) -> Result<Self> {
        let files = expand(storage, F::KEY, paths, F::ENDING)?;
        let mut shards = Vec::with_capacity(files.len());
        let (mut end, mut largest_bytes, mut remote) = (0, 0, false);
        let mut left_out = LeftOuts::default();
        let unpacker = Unpacker::new(storage.clone(), Limits::default());
        let table = |number, path: &PathBuf| table_of(storage, path, number, format, &unpacker);
        let made = opening(|| of_each(&files, table))?;
        for (path, table) in files.iter().zip(made) {
            let Table { file, packing, stamp, entries, left_out: of_file, largest } = table;
            left_out.join_file(path, &of_file);
            end += entries.len() as u64;
            largest_bytes = largest_bytes.max(largest);
            remote |= file.is_remote();
            let file = if F::MAPPED && packing.is_none() { storage.map(file) } else { file };
            shards.push(Shard { path: path.clone(), file, packing, stamp, entries, end });
        }
        if shards.iter().any(|shard| shard.packing.is_some()) {
            unpacker.list(shards.iter().map(Shard::listed).collect());
        }
        let left_out = left_out.into_list();
        if end == 0 {
            let first = files.first().map(|path| path.display().to_string()).unwrap_or_default();
            let problem = format!("no samples in {} files, the first is {first}", files.len());
            return Err(Error::config(format!("source.{}", F::KEY), none_but(problem, &left_out)));
        }
        let (storage, format) = (storage.clone(), format.clone());
        Ok(Self { storage, shards, largest_bytes, unpacker, remote, left_out, format })
    }

    /// Reads a sample as [`Source::read`] does, and puts `prefix` before it: for formats whose files do not repeat with
    /// every sample what the decoder must know.
    pub fn read_after(
        &self,
        prefix: &[u8],
        index: u64,
        page: &mut dyn Page,
        limit: u64,
    ) -> Result<(), DataError> {
        let (number, Entry { offset, len, crc, .. }) = self.find(index);
        let shard = &self.shards[number];
        if len == DAMAGED {
            let problem = format!("the checksum of the record at byte {offset} does not match it");
            return Err(DataError::new(Reason::Corrupt, problem));
        }
        file::check_size(prefix.len() as u64 + u64::from(len), limit)?;
        let file = &shard.file;
        let (before, space) = page.space(prefix.len() + len as usize)?.split_at_mut(prefix.len());
        before.copy_from_slice(prefix);
        let end = offset + u64::from(len);
        let filled = self.format.fill(crc, file, offset, space);
        let kept = filled.map_err(|error| not_read(error, end))?;
        if file.stamp().map_err(unreadable)? != shard.stamp {
            let problem = "the file was changed after it was indexed; open the source again";
            return Err(DataError::new(Reason::Unreadable, problem));
        }
        verify::<F>(space, offset, crc)?;
        page.truncate(prefix.len() + kept);
        Ok(())
    }

    /// Begins to read a sample as [`Source::expect`] does, and puts `prefix` before it.
    pub fn expect_after(&self, prefix: &[u8], index: u64, limit: u64) -> Option<Expected> {
        if !self.remote {
            return None;
        }
        let (number, Entry { offset, len, crc, .. }) = self.find(index);
        let shard = &self.shards[number];
        if len == DAMAGED || !F::is_plain(crc) || prefix.len() as u64 + u64::from(len) > limit {
            return None;
        }
        let fetch = shard.file.fetch(offset, len.into())?;
        let prefix = prefix.to_vec();
        Some(Box::new(move |page, most| {
            file::check_size(len.into(), most)?;
            let end = offset + u64::from(len);
            let bytes = fetch.and_then(Fetch::wait).map_err(|error| not_read(error, end))?;
            let (before, space) =
                page.space(prefix.len() + bytes.len())?.split_at_mut(prefix.len());
            before.copy_from_slice(&prefix);
            space.copy_from_slice(&bytes);
            verify::<F>(space, offset, crc)
        }))
    }

    /// How many files are compressed.
    fn packed(&self) -> usize {
        self.shards.iter().filter(|shard| shard.packing.is_some()).count()
    }

    /// The number of the sample's file, and where it lies there.
    fn find(&self, index: u64) -> (usize, Entry) {
        let number = self.shards.partition_point(|shard| shard.end <= index);
        let shard = &self.shards[number];
        (number, shard.entries[(index - shard.first()) as usize])
    }
}

fn verify<F: Format>(bytes: &[u8], offset: u64, crc: u32) -> Result<(), DataError> {
    if F::CHECKED && crc32c::crc32c(bytes) != crc {
        let len = bytes.len();
        let problem = format!("the checksum of {len} bytes at byte {offset} does not match");
        return Err(DataError::new(Reason::Corrupt, problem));
    }
    Ok(())
}

/// Why bytes up to `end` could not be read.
fn not_read(error: io::Error, end: u64) -> DataError {
    match error.kind() {
        // A compressed file says itself where it is cut.
        ErrorKind::UnexpectedEof if error.get_ref().is_none() => {
            DataError::new(Reason::Truncated, format!("the file ends before byte {end}"))
        }
        ErrorKind::UnexpectedEof => DataError::new(Reason::Truncated, error.to_string()),
        ErrorKind::InvalidData => DataError::new(Reason::Corrupt, error.to_string()),
        _ => unreadable(error),
    }
}

fn unreadable(error: io::Error) -> DataError {
    DataError::io(&error)
}

impl<F: Format> Source for Records<F> {
    fn len(&self) -> u64 {
        self.shards.last().map_or(0, |shard| shard.end)
    }

    fn label(&self, index: u64) -> i64 {
        self.find(index).1.label
    }

    /// The file and, in brackets, the number of the sample in it.
    fn location(&self, index: u64) -> String {
        let shard = &self.shards[self.find(index).0];
        format!("{}[{}]", Redacted::path(&shard.path), index - shard.first())
    }

    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), DataError> {
        match F::head(self.find(index).1.crc) {
            Some(head) => self.read_after(head.bytes(), index, page, limit),
            None => self.read_after(&[], index, page, limit),
        }
    }

    /// The first file, how many files and samples there are, and how many files are compressed.
    fn describe(&self) -> String {
        let (first, more) = (Redacted::path(&self.shards[0].path), self.shards.len() - 1);
        let what = match more {
            0 => format!("{first}: {} samples", self.len()),
            _ => format!("{first} and {more} more: {} samples", self.len()),
        };
        match self.packed() {
            0 => what,
            packed => format!("{what}, {packed} files compressed"),
        }
    }

    fn remote(&self) -> Option<&dyn RemoteReads> {
        self.remote.then_some(self)
    }

    fn hints(&self) -> Option<&dyn Hints> {
        Some(self)
    }

    fn identity(&self) -> Option<&dyn Identity> {
        Some(self)
    }

    fn notes(&self) -> Option<&dyn Notes> {
        Some(self)
    }
}

impl<F: Format> RemoteReads for Records<F> {
    fn expect(&self, index: u64, limit: u64) -> Option<Expected> {
        match F::head(self.find(index).1.crc) {
            Some(head) => self.expect_after(head.bytes(), index, limit),
            None => self.expect_after(&[], index, limit),
        }
    }
}

impl<F: Format> Hints for Records<F> {
    fn largest_bytes(&self) -> Option<u64> {
        Some(self.largest_bytes)
    }

    fn largest_samples(&self, most: usize) -> Vec<(u64, u64)> {
        let entries = self.shards.iter().flat_map(|shard| &*shard.entries);
        let pixels = (0..).zip(entries).filter_map(|(index, it)| Some((index, F::pixels(it.crc)?)));
        largest(pixels, most)
    }

    fn storages(&self) -> Vec<Storage> {
        vec![self.storage.clone()]
    }

    fn memory_bytes(&self) -> u64 {
        let of = |shard: &Shard| size_of_val(&*shard.entries) + shard.path.capacity();
        let within: usize = self.shards.iter().map(of).sum();
        let shards = self.shards.capacity() * size_of::<Shard>();
        let files: u64 = self.shards.iter().map(|shard| shard.file.memory_bytes()).sum();
        let unpacker = if self.packed() == 0 { 0 } else { self.unpacker.memory_bytes() };
        (within + shards) as u64 + files + unpacker
    }

    fn file_ends(&self) -> Vec<u64> {
        self.shards.iter().map(|shard| shard.end).collect()
    }

    fn slow_shuffled(&self) -> Option<String> {
        let first = self.shards.iter().find(|shard| shard.packing.is_some())?;
        Some(format!(
            "{} files are compressed, the first is {}: each sample that is not read in their order unpacks some MiB \
             besides; set loader.shuffle_window, unpack them, or write them anew with feedwater pack",
            self.packed(),
            Redacted::path(&first.path)
        ))
    }
}

impl<F: Format> Identity for Records<F> {
    fn version(&self, index: u64) -> Option<String> {
        Some(self.shards[self.find(index).0].stamp.to_string())
    }
}

impl<F: Format> Notes for Records<F> {
    fn left_out(&self) -> Vec<LeftOut> {
        self.left_out.clone()
    }
}

impl<F: Format> Sealed for Records<F> {}

impl<F: Format> Configured for Records<F> {
    const KEY: &'static str = F::KEY;
    type Settings = F;
    const FOLDERS: bool = true;

    fn recognises(name: &str, head: &[u8]) -> bool {
        F::recognises(name, head)
    }

    fn open_with(paths: &[PathBuf], settings: &F, storage: &Storage) -> Result<Self> {
        Self::open_with(paths, settings, storage)
    }
}
