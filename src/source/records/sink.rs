//! Destination of the fields of a sample.

use std::ops::Range;

use super::names::Names;
use super::stored_fields::MOST_FIELDS;
use super::{Entry, PackedFields, PackedName, Shard, Window, not_read};
use crate::error::{DataError, Reason, reserve};
use crate::field::{Field, FieldKind, FieldValue};
use crate::source::PutField;
use crate::storage::File;

/// Number of bytes that are read at once from a file at a URL, for a sample that was not fetched
/// with its fields.
const REMOTE_AHEAD: u64 = 64 << 10;

/// Position of a sample whose fields are read.
#[cfg_attr(
    not(feature = "all-sources"),
    allow(dead_code, reason = "only some formats need all positions")
)]
pub struct FieldPlace<'a> {
    /// The file that contains the sample. If it is at a URL, the bytes of the sample are in memory.
    pub file: &'a File,
    /// Length of the file in bytes, or [`Window::UNKNOWN`] if the file is compressed.
    pub file_len: u64,
    /// Number of the sample in its file.
    pub number: u64,
    /// Position of the image.
    pub entry: Entry,
    /// Offset from which the record of the sample is searched: its start, if the file has extents,
    /// or else the end of the previous sample's image, which is 0 for the first sample.
    pub begin: u64,
    /// End of the sample with its fields, if the file has extents, or else `u64::MAX`.
    pub end: u64,
    /// Start of the sample's record: `begin` if the file has extents, or else from
    /// [`Format::record_starts`](super::Format::record_starts). 0 if the format lists none.
    pub record: u64,
    /// Names under which `feedwater pack` has stored the fields of the file; `None` for other
    /// files.
    pub packed: Option<&'a PackedFields>,
    /// Names of the samples, if they are stored.
    pub(super) names: Option<&'a Names>,
    /// Whether the source was opened for its fields. The sample may then have no image, and what
    /// other sources read as the image may be the field `value`.
    pub for_fields: bool,
}

impl<'a> FieldPlace<'a> {
    /// Returns the meaning of the name of a file (without the key of its sample) or a feature.
    pub fn meaning(&self, name: &str) -> PackedName<'a> {
        self.packed.map_or(PackedName::Own, |packed| packed.find(name))
    }

    /// Returns the name of the sample in the table of the file. `None` if it is not stored, or only
    /// its beginning.
    pub fn stored_name(&self) -> Option<Vec<u8>> {
        self.names.and_then(|names| names.whole(self.number as usize))
    }

    /// Window into the file that reads at least `ahead` bytes at once.
    pub fn window(&self, ahead: u64) -> Window<'a> {
        let mut window = Window::new(self.file, self.file_len);
        let is_fetched = self.file.is_fetched();
        window.read_ahead(if is_fetched { ahead.max(REMOTE_AHEAD) } else { ahead });
        window.read_ahead_until(self.end);
        window
    }
}

/// Receives the fields of a sample from its format. Either lists them, or passes the values of
/// wanted ones to a column.
pub struct FieldSink<'a> {
    pub(super) shard: &'a Shard,
    pub(super) to: Target<'a>,
}

/// Destination of fields.
pub(super) enum Target<'a> {
    /// The names of the fields.
    Schema(&'a mut Vec<Field>),
    /// The values of the fields `wanted`, each of at most `limit` bytes.
    Columns { wanted: &'a [&'a str], put: &'a mut PutField<'a>, limit: u64 },
}

impl FieldSink<'_> {
    /// Whether the value of this field is wanted. The format calls this method for every field of
    /// the sample.
    pub fn wants(&mut self, name: &str, kind: FieldKind) -> bool {
        match &mut self.to {
            Target::Schema(fields) => {
                if fields.len() < MOST_FIELDS && fields.iter().all(|field| field.name != name) {
                    fields.push(Field { name: name.into(), kind });
                }
                false
            }
            Target::Columns { wanted, .. } => wanted.contains(&name),
        }
    }

    /// Returns an error if a value of a field has more bytes than `limits.max_field_bytes`.
    pub fn check_len(&self, name: &str, len: u64) -> Result<(), DataError> {
        match self.to {
            Target::Columns { limit, .. } if len > limit => {
                let problem = format!(
                    "the field {name:?} has {len} bytes; limits.max_field_bytes is {limit}; raise it"
                );
                Err(DataError::new(Reason::Oversized, problem))
            }
            _ => Ok(()),
        }
    }

    /// Reads the value of a field from this byte range of the file.
    pub fn read(
        &self,
        place: &FieldPlace<'_>,
        name: &str,
        bytes: Range<u64>,
        buffer: &mut Vec<u8>,
    ) -> Result<(), DataError> {
        let len = bytes.end - bytes.start;
        self.check_len(name, len)?;
        reserve::renew(buffer, len as usize)?;
        place.file.read_exact_at(buffer, bytes.start).map_err(|error| {
            let DataError { reason, problem, .. } = not_read(error, bytes.end);
            DataError::new(reason, format!("the field {name:?}: {problem}"))
        })
    }

    /// Passes the value of a field to all columns that want it.
    pub fn put(&mut self, name: &str, value: FieldValue<'_>) -> Result<(), DataError> {
        self.shard.check_unchanged()?;
        let Target::Columns { wanted, put, .. } = &mut self.to else { return Ok(()) };
        let mut columns = wanted.iter().enumerate().filter(|(_, wanted)| **wanted == name);
        columns.try_for_each(|(column, _)| put(column, value))
    }
}
