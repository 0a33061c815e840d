//! Fields of MXNet's image header.

use std::ops::Range;

use super::{
    HEAD_BYTES, IR_BYTES, MAGIC, Record, RecordPart, before_image, not_a_record, part, u32_at,
};
use crate::error::{DataError, reserve};
use crate::source::records::{FieldPlace, FieldSink, FileError, Window, changed};
use crate::source::{FieldKind, FieldValue, VALUE};

/// Number of bytes that are read at once, enough for the headers of most records.
const AHEAD_BYTES: u64 = 256;

const FLOAT_BYTES: usize = 4;

/// Passes the label or labels, and the id of a sample to `to`. For fields, also passes the contents
/// of the record.
pub fn pass(
    place: &FieldPlace<'_>,
    to: &mut FieldSink<'_>,
    buffer: &mut Vec<u8>,
) -> Result<(), DataError> {
    let mut window = place.window(AHEAD_BYTES);
    let record = find(&mut window, place)?;
    if to.wants("label", FieldKind::List) {
        let labels = u64::from(u32_at(&record.head, 0));
        let bytes = match labels {
            0 => 4..8,
            _ => IR_BYTES as u64..IR_BYTES as u64 + FLOAT_BYTES as u64 * labels,
        };
        to.check_len("label", bytes.end - bytes.start)?;
        contents(&mut window, record.bytes.start, bytes, buffer)?;
        let mut values = Vec::new();
        reserve::reserve(&mut values, buffer.len() / FLOAT_BYTES)?;
        let floats = buffer.as_chunks::<FLOAT_BYTES>().0;
        values.extend(floats.iter().map(|float| f32::from_le_bytes(*float)));
        to.put("label", FieldValue::Floats(&values))?;
    }
    if to.wants("id", FieldKind::Number) {
        let id = record.head[8..].first_chunk().expect("the header has 24 bytes");
        to.put("id", FieldValue::Integer(u64::from_le_bytes(*id).into()))?;
    }
    if place.for_fields && to.wants(VALUE, FieldKind::Bytes) {
        let start = before_image(&record.head, record.len).ok_or_else(changed)?;
        to.check_len(VALUE, record.len - start)?;
        contents(&mut window, record.bytes.start, start..record.len, buffer)?;
        to.put(VALUE, FieldValue::of_bytes(buffer))?;
    }
    Ok(())
}

/// Returns the record of a sample. Records without an image may precede it.
fn find(window: &mut Window, place: &FieldPlace<'_>) -> Result<Record, DataError> {
    let mut at = place.begin.next_multiple_of(4);
    while at <= place.entry.offset {
        let record = Record::read(window, at)?;
        at = record.bytes.end.next_multiple_of(4);
        if place.entry.end() <= record.bytes.end {
            before_image(&record.head, record.len).ok_or_else(changed)?;
            return Ok(record);
        }
    }
    Err(changed())
}

/// Reads this range of the contents of the record that begins at `at`. The contents may be split
/// into parts.
fn contents(
    window: &mut Window,
    mut at: u64,
    wanted: Range<u64>,
    buffer: &mut Vec<u8>,
) -> Result<(), DataError> {
    reserve::renew(buffer, 0)?;
    reserve::reserve(buffer, (wanted.end - wanted.start) as usize)?;
    // Position in the contents.
    let mut begin = 0;
    loop {
        let header: [u8; 8] = *window.at(at, HEAD_BYTES)?.first_chunk().expect("8 bytes");
        let (kind, len) = part(header).ok_or_else(|| FileError::new(at, not_a_record(at)))?;
        if matches!(kind, RecordPart::Middle | RecordPart::Last) {
            let from = wanted.start.clamp(begin, begin + MAGIC.len() as u64) - begin;
            let to = wanted.end.clamp(begin, begin + MAGIC.len() as u64) - begin;
            buffer.extend_from_slice(&MAGIC[from as usize..to as usize]);
            begin += MAGIC.len() as u64;
        }
        let data = at + HEAD_BYTES;
        let from = wanted.start.clamp(begin, begin + len) - begin;
        let to = wanted.end.clamp(begin, begin + len) - begin;
        buffer.extend_from_slice(window.at(data + from, to - from)?);
        begin += len;
        if begin >= wanted.end {
            return Ok(());
        }
        if matches!(kind, RecordPart::Whole | RecordPart::Last) {
            return Err(changed());
        }
        at = (data + len).next_multiple_of(4);
    }
}
