//! A file of samples with its table. The table is read from disk or built by scanning the file.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::extents::Extents;
use super::index::{self, Facts, Key};
use super::names::Names;
use super::{DAMAGED, Entries, Entry, Exclusions, Format, PackedFields, Window};
use crate::error::{Error, Result};
use crate::source::BadShards;
use crate::source::bad_shards::BadShard;
use crate::storage::unpacked::{Packing, Unpacker};
use crate::storage::{File, Stamp, Storage};

/// Number of bytes at each end of a file that are part of the table's key.
const END_BYTES: usize = 4096;

/// Result of opening a file: the file with its table, and the damage if the policy tolerates
/// damage.
pub struct Opened {
    /// The table; `None` if the file has no usable sample.
    pub table: Option<Table>,
    pub bad: Option<BadShard>,
}

/// Reason why a file was not opened.
pub enum Unopened {
    /// Error that probably affects only this file.
    File(Error),
    /// A server failed while the file was being scanned.
    Server(Error),
}

impl From<Error> for Unopened {
    fn from(error: Error) -> Self {
        Self::File(error)
    }
}

/// An open file with the table of its samples.
pub struct Table {
    pub file: File,
    pub packing: Option<Packing>,
    pub stamp: Stamp,
    /// Text that identifies the version of the file. It contains the file's `Stamp` (length and
    /// version) and its identity.
    pub version: String,
    pub entries: Box<[Entry]>,
    /// Names of the samples, if they are stored.
    pub names: Names,
    /// Extents of the samples, if they are stored.
    pub extents: Extents,
    /// Skipped items, class names, and other facts.
    pub facts: Facts,
    /// Size of the largest intact sample, in bytes.
    pub largest: u64,
}

impl Table {
    fn new<F: Format>(
        file: File,
        packing: Option<Packing>,
        (stamp, version): (Stamp, String),
        (entries, names, extents, facts): index::Contents,
    ) -> Self {
        let whole = entries.iter().filter(|entry| entry.len != DAMAGED);
        let bytes = whole.map(|entry| {
            u64::from(entry.len) + F::head(entry.crc).map_or(0, |head| head.bytes().len() as u64)
        });
        let largest = bytes.max().unwrap_or(0);
        Self { file, packing, stamp, version, entries, names, extents, facts, largest }
    }
}

/// Opens a file. Reads its table, or builds it.
pub fn table_of<F: Format>(
    storage: &Storage,
    path: &PathBuf,
    number: usize,
    format: &F,
    unpacker: &Arc<Unpacker>,
    bad: BadShards,
    for_fields: bool,
) -> Result<Opened, Unopened> {
    let io = |error: io::Error| Error::io(path, &error);
    let file = storage.open_pooled(path).map_err(io)?;
    let stamp = file.stamp().map_err(io)?;
    let identity = file.identity().map_err(io)?;
    let key = Key { stamp, identity, ends: ends(&file, stamp).map_err(io)? };
    let is_remote = file.is_remote();
    let version = match is_remote {
        true => stamp.to_string(),
        false => format!("{stamp}, {identity}"),
    };
    let mut settings = serde_json::to_string(format)
        .map_err(|error| Error::config(format!("source.{}", F::KEY), error.to_string()))?;
    if for_fields {
        settings += "\nfor fields";
    }
    let index = |packing: Option<Packing>| {
        let packed = packing.map_or(String::new(), |packing| format!("\n{packing:?}"));
        index::Index::new(storage, path, F::KEY, &format!("{settings}{packed}"))
    };
    let opened = |file: File, packing: Option<Packing>| match packing {
        Some(packing) => (unpacker.open(file, number, packing), Window::UNKNOWN),
        None => (file, stamp.len),
    };
    // If a table is stored, the file is not scanned. Whether the file is compressed is not known
    // yet, so the tables of all compressions are tried.
    for packing in [None].into_iter().chain(Packing::ALL.map(Some)) {
        let len = if packing.is_some() { Window::UNKNOWN } else { stamp.len };
        if let Some(contents) = index(packing).read(key, len) {
            let (file, _) = opened(file, packing);
            let table = Table::new::<F>(file, packing, (stamp, version), contents);
            return Ok(Opened { table: Some(table), bad: None });
        }
    }
    let packing = packing::<F>(&file).map_err(io)?;
    let (file, len) = opened(file, packing);
    let mut entries = Entries::new(is_remote || packing.is_some(), for_fields);
    let mut excluded = Exclusions::default();
    let mut first = Window::new(&file, len);
    let classes = format.classes(&mut first);
    let packed = format.packed_fields(&mut first);
    drop(first);
    let mut window = Window::new(&file, len);
    let walked = format.walk(&mut window, &mut entries, &mut excluded);
    let (packed, wrong) = match packed {
        Ok(packed) => (packed, walked.err()),
        Err(wrong) => (PackedFields::default(), Some(walked.err().unwrap_or(wrong))),
    };
    let (classes, wrong) = match classes {
        Ok(classes) => (classes, wrong),
        Err(of_classes) => (Vec::new(), Some(wrong.unwrap_or(of_classes))),
    };
    let mut damage = None;
    if let Some(wrong) = wrong {
        let place = format!("source.{}: {}, byte {}", F::KEY, path.display(), wrong.offset);
        let error = Error::config(place, wrong.problem);
        if wrong.failed_read && is_remote {
            return Err(Unopened::Server(error));
        }
        let mut damaged = bad.allow(path, error)?;
        let count = entries.len() as u64;
        let start = match bad {
            BadShards::UntilDamage => {
                damaged.used = count;
                entries.iter().map(|entry| entry.end()).max().unwrap_or(0)
            }
            _ => {
                damaged.left_out = count;
                entries.clear();
                0
            }
        };
        damaged.unknown_bytes = packing.is_none().then(|| stamp.len.saturating_sub(start));
        damage = Some(damaged);
    }
    if file.stamp().map_err(io)? != stamp || file.identity().map_err(io)? != identity {
        let problem = "was changed while it was indexed; wait until it is written";
        return Err(io(io::Error::other(problem)).into());
    }
    let Entries { list, mut names, extents, fields, has_hard_links, .. } = entries;
    names.finish();
    let extents = extents.finish();
    let (excluded, end) = (excluded.into_list(), extents.stored().1);
    let fields = fields.finish();
    let facts = Facts { excluded, classes, packed, fields, hard_links: has_hard_links, end };
    let contents = (list.into_boxed_slice(), names, extents, facts);
    // A table with only the samples before the damage is not stored. After a repair of the shard,
    // or with another policy, the next scan must find all samples.
    if damage.is_none() {
        index(packing).write(key, &contents);
    }
    let table = Table::new::<F>(file, packing, (stamp, version), contents);
    let is_used = !table.entries.is_empty() || damage.is_none();
    Ok(Opened { table: is_used.then_some(table), bad: damage })
}

/// CRC-32C of the first and last bytes of a local file, at most [`END_BYTES`] each. 0 for an
/// object, because `stamp` already contains the server's tag of the object.
fn ends(file: &File, stamp: Stamp) -> io::Result<u32> {
    if file.is_remote() {
        return Ok(0);
    }
    let mut bytes = [0; END_BYTES];
    let len = file.read_at(&mut bytes, 0)?;
    let first = crc32c::crc32c(&bytes[..len]);
    let len = file.read_at(&mut bytes, stamp.len.saturating_sub(END_BYTES as u64))?;
    Ok(crc32c::crc32c_append(first, &bytes[..len]))
}

/// Returns the compression of the file, if the file is compressed and the format supports it.
fn packing<F: Format>(file: &File) -> io::Result<Option<Packing>> {
    let mut first = [0; 512];
    let len = file.read_at(&mut first, 0)?;
    Ok(Packing::of(&first[..len]).filter(|_| F::unpacks(&first[..len])))
}
