//! The table of a file on disk, so that the file is walked once and not at every start.
//!
//! It lies beside the file as `.NAME.XXXXXXXX.feedwater1`, or where that cannot be written in the cache's directory
//! (`storage/cache_dir.rs`), as for every file behind a URL. The digits are those of a hash of all that
//! the table depends on besides the file: the format and its settings. The table holds for one length and one time of
//! the file. It is written under a name of its own and then renamed, so a reader sees all of it or nothing and writers
//! in several processes do not disturb each other; it has a checksum, so a damaged one is made anew. Where it can be
//! written nowhere the file is walked each time, which is no error. The entries are as they are in memory, so that they
//! are read straight to where they stay; behind them is what was left out, as JSON.

use std::env;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{DAMAGED, Entry, LeftOut};
use crate::error::Redacted;
use crate::file::AtomicFile;
use crate::storage::{self, Stamp, Storage};

/// The last digit is the version of the format, and of what is read from files: 3 is the first with labels of FFCV's floats and
/// with the sizes of its JPEGs. Machines of the other byte order have tables of their own.
const MAGIC: &[u8; 16] =
    if cfg!(target_endian = "little") { b"feedwater index3" } else { b"feedwater index#" };
/// Magic, checksum of what follows, hash, stamp, bytes of what was left out.
const HEAD_BYTES: usize = 16 + 4 + 32 + 24 + 8;
/// Bytes of what was left out, at most: some ten reasons of some twenty kinds.
const MOST_LEFT_OUT_BYTES: usize = 1 << 18;
const ENTRY_BYTES: usize = size_of::<Entry>();
/// Entries that are read at a time: they stay in the processor's cache until they were looked at.
const PART: usize = (256 << 10) / ENTRY_BYTES;

/// What a file holds: its samples, and what was left out.
pub type Contents = (Box<[Entry]>, Vec<LeftOut>);

/// Where the table of a file may lie.
pub struct Index {
    /// What the table depends on besides the file.
    hash: [u8; 32],
    places: Vec<PathBuf>,
}

impl Index {
    /// Of this file, read with these settings.
    pub fn new(storage: &Storage, path: &Path, format: &str, settings: &str) -> Self {
        let hash: [u8; 32] = Sha256::digest(format!("{format}\n{settings}")).into();
        let beside = path.file_name().filter(|_| !storage::is_url(path)).map(|name| {
            let mut hidden = std::ffi::OsString::from(".");
            hidden.push(name);
            hidden.push(format!(".{}.feedwater1", digits(&hash[..4])));
            path.with_file_name(hidden)
        });
        let cached = storage.cache_directory().and_then(|directory| {
            let whole = storage::join(&env::current_dir().ok()?, path);
            // Neither a secret nor a name that a new password changes.
            let whole: std::ffi::OsString = match whole.to_str() {
                Some(url) => Redacted::new(url).into_string().into(),
                None => whole.into_os_string(),
            };
            let name = Sha256::new().chain_update(hash).chain_update(whole.as_bytes());
            Some(directory.join(format!("{}.feedwater1", digits(&name.finalize()))))
        });
        Self { hash, places: beside.into_iter().chain(cached).collect() }
    }

    /// The table, if it is that of the file as it is now, and all of it lies within `len` bytes.
    pub fn read(&self, stamp: Stamp, len: u64) -> Option<Contents> {
        self.places.iter().find_map(|place| self.read_from(place, stamp, len))
    }

    /// Keeps the table, if it can.
    pub fn write(&self, stamp: Stamp, (entries, left_out): &Contents) {
        let Ok(left_out) = serde_json::to_vec(left_out) else { return };
        let facts = self.facts(stamp, left_out.len());
        // The first place that takes it.
        let _ = self.places.iter().any(|place| write_to(place, &facts, entries, &left_out).is_ok());
    }

    /// What the head says of the file and of what follows.
    fn facts(&self, stamp: Stamp, left_out_bytes: usize) -> Vec<u8> {
        let left_out_bytes = (left_out_bytes as u64).to_le_bytes();
        [&self.hash[..], &stamp.to_bytes(), &left_out_bytes].concat()
    }

    fn read_from(&self, place: &Path, stamp: Stamp, len: u64) -> Option<Contents> {
        // Opening a pipe would wait for a writer.
        let bytes = fs::metadata(place).ok().filter(fs::Metadata::is_file)?.len();
        let mut file = File::open(place).ok()?;
        let mut head = [0; HEAD_BYTES];
        file.read_exact(&mut head).ok()?;
        let (magic, rest) = head.split_at(16);
        let (crc, facts) = rest.split_at(4);
        let left_out_bytes = u64::from_le_bytes(*facts.last_chunk()?) as usize;
        if magic != MAGIC
            || facts != self.facts(stamp, left_out_bytes)
            || left_out_bytes > MOST_LEFT_OUT_BYTES
        {
            return None;
        }
        let bytes = (bytes as usize).checked_sub(HEAD_BYTES + left_out_bytes)?;
        // A sample takes a byte of its file at least: what is longer is no table, and no memory is taken for it.
        if bytes % ENTRY_BYTES != 0 || (bytes / ENTRY_BYTES) as u64 > len {
            return None;
        }
        let mut table = bytemuck::try_zeroed_slice_box(bytes / ENTRY_BYTES).ok()?;
        let mut sum = crc32c::crc32c(facts);
        for part in table.chunks_mut(PART) {
            file.read_exact(bytemuck::must_cast_slice_mut::<Entry, u8>(part)).ok()?;
            sum = crc32c::crc32c_append(sum, bytemuck::must_cast_slice(part));
            if !part.iter().all(|entry| lies_within(entry, len)) {
                return None;
            }
        }
        let mut left_out = vec![0; left_out_bytes];
        file.read_exact(&mut left_out).ok()?;
        sum = crc32c::crc32c_append(sum, &left_out);
        let left_out = serde_json::from_slice(&left_out).ok()?;
        (sum.to_le_bytes() == crc).then_some((table, left_out))
    }
}

fn lies_within(entry: &Entry, file_len: u64) -> bool {
    let len = if entry.len == DAMAGED { 0 } else { entry.len.into() };
    entry.offset.checked_add(len).is_some_and(|end| end <= file_len)
}

fn write_to(place: &Path, facts: &[u8], entries: &[Entry], left_out: &[u8]) -> io::Result<()> {
    let entries = bytemuck::must_cast_slice(entries);
    let sum = crc32c::crc32c_append(crc32c::crc32c(facts), entries);
    let sum = crc32c::crc32c_append(sum, left_out);
    fs::create_dir_all(place.parent().unwrap_or(Path::new("")))?;
    let mut file = AtomicFile::create(place)?;
    file.write_all(&[&MAGIC[..], &sum.to_le_bytes(), facts].concat())?;
    file.write_all(entries)?;
    file.write_all(left_out)?;
    file.commit_unsynced()
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
