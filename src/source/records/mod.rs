//! Files with many samples each: tables of sample positions, and positioned reads.
//!
//! * The table has 24 bytes per sample. For compressed files and files at URLs it also has the
//!   names of samples (`names.rs`) and the starts of their fields (`extents.rs`). It is built by
//!   scanning each file once, several files in parallel, and is stored on disk (`index.rs`). An
//!   unchanged file is not scanned again. Tables of several files are not merged, so loading them
//!   needs no extra memory.
//! * A sample is read with one positioned read into the page. There is no shared cursor, so any
//!   number of threads may read.
//! * A file at a URL is scanned sequentially with prefetched blocks. Its samples can be prefetched,
//!   together with their fields (`spans.rs`).
//! * A table belongs to one file. It records length, modification time, inode, time of last change,
//!   and a checksum of the first and last bytes (`table.rs`), because reproducible builds write
//!   different files with equal lengths and times.
//! * After a read, the file must still have the length and modification time that its table
//!   records. Otherwise the sample is an error. Formats without checksums compare the bytes before
//!   a sample with the table ([`Format::BEFORE`]).
//! * Formats that support compression read the decompressed contents of compressed files
//!   (`storage/unpacked/`). One memory limit applies to all files.

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use super::{
    Exclusion, Exclusions, Expected, Fields, Hints, Identity, Notes, Page, RemoteReads, Sealed,
    Source, without_images,
};
use crate::error::{DataError, Reason, Redacted, Result};
use crate::field::Field;
use crate::footprint::counted;
use crate::source::largest::largest;
use crate::storage::unpacked::{Listed, Packing, Unpacker};
use crate::storage::{Fetch, File, Stamp, Storage};

pub use classes::CLASSES_NAME;
pub use entry::Entry;
pub use file_error::FileError;
pub use files::matches;
pub use format::{FieldTables, Format};
pub use names::Entries;
pub use packed::{FIELDS_NAME, FORMS, PackedFields, PackedName, each_packed, form_kind};
pub use sink::{FieldPlace, FieldSink};
pub use stored_fields::{StoredField, StoredFields};
pub use window::Window;

use entry::DAMAGED;
use extents::Extents;
use fields::ShardFields;
use names::Names;
use spans::Spans;

pub(super) use classes::MOST_CLASSES_BYTES;
pub(super) use each::of_each;
pub(super) use files::expand;

mod braces;
mod classes;
mod each;
mod entry;
mod extents;
mod fields;
mod file_error;
mod files;
mod format;
mod forward;
mod index;
mod names;
mod open;
mod packed;
#[cfg(any(feature = "lmdb", feature = "tfrecord"))]
pub(in crate::source) mod protobuf;
mod sink;
mod spans;
mod stored_fields;
mod table;
mod window;

/// Upper limit of [`Format::BEFORE`].
const MOST_BEFORE: usize = 512;

const CHANGED: &str = "the file was changed after it was indexed; open the source again";

/// Source of samples in files of the format `F`.
pub struct Records<F> {
    storage: Storage,
    shards: Vec<Shard>,
    largest_bytes: u64,
    unpacker: Arc<Unpacker>,
    /// Whether any of the files is at a URL.
    remote: bool,
    excluded: Vec<Exclusion>,
    classes: Vec<String>,
    /// Requests that reads of fields and of images share.
    spans: Arc<Spans>,
    /// Fields of the first samples, if reading them again would be slow.
    listed: OnceLock<Vec<Field>>,
    /// Warning about bad shards.
    warning: Option<String>,
    /// Whether the source was opened for its fields, so samples may have no image.
    for_fields: bool,
    format: F,
}

struct Shard {
    path: PathBuf,
    file: File,
    packing: Option<Packing>,
    stamp: Stamp,
    version: String,
    entries: Box<[Entry]>,
    /// Names of the samples, if they have names and the file is compressed or remote.
    names: Option<Box<Names>>,
    /// Parts of the file in which the samples lie with their fields, if the file is compressed or
    /// remote.
    extents: Option<Box<Extents>>,
    /// Whether several samples may have their image at the same position.
    has_hard_links: bool,
    /// Names under which `feedwater pack` has stored fields, if there are any.
    packed: Option<Box<PackedFields>>,
    /// Names under which the samples store fields, if [`Format::LISTS_FIELDS`]. Successive files
    /// with equal names share them.
    stored_fields: Arc<[StoredField]>,
    /// Index after the file's last sample.
    end: u64,
    fields: ShardFields,
}

impl Shard {
    /// Path and compression of the file for the unpacker; `None` if the file is not compressed.
    fn listed(&self) -> Option<Listed> {
        Some(Listed::new(self.path.clone(), self.packing?, Some(&self.file)))
    }

    /// Index of the file's first sample.
    fn first(&self) -> u64 {
        self.end - self.entries.len() as u64
    }
}

impl<F: Format> Records<F> {
    /// Reads a sample like [`Source::read`] and inserts `prefix` before it. Meant for formats that
    /// do not store everything that the decoder needs with each sample.
    pub fn read_after(
        &self,
        prefix: &[u8],
        index: u64,
        page: &mut dyn Page,
        limit: u64,
    ) -> Result<(), DataError> {
        if self.for_fields {
            return Err(without_images());
        }
        let (number, Entry { offset, len, crc, .. }) = self.find(index);
        let shard = &self.shards[number];
        if len == DAMAGED {
            return Err(damaged(offset));
        }
        super::check_size(prefix.len() as u64 + u64::from(len), limit)?;
        let file = &shard.file;
        let (before, space) = page.space(prefix.len() + len as usize)?.split_at_mut(prefix.len());
        before.copy_from_slice(prefix);
        let end = offset + u64::from(len);
        let before = self.check_before(file, offset, crc);
        let filled = before.and_then(|()| self.format.fill(crc, file, offset, space));
        let kept = filled.map_err(|error| not_read(error, end))?;
        if file.stamp().map_err(unreadable)? != shard.stamp {
            return Err(changed());
        }
        verify::<F>(space, offset, crc)?;
        page.truncate(prefix.len() + kept);
        Ok(())
    }

    /// Compares the bytes before a sample with the check in its entry. An object is always read in
    /// the version that was opened, so for it nothing is compared.
    fn check_before(&self, file: &File, offset: u64, note: u32) -> io::Result<()> {
        let mut bytes = [0; MOST_BEFORE];
        let bytes = &mut bytes[..F::BEFORE];
        if bytes.is_empty() || !F::is_plain(note) || file.is_remote() || file.is_fetched() {
            return Ok(());
        }
        let start = offset.checked_sub(bytes.len() as u64);
        let start = start.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, CHANGED))?;
        file.read_exact_at(bytes, start)?;
        match check_of(bytes) == note {
            true => Ok(()),
            false => Err(io::Error::new(ErrorKind::InvalidData, CHANGED)),
        }
    }

    /// Prefetches a sample like [`RemoteReads::expect`] and inserts `prefix` before it.
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
            super::check_size(len.into(), most)?;
            let end = offset + u64::from(len);
            let bytes = fetch.and_then(Fetch::wait).map_err(|error| not_read(error, end))?;
            let (before, space) =
                page.space(prefix.len() + bytes.len())?.split_at_mut(prefix.len());
            before.copy_from_slice(&prefix);
            space.copy_from_slice(&bytes);
            verify::<F>(space, offset, crc)
        }))
    }

    /// Prefetches the fields of a sample, and its image if `image`. While the result exists, reads
    /// of the fields use the same bytes.
    fn expect_whole(&self, index: u64, image: bool, limit: u64) -> Option<Expected> {
        let (number, Entry { offset, len, crc, .. }) = self.find(index);
        let file = self.shards[number].file.with_fetched(Vec::new())?;
        let span = self.request(index, image, limit)?;
        let format = self.format.clone();
        Some(Box::new(move |page, most| {
            let head = F::head(crc);
            let prefix = head.as_ref().map_or(&[][..], |head| head.bytes());
            super::check_size(prefix.len() as u64 + u64::from(len), most)?;
            let end = offset + u64::from(len);
            let parts = span.parts().unwrap_or_else(|| Ok(Vec::new()));
            let parts = parts.map_err(|error| not_read(error, end))?;
            // Bytes that were not prefetched are requested now.
            let file = file.with_fetched(parts).unwrap_or(file);
            let whole = page.space(prefix.len() + len as usize)?;
            let (before, space) = whole.split_at_mut(prefix.len());
            before.copy_from_slice(prefix);
            let filled = format.fill(crc, &file, offset, space);
            let kept = filled.map_err(|error| not_read(error, end))?;
            verify::<F>(space, offset, crc)?;
            page.truncate(prefix.len() + kept);
            Ok(())
        }))
    }

    /// Number of compressed files.
    fn packed(&self) -> usize {
        self.shards.iter().filter(|shard| shard.packing.is_some()).count()
    }

    /// Returns the number of the sample's file, and the sample's entry.
    fn find(&self, index: u64) -> (usize, Entry) {
        let number = self.shards.partition_point(|shard| shard.end <= index);
        let shard = &self.shards[number];
        (number, shard.entries[(index - shard.first()) as usize])
    }
}

/// Check of the bytes before a sample: an even number derived from their CRC-32C. Odd notes can
/// have other meanings.
pub(super) fn check_of(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes) & !1
}

fn verify<F: Format>(bytes: &[u8], offset: u64, crc: u32) -> Result<(), DataError> {
    if F::CHECKED && crc32c::crc32c(bytes) != crc {
        let len = bytes.len();
        let problem = format!("the checksum of the {len} bytes at byte {offset} does not match");
        return Err(DataError::new(Reason::Corrupt, problem));
    }
    Ok(())
}

/// Creates the error for a file that is not the one that was indexed.
pub(super) fn changed() -> DataError {
    DataError::new(Reason::Unreadable, CHANGED)
}

/// Creates the error for a record at this offset that does not match its checksum.
pub(super) fn damaged(offset: u64) -> DataError {
    let problem = format!("the checksum of the record at byte {offset} does not match");
    DataError::new(Reason::Corrupt, problem)
}

/// Creates the error for a failed read of bytes up to `end`.
fn not_read(error: io::Error, end: u64) -> DataError {
    match error.kind() {
        // Errors of compressed files contain an inner error, which already states the position of
        // the truncation.
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

    /// Path of the file, followed by the index of the sample within the file in brackets.
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

    /// Path of the first file, numbers of files and samples, and number of compressed files.
    fn describe(&self) -> String {
        let (first, more) = (Redacted::path(&self.shards[0].path), self.shards.len() - 1);
        let samples = counted(self.len(), "sample");
        let what = match more {
            0 => format!("{first}: {samples}"),
            _ => format!("{first} and {more} more: {samples}"),
        };
        match self.packed() {
            0 => what,
            packed => format!("{what}, {} compressed", counted(packed, "file")),
        }
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn fields(&self) -> Option<&dyn Fields> {
        Some(self)
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

    /// One request for the fields and the image, if at most 4 MiB of the file belong to the fields
    /// and are beside the image. Two requests if the fields have a table of their own.
    fn expect_with_fields(&self, index: u64, image: bool, limit: u64) -> Option<Expected> {
        self.expect_whole(index, image, limit)
            .or_else(|| if image { self.expect(index, limit) } else { None })
    }

    fn largest_with_fields(&self) -> Option<u64> {
        Some(self.largest_request().max(self.largest_bytes))
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

    fn files(&self) -> Vec<PathBuf> {
        self.shards.iter().map(|shard| shard.path.clone()).collect()
    }

    fn storages(&self) -> Vec<Storage> {
        vec![self.storage.clone()]
    }

    fn memory_bytes(&self) -> u64 {
        let of = |shard: &Shard| {
            size_of_val(&*shard.entries)
                + shard.names.as_ref().map_or(0, |names| names.memory_bytes())
                + shard.extents.as_ref().map_or(0, |extents| extents.memory_bytes())
                + shard.packed.as_ref().map_or(0, |packed| packed.memory_bytes())
                + shard.path.capacity()
                + shard.version.capacity()
        };
        let within: usize = self.shards.iter().map(of).sum();
        let shards = self.shards.capacity() * size_of::<Shard>();
        let files: u64 = self.shards.iter().map(|shard| shard.file.memory_bytes()).sum();
        let classes = self.classes.iter().map(|name| name.capacity() + size_of::<String>());
        let mut lists: Vec<_> = self.shards.iter().map(|shard| &shard.stored_fields).collect();
        lists.dedup_by(|one, other| Arc::ptr_eq(one, other));
        let names = lists.iter().flat_map(|list| list.iter());
        let names = names.map(|it| it.name.capacity() + size_of::<StoredField>());
        let within = within + classes.chain(names).sum::<usize>();
        let unpacker = if self.packed() == 0 { 0 } else { self.unpacker.memory_bytes() };
        (within + shards) as u64 + files + unpacker + self.field_bytes()
    }

    fn file_ends(&self) -> Vec<u64> {
        self.shards.iter().map(|shard| shard.end).collect()
    }

    fn slow_shuffled(&self) -> Option<String> {
        let first = self.shards.iter().find(|shard| shard.packing.is_some())?;
        Some(format!(
            "the data set has {} (the first is {}), and for each sample that is read out of order, several more MiB are decompressed; \
             set loader.shuffle_window, decompress the files, or rewrite them with feedwater pack",
            counted(self.packed(), "compressed file"),
            Redacted::path(&first.path)
        ))
    }
}

impl<F: Format> Identity for Records<F> {
    fn name(&self, index: u64) -> Option<String> {
        let (shard, entry) = self.find(index);
        let shard = &self.shards[shard];
        match &shard.names {
            Some(names) => names.get((index - shard.first()) as usize),
            None if shard.packing.is_some() || shard.file.is_remote() => None,
            None => F::name(&shard.file, entry.offset),
        }
    }

    fn key(&self, index: u64) -> Result<Option<String>, DataError> {
        self.key_of(index)
    }

    fn version(&self, index: u64) -> Option<String> {
        Some(self.shards[self.find(index).0].version.clone())
    }
}

impl<F: Format> Notes for Records<F> {
    fn excluded(&self) -> Vec<Exclusion> {
        self.excluded.clone()
    }

    fn warnings(&self) -> Vec<String> {
        self.warning.iter().cloned().collect()
    }
}

impl<F: Format> Sealed for Records<F> {}
