//! Source for MXNet's RecordIO files.

use std::io;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::records::{
    Entries, Entry, FieldPlace, FieldSink, FileError, Format, Records, Window, check_of,
};
use super::{ExclusionReason, Exclusions, label};
use crate::error::DataError;
use crate::storage::File;

mod fields;

const MAGIC: [u8; 4] = 0xced7_230a_u32.to_le_bytes();
/// Size of a record header in bytes: magic number and length.
const HEAD_BYTES: u64 = 8;
/// Size of MXNet's `IRHeader` in bytes: flag 4, label 4, id 8, id2 8.
const IR_BYTES: usize = 24;
/// Number of bytes before an image that are compared with the table, to detect that the file is not
/// the one that was scanned.
const BEFORE_BYTES: usize = HEAD_BYTES as usize + IR_BYTES;
/// Value of a sample's note (a number that the table stores for each sample) if its record has
/// several parts. The sample's entry then covers the whole record including headers.
const IN_PARTS: u32 = 1;

/// Images in RecordIO files with MXNet's image header, as written by `im2rec` and `mxnet.recordio`.
///
/// * A path is a `.rec` file, a directory (its visible files that end in `.rec`), or a pattern such
///   as `train-*.rec` (`*` and `?` in the last part). Samples are ordered by path, then file name,
///   then position in the file. The `.idx` file is neither needed nor read, because both tools
///   write records in the order of the index.
/// * A label is an integer that is stored as a float. If records have lists of labels, the settings
///   must select one label.
/// * The fields of a sample are `label`, a flat list of one or all of its labels, and `id`. In the
///   second source of a join, records need no image, and their contents are the field `value`: a
///   text if it is UTF-8, and otherwise bytes.
/// * Records without an image are skipped and counted
///   ([`Source::excluded`](super::Notes::excluded)). InsightFace's files have one such record at
///   the start and one for each identity.
/// * The headers are read on first use. The resulting table is stored beside each file (hidden,
///   ending in `.feedwater1`) or in the cache directory. Afterwards each image takes one read, even
///   if its record has several parts. RecordIO has no checksums. Damage from before the first use
///   is only detected if the image decoder finds it.
/// * Opening fails with the byte offset if a file is truncated or damaged, or if its records are
///   not images with labels.
pub type RecordIo = Records<RecordIoSettings>;

/// Settings of the source `recordio`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RecordIoSettings {
    /// Label that is used if records have several. Default `one`.
    pub label: RecordIoLabel,
}

/// Selection of a label among those of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum RecordIoLabel {
    /// The only label of a record. A record with several labels is an error.
    #[default]
    One,
    /// The first label.
    First,
    /// No label: every sample has label -1.
    None,
}

/// A record of a RecordIO file, which may consist of several parts.
struct Record {
    /// Byte range from the first header to the end of the last part.
    bytes: Range<u64>,
    parts: u64,
    /// Length of the record's contents, in bytes.
    len: u64,
    /// First bytes of the record's contents.
    head: [u8; IR_BYTES + 4],
}

impl Format for RecordIoSettings {
    const KEY: &'static str = "recordio";
    const ENDING: &'static str = ".rec";
    const CHECKED: bool = false;
    const IN_ORDER: bool = true;
    /// Bytes before the image of a record with one label: the record's header, and MXNet's image
    /// header with the label.
    const BEFORE: usize = BEFORE_BYTES;

    /// RecordIO is recognised by the magic number of the first record.
    fn recognises(_: &str, head: &[u8]) -> bool {
        head.starts_with(&MAGIC)
    }

    fn walk(
        &self,
        window: &mut Window,
        table: &mut Entries,
        excluded: &mut Exclusions,
    ) -> Result<(), FileError> {
        window.read_ahead(4096);
        let mut at = 0;
        while at < window.file_len() {
            let record = Record::read(window, at)?;
            // Records are padded to 4 bytes. The padding after the last record may be missing, so
            // `at` may be after the end of the file.
            at = record.bytes.end.next_multiple_of(4);
            let is_empty = before_image(&record.head, record.len) == Some(record.len);
            if is_empty && !table.is_for_fields() {
                // InsightFace's files have records without an image: the first record, and one
                // record for each identity.
                let example = format!("byte {}", record.bytes.start);
                excluded.add(ExclusionReason::EmptyRecord, "", 1, &example);
                continue;
            }
            let label = if table.is_for_fields() { RecordIoLabel::None } else { self.label };
            table.push(entry(window, &record, label)?);
        }
        Ok(())
    }

    const HAS_OPEN_FIELDS: bool = false;

    fn fields(
        &self,
        place: &FieldPlace<'_>,
        to: &mut FieldSink<'_>,
        buffer: &mut Vec<u8>,
    ) -> Result<(), DataError> {
        fields::pass(place, to, buffer)
    }

    fn is_plain(note: u32) -> bool {
        note != IN_PARTS
    }

    fn fill(&self, note: u32, file: &File, offset: u64, space: &mut [u8]) -> io::Result<usize> {
        file.read_exact_at(space, offset)?;
        match note {
            IN_PARTS => {
                join(space).ok_or_else(|| io::Error::other("the parts of the record do not fit"))
            }
            _ => Ok(space.len()),
        }
    }
}

/// Returns the entry of a record.
fn entry(window: &mut Window, record: &Record, label: RecordIoLabel) -> Result<Entry, FileError> {
    let start = record.bytes.start;
    let skipped = before_image(&record.head, record.len).ok_or_else(|| {
        let problem =
            format!("a record of {} bytes is too short for MXNet's image header", record.len);
        FileError::new(start, problem)
    })?;
    let labels = u32_at(&record.head, 0);
    let label = match (label, labels) {
        (RecordIoLabel::None, _) => -1,
        (RecordIoLabel::One, 2..) => {
            let problem = format!(
                "the record has {labels} labels, but a sample can have one; set source.label to \
                 \"first\" or \"none\""
            );
            return Err(FileError::new(start, problem));
        }
        (_, 0) => integer(u32_at(&record.head, 4), start)?,
        (_, _) => integer(u32_at(&record.head, IR_BYTES), start)?,
    };
    if record.parts > 1 {
        return Entry::new(record.bytes.clone(), label, IN_PARTS);
    }
    let image = start + HEAD_BYTES + skipped;
    let before = window.at(image - BEFORE_BYTES as u64, BEFORE_BYTES as u64)?;
    Entry::new(image..record.bytes.end, label, check_of(before))
}

impl Record {
    /// Reads the record whose first header is at offset `start`. Writers split a record into parts
    /// at each aligned magic number in its data, and omit this number from the file
    /// (dmlc/recordio.h).
    fn read(window: &mut Window, start: u64) -> Result<Self, FileError> {
        let mut record = Self { bytes: start..start, parts: 0, len: 0, head: [0; IR_BYTES + 4] };
        let mut at = start;
        loop {
            let header: [u8; 8] = *window.at(at, HEAD_BYTES)?.first_chunk().expect("8 bytes");
            let (part, len) = part(header).ok_or_else(|| FileError::new(at, not_a_record(at)))?;
            let first = record.parts == 0;
            if first != matches!(part, RecordPart::Whole | RecordPart::First) {
                let problem = "the parts of a record are out of order: the file is damaged";
                return Err(FileError::new(at, problem));
            }
            if !first {
                record.push(&MAGIC);
            }
            let data = at + HEAD_BYTES;
            let end = data + len;
            if end > window.file_len() {
                return Err(window.cut(data, len));
            }
            let wanted = (record.head.len() as u64).saturating_sub(record.len).min(len);
            record.push(window.at(data, wanted)?);
            record.len += len - wanted;
            record.parts += 1;
            record.bytes.end = end;
            if matches!(part, RecordPart::Whole | RecordPart::Last) {
                return Ok(record);
            }
            at = end.next_multiple_of(4);
        }
    }

    /// Adds contents of the record, and stores its first bytes in `head`.
    fn push(&mut self, bytes: &[u8]) {
        let at = (self.len as usize).min(self.head.len());
        let count = bytes.len().min(self.head.len() - at);
        self.head[at..at + count].copy_from_slice(&bytes[..count]);
        self.len += bytes.len() as u64;
    }
}

enum RecordPart {
    Whole,
    First,
    Middle,
    Last,
}

/// Returns the kind and length of the part that starts with this header.
fn part(header: [u8; 8]) -> Option<(RecordPart, u64)> {
    if header[..4] != MAGIC {
        return None;
    }
    let both = u32_at(&header, 4);
    let part = match both >> 29 {
        0 => RecordPart::Whole,
        1 => RecordPart::First,
        2 => RecordPart::Middle,
        3 => RecordPart::Last,
        _ => return None,
    };
    Some((part, u64::from(both & ((1 << 29) - 1))))
}

/// Number of bytes before the image in a record of `len` bytes: the image header, and a list of
/// labels if there is one.
fn before_image(head: &[u8], len: u64) -> Option<u64> {
    let labels = u64::from(u32_at(head, 0));
    let skipped = IR_BYTES as u64 + 4 * labels;
    (skipped <= len).then_some(skipped)
}

/// Moves the image of a record with several parts to the front of `bytes`. Returns the length of
/// the image.
fn join(bytes: &mut [u8]) -> Option<usize> {
    let (mut from, mut to) = (0, 0);
    loop {
        let header = *bytes.get(from..)?.first_chunk()?;
        let (part, len) = part(header)?;
        if from > 0 {
            bytes[to..to + MAGIC.len()].copy_from_slice(&MAGIC);
            to += MAGIC.len();
        }
        let data = from + HEAD_BYTES as usize;
        let end = data + len as usize;
        bytes.get(data..end)?;
        bytes.copy_within(data..end, to);
        to += len as usize;
        from = end.next_multiple_of(4);
        if matches!(part, RecordPart::Whole | RecordPart::Last) {
            break;
        }
    }
    let skipped = before_image(bytes.get(..to)?.get(..IR_BYTES)?, to as u64)? as usize;
    bytes.copy_within(skipped..to, 0);
    Some(to - skipped)
}

/// Converts a label that is stored as a float.
fn integer(bits: u32, offset: u64) -> Result<i64, FileError> {
    let label = f32::from_bits(bits);
    label::of_f32(label).map_err(|_| {
        let problem = format!(
            "the label {label} is not a class number; set source.label to \"none\" if labels are not needed"
        );
        FileError::new(offset, problem)
    })
}

fn not_a_record(at: u64) -> String {
    let sort =
        if at == 0 { "the file is not RecordIO, or is damaged" } else { "the file is damaged" };
    format!("a record does not begin here as expected: {sort}")
}

/// Reads a little-endian number at offset `at`, which must be within `bytes`.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
