//! Features of an Example as fields.

use std::io::{self, Write};
use std::ops::Range;

use super::example::{BYTES_LIST, FLOAT_LIST, INT64_LIST, each_feature, field_name, is_list};
use super::message::{Item, Malformed, Message};
use super::{checked_len, masked};
use crate::error::{DataError, Reason, reserve};
use crate::source::records::{
    Entry, FieldPlace, FieldSink, PackedName, StoredField, Window, changed, damaged, each_packed,
    form_kind,
};
use crate::source::{Field, FieldKind, FieldValue, file_value};

/// Number of bytes that are read at once while images are skipped.
const AHEAD_BYTES: u64 = 4096;

/// Maximum number of bytes beside the image for which the checksum of a record is verified. It
/// requires reading all of them, also those of features that are not wanted.
const MOST_CHECKED: u64 = 64 << 10;

const FLOAT_BYTES: usize = 4;

/// Passes the features of a sample to `to`.
pub fn pass(
    place: &FieldPlace<'_>,
    to: &mut FieldSink<'_>,
    buffer: &mut Vec<u8>,
) -> Result<(), DataError> {
    let mut window = place.window(AHEAD_BYTES);
    let record = record(&mut window, place)?;
    verify(&mut window, record.clone(), place.entry)?;
    // If a feature occurs several times, the last occurrence is used, as for the image.
    let mut found: Vec<(String, Stored, Range<u64>)> = Vec::new();
    each_feature(&mut window, record, |window, name, feature| {
        let Some(name) = field_name(window, &name)?.map(str::to_string) else { return Ok(()) };
        let Some((name, stored)) = stored(&name, place.meaning(&name)) else { return Ok(()) };
        if let Some(earlier) = found.iter_mut().find(|(known, ..)| *known == name) {
            (earlier.1, earlier.2) = (stored, feature);
        } else if !feature.is_empty() && to.wants(&name, stored.kind(is_list(window, &feature)?)) {
            found.push((name, stored, feature));
        }
        Ok(())
    })?;
    for (name, stored, feature) in found {
        to.read(place, &name, feature, buffer)?;
        put(&name, &stored, buffer, to).map_err(|failed| match failed {
            Failed::Malformed => {
                let problem = format!("the feature {name:?} is not a tf.train.Feature");
                DataError::new(Reason::Corrupt, problem)
            }
            Failed::Error(error) => error,
        })?;
    }
    Ok(())
}

/// Starts of the first `count` records of a file. Only the lengths of records are read.
pub fn starts(window: &mut Window, count: usize) -> Result<Vec<u64>, DataError> {
    window.read_ahead(AHEAD_BYTES);
    let mut starts = Vec::new();
    reserve::reserve(&mut starts, count)?;
    let mut at = 0u64;
    for _ in 0..count {
        let len = window.at(at, 12)?.first_chunk().and_then(checked_len).ok_or_else(changed)?;
        starts.push(at);
        at = len.checked_add(at + 16).ok_or_else(changed)?;
    }
    Ok(starts)
}

/// Returns the byte range of the record that contains the sample's image.
fn record(window: &mut Window, place: &FieldPlace<'_>) -> Result<Range<u64>, DataError> {
    let head = window.at(place.record, 12)?.first_chunk();
    let len = head.and_then(checked_len).ok_or_else(changed)?;
    let start = place.record + 12;
    let end = start.checked_add(len).filter(|&end| place.file_len - 4 >= end);
    let record = start..end.ok_or_else(changed)?;
    let is_inside = record.start <= place.entry.offset && place.entry.end() <= record.end;
    is_inside.then_some(record).ok_or_else(changed)
}

/// Verifies the checksum of a record without reading its image, whose checksum is in the entry.
fn verify(window: &mut Window, record: Range<u64>, entry: Entry) -> Result<(), DataError> {
    let (before, after) = (record.start..entry.offset, entry.end()..record.end);
    let (head, tail) = (before.end - before.start, after.end - after.start);
    if head + tail > MOST_CHECKED {
        return Ok(());
    }
    let whole = crc32c::crc32c_combine(window.crc32c(before)?, entry.crc, entry.len as usize);
    let whole = crc32c::crc32c_combine(whole, window.crc32c(after)?, tail as usize);
    let expected = window.at(record.end, 4)?.first_chunk().expect("4 bytes");
    match masked(whole) == u32::from_le_bytes(*expected) {
        true => Ok(()),
        false => Err(damaged(record.start - 12)),
    }
}

/// Returns the field that samples store under this name, as
/// [`Format::listed`](crate::source::records::Format::listed).
pub fn listed(found: &StoredField, meaning: PackedName<'_>) -> Option<Field> {
    let (name, stored) = stored(&found.name, meaning)?;
    Some(Field { name, kind: stored.kind(found.is_list) })
}

/// Returns the field that a feature is, and the kind of the feature. `None` if it is no field.
fn stored(name: &str, meaning: PackedName<'_>) -> Option<(String, Stored)> {
    Some(match meaning {
        PackedName::Own => (name.into(), Stored::Natural),
        PackedName::Natural(field) => (field.into(), Stored::Natural),
        PackedName::File(field) => (field.into(), Stored::File(name.into())),
        PackedName::Form(field, form) => (field.into(), Stored::Form(form)),
        PackedName::Hidden => return None,
    })
}

impl Stored {
    /// Kind of the values of the feature.
    fn kind(&self, is_list: bool) -> FieldKind {
        match self {
            Stored::Natural if is_list => FieldKind::List,
            Stored::Natural => FieldKind::Bytes,
            Stored::File(name) => file_value::kind(name),
            Stored::Form(form) => form_kind(form),
        }
    }
}

/// Kind of a feature.
enum Stored {
    /// A list of numbers, a text or bytes.
    Natural,
    /// A file with this name, which `feedwater pack` has stored.
    File(String),
    /// A value that `feedwater pack` has stored in this form.
    Form(&'static str),
}

enum Failed {
    Malformed,
    Error(DataError),
}

impl From<Malformed> for Failed {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

impl From<DataError> for Failed {
    fn from(error: DataError) -> Self {
        Self::Error(error)
    }
}

/// Passes the value of a feature to `to`.
fn put(name: &str, stored: &Stored, feature: &[u8], to: &mut FieldSink<'_>) -> Result<(), Failed> {
    let Some((list, feature)) = last_list(feature)? else { return Ok(()) };
    let mut count = 0;
    match list {
        INT64_LIST => {
            each_integer(feature, |_| count += 1)?;
            let mut values: Vec<i64> = Vec::new();
            to.check_len(name, (count * size_of::<i64>()) as u64)?;
            reserve::reserve(&mut values, count)?;
            each_integer(feature, |value| values.push(value))?;
            Ok(to.put(name, FieldValue::Integers(&values))?)
        }
        FLOAT_LIST => {
            each_float(feature, |_| count += 1)?;
            let mut values: Vec<f32> = Vec::new();
            reserve::reserve(&mut values, count)?;
            each_float(feature, |value| values.push(value))?;
            Ok(to.put(name, FieldValue::Floats(&values))?)
        }
        _ => {
            let mut only = &b""[..];
            each_bytes(feature, |bytes| {
                (only, count) = (bytes, count + 1);
                Ok(())
            })?;
            match (stored, count, str::from_utf8(only)) {
                (_, 0, _) => Ok(()),
                (Stored::File(file), 1, _) => Ok(to.put(name, file_value::value(file, only))?),
                (Stored::Form(form), 1, _) => {
                    Ok(each_packed(form, only, &mut |value| to.put(name, value))?)
                }
                (Stored::Natural, 1, Ok(text)) => Ok(to.put(name, FieldValue::Text(text))?),
                (Stored::Natural, 1, Err(_)) => Ok(to.put(name, FieldValue::Bytes(only))?),
                _ => put_texts(name, feature, to),
            }
        }
    }
}

/// Passes the texts of a list to `to` as an array of JSON.
fn put_texts(name: &str, feature: &[u8], to: &mut FieldSink<'_>) -> Result<(), Failed> {
    let mut len = Length(0);
    write_texts(name, feature, &mut len)?;
    to.check_len(name, len.0)?;
    let mut json = Vec::new();
    reserve::reserve(&mut json, len.0 as usize)?;
    write_texts(name, feature, &mut json)?;
    Ok(to.put(name, FieldValue::Json(&json))?)
}

fn write_texts(name: &str, feature: &[u8], to: &mut impl Write) -> Result<(), Failed> {
    let unwritten = |error: io::Error| DataError::io(&error);
    let mut count = 0;
    each_bytes(feature, |bytes| {
        let text = str::from_utf8(bytes).map_err(|error| {
            let problem = format!(
                "the feature {name:?} has several values, but value {count} is not UTF-8 at byte \
                 {}; a field can have several texts, or one value of bytes",
                error.valid_up_to()
            );
            DataError::new(Reason::Field, problem)
        })?;
        to.write_all(if count == 0 { b"[" } else { b"," }).map_err(unwritten)?;
        serde_json::to_writer(&mut *to, text).map_err(|error| unwritten(error.into()))?;
        count += 1;
        Ok(())
    })?;
    Ok(to.write_all(b"]").map_err(unwritten)?)
}

/// Counts the bytes that are written.
struct Length(u64);

impl Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the number of a feature's list, and the rest of the feature from this list on. If a
/// feature has lists of several types, which no writer produces, parsers use the last type.
fn last_list(feature: &[u8]) -> Result<Option<(u64, &[u8])>, Malformed> {
    let (mut message, mut last) = (Message(feature), None);
    loop {
        let rest = message.0;
        match message.next()? {
            None => return Ok(last),
            Some((list @ (BYTES_LIST | FLOAT_LIST | INT64_LIST), Item::Bytes(_)))
                if last.is_none_or(|(number, _)| number != list) =>
            {
                last = Some((list, rest));
            }
            Some(_) => {}
        }
    }
}

/// Calls `found` with every value in the lists with this number.
fn each_value<'a>(
    feature: &'a [u8],
    list: u64,
    mut found: impl FnMut(Item<'a>) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let mut feature = Message(feature);
    while let Some((number, item)) = feature.next()? {
        let (true, Item::Bytes(values)) = (number == list, item) else { continue };
        let mut values = Message(values);
        while let Some((number, value)) = values.next()? {
            if number == 1 {
                found(value)?;
            }
        }
    }
    Ok(())
}

fn each_bytes<'a>(
    feature: &'a [u8],
    mut found: impl FnMut(&'a [u8]) -> Result<(), DataError>,
) -> Result<(), Failed> {
    each_value(feature, BYTES_LIST, |value| match value {
        Item::Bytes(bytes) => Ok(found(bytes)?),
        Item::Number(_) | Item::Fixed(_) => Ok(()),
    })
}

fn each_integer(feature: &[u8], mut found: impl FnMut(i64)) -> Result<(), Failed> {
    each_value(feature, INT64_LIST, |value| {
        match value {
            Item::Number(value) => found(value as i64),
            Item::Bytes(packed) => {
                let mut packed = Message(packed);
                while !packed.0.is_empty() {
                    found(packed.number()? as i64);
                }
            }
            Item::Fixed(_) => {}
        }
        Ok(())
    })
}

fn each_float(feature: &[u8], mut found: impl FnMut(f32)) -> Result<(), Failed> {
    each_value(feature, FLOAT_LIST, |value| {
        let bytes = match value {
            Item::Bytes(bytes) => bytes,
            Item::Fixed(bytes) if bytes.len() == FLOAT_BYTES => bytes,
            Item::Number(_) | Item::Fixed(_) => return Ok(()),
        };
        let (floats, rest) = bytes.as_chunks::<FLOAT_BYTES>();
        if !rest.is_empty() {
            return Err(Failed::Malformed);
        }
        floats.iter().for_each(|float| found(f32::from_le_bytes(*float)));
        Ok(())
    })
}
