//! Fields of samples that are stored beside their image.

use std::sync::{Mutex, OnceLock, PoisonError};

use super::sink::Target;
use super::{
    DAMAGED, FieldPlace, FieldSink, FileError, Format, PackedFields, Records, Shard, Window,
    changed, damaged, not_read, unreadable,
};
use crate::error::{DataError, Error, Reason, Redacted, Result};
use crate::field::Field;
use crate::source::{Fields, PutField, Source};

/// Number of samples whose fields are listed by [`Fields::schema`].
const LISTED: u64 = 100;

/// What is known about the fields of a file. Determined when fields are first read.
#[derive(Default)]
pub(super) struct ShardFields {
    /// Result of the scan, or why the fields cannot be read.
    scanned: OnceLock<Result<Scanned, &'static str>>,
    /// Held during the scan, so that other threads wait instead of scanning the file too.
    scan: Mutex<()>,
}

/// Result of scanning a file for its fields.
struct Scanned {
    /// Starts of the samples' records.
    starts: Vec<u64>,
    /// Names under which `feedwater pack` has stored fields.
    packed: PackedFields,
}

impl ShardFields {
    /// Returns the result of the scan, if there was one.
    fn known(&self) -> Option<&Scanned> {
        self.scanned.get()?.as_ref().ok()
    }
}

impl Shard {
    /// Returns the result of scanning the file, which the first call does.
    fn scanned<F: Format>(&self, format: &F) -> Result<&Scanned, DataError> {
        let scanned = match self.fields.scanned.get() {
            Some(scanned) => scanned,
            None => {
                let _scan = self.fields.scan.lock().unwrap_or_else(PoisonError::into_inner);
                match self.fields.scanned.get() {
                    Some(scanned) => scanned,
                    None => {
                        let found = self.scan(format)?;
                        self.fields.scanned.get_or_init(|| found)
                    }
                }
            }
        };
        scanned.as_ref().map_err(|why| {
            let path = Redacted::path(&self.path);
            let problem = format!("the fields of {path} cannot be read, because {why}");
            DataError::new(Reason::Unsupported, problem)
        })
    }

    fn scan<F: Format>(&self, format: &F) -> Result<Result<Scanned, &'static str>, DataError> {
        if self.file.is_remote() {
            return Ok(Err("it is at a URL; copy it to a local disk"));
        }
        if self.packing.is_some() {
            return Ok(Err("it is compressed; decompress it"));
        }
        self.check_unchanged()?;
        if let Some(why) = F::cannot_have_fields(&self.file, self.stamp.len)? {
            return Ok(Err(why));
        }
        let mut window = Window::new(&self.file, self.stamp.len);
        let packed = format.packed_fields(&mut window)?;
        let starts = format.record_starts(&mut window, self.entries.len())?;
        self.check_unchanged()?;
        Ok(Ok(Scanned { starts, packed }))
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
    /// Memory of the starts of records and of the names of packed fields, in bytes. After the
    /// fields of one file were read, those of all files will be.
    pub(super) fn field_bytes(&self) -> u64 {
        let known = || self.shards.iter().filter_map(|shard| shard.fields.known());
        let has_starts = known().any(|it| !it.starts.is_empty());
        let starts = if has_starts { self.len() * size_of::<u64>() as u64 } else { 0 };
        let names = known().map(|it| it.packed.memory_bytes()).max().unwrap_or(0);
        starts + names * self.shards.len() as u64
    }

    /// Passes the fields of a sample to a target.
    fn pass_fields<'a>(
        &'a self,
        index: u64,
        to: Target<'a>,
        buffer: &mut Vec<u8>,
    ) -> Result<(), DataError> {
        let shard = &self.shards[self.find(index).0];
        let result = self.pass_unchecked(shard, index, to, buffer);
        // In a changed file, a field seems to be missing or wrong.
        shard.check_unchanged()?;
        result
    }

    fn pass_unchecked<'a>(
        &self,
        shard: &'a Shard,
        index: u64,
        to: Target<'a>,
        buffer: &mut Vec<u8>,
    ) -> Result<(), DataError> {
        let place = self.place(shard, index)?;
        self.format.fields(&place, &mut FieldSink { shard, to }, buffer)
    }

    /// Returns the position of a sample whose fields are read.
    fn place<'a>(&self, shard: &'a Shard, index: u64) -> Result<FieldPlace<'a>, DataError> {
        let Scanned { starts, packed } = shard.scanned(&self.format)?;
        let entry = self.find(index).1;
        if entry.len == DAMAGED {
            return Err(damaged(entry.offset));
        }
        let before = self.check_before(&shard.file, entry.offset, entry.crc);
        before.map_err(|error| not_read(error, entry.offset))?;
        let number = index - shard.first();
        let previous = match index.checked_sub(1).filter(|&before| before >= shard.first()) {
            Some(before) => self.find(before).1.end(),
            None => 0,
        };
        let record = starts.get(number as usize).copied().unwrap_or(0);
        let file_len = shard.stamp.len;
        Ok(FieldPlace { file: &shard.file, file_len, number, entry, previous, record, packed })
    }

    /// Key of a sample, as in [`Identity::key`](crate::source::Identity::key).
    pub(super) fn key_of(&self, index: u64) -> Result<Option<String>, DataError> {
        if !F::HAS_KEYS {
            return Ok(None);
        }
        let shard = &self.shards[self.find(index).0];
        if shard.packing.is_some() || shard.file.is_remote() {
            let names = shard.names.as_ref();
            let name = names.and_then(|names| names.whole((index - shard.first()) as usize));
            return Ok(name.and_then(|name| F::key_in(&name)));
        }
        // The name directly before the contents may be that of another sample, of which this one is
        // a hard link. So the key is read like a field, which such an archive does not have.
        let key = self.place(shard, index).and_then(|place| self.format.key(&place));
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
        let mut fields = Vec::new();
        for index in 0..self.len().min(LISTED) {
            // A sample that cannot be read is an error when it is loaded.
            let _ = self.pass_fields(index, Target::Schema(&mut fields), &mut Vec::new());
        }
        fields
    }

    fn is_open(&self) -> bool {
        F::HAS_OPEN_FIELDS
    }

    fn complete_schema(&self) -> Result<Vec<Field>> {
        for shard in &self.shards {
            if let Err(error) = shard.scanned(&self.format)
                && error.reason == Reason::Unsupported
            {
                return Err(Error::config("fields", error.problem));
            }
        }
        if !F::HAS_OPEN_FIELDS {
            return Ok(self.schema());
        }
        let mut fields = Vec::new();
        for index in 0..self.len() {
            // A sample that cannot be read is an error when it is loaded.
            let _ = self.pass_fields(index, Target::Schema(&mut fields), &mut Vec::new());
        }
        Ok(fields)
    }

    fn file_name(&self, name: &str) -> Option<String> {
        let packed = self.shards.iter().find_map(|shard| {
            let scanned = shard.scanned(&self.format).ok()?;
            scanned.packed.file_name(name)
        });
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
