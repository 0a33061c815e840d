//! Disk cache of data that were fetched from URLs.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{ErrorKind, Read, Result, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::stats::{Activity, Counters};
use super::{Stamp, StorageSettings};
use crate::file::{create_private_folder, open_unfollowed, private_folder};

/// Disk cache of fetched ranges and objects. Each range or object is one file. All processes of a
/// machine share the cache.
///
/// * An entry belongs to a URL, the version that the server reported, and a range. If an object
///   changes, new entries are used.
/// * The checksum (CRC-32C) of an entry is verified at every read. A damaged entry is deleted and
///   fetched again.
/// * An entry is written under a temporary name and renamed when it is complete, so reading needs
///   no lock. All processes share a byte count in a file. They lock this file while they update the
///   count. Before folders are evicted, the bytes are counted again from the files. To make this
///   count complete, each new file gets its length and name under the same lock.
/// * The total never exceeds the limit. To free space, whole folders (URLs) are evicted, least
///   recently used first, but never a folder that a process used within the last hour. Therefore,
///   if a data set is larger than the limit, its first entries stay in the cache. With plain LRU
///   eviction, each sample would be evicted before it is read again.
/// * If the disk is full or cannot be written, caching stops with one warning, and reading
///   continues.
pub struct Cache {
    root: PathBuf,
    limit: u64,
    state: Mutex<DiskCacheState>,
    broken: AtomicBool,
    activity: Arc<Activity>,
}

struct DiskCacheState {
    /// Folders that this process has used.
    used: HashSet<String>,
    /// Time at which all folders in `used` were last marked as in use.
    marked: Instant,
    /// Nothing is stored before this time, because the cache was full when last checked.
    full_until: Option<Instant>,
}

/// Location of an entry, which may not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryLocation {
    folder: String,
    name: String,
    bytes: u64,
}

/// Locked file with the byte count. Dropping it releases the lock.
struct Count(File);

impl Drop for Count {
    fn drop(&mut self) {
        // Closing the file is not enough: the lock belongs to the open file description. A process
        // that another thread has forked shares this description until it executes its program or
        // ends.
        let _ = self.0.unlock();
    }
}

const MAGIC: &[u8; 8] = b"FWCACHE1";
/// Size of the entry header in bytes: magic, length (8 bytes), CRC-32C of the body, and CRC-32C of
/// the preceding 20 bytes. All are little-endian.
const HEAD: usize = 24;
/// Names of the file with the byte count, and of the file whose modification time is the last use
/// of its folder.
const COUNT: &str = "bytes";
const USED: &str = "used";
/// Largest length of the byte count as text, in bytes.
const COUNT_BYTES: u64 = 32;
const TEMPORARY: &str = "new-";
/// Time after its last use during which a folder is not evicted.
const IN_USE: Duration = Duration::from_secs(3600);
/// Interval at which this process marks its folders as used.
const MARK: Duration = Duration::from_secs(600);
/// Time after which a full cache is checked for free space again.
const FULL: Duration = Duration::from_secs(60);

impl Cache {
    /// Opens the cache if the settings enable it. The cache is in the folder that the settings
    /// name, otherwise in `objects` below `directory`. If the folder cannot be created, a warning
    /// is recorded.
    pub fn open(
        settings: &StorageSettings,
        directory: Option<&Path>,
        activity: Arc<Activity>,
    ) -> Option<Self> {
        if settings.cache == 0 {
            return None;
        }
        let root = match &settings.cache_directory {
            Some(directory) => directory.clone(),
            None => directory?.join("objects"),
        };
        if let Err(error) = private_folder(&root) {
            activity
                .warn(format!("no objects are cached in the folder {}: {error}", root.display()));
            return None;
        }
        let state =
            DiskCacheState { used: HashSet::new(), marked: Instant::now(), full_until: None };
        Some(Self {
            root,
            limit: settings.cache,
            state: Mutex::new(state),
            broken: AtomicBool::new(false),
            activity,
        })
    }

    /// Returns the location of the entry for a range of the object with this URL and this version
    /// (`stamp`). Without a range, returns the location of the entry for the whole object.
    pub fn place(&self, url: &str, stamp: Stamp, range: Option<Range<u64>>) -> EntryLocation {
        let Stamp { len, version: [first, second] } = stamp;
        let folder = url.rsplit_once('/').map_or(url, |(folder, _)| folder);
        let bytes = range.as_ref().map_or(len, |range| range.end - range.start);
        let key = match range {
            Some(Range { start, end }) => format!("{url}\n{len}\n{first} {second}\n{start}\n{end}"),
            None => format!("{url}\n{len}\n{first} {second}"),
        };
        EntryLocation { folder: hash(folder, 16), name: hash(&key, 40), bytes }
    }

    /// Returns the bytes of the entry if it exists and is intact.
    pub fn get(&self, place: &EntryLocation) -> Option<Bytes> {
        self.mark(&place.folder);
        let path = self.path(place);
        match read(&path, place.bytes) {
            Ok(bytes) => {
                Counters::add(&self.activity.counters.hits, 1);
                return Some(bytes);
            }
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                Counters::add(&self.activity.counters.damaged, 1);
                // Another process may already have deleted the damaged entry, so an error is
                // ignored.
                let _ = fs::remove_file(&path);
            }
            Err(_) => {}
        }
        Counters::add(&self.activity.counters.misses, 1);
        None
    }

    /// Stores the bytes if there is space.
    pub fn put(&self, place: &EntryLocation, bytes: &[u8]) {
        if self.broken.load(Ordering::Relaxed) {
            return;
        }
        self.mark(&place.folder);
        if let Err(error) = self.write(place, bytes) {
            self.broken.store(true, Ordering::Relaxed);
            self.activity.warn(format!(
                "no more objects are cached in the folder {}: {error}",
                self.root.display()
            ));
        }
    }

    fn write(&self, place: &EntryLocation, bytes: &[u8]) -> Result<()> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let path = self.path(place);
        let len = (HEAD + bytes.len()) as u64;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // The name contains a random number. Otherwise a file that a killed process with the same
        // process ID left could have the same name.
        let random = RandomState::new().build_hasher().finish();
        let name = format!("{TEMPORARY}{}-{number}-{random:016x}", std::process::id());
        let temporary = self.root.join(&place.folder).join(name);
        let take = || Ok(!path.exists() && self.take(len, &temporary)?);
        let written = take().and_then(|room| match room {
            true => write(&temporary, bytes).and_then(|()| {
                let _count = self.lock()?;
                fs::rename(&temporary, &path)
            }),
            false => Ok(()),
        });
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        match written {
            // Another process has evicted the folder. The next entry creates the folder again.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.state().used.remove(&place.folder);
                Ok(())
            }
            written => written,
        }
    }

    /// Opens the file with the byte count and locks it. The lock is released when the result is
    /// dropped or the process ends.
    fn lock(&self) -> Result<Count> {
        let path = self.root.join(COUNT);
        let file = options().read(true).create(true).open(path)?;
        file.lock()?;
        Ok(Count(file))
    }

    /// Reserves `len` bytes by creating a file of this length at `path`. Returns false if there is
    /// no space.
    fn take(&self, len: u64, path: &Path) -> Result<bool> {
        if len > self.limit || self.state().full_until.is_some_and(|until| Instant::now() < until) {
            return Ok(false);
        }
        let count = self.lock()?;
        let mut file = &count.0;
        let mut text = String::new();
        file.take(COUNT_BYTES).read_to_string(&mut text)?;
        let mut total = match text.trim().parse::<u64>() {
            Ok(total) => total,
            Err(_) => self.total()?,
        };
        if total.saturating_add(len) > self.limit {
            total = self.make_room(len)?;
        }
        let room = total.saturating_add(len) <= self.limit;
        if room {
            options().create_new(true).open(path)?.set_len(len)?;
            total += len;
        } else {
            self.state().full_until = Some(Instant::now() + FULL);
        }
        file.seek(SeekFrom::Start(0))?;
        // The count is padded to a fixed width, so it overwrites all digits of a longer count.
        file.write_all(format!("{total:<20}").as_bytes())?;
        Ok(room)
    }

    /// Evicts folders, least recently used first, until there is space for `len` more bytes.
    /// Returns the size of the remaining entries in bytes.
    fn make_room(&self, len: u64) -> Result<u64> {
        let (mut folders, mut total) = (Vec::new(), 0);
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                let bytes = bytes_in(&entry.path())?;
                total += bytes;
                let used = fs::metadata(entry.path().join(USED)).and_then(|it| it.modified());
                folders.push((used.unwrap_or(SystemTime::UNIX_EPOCH), entry.path(), bytes));
            }
        }
        folders.sort_unstable();
        let now = SystemTime::now();
        for (used, path, bytes) in folders {
            if total.saturating_add(len) <= self.limit {
                break;
            }
            let own = path.file_name().and_then(|it| it.to_str());
            let own = own.is_some_and(|name| self.state().used.contains(name));
            // A time in the future results from a wrong clock. Such a folder may be evicted.
            if own || now.duration_since(used).is_ok_and(|age| age < IN_USE) {
                continue;
            }
            fs::remove_dir_all(&path)?;
            total -= bytes;
        }
        Ok(total)
    }

    /// Size of all entries in bytes.
    fn total(&self) -> Result<u64> {
        let mut total = 0;
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                total += bytes_in(&entry.path())?;
            }
        }
        Ok(total)
    }

    /// Marks a folder as in use. Periodically marks all folders that this process has used.
    fn mark(&self, folder: &str) {
        let mut state = self.state();
        if !state.used.contains(folder) {
            state.used.insert(folder.to_string());
            self.touch(folder);
        }
        if state.marked.elapsed() > MARK {
            state.marked = Instant::now();
            for folder in &state.used {
                self.touch(folder);
            }
        }
    }

    /// Sets the time of last use of a folder. Errors are ignored: they occur again when an entry is
    /// written, and are reported then.
    fn touch(&self, folder: &str) {
        let path = self.root.join(folder);
        let _ = create_private_folder(&path);
        let file = options().create(true).open(path.join(USED));
        let _ = file.and_then(|file| file.set_modified(SystemTime::now()));
    }

    fn path(&self, place: &EntryLocation) -> PathBuf {
        self.root.join(&place.folder).join(&place.name)
    }

    fn state(&self) -> MutexGuard<'_, DiskCacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Options for writing. Links are not followed, and opening a pipe does not wait for a reader.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).truncate(false).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options
}

/// First hexadecimal digits of the SHA-256 of a text.
fn hash(text: &str, digits: usize) -> String {
    let mut name = String::with_capacity(digits);
    for byte in &Sha256::digest(text)[..digits / 2] {
        write!(name, "{byte:02x}").expect("a String takes all text");
    }
    name
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(MAGIC);
    head[8..16].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    head[16..20].copy_from_slice(&crc32c::crc32c(bytes).to_le_bytes());
    let crc = crc32c::crc32c(&head[..20]);
    head[20..].copy_from_slice(&crc.to_le_bytes());
    let mut file = options().open(path)?;
    file.write_all(&head)?;
    file.write_all(bytes)
}

/// Reads the body of an entry, which has `bytes` bytes. Returns [`ErrorKind::InvalidData`] if the
/// entry is damaged.
fn read(path: &Path, bytes: u64) -> Result<Bytes> {
    let mut file = open_unfollowed(path)?;
    let len = file.metadata()?.len();
    let damaged = || ErrorKind::InvalidData.into();
    if len != HEAD as u64 + bytes {
        return Err(damaged());
    }
    let mut head = [0; HEAD];
    file.read_exact(&mut head).map_err(|_| damaged())?;
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let announced = u64::from(word(8)) | u64::from(word(12)) << 32;
    let whole = &head[..8] == MAGIC && crc32c::crc32c(&head[..20]) == word(20);
    if !whole || announced != bytes {
        return Err(damaged());
    }
    let mut body = vec![0; bytes as usize];
    file.read_exact(&mut body).map_err(|_| damaged())?;
    if crc32c::crc32c(&body) != word(16) {
        return Err(damaged());
    }
    Ok(body.into())
}

/// Returns the size of a folder's entries in bytes. Deletes incomplete files of writers that have
/// ended.
fn bytes_in(folder: &Path) -> Result<u64> {
    let mut total = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // Another process may have deleted the file since the folder was listed.
        let Ok(facts) = entry.metadata() else { continue };
        let name = entry.file_name();
        let begun = name.to_string_lossy().starts_with(TEMPORARY);
        let old = facts.modified().is_ok_and(|it| it.elapsed().is_ok_and(|age| age > IN_USE));
        if begun && old {
            let _ = fs::remove_file(entry.path());
        } else {
            total += facts.len();
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a cache of 200 bytes in a temporary folder.
    fn cache() -> (tempfile::TempDir, Cache) {
        let root = tempfile::tempdir().unwrap();
        let settings = StorageSettings {
            cache: 200,
            cache_directory: Some(root.path().into()),
            ..StorageSettings::default()
        };
        let cache = Cache::open(&settings, None, Arc::default()).unwrap();
        (root, cache)
    }

    /// Space that another process has reserved is counted, even if the process has not written its
    /// data yet.
    #[test]
    fn reserved_space_counts_before_anything_is_written() {
        let (root, cache) = cache();
        cache.mark("folder");
        let path = |number: u32| root.path().join(format!("folder/{TEMPORARY}1-{number}"));
        for (number, room) in [(0, true), (1, true), (2, false)] {
            assert_eq!(cache.take(100, &path(number)).unwrap(), room);
            assert_eq!(path(number).exists(), room);
            let _ = fs::remove_file(root.path().join(COUNT));
        }
    }

    #[test]
    fn the_count_is_unlocked_while_a_forked_process_has_its_file() {
        let (root, cache) = cache();
        let count = cache.lock().unwrap();
        let other = File::open(root.path().join(COUNT)).unwrap();
        assert!(other.try_lock().is_err());
        // This copy of the file descriptor stands for the one that a forked process has.
        let _of_process = count.0.try_clone().unwrap();
        drop(count);
        other.try_lock().unwrap();
    }
}
