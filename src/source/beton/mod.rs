//! Source for FFCV's `.beton` files.

use serde::{Deserialize, Serialize};

use super::largest::{from_16_bits, in_16_bits};
use super::records::{
    Entries, Entry, FieldPlace, FieldSink, FieldTables, FileError, Format, Records, Window,
};
use super::{Exclusions, NO_LABEL, label};
use crate::error::DataError;
use crate::geometry::Size;
use crate::header::PnmHead;

use layout::{FIELD_BYTES, Field, HEAD_BYTES, Head, Kind};

mod fields;
mod layout;

/// Images in files that FFCV's `DatasetWriter` wrote (version 2 of the format, as in ffcv 1.0.2).
///
/// * A path is a file, a directory (its visible files whose names end in `.beton`), or a pattern
///   such as `train-*.beton` (`*` and `?` in the last part). Samples are ordered by path, then file
///   name, then position in the file.
/// * The image is an `RGBImageField`. The label is an `IntField`, or a `FloatField` if there is no
///   `IntField`. If several fields qualify, the settings must name one. Without a label field,
///   labels are -1. Fields of custom classes are an error, because the file does not contain their
///   size.
/// * All fields but images are fields of the samples, by the names in the file, which have at most
///   16 bytes: numbers, JSON, arrays as flat lists, and a `BytesField` as a text if it is UTF-8 and
///   otherwise as bytes. The second source of a join needs no image.
/// * A label that is stored as a float must be a whole number, as in all sources: `3.0` is 3. Any
///   other float is an error.
/// * An image is a JPEG or raw pixels. The writer chooses for each sample (`write_mode` of `jpg`,
///   `raw`, `smart`, `proportion`). Raw pixels are returned as PNM: a header of up to 32 bytes,
///   then the pixels. Each image is read with one positioned read.
/// * Samples are copied from a memory mapping of the file (`storage.map`). If the file is truncated
///   while it is used, the sample is an error.
/// * The tables of a file are parsed once. The result is stored beside the file (hidden, ending in
///   `.feedwater1`) or in the cache directory. Every image must have an entry in the allocation
///   table. The image must lie within one page, after the sample table and before the allocation
///   table, and the size of raw pixels must match. If a file violates these rules or is truncated,
///   opening it fails with the byte offset of the violation.
/// * The format has no checksums, so this source does not detect damaged pixels or labels.
pub type Beton = Records<BetonSettings>;

/// Names of the fields of a `.beton` file that are read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BetonSettings {
    /// Field that contains the image. Default: the only `RGBImageField`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Field that contains the label: an `IntField`, or a `FloatField` of whole numbers. `""` means
    /// no label (-1). Default: the only `IntField`, else the only `FloatField`, else no label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// Value of an image's byte `mode` which marks a JPEG.
const JPEG: u8 = 0;
/// Value of an image's byte `mode` which marks raw pixels.
const RAW: u8 = 1;
/// Size in bytes of an entry of the allocation table: sample, pointer, size.
const ALLOCATION_BYTES: u64 = 24;

impl Format for BetonSettings {
    const KEY: &'static str = "beton";
    const ENDING: &'static str = ".beton";
    const CHECKED: bool = false;
    const MAPPED: bool = true;

    /// A file is recognised by its name, because the format has no magic number.
    fn recognises(name: &str, _: &[u8]) -> bool {
        name.ends_with(".beton")
    }

    /// `note` is the number that the table stores for each sample. For raw pixels, its upper 16
    /// bits are the height and its lower 16 bits the width. For a JPEG, its upper 16 bits are the
    /// pixel count, compressed by `in_16_bits`, and its lower 16 bits are 0.
    fn head(note: u32) -> Option<PnmHead> {
        size_of_note(note).map(PnmHead::rgb)
    }

    fn pixels(note: u32) -> Option<u64> {
        let jpeg = || from_16_bits((note >> 16) as u16);
        Some(size_of_note(note).map_or_else(jpeg, Size::pixels))
    }

    const HAS_OPEN_FIELDS: bool = false;

    /// The row of a sample has its numbers, and the positions of its other values.
    fn field_tables(&self, window: &mut Window) -> Result<Option<FieldTables>, FileError> {
        let head = Head::read(window)?;
        let fields = Field::read_all(window, &head)?;
        let samples = Samples::new(window, &head, &fields)?;
        let head = samples.start;
        Ok(Some(FieldTables { head, rows: samples.start, stride: samples.stride }))
    }

    fn fields(
        &self,
        place: &FieldPlace<'_>,
        to: &mut FieldSink<'_>,
        buffer: &mut Vec<u8>,
    ) -> Result<(), DataError> {
        fields::pass(self, place, to, buffer)
    }

    /// Parses the tables of the file. Their layout is defined by ffcv's `types.py`, `writer.py` and
    /// `fields`.
    fn walk(
        &self,
        window: &mut Window,
        table: &mut Entries,
        _: &mut Exclusions,
    ) -> Result<(), FileError> {
        let head = Head::read(window)?;
        let fields = Field::read_all(window, &head)?;
        if table.is_for_fields() {
            // The entry of a sample is an empty range at its row in the sample table.
            let samples = Samples::new(window, &head, &fields)?;
            for number in 0..samples.count {
                let row = samples.place(number);
                table.push(Entry::new(row..row, NO_LABEL, 0)?);
            }
            return Ok(());
        }
        let image = self.image(&fields)?;
        let label = self.label(&fields)?;
        let samples = Samples::new(window, &head, &fields)?;
        for number in 0..head.samples {
            table.push(samples.pending(window, number, image, label)?);
        }
        samples.allocate(window, table)?;
        let lost = table.iter().position(|entry| entry.len == 0);
        lost.map_or(Ok(()), |number| {
            let problem = format!(
                "the image of sample {number} is not in the allocation table: the file is \
                 damaged, or its writer was stopped; write the file again"
            );
            Err(FileError::new(samples.place(number as u64) + image.start, problem))
        })
    }
}

impl BetonSettings {
    /// Selects the field that contains the image.
    fn image<'a>(&self, fields: &'a [Field]) -> Result<&'a Field, FileError> {
        let found = find(fields, &[Kind::Image], self.image.as_deref(), "source.image")?;
        found.ok_or_else(|| {
            let problem = format!(
                "the file has no RGBImageField; its fields are: {}; write the images with an \
                 RGBImageField",
                names(fields, |_| true)
            );
            FileError::new(HEAD_BYTES, problem)
        })
    }

    /// Selects the field that contains the label, if any.
    fn label<'a>(&self, fields: &'a [Field]) -> Result<Option<&'a Field>, FileError> {
        match self.label.as_deref() {
            Some("") => Ok(None),
            name => find(fields, &[Kind::Int, Kind::Float], name, "source.label"),
        }
    }
}

/// Returns the field that has this name and one of these kinds. Without a name, selects the first
/// of the kinds that occurs in the file, and returns the only field of this kind.
fn find<'a>(
    fields: &'a [Field],
    kinds: &[Kind],
    name: Option<&str>,
    key: &str,
) -> Result<Option<&'a Field>, FileError> {
    let Some(name) = name else {
        let there = kinds.iter().find(|&&kind| fields.iter().any(|it| it.kind == kind));
        let Some(&kind) = there else { return Ok(None) };
        let mut fitting = fields.iter().filter(|it| it.kind == kind);
        let (first, second) = (fitting.next(), fitting.next());
        return match second {
            None => Ok(first),
            Some(_) => {
                let problem = format!(
                    "the file has several fields of type {}: {}; set {key} to the name of one of \
                     them",
                    kind.name(),
                    names(fields, |it| it.kind == kind)
                );
                Err(FileError::new(HEAD_BYTES, problem))
            }
        };
    };
    let found = fields.iter().find(|it| kinds.contains(&it.kind) && it.is_named(name));
    found.map(Some).ok_or_else(|| {
        let kinds: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
        let problem = format!(
            "the file has no {} named {name:?}, which is the value of {key}; its fields are: {}",
            kinds.join(" and no "),
            names(fields, |_| true)
        );
        FileError::new(HEAD_BYTES, problem)
    })
}

fn names(fields: &[Field], wanted: impl Fn(&Field) -> bool) -> String {
    let names = fields.iter().filter(|it| wanted(it));
    let names: Vec<String> =
        names.map(|it| format!("{:?} ({})", it.name, it.kind.name())).collect();
    if names.is_empty() { "no fields".into() } else { names.join(", ") }
}

/// Position of the sample table, and limits for the positions of the images after it.
struct Samples {
    start: u64,
    stride: u64,
    count: u64,
    page: u64,
    /// Offset of the allocation table. All images lie before this offset.
    allocations: u64,
}

impl Samples {
    fn new(window: &Window, head: &Head, fields: &[Field]) -> Result<Self, FileError> {
        if fields.is_empty() {
            let problem = "the file has no fields: it is damaged; write it again";
            return Err(FileError::new(0, problem));
        }
        let start = HEAD_BYTES + FIELD_BYTES * fields.len() as u64;
        let stride = layout::stride(fields);
        let bytes = stride.checked_mul(head.samples);
        let end = bytes.and_then(|bytes| start.checked_add(bytes));
        let end = end.filter(|&end| end <= window.file_len());
        let end = end.ok_or_else(|| window.cut(start, bytes.unwrap_or(u64::MAX)))?;
        let allocations = head.allocations;
        let whole = window.file_len().checked_sub(allocations);
        if allocations < end || whole.is_none_or(|bytes| !bytes.is_multiple_of(ALLOCATION_BYTES)) {
            let problem = format!(
                "by the header, the allocation table begins at byte {allocations}, and the file \
                 ends at byte {}; the table must begin at byte {end} or later, and must have \
                 {ALLOCATION_BYTES} bytes per entry: the file is truncated or damaged, or its \
                 writer was stopped; write the file again",
                window.file_len()
            );
            return Err(FileError::new(head.allocations_at, problem));
        }
        Ok(Self { start, stride, count: head.samples, page: head.page, allocations })
    }

    /// Returns the offset of a sample's fields in the file.
    fn place(&self, number: u64) -> u64 {
        self.start + self.stride * number
    }

    /// Returns the entry of a sample with the offset of its image. `allocate` sets the length
    /// later, because only the allocation table contains it.
    fn pending(
        &self,
        window: &mut Window,
        number: u64,
        image: &Field,
        label: Option<&Field>,
    ) -> Result<Entry, FileError> {
        let place = self.place(number);
        let bytes = window.at(place, self.stride)?;
        let label = label.map_or(Ok(-1), |field| {
            let stored = layout::bytes(bytes, field.start);
            label_of(field, stored).map_err(|problem| {
                FileError::new(
                    place + field.start,
                    format!("sample {number} has the label {problem}"),
                )
            })
        })?;
        let [mode] = layout::bytes(bytes, image.start);
        let width = u16::from_le_bytes(layout::bytes(bytes, image.start + 1));
        let height = u16::from_le_bytes(layout::bytes(bytes, image.start + 3));
        let pointer = u64::from_le_bytes(layout::bytes(bytes, image.start + 5));
        let note = match mode {
            JPEG => u32::from(in_16_bits(u64::from(width) * u64::from(height))) << 16,
            RAW if width > 0 && height > 0 => u32::from(height) << 16 | u32::from(width),
            _ => {
                let problem = format!(
                    "sample {number} has an image of {width}x{height} in mode {mode}; only the \
                     modes 0 (a JPEG) and 1 (pixels) are supported, so the sample is damaged, or \
                     was written by a newer ffcv"
                );
                return Err(FileError::new(place + image.start, problem));
            }
        };
        Entry::new(pointer..pointer, label, note)
    }

    /// Sets the length of every sample from the allocation table.
    fn allocate(&self, window: &mut Window, table: &mut [Entry]) -> Result<(), FileError> {
        let mut at = self.allocations;
        while at < window.file_len() {
            let bytes = window.at(at, ALLOCATION_BYTES)?;
            let [number, pointer, size] =
                [0, 8, 16].map(|start| u64::from_le_bytes(layout::bytes(bytes, start)));
            let wrong = |problem: String| Err(FileError::new(at, problem));
            if number >= self.count {
                return wrong(format!(
                    "the allocation table names sample {number}, but the file has only {} \
                     samples: the file is damaged; write it again",
                    self.count
                ));
            }
            let entry = &mut table[number as usize];
            // The allocation table also has entries for other fields of the sample. An empty field
            // has the same pointer as the field after it, so entries of 0 bytes are skipped.
            if entry.offset == pointer && size > 0 {
                let end = self.end(pointer, size);
                let expected = size_of_note(entry.crc).map(|size| 3 * size.pixels());
                let same = entry.len == 0 || u64::from(entry.len) == size;
                match end {
                    Some(end) if same && expected.is_none_or(|bytes| bytes == size) => {
                        *entry = Entry::new(pointer..end, entry.label, entry.crc)?;
                    }
                    _ => {
                        return wrong(format!(
                            "the allocation table puts the image of sample {number} at byte \
                             {pointer}, with {size} bytes, but there it overlaps a table or the end of \
                             a page (pages have {} bytes), or has the wrong size: the file is \
                             damaged; write it again",
                            self.page
                        ));
                    }
                }
            }
            at += ALLOCATION_BYTES;
        }
        Ok(())
    }

    /// Returns the end of an image of `size` bytes at `pointer`. Returns `None` unless the image
    /// lies within one page, after the sample table and before the allocation table.
    fn end(&self, pointer: u64, size: u64) -> Option<u64> {
        let end = pointer.checked_add(size)?;
        let inside = pointer >= self.place(self.count) && end <= self.allocations;
        (inside && pointer / self.page == (end - 1) / self.page).then_some(end)
    }
}

/// Parses the label of a field. The error states the invalid value, the problem and a remedy.
fn label_of(field: &Field, stored: [u8; 8]) -> Result<i64, String> {
    if field.kind == Kind::Int {
        return Ok(i64::from_le_bytes(stored));
    }
    let value = f64::from_le_bytes(stored);
    label::of_float(value).map_err(|why| {
        format!(
            "{value:?} in the field {:?} ({}), which {why}; write the labels with an IntField, or \
             set source.label to the field that has the labels, or to \"\" if samples have none",
            field.name,
            field.kind.name()
        )
    })
}

/// Returns the image size that the note of a sample of raw pixels contains, or `None` for a JPEG.
/// The note is a number that the table stores for each sample.
fn size_of_note(note: u32) -> Option<Size> {
    let (width, height) = (note & 0xffff, note >> 16);
    (width > 0).then(|| Size::new(width, height))
}
