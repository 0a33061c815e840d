//! Cache of row indexes.
//!
//! The cache finds an index by the length and CRC-32C of its file. The index is used only if its
//! keyed hash also matches the file. So an old index is not used for a file that has changed.
//!
//! Indexes beside packed files are read when the loader starts. With `cache.row_index`, the cache
//! is also saved to a file in the cache folder, so the indexes outlive the loader. That file is
//! read at the start too. New indexes are saved when the next epoch begins and when the loader is
//! dropped. If saving fails, the next run creates the indexes again; this is not an error.
//!
//! Without `cache.row_index`, the default cache must not cost anything. So it writes no file and
//! does not request files beside shards on servers. It creates indexes only from the loader's
//! second epoch on, because a single epoch would not gain from them.

use std::env;
use std::fmt::Write as _;
use std::io::{self, BufReader, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use sha2::{Digest, Sha256};

use super::stats::CacheStats;
use super::store::Store;
use crate::decode::{
    Decoders, FileKey, Fingerprint, ROWS_ENDING, RowIndex, RowIndexOutcome, RowIndexTask,
    begin_row_indexes, read_row_indexes, write_row_index,
};
use crate::file::{AtomicFile, create_private_folder, open_unfollowed};
use crate::geometry::{Orientation, Size};
use crate::source::Source;
use crate::storage::{File, Storage, exists, is_url};

/// The hash table of the cache has one bucket for this many bytes of the cache's limit.
const BYTES_PER_BUCKET: u64 = 256;

/// Usual length of an index, in bytes.
const USUAL_BYTES: u64 = 224;

/// Bytes that are read from a local file at once. The number is small, because the plan does not
/// count this memory.
const LOCAL_BYTES: usize = 64 << 10;
/// Bytes that are read from a server at once. The number is larger, to send fewer requests.
const REMOTE_BYTES: usize = 1 << 20;

/// Row indexes of the JPEGs of a source.
pub(in crate::loader) struct RowIndexes {
    store: Store,
    rejected: AtomicU64,
    storage: Option<Storage>,
    place: Option<PathBuf>,
    /// Number of indexes that are stored in the file in the cache folder.
    stored: AtomicU64,
    /// First epoch that has begun, and latest epoch that has begun.
    first_epoch: AtomicU32,
    epoch: AtomicU32,
    /// Whether the first epoch creates indexes, and whether it uses indexes that were read.
    makes_at_once: bool,
    uses_at_once: bool,
    /// Random seed of the file hashes in the indexes that this loader creates. With a known seed,
    /// somebody could create two files with the same hash.
    seed: u64,
}

impl RowIndexes {
    /// Creates a cache of at most `limit` bytes, with all stored indexes.
    pub fn open(limit: u64, source: &dyn Source) -> Self {
        let mut this = Self::new(limit, source);
        this.place = this.storage.as_ref().and_then(|storage| place(storage, source));
        this.warn_if_kept_nowhere();
        this.read_stored();
        this.stored.store(this.store.stats().samples, Ordering::Relaxed);
        let (urls, mut paths) = beside(source);
        let lens = this.storage.as_ref().map_or(Vec::new(), |storage| storage.lens(&urls));
        paths.extend(urls.into_iter().zip(lens).filter_map(|(url, len)| len.ok().map(|_| url)));
        this.read_all(&paths);
        this
    }

    /// Creates the cache of a loader without the setting `cache.row_index`, of at most `limit`
    /// bytes. It reads the indexes that are stored beside local files, and creates none in the
    /// first epoch.
    pub fn for_this_run(limit: u64, source: &dyn Source) -> Self {
        let mut this = Self::new(limit, source);
        this.makes_at_once = false;
        this.read_all(&beside(source).1);
        this.uses_at_once = !this.store.is_empty();
        this
    }

    fn new(limit: u64, source: &dyn Source) -> Self {
        Self {
            store: Store::with_table(limit, u64::MAX, BYTES_PER_BUCKET),
            rejected: AtomicU64::new(0),
            storage: source.storages().first().cloned(),
            place: None,
            stored: AtomicU64::new(0),
            first_epoch: AtomicU32::new(u32::MAX),
            epoch: AtomicU32::new(0),
            makes_at_once: true,
            uses_at_once: true,
            seed: Fingerprint::random_seed(),
        }
    }

    /// Task for the decoder of this JPEG: to use an index, to create one, or neither.
    pub fn task(&self, file: &[u8], epoch: u32) -> RowIndexTask {
        if self.epoch.fetch_max(epoch, Ordering::Relaxed) < epoch {
            self.save();
        }
        let is_first = self.first_epoch.fetch_min(epoch, Ordering::Relaxed) >= epoch;
        let makes = self.makes_at_once || !is_first;
        if is_first && !self.uses_at_once {
            return RowIndexTask::None;
        }
        let key = FileKey::of(file);
        let kept = self.store.get(number(key), epoch);
        let index = kept.and_then(|kept| RowIndex::read(kept.bytes));
        let is_of = |of: Fingerprint| of.key() == key && of.is_of(file);
        match index.filter(|index| is_of(index.fingerprint())) {
            Some(index) => RowIndexTask::Use(index),
            None if makes && self.store.has_room(number(key), USUAL_BYTES) => {
                RowIndexTask::Make(Fingerprint::with_key(key, file, self.seed))
            }
            None => RowIndexTask::None,
        }
    }

    /// Stores the index that a decoder created for a file. If the decoder rejected an index
    /// instead, drops that index and returns true: the image must be decoded again.
    pub fn learn(&self, decoder: &Decoders, file: &[u8]) -> bool {
        match decoder.row_index() {
            RowIndexOutcome::Made(fingerprint, bytes) => self.keep(fingerprint, bytes),
            RowIndexOutcome::Rejected => {
                self.reject(file);
                return true;
            }
            RowIndexOutcome::Used | RowIndexOutcome::None => {}
        }
        false
    }

    /// Drops the index of this file, because it does not match the file, and counts it.
    pub fn reject(&self, file: &[u8]) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
        self.store.drop_for_good(number(FileKey::of(file)));
    }

    /// Size of the cache, and its statistics.
    pub fn stats(&self) -> CacheStats {
        CacheStats { rejected: self.rejected.load(Ordering::Relaxed), ..self.store.stats() }
    }

    /// Stores the index of a file with this fingerprint.
    pub fn keep(&self, fingerprint: Fingerprint, index: &[u8]) {
        let (number, size) = (number(fingerprint.key()), Size::new(0, 0));
        self.store.keep(number, size, Orientation::UPRIGHT, None, index);
    }

    /// Reads a file of indexes in parts, while the cache has space for them. The file is not read
    /// at once, because its length is not trusted: another program may have written the file, and a
    /// server may announce any length.
    fn read(&self, path: &Path) {
        let Some(Ok(file)) = self.storage.as_ref().map(|storage| storage.open(path)) else {
            return;
        };
        let buffer_bytes = if file.is_remote() { REMOTE_BYTES } else { LOCAL_BYTES };
        self.keep_all(FileReader { file, offset: 0 }, buffer_bytes);
    }

    fn keep_all(&self, input: impl Read, buffer_bytes: usize) {
        let most = self.store.stats().limit_bytes;
        let mut input = BufReader::with_capacity(buffer_bytes.min(most as usize), input.take(most));
        read_row_indexes(&mut input, |index| self.keep(index.fingerprint(), index.bytes()));
    }

    /// Reads the file in the cache folder.
    fn read_stored(&self) {
        // Other programs may have written to the folder, so symbolic links are not followed.
        if let Some(file) = self.place.as_ref().and_then(|place| open_unfollowed(place).ok()) {
            self.keep_all(file, LOCAL_BYTES);
        }
    }

    /// Whether there is no space for another index.
    fn is_full(&self) -> bool {
        !self.store.has_room(u64::MAX, USUAL_BYTES)
    }

    /// Reads files of indexes while there is space.
    fn read_all(&self, paths: &[PathBuf]) {
        for path in paths {
            if self.is_full() {
                return;
            }
            self.read(path);
        }
    }

    /// Stores all indexes, if there are new ones.
    fn save(&self) {
        if self.store.stats().samples == self.stored.load(Ordering::Relaxed) {
            return;
        }
        // Read the file first, to keep indexes that other ranks have stored in the meantime.
        self.read_stored();
        let samples = self.store.stats().samples;
        let Some(place) = &self.place else { return };
        match self.write(place) {
            Ok(()) => self.stored.store(samples, Ordering::Relaxed),
            Err(error) => self.warn_not_kept(&error.to_string()),
        }
    }

    /// Warns a user who set a limit if the next run will not have the indexes.
    fn warn_if_kept_nowhere(&self) {
        let Some(storage) = &self.storage else { return };
        let why = match (&self.place, storage.cache_directory()) {
            // To test whether the folder is writable, begin a file and remove it.
            (Some(place), _) => begin(place).err().map(|error| error.to_string()),
            (None, None) => Some("there is no cache folder".into()),
            (None, Some(_)) => None,
        };
        if let Some(why) = why {
            self.warn_not_kept(&why);
        }
    }

    fn warn_not_kept(&self, why: &str) {
        if let Some(storage) = &self.storage {
            let text = "row indexes are not kept for the next run";
            storage.warn(format!("{text}: {why}; set FEEDWATER_CACHE to a folder of your own"));
        }
    }

    fn write(&self, place: &Path) -> io::Result<()> {
        let mut file = begin(place)?;
        begin_row_indexes(&mut file)?;
        let mut written = Ok(());
        self.store.for_each(|index| {
            if written.is_ok() && !index.is_empty() {
                written = write_row_index(&mut file, index);
            }
        });
        written?;
        file.commit_unsynced()
    }
}

impl Drop for RowIndexes {
    fn drop(&mut self) {
        self.save();
    }
}

/// Begins to write a new version of the file in the cache folder.
fn begin(place: &Path) -> io::Result<AtomicFile> {
    create_private_folder(place.parent().ok_or(ErrorKind::NotFound)?)?;
    AtomicFile::replace(place)
}

/// Reads a file from its beginning.
struct FileReader {
    file: File,
    offset: u64,
}

impl Read for FileReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.file.read_at(buffer, self.offset)?;
        self.offset += len as u64;
        Ok(len)
    }
}

/// Returns the paths of the index files beside the files of a source. The first list has URLs,
/// which may not exist. The second list has local files, which exist.
fn beside(source: &dyn Source) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let beside = source.files().into_iter().map(|file| {
        let mut name = file.into_os_string();
        name.push(ROWS_ENDING);
        PathBuf::from(name)
    });
    beside.filter(|path| is_url(path) || exists(path)).partition(|path| is_url(path))
}

/// Number under which the index of a file is stored.
fn number(FileKey { len, crc }: FileKey) -> u64 {
    len << 32 ^ u64::from(crc)
}

/// Path of the file with the indexes of a source. The name is a hash of the current directory, the
/// number of samples and some sample names. A wrong file does no harm, because indexes are used
/// only if their fingerprints match.
fn place(storage: &Storage, source: &dyn Source) -> Option<PathBuf> {
    let directory = storage.cache_directory()?;
    let mut hash = Sha256::new();
    hash.update(env::current_dir().ok()?.as_os_str().as_bytes());
    hash.update(source.len().to_le_bytes());
    for index in [0, source.len() / 2, source.len().checked_sub(1)?] {
        hash.update(source.location(index));
    }
    let mut name = "row-index-".to_owned();
    for byte in &hash.finalize()[..16] {
        write!(name, "{byte:02x}").ok()?;
    }
    Some(directory.join(name + ".feedwater1"))
}
