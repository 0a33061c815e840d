//! Source for TFRecord files of `tf.train.Example`.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::records::{
    CLASSES_NAME, Entries, Entry, FIELDS_NAME, FieldPlace, FieldSink, FileError, Format,
    PackedFields, PackedName, Records, StoredField, Window,
};
use super::{Exclusions, Field};
use crate::error::DataError;

mod example;
mod fields;
mod message;

/// Images in TFRecord files, one per `tf.train.Example`.
///
/// * A path is a file, a directory (its visible files), or a pattern such as `train-*` (`*` and `?`
///   in the last part) or `train-{00..15}` (braces anywhere, as in shells). Samples are ordered by
///   path, then file name, then position in the file.
/// * The image is the only value of a bytes list. The label is the only value of an integer list,
///   or of a float list if it is a whole number. The settings name both features. All features are
///   fields, by their names: an integer or float list is a flat list of numbers, a bytes list with
///   one value is a text if it is UTF-8 and otherwise bytes, and a bytes list with several values
///   is a JSON array of texts. When fields of an uncompressed local file are first read, the start
///   of each record is stored (8 bytes). The checksum of a record is verified again if the record
///   has at most 64 KiB besides its image.
/// * The files are scanned on first use, and every checksum is verified. The resulting table is
///   stored beside each file (hidden, ending in `.feedwater1`) or in the cache directory.
///   Afterwards each image takes one read, and its checksum is verified again.
/// * The class names ([`Source::classes`](super::Source::classes)) are those that `feedwater pack`
///   stored in the feature `__feedwater_classes__` of the first record. Other files have no class
///   names.
/// * A record that does not match its checksum is a sample error (label -1). Opening fails with the
///   byte offset if a file is truncated, has damaged lengths, or contains anything but Examples
///   with these features.
/// * Compressed files (gzip and zlib, as TensorFlow writes them, or zstd) are decompressed while
///   they are read. This is fast in sample order. In any other order each read decompresses some
///   additional MiB.
pub type TfRecord = Records<TfRecordSettings>;

/// Settings of the source `tfrecord`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TfRecordSettings {
    /// Feature that contains the encoded image. Default `image/encoded`.
    pub image: String,
    /// Feature that contains the label; empty for no labels (-1). Default `image/class/label`.
    pub label: String,
}

impl Default for TfRecordSettings {
    fn default() -> Self {
        Self { image: "image/encoded".into(), label: "image/class/label".into() }
    }
}

impl Format for TfRecordSettings {
    const KEY: &'static str = "tfrecord";
    const ENDING: &'static str = "";
    const CHECKED: bool = true;
    const IN_ORDER: bool = true;

    /// A TFRecord file is recognised by the valid checksum of the length of its first record.
    fn recognises(_: &str, head: &[u8]) -> bool {
        head.first_chunk::<12>().is_some_and(|head| checked_len(head).is_some())
    }

    /// The length at the start of an uncompressed file may look like the start of compressed data.
    /// The checksum of the length shows that the file is not compressed.
    fn unpacks(first: &[u8]) -> bool {
        first.first_chunk().is_none_or(|head| checked_len(head).is_none())
    }

    /// `feedwater pack` stores the class names in the first record.
    fn classes(&self, window: &mut Window) -> Result<Vec<String>, FileError> {
        match first_record(window)? {
            Some(record) => example::texts(window, record, CLASSES_NAME),
            None => Ok(Vec::new()),
        }
    }

    /// `feedwater pack` stores the names of fields in the first record.
    fn packed_fields(&self, window: &mut Window) -> Result<PackedFields, FileError> {
        let Some(record) = first_record(window)? else { return Ok(PackedFields::default()) };
        let texts = example::texts(window, record, FIELDS_NAME)?;
        PackedFields::parse(texts.iter().map(String::as_bytes))
            .map_err(|problem| FileError::new(0, problem))
    }

    fn may_be_image(&self, name: &str) -> bool {
        name == self.image
    }

    fn record_starts(&self, window: &mut Window, count: usize) -> Result<Vec<u64>, DataError> {
        fields::starts(window, count)
    }

    fn fields(
        &self,
        place: &FieldPlace<'_>,
        to: &mut FieldSink<'_>,
        buffer: &mut Vec<u8>,
    ) -> Result<(), DataError> {
        fields::pass(place, to, buffer)
    }

    fn listed(stored: &StoredField, meaning: PackedName<'_>) -> Option<Field> {
        fields::listed(stored, meaning)
    }

    fn walk(
        &self,
        window: &mut Window,
        table: &mut Entries,
        _: &mut Exclusions,
    ) -> Result<(), FileError> {
        let mut at = 0;
        while !window.ends_at(at)? {
            let head: [u8; 12] = *window.at(at, 12)?.first_chunk().expect("12 bytes");
            let Some(len) = checked_len(&head) else {
                return Err(FileError::new(at, not_a_record(at)));
            };
            let start = at + 12;
            let end = start.checked_add(len).filter(|&end| window.file_len() - 4 >= end);
            let end = end.ok_or_else(|| window.cut(start, len.saturating_add(4)))?;
            // Loads the whole record with one read if it fits into the window. The calls below then
            // read from memory.
            window.at(start, len.min(Window::BYTES))?;
            let found = example::find(window, start..end, self, table);
            // A damaged record may contain anything, so the checksum is verified before an error of
            // the parser is reported.
            let whole = window.crc32c(start..end)?;
            let expected = window.at(end, 4)?.first_chunk().expect("4 bytes");
            if masked(whole) != u32::from_le_bytes(*expected) {
                table.push_whole(at..end + 4, Entry::damaged(at), &[]);
            } else {
                let example::Found { image, label, new_fields } = found?;
                new_fields.into_iter().for_each(|field| table.add_field(field));
                // The checksum of the image is computed in a separate pass, which is faster for
                // most records.
                let crc = window.crc32c(image.clone())?;
                table.push_whole(at..end + 4, Entry::new(image, label, crc)?, &[]);
            }
            at = end + 4;
        }
        Ok(())
    }
}

/// Masks a checksum as TFRecord files store it. TensorFlow masks stored CRCs, because the CRC of
/// data that contains CRCs is problematic (`crc32c.h`).
fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Returns the byte range of the first record. `None` if it is damaged, which is not an error here,
/// because [`Format::walk`] reports the damage.
fn first_record(window: &mut Window) -> Result<Option<Range<u64>>, FileError> {
    let Ok(Some(len)) = window.at(0, 12).map(|head| head.first_chunk().and_then(checked_len))
    else {
        return Ok(None);
    };
    let Some(end) = 12u64.checked_add(len).filter(|&end| window.file_len() - 4 >= end) else {
        return Ok(None);
    };
    // The checksum is verified first, because a damaged record may contain anything.
    let whole = window.crc32c(12..end)?;
    let expected = window.at(end, 4)?.first_chunk().map(|it| u32::from_le_bytes(*it));
    Ok((expected == Some(masked(whole))).then_some(12..end))
}

/// Returns the length at the start of a record if its checksum matches.
fn checked_len(head: &[u8; 12]) -> Option<u64> {
    let (len, crc) = head.split_first_chunk()?;
    (masked(crc32c::crc32c(len)).to_le_bytes() == crc).then(|| u64::from_le_bytes(*len))
}

fn not_a_record(at: u64) -> String {
    let sort =
        if at == 0 { "the file is not a TFRecord file, or is damaged" } else { "it is damaged" };
    format!("the length of the record does not match its checksum: {sort}")
}
