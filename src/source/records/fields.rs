//! Fields of samples that are stored beside their image.

use std::ops::Range;

use super::{CHANGED, Entry, FileError, Format, Records, Shard, unreadable};
use crate::error::{DataError, Reason, Redacted, reserve};
use crate::field::{Field, FieldKind, FieldValue};
use crate::source::{Fields, PutField};

/// Name and position of each field of a sample.
pub type Parts = Vec<(String, Range<u64>)>;

/// Number of samples whose fields are listed by [`Fields::schema`].
const LISTED: u64 = 100;

impl<F: Format> Records<F> {
    /// Returns name and position of the fields of a sample.
    fn parts(&self, index: u64) -> Result<(&Shard, Parts), DataError> {
        let (number, Entry { offset, .. }) = self.find(index);
        let shard = &self.shards[number];
        if let Some(why) = shard.no_fields::<F>()? {
            let path = Redacted::path(&shard.path);
            let problem = format!("the fields of {path} cannot be read, because {why}");
            return Err(DataError::new(Reason::Unsupported, problem));
        }
        let from = match index.checked_sub(1).filter(|&before| before >= shard.first()) {
            Some(before) => {
                let Entry { offset, len, .. } = self.find(before).1;
                offset + u64::from(len)
            }
            None => 0,
        };
        let parts = F::fields(&shard.file, shard.stamp.len, from, offset).map_err(unscanned)?;
        let is_same = shard.file.stamp().map_err(unreadable)? == shard.stamp;
        match is_same && !parts.is_empty() {
            true => Ok((shard, parts)),
            false => Err(DataError::new(Reason::Unreadable, CHANGED)),
        }
    }
}

impl Shard {
    /// Returns why fields cannot be read, with a remedy.
    fn no_fields<F: Format>(&self) -> Result<Option<&'static str>, DataError> {
        if self.file.is_remote() {
            return Ok(Some("it is at a URL; copy it to a local disk"));
        }
        if self.packing.is_some() {
            return Ok(Some("it is compressed; decompress it"));
        }
        if let Some(known) = self.no_fields.get() {
            return Ok(*known);
        }
        let why = F::cannot_have_fields(&self.file, self.stamp.len).map_err(unscanned)?;
        Ok(*self.no_fields.get_or_init(|| why))
    }
}

fn unscanned(error: FileError) -> DataError {
    let FileError { offset, problem, failed_read } = error;
    let reason = if failed_read { Reason::Unreadable } else { Reason::Corrupt };
    DataError::new(reason, format!("at byte {offset}: {problem}"))
}

impl<F: Format> Fields for Records<F> {
    /// The fields of the first samples.
    fn schema(&self) -> Vec<Field> {
        let mut fields: Vec<Field> = Vec::new();
        for index in 0..crate::source::Source::len(self).min(LISTED) {
            for (name, _) in self.parts(index).map(|(_, parts)| parts).unwrap_or_default() {
                if fields.iter().all(|field| field.name != name) {
                    let kind = if is_json(&name) { FieldKind::Json } else { FieldKind::Bytes };
                    fields.push(Field { name, kind });
                }
            }
        }
        fields
    }

    fn is_open(&self) -> bool {
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
        let (shard, parts) = self.parts(index)?;
        for (number, wanted) in wanted.iter().enumerate() {
            let mut found = parts.iter().filter(|(name, _)| name == wanted);
            let Some((name, bytes)) = found.next() else { continue };
            if found.next().is_some() {
                let problem = format!("the sample has several files {name:?}");
                return Err(DataError::new(Reason::Corrupt, problem));
            }
            let len = bytes.end - bytes.start;
            if len > limit {
                let problem = format!(
                    "the field {name:?} has {len} bytes; limits.max_field_bytes is {limit}"
                );
                return Err(DataError::new(Reason::Oversized, problem));
            }
            reserve::renew(buffer, len as usize)?;
            let failed = |error| {
                let DataError { reason, problem, .. } = unreadable(error);
                DataError::new(reason, format!("the field {name:?}: {problem}"))
            };
            shard.file.read_exact_at(buffer, bytes.start).map_err(failed)?;
            if shard.file.stamp().map_err(unreadable)? != shard.stamp {
                return Err(DataError::new(Reason::Unreadable, CHANGED));
            }
            let value = match str::from_utf8(buffer) {
                _ if is_json(name) => FieldValue::Json(buffer),
                Ok(text) => FieldValue::Text(text),
                Err(_) => FieldValue::Bytes(buffer),
            };
            put(number, value)?;
        }
        Ok(())
    }
}

fn is_json(name: &str) -> bool {
    name == "json" || name.ends_with(".json")
}
