//! The key and the numbers of a Datum as fields.

use std::ops::Range;

use super::datum::{FLOAT_BYTES, OTHERWISE};
use super::pages::Environment;
use crate::error::{DataError, reserve};
use crate::source::records::protobuf::{Fields, Value};
use crate::source::records::{FieldPlace, FieldSink, FileError, Window, changed};
use crate::source::{FieldKind, FieldValue, VALUE};

/// Number of bytes that are read at once while images are skipped.
const AHEAD_BYTES: u64 = 4096;

/// Fields of a Datum that are integers: number and name.
const INTEGERS: [(u64, &str); 4] = [(1, "channels"), (2, "height"), (3, "width"), (5, "label")];

/// Number and name of the floats of a Datum.
const FLOATS: (u64, &str) = (6, "float_data");

/// Passes the fields of a sample to `to`.
pub fn pass(
    place: &FieldPlace<'_>,
    to: &mut FieldSink<'_>,
    buffer: &mut Vec<u8>,
) -> Result<(), DataError> {
    let mut window = place.window(AHEAD_BYTES);
    let (key, value) = Environment::open(&mut window)?.node(&mut window, place.record)?;
    let image = place.entry.offset..place.entry.end();
    if image.start < value.start || value.end < image.end {
        return Err(changed());
    }
    if to.wants("key", FieldKind::Text) {
        to.check_len("key", key.len() as u64)?;
        to.put("key", FieldValue::of_bytes(&key))?;
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
