//! Fields of a `.beton` file that are not images, as fields of its samples.

use std::ops::Range;

use super::layout::{self, FIELD_BYTES, Field, Head, Kind};
use super::{BetonSettings, Samples};
use crate::error::{DataError, Reason};
use crate::source::records::{FieldPlace, FieldSink, changed};
use crate::source::{FieldKind, FieldValue};

/// Byte after the text of a JSONField.
const JSON_END: u8 = 0;

/// Passes the fields of a sample to `to`.
pub fn pass(
    settings: &BetonSettings,
    place: &FieldPlace<'_>,
    to: &mut FieldSink<'_>,
    buffer: &mut Vec<u8>,
) -> Result<(), DataError> {
    let window = &mut place.window(FIELD_BYTES);
    let head = Head::read(window)?;
    let fields = Field::read_all(window, &head)?;
    let samples = Samples::new(window, &head, &fields)?;
    if place.number >= samples.count {
        return Err(changed());
    }
    let row = window.at(samples.place(place.number), samples.stride)?.to_vec();
    let offset = match place.for_fields {
        true => samples.place(place.number),
        false => {
            let image = settings.image(&fields)?.start + 5;
            u64::from_le_bytes(layout::bytes(&row, image))
        }
    };
    if offset != place.entry.offset {
        return Err(changed());
    }
    let values = (0..).zip(&fields).filter(|(_, field)| field.kind != Kind::Image);
    for (number, Field { kind, name, start }) in values {
        if !to.wants(name, kind_of_values(*kind)) {
            continue;
        }
        if fields.iter().filter(|field| field.name == *name).count() > 1 {
            let problem =
                format!("the file has several fields {name:?}; give them names of their own");
            return Err(DataError::new(Reason::Corrupt, problem));
        }
        let number_at = |start| -> u64 { u64::from_le_bytes(layout::bytes(&row, start)) };
        let region = |size: u64| -> Result<Range<u64>, DataError> {
            let pointer = number_at(*start);
            let end = if size == 0 { Some(pointer) } else { samples.end(pointer, size) };
            let end = end.ok_or_else(|| {
                let problem = format!(
                    "the field {name:?} has {size} bytes at byte {pointer}, but there it overlaps \
                     a table or the end of a page: the file is damaged; write it again"
                );
                DataError::new(Reason::Corrupt, problem)
            })?;
            Ok(pointer..end)
        };
        match kind {
            Kind::Image => {}
            Kind::Float => {
                to.put(name, FieldValue::Float(f64::from_bits(number_at(*start))))?;
            }
            Kind::Int => {
                to.put(name, FieldValue::Integer((number_at(*start) as i64).into()))?;
            }
            Kind::Bytes | Kind::Json => {
                to.read(place, name, region(number_at(start + 8))?, buffer)?;
                let value = match kind {
                    Kind::Json => {
                        let end = buffer.iter().position(|&byte| byte == JSON_END);
                        FieldValue::Json(&buffer[..end.unwrap_or(buffer.len())])
                    }
                    _ => FieldValue::of_bytes(buffer),
                };
                to.put(name, value)?;
            }
            Kind::Array | Kind::Tensor => {
                let (item, count) = layout::array(window, name, number)?;
                to.check_len(name, item.value_bytes().saturating_mul(count))?;
                to.read(place, name, region(item.bytes * count)?, buffer)?;
                item.pass_list(name, buffer, |value| to.put(name, value))?;
            }
        }
    }
    Ok(())
}

fn kind_of_values(kind: Kind) -> FieldKind {
    match kind {
        Kind::Float | Kind::Int => FieldKind::Number,
        Kind::Bytes | Kind::Image => FieldKind::Bytes,
        Kind::Json => FieldKind::Json,
        Kind::Array | Kind::Tensor => FieldKind::List,
    }
}
