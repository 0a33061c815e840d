//! Persistent table of the samples of a file, so each file is scanned only once.
//!
//! The table is stored beside the file as `.NAME.DIGITS.feedwater1`. If the folder is not writable,
//! and for files at URLs, it is stored in the cache directory (`storage/cache_dir.rs`). If neither
//! is possible, the file is scanned each time, without an error. The eight digits are a hash of the
//! other inputs of the table: the format and its settings. A table is valid for one file ([`Key`]).
//! It is written under a temporary name and renamed, so readers never see a partial table and
//! concurrent writers do not conflict. A checksum detects damage, and damaged tables are rebuilt.
//! Entries have the same layout as in memory, so reading needs no conversion. After the entries
//! come the names and the extents of the samples (if they are kept), and the other facts as JSON.

use std::env;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::extents::Extents;
use super::names::{self, Names};
use super::packed::MOST_BYTES as MOST_PACKED_BYTES;
use super::{DAMAGED, Entry, Exclusion, MOST_CLASSES_BYTES, PackedFields, StoredField, Window};
use crate::error::Redacted;
use crate::file::{AtomicFile, create_private_folder, open_unfollowed};
use crate::storage::{self, Identity, IndexFiles, Stamp, Storage};

/// First bytes of a table. The last character is the version of the table's layout and of the data
/// that scans collect: version 5 added the identity and the checksum of the file, version 6 the
/// names, version 7 the extents, hard links and names of packed fields, version 8 the names of all
/// fields, version 9 those of LMDB and its extents. Big-endian machines use another character,
/// because numbers are stored in the machine's byte order.
const MAGIC: &[u8; 16] =
    if cfg!(target_endian = "little") { b"feedwater index9" } else { b"feedwater index)" };
/// Size of the header: magic, checksum of the rest, hash, key, lengths of the names and of the
/// extents, and length of the JSON text with the [`Facts`].
const HEAD_BYTES: usize = 16 + 4 + 32 + 24 + 24 + 4 + 8 + 8 + 8;
/// Largest size of the JSON text with the [`Facts`], in bytes. The limit allows
/// for about ten reasons for skipped items with about twenty kinds each, and for the largest
/// permitted lists of class names and of names of fields.
const MOST_FACTS_BYTES: usize = (1 << 18) + 2 * (MOST_CLASSES_BYTES + MOST_PACKED_BYTES);
const ENTRY_BYTES: usize = size_of::<Entry>();
/// Largest number of samples per byte of a compressed file. In an uncompressed file a sample takes
/// at least one byte.
const MOST_PACKED: u64 = 4;
/// Number of entries that are read at a time. They fit into the CPU's cache and stay there until
/// they are checked.
const PART: usize = (256 << 10) / ENTRY_BYTES;

/// Contents of a table: the entries of the samples, their names and extents, and other facts.
pub type Contents = (Box<[Entry]>, Names, Extents, Facts);

/// Facts about a file that its table contains in addition to the samples.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Items that the scan skipped.
    pub excluded: Vec<Exclusion>,
    /// Class names in the order of their numbers, if the file contains them.
    pub classes: Vec<String>,
    /// Names under which `feedwater pack` has stored fields.
    pub packed: PackedFields,
    /// Names under which the samples store fields.
    pub fields: Vec<StoredField>,
    /// Whether several samples may have their image at the same position.
    pub hard_links: bool,
    /// End of the last sample, if the table has extents.
    pub end: u64,
}

/// Properties by which a table recognises its file. Length and modification time are not enough:
/// reproducible builds set all times to 0, and tar pads lengths.
#[derive(Clone, Copy)]
pub struct Key {
    pub stamp: Stamp,
    pub identity: Identity,
    /// CRC-32C of the first and last bytes of the file.
    pub ends: u32,
}

/// Locations where the table of a file may be stored.
pub struct Index {
    /// Hash of the format and its settings, on which the table depends in addition to the file.
    hash: [u8; 32],
    places: Vec<PathBuf>,
    /// User who owns the file; `None` if the file is not local.
    owner: Option<u32>,
}

impl Index {
    /// Determines the locations of the table of a file that is read with these settings.
    pub fn new(storage: &Storage, path: &Path, format: &str, settings: &str) -> Self {
        let hash: [u8; 32] = Sha256::digest(format!("{format}\n{settings}")).into();
        let place = storage.settings().index_files;
        let is_beside = place == IndexFiles::Beside && !storage::is_url(path);
        let beside = path.file_name().filter(|_| is_beside).map(|name| {
            let mut hidden = std::ffi::OsString::from(".");
            hidden.push(name);
            hidden.push(format!(".{}.feedwater1", digits(&hash[..4])));
            path.with_file_name(hidden)
        });
        let directory = storage.cache_directory().filter(|_| place != IndexFiles::None);
        let cached = directory.and_then(|directory| {
            let whole = storage::join(&env::current_dir().ok()?, path);
            // The hash excludes secrets of the URL, so a new password does not change it.
            let whole: std::ffi::OsString = match whole.to_str() {
                Some(url) => Redacted::new(url).into_string().into(),
                None => whole.into_os_string(),
            };
            let name = Sha256::new().chain_update(hash).chain_update(whole.as_bytes());
            Some(directory.join(format!("{}.feedwater1", digits(&name.finalize()))))
        });
        let owner = fs::metadata(path).ok().map(|facts| facts.uid());
        Self { hash, places: beside.into_iter().chain(cached).collect(), owner }
    }

    /// Reads the table if its key matches the file and all its entries are within `len` bytes.
    pub fn read(&self, key: Key, len: u64) -> Option<Contents> {
        self.places.iter().find_map(|place| self.read_from(place, key, len))
    }

    /// Stores the table in the first location that is writable.
    pub fn write(&self, key: Key, (entries, names, extents, beside): &Contents) {
        let Ok(beside) = serde_json::to_vec(beside) else { return };
        let extents = bytemuck::must_cast_slice(extents.stored().0);
        let facts = self.facts(key, [names.bytes().len(), extents.len(), beside.len()]);
        let parts = [bytemuck::must_cast_slice(entries), names.bytes(), extents, &beside];
        let _ = self.places.iter().any(|place| write_to(place, &facts, parts).is_ok());
    }

    /// Returns the fields of the table's header that identify the file, and the lengths of the
    /// names, of the extents and of the JSON text.
    fn facts(&self, key: Key, lens: [usize; 3]) -> Vec<u8> {
        let lens = lens.map(|len| (len as u64).to_le_bytes());
        let Key { stamp, identity, ends } = key;
        let key = [&stamp.to_bytes()[..], &identity.to_bytes(), &ends.to_le_bytes()].concat();
        [&self.hash[..], &key, lens.as_flattened()].concat()
    }

    fn read_from(&self, place: &Path, key: Key, len: u64) -> Option<Contents> {
        // Another user may have written to the folder, so links are not followed.
        let mut file = open_unfollowed(place).ok()?;
        let facts = file.metadata().ok()?;
        let bytes = facts.len();
        // Whoever writes the table chooses the labels. Therefore only tables of trusted users are
        // read: this user, root and the owner of the file.
        let is_of = |user| user == geteuid().as_raw() || user == 0 || Some(user) == self.owner;
        if !is_of(facts.uid()) || facts.mode() & 0o002 != 0 {
            return None;
        }
        let mut head = [0; HEAD_BYTES];
        file.read_exact(&mut head).ok()?;
        let (magic, rest) = head.split_at(16);
        let (crc, facts) = rest.split_at(4);
        let lens: [[u8; 8]; 3] = bytemuck::pod_read_unaligned(facts.last_chunk::<24>()?);
        let lens @ [name_bytes, extent_bytes, beside_bytes] =
            lens.map(|len| u64::from_le_bytes(len) as usize);
        if magic != MAGIC || facts != self.facts(key, lens) || beside_bytes > MOST_FACTS_BYTES {
            return None;
        }
        let bytes = (bytes as usize).checked_sub(HEAD_BYTES + beside_bytes)?;
        let bytes = bytes.checked_sub(name_bytes)?.checked_sub(extent_bytes)?;
        // A table with more entries than the file can have samples is invalid. No memory is
        // allocated for it.
        let most =
            key.stamp.len.saturating_mul(if len == Window::UNKNOWN { MOST_PACKED } else { 1 });
        let count = bytes / ENTRY_BYTES;
        if bytes % ENTRY_BYTES != 0
            || count as u64 > most
            || name_bytes > count.saturating_mul(names::MOST_BYTES)
            || ![0, 1, 2].map(|each| each * count * size_of::<u32>()).contains(&extent_bytes)
        {
            return None;
        }
        let mut table = bytemuck::try_zeroed_slice_box(count).ok()?;
        let mut sum = crc32c::crc32c(facts);
        for part in table.chunks_mut(PART) {
            file.read_exact(bytemuck::must_cast_slice_mut::<Entry, u8>(part)).ok()?;
            sum = crc32c::crc32c_append(sum, bytemuck::must_cast_slice(part));
            if !part.iter().all(|entry| lies_within(entry, len)) {
                return None;
            }
        }
        let mut text = Vec::new();
        text.try_reserve_exact(name_bytes).ok()?;
        text.resize(name_bytes, 0);
        file.read_exact(&mut text).ok()?;
        sum = crc32c::crc32c_append(sum, &text);
        let mut around = bytemuck::try_zeroed_slice_box(extent_bytes / size_of::<u32>()).ok()?;
        file.read_exact(bytemuck::must_cast_slice_mut::<u32, u8>(&mut around)).ok()?;
        sum = crc32c::crc32c_append(sum, bytemuck::must_cast_slice(&around));
        let mut beside = vec![0; beside_bytes];
        file.read_exact(&mut beside).ok()?;
        sum = crc32c::crc32c_append(sum, &beside);
        let facts: Facts = serde_json::from_slice(&beside).ok()?;
        let names = Names::read(text, count)?;
        let extents = Extents::read(around, facts.end, &table)?;
        (sum.to_le_bytes() == crc).then_some((table, names, extents, facts))
    }
}

fn lies_within(entry: &Entry, file_len: u64) -> bool {
    let len = if entry.len == DAMAGED { 0 } else { entry.len.into() };
    entry.offset.checked_add(len).is_some_and(|end| end <= file_len)
}

fn write_to(place: &Path, facts: &[u8], parts: [&[u8]; 4]) -> io::Result<()> {
    let sum = parts.into_iter().fold(crc32c::crc32c(facts), crc32c::crc32c_append);
    create_private_folder(place.parent().unwrap_or(Path::new("")))?;
    let mut file = AtomicFile::replace(place)?;
    file.write_all(&[&MAGIC[..], &sum.to_le_bytes(), facts].concat())?;
    parts.into_iter().try_for_each(|part| file.write_all(part))?;
    file.commit_unsynced()
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
