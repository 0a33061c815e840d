//! The trait of formats of files with many samples.

use std::fmt::Debug;
use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{
    Entries, FieldPlace, FieldSink, FileError, PackedFields, PackedName, StoredField, Window,
};
use crate::error::DataError;
use crate::field::Field;
use crate::header::PnmHead;
use crate::source::Exclusions;
use crate::storage::File;

/// Tables of a file from which the fields of samples are read, if they are not beside the images.
#[derive(Clone, Copy)]
pub struct FieldTables {
    /// Number of bytes at the start of the file that the fields of all samples need.
    pub head: u64,
    /// Offset of the row of the first sample.
    pub rows: u64,
    /// Size of a row in bytes.
    pub stride: u64,
}

/// Format of files with many samples, with its settings in a pipeline file. The table of a file
/// must depend only on the file, the key and the settings.
pub trait Format:
    Serialize + DeserializeOwned + Default + Clone + Debug + Send + Sync + 'static
{
    /// Key of the source under `[source]`.
    const KEY: &'static str;

    /// Extension of the files that are read from a directory.
    const ENDING: &'static str;

    /// Whether this format can read a file, according to its name and first bytes. `head` is the
    /// first [`HEAD_BYTES`](crate::source::HEAD_BYTES) bytes, or the whole file if it is shorter.
    fn recognises(name: &str, head: &[u8]) -> bool;

    /// Whether entries contain checksums of the samples' bytes.
    const CHECKED: bool;

    /// Number of bytes before a sample, usually its header, that are compared with the table to
    /// detect a table of another file. The entry of the sample contains their check (`check_of`) as
    /// its note. With 0, the default, nothing is compared.
    const BEFORE: usize = 0;

    /// Image header to insert before a sample, for formats that store none. The note is a number in
    /// the sample's entry.
    fn head(_note: u32) -> Option<PnmHead> {
        None
    }

    /// Approximate pixel count of a sample, derived from the note in its entry; `None` if unknown.
    fn pixels(_note: u32) -> Option<u64> {
        None
    }

    /// Whether uncompressed files on local disks are memory-mapped.
    const MAPPED: bool = false;

    /// Whether a file with these first bytes (at most 512) may be a compressed file of this format.
    /// Only called for files that begin like a compressed file.
    fn unpacks(_first: &[u8]) -> bool {
        false
    }

    /// Name of the sample whose bytes begin at this offset of an uncompressed local file. `None`,
    /// the default, if samples have no names. For other files [`walk`](Self::walk) stores the
    /// names.
    fn name(_file: &File, _offset: u64) -> Option<String> {
        None
    }

    /// Whether samples have keys that programs chose. Default false.
    const HAS_KEYS: bool = false;

    /// Returns the key in the name of a sample. `None` if the key is not UTF-8. Called if
    /// [`HAS_KEYS`](Self::HAS_KEYS).
    fn key_in(_name: &str) -> Option<String> {
        None
    }

    /// Reads the key of a sample. `None` if the key is not UTF-8. Called if
    /// [`HAS_KEYS`](Self::HAS_KEYS).
    fn key(&self, _place: &FieldPlace<'_>) -> Result<Option<String>, DataError> {
        Ok(None)
    }

    /// Whether [`walk`](Self::walk) adds samples in file order, with all samples before an error.
    const IN_ORDER: bool = false;

    /// Adds every sample of the file to the table, and counts skipped items. Must not allocate
    /// memory for a size only because the file states it, because the size may be wrong.
    ///
    /// If the table [is for fields](Entries::is_for_fields), a sample needs no image and no label.
    /// The entry of a sample without an image is an empty range within its record.
    fn walk(
        &self,
        window: &mut Window,
        table: &mut Entries,
        excluded: &mut Exclusions,
    ) -> Result<(), FileError>;

    /// Reads the class names that `feedwater pack` stored in a file
    /// ([`CLASSES_NAME`](super::CLASSES_NAME)), in the order of their numbers. The default returns
    /// none, for formats that `pack` does not write.
    fn classes(&self, _window: &mut Window) -> Result<Vec<String>, FileError> {
        Ok(Vec::new())
    }

    /// Returns the tables of a file from which the fields of samples are read. `None`, the default,
    /// if the fields of a sample are beside its image. Called when the fields of a file at a URL
    /// are first read.
    fn field_tables(&self, _window: &mut Window) -> Result<Option<FieldTables>, FileError> {
        Ok(None)
    }

    /// Returns the starts of the records of the first `count` samples, for formats that cannot find
    /// the record of an image otherwise. Called when the fields of an uncompressed local file are
    /// first read. The default returns none.
    fn record_starts(&self, _window: &mut Window, _count: usize) -> Result<Vec<u64>, DataError> {
        Ok(Vec::new())
    }

    /// Reads the names under which `feedwater pack` stored fields in the file
    /// ([`FIELDS_NAME`](super::FIELDS_NAME)). Called when the fields of a file are first read. The
    /// default returns none.
    fn packed_fields(&self, _window: &mut Window) -> Result<PackedFields, FileError> {
        Ok(PackedFields::default())
    }

    /// Whether fields are files, named by their extension. Default false.
    const FIELDS_ARE_FILES: bool = false;

    /// Whether the field may be the image of the sample itself. Default false.
    fn may_be_image(&self, _name: &str) -> bool {
        false
    }

    /// Returns the field that samples store under this name. `None` if it is not a field. Called if
    /// [`HAS_OPEN_FIELDS`](Self::HAS_OPEN_FIELDS).
    fn listed(_stored: &StoredField, _meaning: PackedName<'_>) -> Option<Field> {
        None
    }

    /// Whether a sample may have fields that the first samples do not have. If so,
    /// [`walk`](Self::walk) adds the fields of all samples to the table. Default true.
    const HAS_OPEN_FIELDS: bool = true;

    /// Passes the fields of a sample to `to`: calls [`FieldSink::wants`] for each field, then reads
    /// the value of a wanted field and calls [`FieldSink::put`]. `buffer` is memory for values.
    fn fields(
        &self,
        place: &FieldPlace<'_>,
        to: &mut FieldSink<'_>,
        buffer: &mut Vec<u8>,
    ) -> Result<(), DataError>;

    /// Whether [`fill`](Self::fill) takes one read for a sample whose entry has this note. Only
    /// such samples can be prefetched.
    fn is_plain(_note: u32) -> bool {
        true
    }

    /// Reads the sample at this offset into `space`. `_note` is the note in the sample's entry.
    /// Returns the length of the image, which is at the beginning of `space` afterwards.
    fn fill(&self, _note: u32, file: &File, offset: u64, space: &mut [u8]) -> io::Result<usize> {
        file.read_exact_at(space, offset)?;
        Ok(space.len())
    }
}
