//! The key and the numbers of a Datum as fields.

use std::ops::Range;

use super::datum::{FLOAT_BYTES, OTHERWISE};
use super::pages::Environment;
use crate::error::{DataError, Reason, reserve};
use crate::source::records::protobuf::{Fields, Value};
use crate::source::records::{FieldPlace, FieldSink, FileError, StoredField, Window, changed};
use crate::source::{Field, FieldKind, FieldValue, VALUE};

/// Number of bytes that are read at once while images are skipped.
const AHEAD_BYTES: u64 = 4096;

/// Name of the field with the key of a sample.
pub const KEY: &str = "key";

/// Fields of a Datum that are integers: number and name.
pub const INTEGERS: [(u64, &str); 4] = [(1, "channels"), (2, "height"), (3, "width"), (5, "label")];

/// Number and name of the floats of a Datum.
pub const FLOATS: (u64, &str) = (6, "float_data");

/// Passes the fields of a sample to `to`.
pub fn pass(
    place: &FieldPlace<'_>,
    to: &mut FieldSink<'_>,
    buffer: &mut Vec<u8>,
) -> Result<(), DataError> {
    let mut window = place.window(AHEAD_BYTES);
    // In a file at a URL, a sample lies in the range of its value, and its name is its key.
    let has_extent = place.end != u64::MAX;
    let (key, value) = match has_extent {
        true => (None, place.begin..place.end),
        false => {
            let environment = Environment::open(&mut window)?;
            let (key, value) = environment.node(&mut window, place.record)?;
            (Some(key), value)
        }
    };
    let image = place.entry.offset..place.entry.end();
    if image.start < value.start || value.end < image.end {
        return Err(changed());
    }
    if to.wants(KEY, FieldKind::Text) {
        let key = key.or_else(|| place.stored_name()).ok_or_else(|| {
            let problem = "the key has more than 254 bytes, so it cannot be read from a file at a \
                           URL; copy the file to a local disk";
            DataError::new(Reason::Unsupported, problem)
        })?;
        to.check_len(KEY, key.len() as u64)?;
        to.put(KEY, FieldValue::of_bytes(&key))?;
    }
    // An image that is the whole value has no Datum.
    if value != image {
        return pass_datum(&mut window, value, to);
    }
    if place.for_fields && to.wants(VALUE, FieldKind::Bytes) {
        to.read(place, VALUE, value, buffer)?;
        to.put(VALUE, FieldValue::of_bytes(buffer))?;
    }
    Ok(())
}

/// Returns the field with this name.
pub fn listed(stored: &StoredField) -> Field {
    let kind = match &*stored.name {
        KEY => FieldKind::Text,
        VALUE => FieldKind::Bytes,
        _ if stored.is_list => FieldKind::List,
        _ => FieldKind::Number,
    };
    Field { name: stored.name.clone(), kind }
}

fn pass_datum(
    window: &mut Window,
    datum: Range<u64>,
    to: &mut FieldSink<'_>,
) -> Result<(), DataError> {
    window.read_ahead(AHEAD_BYTES);
    let mut integers = [None; INTEGERS.len()];
    let mut floats = 0;
    let mut fields = Fields::of(datum.clone(), OTHERWISE);
    while let Some((number, value)) = fields.next(window)? {
        match value {
            Value::Number(value) => {
                if let Some(place) = INTEGERS.iter().position(|(known, _)| *known == number) {
                    // These fields are int32, so the upper bits have no meaning.
                    integers[place] = Some(value as i32);
                }
            }
            Value::Bytes(bytes) | Value::Fixed(bytes) if number == FLOATS.0 => {
                floats += (bytes.end - bytes.start) / FLOAT_BYTES;
            }
            Value::Bytes(_) | Value::Fixed(_) => {}
        }
    }
    for ((_, name), value) in INTEGERS.iter().zip(integers) {
        if let Some(value) = value
            && to.wants(name, FieldKind::Number)
        {
            to.put(name, FieldValue::Integer(value.into()))?;
        }
    }
    if floats > 0 && to.wants(FLOATS.1, FieldKind::List) {
        to.check_len(FLOATS.1, floats * FLOAT_BYTES)?;
        let values = read_floats(window, datum, floats)?;
        to.put(FLOATS.1, FieldValue::Floats(&values))?;
    }
    Ok(())
}

/// Reads the `count` floats of a Datum. Writers store each on its own, or all together.
fn read_floats(window: &mut Window, datum: Range<u64>, count: u64) -> Result<Vec<f32>, DataError> {
    let mut values = Vec::new();
    reserve::reserve(&mut values, count as usize)?;
    let mut fields = Fields::of(datum, OTHERWISE);
    while let Some((number, value)) = fields.next(window)? {
        let (true, Value::Bytes(bytes) | Value::Fixed(bytes)) = (number == FLOATS.0, value) else {
            continue;
        };
        if !(bytes.end - bytes.start).is_multiple_of(FLOAT_BYTES) {
            return Err(FileError::new(bytes.start, OTHERWISE).into());
        }
        let mut at = bytes.start;
        while at < bytes.end {
            let chunk = window.at(at, (bytes.end - at).min(AHEAD_BYTES))?;
            let floats = chunk.as_chunks().0;
            values.extend(floats.iter().map(|float| f32::from_le_bytes(*float)));
            at += chunk.len() as u64;
        }
    }
    Ok(values)
}
