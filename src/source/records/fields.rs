//! Fields of samples that are stored beside their image.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;

use super::sink::Target;
use super::spans::{Parts, Span};
use super::stored_fields::MOST_FIELDS;
use super::{
    DAMAGED, FieldPlace, FieldSink, FieldTables, FileError, Format, PackedName, Records, Shard,
    Window, changed, damaged, not_read, unreadable,
};
use crate::error::{DataError, Error, Reason, Redacted, Result};
use crate::field::Field;
use crate::source::{Fields, PutField, Source};
use crate::storage::File;

/// Number of samples whose fields are listed by [`Fields::schema`].
const LISTED: u64 = 100;

/// Number of samples that are requested at the same time to list the fields of a file at a URL.
const REQUESTED: u64 = 16;

/// Largest number of bytes beside the image of a sample that are fetched together. If a sample has
/// more, only those that are needed are fetched, one after another.
const MOST_BESIDE: u64 = 4 << 20;

/// Number of bytes that are read at once to find the tables of a file at a URL.
const TABLES_AHEAD: u64 = 16 << 10;

/// Size of an image in bytes up to which it is fetched with the fields around it, even if only the
/// fields are needed. Two requests would take longer.
const SMALL_IMAGE: u64 = 256 << 10;

/// What is known about the fields of a file. Determined when fields are first read.
#[derive(Default)]
pub(super) struct ShardFields {
    /// Starts of the samples' records.
    starts: OnceLock<Vec<u64>>,
    /// Tables of a file at a URL with the bytes that all samples need. `None` if fields have none.
    tables: OnceLock<Option<(FieldTables, Bytes)>>,
    /// Held while one of these is determined, so that threads wait instead of reading the file too.
    scan: Mutex<()>,
}

impl ShardFields {
    /// Number of records whose start is stored.
    fn len(&self) -> usize {
        self.starts.get().map_or(0, Vec::len)
    }

    /// The tables of a file at a URL, if they are known.
    fn known_tables(&self) -> Option<&(FieldTables, Bytes)> {
        self.tables.get()?.as_ref()
    }
}

impl Shard {
    /// Returns an error if the fields of this file cannot be read.
    fn check_fields(&self) -> Result<(), DataError> {
        if !self.has_hard_links {
            return Ok(());
        }
        let path = Redacted::path(&self.path);
        let problem = format!(
            "the fields of {path} cannot be read, because it has hard links; write it without them"
        );
        Err(DataError::new(Reason::Unsupported, problem))
    }

    /// Returns the starts of the samples' records.
    fn record_starts<F: Format>(&self, format: &F) -> Result<&[u64], DataError> {
        if let Some(starts) = self.fields.starts.get() {
            return Ok(starts);
        }
        let _scan = self.fields.scan.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(starts) = self.fields.starts.get() {
            return Ok(starts);
        }
        self.check_unchanged()?;
        let mut window = Window::new(&self.file, self.stamp.len);
        let starts = format.record_starts(&mut window, self.entries.len())?;
        self.check_unchanged()?;
        Ok(self.fields.starts.get_or_init(|| starts))
    }

    /// Returns the tables of a file at a URL, and the bytes that all samples need.
    fn tables<F: Format>(&self, format: &F) -> Result<Option<&(FieldTables, Bytes)>, DataError> {
        if let Some(tables) = self.fields.tables.get() {
            return Ok(tables.as_ref());
        }
        // Single ranges are requested, because a scan would request much more.
        let Some(file) = self.file.with_fetched(Vec::new()) else { return Ok(None) };
        let _scan = self.fields.scan.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tables) = self.fields.tables.get() {
            return Ok(tables.as_ref());
        }
        let mut window = Window::new(&file, self.stamp.len);
        window.read_ahead(TABLES_AHEAD);
        let found = match format.field_tables(&mut window)? {
            None => None,
            Some(tables) if tables.head > Window::BYTES => {
                let problem = format!(
                    "the descriptions of the fields have {} bytes; for files at URLs the maximum \
                     is {} bytes; copy the file to a local disk",
                    tables.head,
                    Window::BYTES
                );
                return Err(DataError::new(Reason::Unsupported, problem));
            }
            Some(tables) => Some((tables, Bytes::copy_from_slice(window.at(0, tables.head)?))),
        };
        Ok(self.fields.tables.get_or_init(|| found).as_ref())
    }

    /// Returns the range in which a sample lies with its fields. `None` if it is not known.
    fn extent(&self, number: u64) -> Result<Option<Range<u64>>, DataError> {
        let extents = self.extents.as_ref();
        extents.map(|it| it.get(&self.entries, number as usize)).transpose()
    }

    /// Offset from which the record of a sample is searched if the file has no extents.
    fn previous(&self, number: u64) -> u64 {
        let previous = number.checked_sub(1).and_then(|it| self.entries.get(it as usize));
        previous.map_or(0, |it| it.end())
    }

    /// Returns the ranges of a file at a URL that are fetched for the fields of a sample, and for
    /// its image if `image`. `None` if they are too large, or if the sample has no fields.
    /// With `for_fields`, the bytes that other sources read as the image may be a field.
    fn ranges<F: Format>(
        &self,
        format: &F,
        number: u64,
        image: bool,
        for_fields: bool,
    ) -> Option<Vec<Range<u64>>> {
        let entry = self.entries[number as usize];
        if entry.len == DAMAGED || self.check_fields().is_err() {
            return None;
        }
        if let Some((tables, _)) = self.tables(format).ok()? {
            let row = tables.rows + tables.stride * number;
            let all = [Some(row..row + tables.stride), image.then(|| entry.offset..entry.end())];
            return Some(all.into_iter().flatten().filter(|it| !it.is_empty()).collect());
        }
        let whole = self.extent(number).ok()?;
        let previous = || self.previous(number).min(entry.offset)..entry.end();
        let whole = whole.unwrap_or_else(previous);
        let beside = (entry.offset - whole.start) + (whole.end - entry.end());
        if beside > MOST_BESIDE {
            return None;
        }
        if beside == 0 && !image && !for_fields {
            return Some(Vec::new());
        }
        if image || u64::from(entry.len) <= SMALL_IMAGE {
            return Some(vec![whole]);
        }
        let around = [whole.start..entry.offset, entry.end()..whole.end];
        Some(around.into_iter().filter(|it| !it.is_empty()).collect())
    }

    /// Returns an error if the file is not the one that was indexed.
    pub(super) fn check_unchanged(&self) -> Result<(), DataError> {
        match self.file.stamp().map_err(unreadable)? == self.stamp {
            true => Ok(()),
            false => Err(changed()),
        }
    }
}

impl<F: Format> Records<F> {
    /// Memory of the starts of records, in bytes. After the fields of one file were read, those of
    /// all files will be.
    pub(super) fn field_bytes(&self) -> u64 {
        let is_used = self.shards.iter().any(|shard| shard.fields.len() > 0);
        let starts = if is_used { self.len() * size_of::<u64>() as u64 } else { 0 };
        let tables = self.shards.iter().filter_map(|shard| shard.fields.known_tables());
        starts + tables.map(|(_, head)| head.len() as u64).sum::<u64>()
    }

    /// Largest number of bytes that [`request`](Self::request) fetches for a sample.
    pub(super) fn largest_request(&self) -> u64 {
        let of_shard = |shard: &Shard| {
            let numbers = 0..shard.entries.len() as u64;
            let ranges = numbers
                .filter_map(|number| shard.ranges(&self.format, number, true, self.for_fields));
            let bytes = |ranges: Vec<Range<u64>>| ranges.iter().map(|it| it.end - it.start).sum();
            ranges.map(bytes).max().unwrap_or(0)
        };
        let remote = self.shards.iter().filter(|shard| shard.file.is_remote());
        remote.map(of_shard).max().unwrap_or(0)
    }

    /// Requests what the fields of a sample need, and its image if `image`. `None` if the file is
    /// not at a URL, or if more than `limit` bytes would be fetched.
    pub(super) fn request(&self, index: u64, image: bool, limit: u64) -> Option<Arc<Span>> {
        let shard = &self.shards[self.find(index).0];
        if !shard.file.is_remote() {
            return None;
        }
        let ranges = shard.ranges(&self.format, index - shard.first(), image, self.for_fields)?;
        let bytes: u64 = ranges.iter().map(|it| it.end - it.start).sum();
        if bytes > limit { None } else { self.spans.request(index, &shard.file, ranges) }
    }

    /// Passes the fields of a sample to a target.
    fn pass_fields<'a>(
        &'a self,
        index: u64,
        to: Target<'a>,
        buffer: &mut Vec<u8>,
    ) -> Result<(), DataError> {
        let (number, entry) = self.find(index);
        let shard = &self.shards[number];
        shard.check_fields()?;
        if entry.len == DAMAGED {
            return Err(damaged(entry.offset));
        }
        let fetched = match shard.file.is_remote() {
            true => {
                let mut parts = self.fetched(index)?;
                let head = shard.tables(&self.format)?.map(|(_, head)| (0, head.clone()));
                parts.extend(head);
                shard.file.with_fetched(parts)
            }
            false => None,
        };
        let file = fetched.as_ref().unwrap_or(&shard.file);
        let place = self.place(shard, index, file);
        let mut sink = FieldSink { shard, to };
        let result = place.and_then(|place| self.format.fields(&place, &mut sink, buffer));
        // In a changed file, a field seems to be missing or wrong.
        shard.check_unchanged()?;
        result
    }

    /// Returns the bytes around the image of a sample at a URL. They were prefetched, or are
    /// requested now.
    fn fetched(&self, index: u64) -> Result<Parts, DataError> {
        let prefetched = self.spans.find(index);
        let parts = prefetched.and_then(|span| span.parts());
        let parts = parts.or_else(|| self.request(index, false, u64::MAX)?.parts());
        parts.unwrap_or(Ok(Parts::new())).map_err(|error| not_read(error, self.find(index).1.end()))
    }

    /// Returns the position of a sample whose fields are read from `file`.
    fn place<'a>(
        &self,
        shard: &'a Shard,
        index: u64,
        file: &'a File,
    ) -> Result<FieldPlace<'a>, DataError> {
        let entry = self.find(index).1;
        let number = index - shard.first();
        let file_len = if shard.packing.is_some() { Window::UNKNOWN } else { shard.stamp.len };
        let (packed, names) = (shard.packed.as_deref(), shard.names.as_deref());
        let place = |begin, end, record| FieldPlace {
            file,
            file_len,
            number,
            entry,
            begin,
            end,
            record,
            packed,
            names,
            for_fields: self.for_fields,
        };
        let before = self.check_before(file, entry.offset, entry.crc);
        before.map_err(|error| not_read(error, entry.offset))?;
        if let Some(extent) = shard.extent(number)? {
            return Ok(place(extent.start, extent.end, extent.start));
        }
        let is_plain = shard.packing.is_none() && !shard.file.is_remote();
        let starts = if is_plain { shard.record_starts(&self.format)? } else { &[] };
        let record = starts.get(number as usize).copied().unwrap_or(0);
        Ok(place(shard.previous(number), u64::MAX, record))
    }

    /// Key of a sample, as in [`Identity::key`](crate::source::Identity::key).
    pub(super) fn key_of(&self, index: u64) -> Result<Option<String>, DataError> {
        if !F::HAS_KEYS {
            return Ok(None);
        }
        let (number, entry) = self.find(index);
        let shard = &self.shards[number];
        if shard.packing.is_some() || shard.file.is_remote() {
            let names = shard.names.as_ref();
            let name = names.and_then(|names| names.whole((index - shard.first()) as usize));
            let name = name.and_then(|name| String::from_utf8(name).ok());
            return Ok(name.and_then(|name| F::key_in(&name)));
        }
        // The name directly before the contents may be that of another sample, of which this one is
        // a hard link. So the key is read like a field, which such an archive does not have.
        shard.check_fields()?;
        if entry.len == DAMAGED {
            return Err(damaged(entry.offset));
        }
        let place = self.place(shard, index, &shard.file);
        let key = place.and_then(|place| self.format.key(&place));
        shard.check_unchanged()?;
        key
    }
}

impl From<FileError> for DataError {
    fn from(error: FileError) -> Self {
        let FileError { offset, problem, failed_read } = error;
        let reason = if failed_read { Reason::Unreadable } else { Reason::Corrupt };
        DataError::new(reason, format!("at byte {offset}: {problem}"))
    }
}

impl<F: Format> Fields for Records<F> {
    /// The fields of the first samples.
    fn schema(&self) -> Vec<Field> {
        if let Some(fields) = self.listed.get() {
            return fields.clone();
        }
        let (mut fields, mut is_complete) = (Vec::new(), true);
        let count = self.len().min(LISTED);
        let (mut requested, mut next) = (VecDeque::new(), 0);
        for index in 0..count {
            while next < count.min(index + REQUESTED) {
                requested.push_back(self.request(next, false, u64::MAX));
                next += 1;
            }
            // A sample that cannot be read is an error when it is loaded.
            let read = self.pass_fields(index, Target::Schema(&mut fields), &mut Vec::new());
            is_complete &= read.is_ok();
            requested.pop_front();
        }
        // Reading them again would take requests or decompression.
        if is_complete && (self.remote || self.packed() > 0) {
            return self.listed.get_or_init(|| fields).clone();
        }
        fields
    }

    fn is_open(&self) -> bool {
        F::HAS_OPEN_FIELDS
    }

    fn complete_schema(&self) -> Result<Vec<Field>> {
        for shard in &self.shards {
            shard.check_fields().map_err(|error| Error::config("fields", error.problem))?;
        }
        if !F::HAS_OPEN_FIELDS {
            return Ok(self.schema());
        }
        let mut fields: Vec<Field> = Vec::new();
        for shard in &self.shards {
            let packed = shard.packed.as_deref();
            for stored in &*shard.stored_fields {
                let meaning = packed.map_or(PackedName::Own, |it| it.find(&stored.name));
                let listed = F::listed(stored, meaning);
                let new = listed.filter(|it| fields.iter().all(|known| known.name != it.name));
                fields.extend(new.filter(|_| fields.len() < MOST_FIELDS));
            }
        }
        Ok(fields)
    }

    fn file_name(&self, name: &str) -> Option<String> {
        let packed = self.shards.iter().find_map(|shard| shard.packed.as_ref()?.file_name(name));
        packed.unwrap_or_else(|| F::FIELDS_ARE_FILES.then(|| name.into()))
    }

    fn may_be_image(&self, name: &str) -> bool {
        self.format.may_be_image(name)
    }

    /// The version of a sample is that of its file.
    fn has_versions(&self) -> bool {
        true
    }

    fn read_fields(
        &self,
        index: u64,
        wanted: &[&str],
        buffer: &mut Vec<u8>,
        limit: u64,
        put: &mut PutField<'_>,
    ) -> Result<(), DataError> {
        self.pass_fields(index, Target::Columns { wanted, put, limit }, buffer)
    }
}
