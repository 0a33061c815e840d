//! The table of a file on disk, so that the file is walked once and not at every start.
//!
//! It lies beside the file as `.NAME.XXXXXXXX.feedwater1`, or where that cannot be written in the cache's directory
//! (`storage/keep.rs`), as for every file behind a URL. The digits are those of a hash of all that
//! the table depends on besides the file: the format and its settings. The table holds for one length and one time of
//! the file. It is written under a name of its own and then renamed, so a reader sees all of it or nothing and writers
//! in several processes do not disturb each other; it has a checksum, so a damaged one is made anew. Where it can be
//! written nowhere the file is walked each time, which is no error. The entries are as they are in memory, so that they
//! are read straight to where they stay.

use std::env;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};

use super::{DAMAGED, Entry};
use crate::storage::{self, Stamp};

/// The last digit is the version of the format. Machines of the other byte order have tables of their own.
const MAGIC: &[u8; 16] =
    if cfg!(target_endian = "little") { b"feedwater index1" } else { b"feedwater index!" };
/// Magic, checksum of what follows, hash, stamp.
const HEAD_BYTES: usize = 16 + 4 + 32 + 24;
const ENTRY_BYTES: usize = size_of::<Entry>();
/// Entries that are read at a time: they stay in the processor's cache until they were looked at.
const PART: usize = (256 << 10) / ENTRY_BYTES;

/// Where the table of a file may lie.
pub struct Index {
    /// What the table depends on besides the file.
    hash: [u8; 32],
    places: Vec<PathBuf>,
}

impl Index {
    /// Of this file, read with these settings.
    pub fn new(path: &Path, format: &str, settings: &str) -> Self {
        let hash: [u8; 32] = Sha256::digest(format!("{format}\n{settings}")).into();
        let beside = path.file_name().filter(|_| !storage::is_url(path)).map(|name| {
            let mut hidden = std::ffi::OsString::from(".");
            hidden.push(name);
            hidden.push(format!(".{}.feedwater1", digits(&hash[..4])));
            path.with_file_name(hidden)
        });
        let cached = storage::cache_directory().and_then(|directory| {
            let whole = storage::join(&env::current_dir().ok()?, path);
            let name = Sha256::new().chain_update(hash).chain_update(whole.as_os_str().as_bytes());
            Some(directory.join(format!("{}.feedwater1", digits(&name.finalize()))))
        });
        Self { hash, places: beside.into_iter().chain(cached).collect() }
    }

    /// The table, if it is that of the file as it is now, and all of it lies within `len` bytes.
    pub fn read(&self, stamp: Stamp, len: u64) -> Option<Box<[Entry]>> {
        self.places.iter().find_map(|place| self.read_from(place, stamp, len))
    }

    /// Keeps the table, if it can.
    pub fn write(&self, stamp: Stamp, entries: &[Entry]) {
        let facts = [&self.hash[..], &stamp.to_bytes()].concat();
        // The first place that takes it.
        let _ = self.places.iter().any(|place| write_to(place, &facts, entries).is_ok());
    }

    fn read_from(&self, place: &Path, stamp: Stamp, len: u64) -> Option<Box<[Entry]>> {
        let mut file = File::open(place).ok()?;
        let bytes = (file.metadata().ok()?.len() as usize).checked_sub(HEAD_BYTES)?;
        // A sample takes a byte of its file at least: what is longer is no table, and no memory is taken for it.
        if bytes % ENTRY_BYTES != 0 || (bytes / ENTRY_BYTES) as u64 > len {
            return None;
        }
        let mut head = [0; HEAD_BYTES];
        file.read_exact(&mut head).ok()?;
        let (magic, rest) = head.split_at(16);
        let (crc, facts) = rest.split_at(4);
        if magic != MAGIC || facts != [&self.hash[..], &stamp.to_bytes()].concat() {
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
        (sum.to_le_bytes() == crc).then_some(table)
    }
}

fn lies_within(entry: &Entry, file_len: u64) -> bool {
    let len = if entry.len == DAMAGED { 0 } else { entry.len.into() };
    entry.offset.checked_add(len).is_some_and(|end| end <= file_len)
}

fn write_to(place: &Path, facts: &[u8], entries: &[Entry]) -> io::Result<()> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let mut temporary = place.as_os_str().to_owned();
    temporary.push(format!(".{}.{number}", process::id()));
    let temporary = PathBuf::from(temporary);
    let entries = bytemuck::must_cast_slice(entries);
    let sum = crc32c::crc32c_append(crc32c::crc32c(facts), entries);
    let written = fs::create_dir_all(place.parent().unwrap_or(Path::new(""))).and_then(|()| {
        let mut file = File::create(&temporary)?;
        file.write_all(&[&MAGIC[..], &sum.to_le_bytes(), facts].concat())?;
        file.write_all(entries)?;
        drop(file);
        fs::rename(&temporary, place)
    });
    if written.is_err() {
        // Half a file under a name that nobody reads.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
