//! Encodes arrays in fields as PNM or PFM files, which the image decoders read.

use crate::error::{DataError, Reason, reserve};
use crate::field::Flat;
use crate::footprint;
use crate::image::PixelFormat;

/// Integers up to this number are exact in f32.
const MOST_EXACT: i64 = 1 << 24;

/// Writes an array `[height, width]` or `[height, width, channels]` as a PNM or PFM file of at most
/// `limit` bytes, whose decoded pixels of this format have the numbers of the array.
///
/// # Errors
/// [`Reason::Field`] for other shapes, and for numbers that the format cannot hold.
pub(super) fn write(
    numbers: Flat<'_>,
    shape: &[usize],
    format: PixelFormat,
    (limit, file): (u64, &mut Vec<u8>),
) -> Result<(), DataError> {
    let wrong = |problem: String| Err(DataError::new(Reason::Field, problem));
    let (height, width, channels): (_, _, usize) = match *shape {
        [height, width, 3] => (height, width, 3),
        [height, width] | [height, width, 1] if format.is_floats() => (height, width, 1),
        _ => {
            let shapes = match format.is_floats() {
                true => "[height, width], [height, width, 1] or [height, width, 3]",
                false => "[height, width, 3]",
            };
            return wrong(format!(
                "is an array of shape {shape:?}, and an image of {} pixels has {shapes}",
                format.name()
            ));
        }
    };
    let name = format.name();
    if let (Flat::Bytes(_), true) = (numbers, format.is_16_bit()) {
        return wrong(format!(
            "is an array of 8 bits, but its pixels are decoded to {name}; convert it to 16 bits on \
             the scale of 0 to 65535, or set pixels of the view to f32 or f32x3"
        ));
    }
    if let Flat::Doubles(list) = numbers
        && let Some(number) = list.iter().find(|it| it.is_finite() && !(**it as f32).is_finite())
    {
        return wrong(format!("has the number {number}, which is too large for f32"));
    }
    let is_small = |numbers: &[i64]| numbers.iter().all(|it| (0..=0xffff).contains(it));
    let (sample, is_pfm) = match numbers {
        Flat::Bytes(_) => (1, false),
        Flat::Integers(list) if format.is_floats() && is_small(list) => (2, false),
        Flat::Integers(list) if format.is_as_stored() => {
            if let Some(number) = list.iter().find(|it| it.unsigned_abs() > MOST_EXACT as u64) {
                return wrong(format!(
                    "has the number {number}, but {name} pixels hold integers up to {MOST_EXACT} \
                     exactly; convert the array to floats"
                ));
            }
            (size_of::<f32>(), true)
        }
        Flat::Floats(_) | Flat::Doubles(_) if format.is_as_stored() => (size_of::<f32>(), true),
        Flat::Integers(list) if format.is_floats() => {
            let outside = list.iter().find(|it| !(0..=0xffff).contains(*it));
            return wrong(format!(
                "has the number {}, but {name} pixels are from 0 to 65535; set pixels of the view \
                 to f32 or f32x3",
                outside.copied().unwrap_or_default()
            ));
        }
        _ => {
            let (found, way_out) = match numbers {
                Flat::Integers(_) => ("integers of more than 8 bits", "u16, u16x3, f32 or f32x3"),
                _ => ("floats", "f32 or f32x3"),
            };
            return wrong(format!(
                "is an array of {found}, but its pixels are decoded to {name}; set pixels of the \
                 view to {way_out}, or convert the array"
            ));
        }
    };
    let head = match (is_pfm, channels) {
        (true, 1) => format!("Pf\n{width} {height}\n-1\n"),
        (true, _) => format!("PF\n{width} {height}\n-1\n"),
        (false, _) => {
            let (kind, white) = (if channels == 1 { 5 } else { 6 }, (1u32 << (8 * sample)) - 1);
            format!("P{kind} {width} {height} {white}\n")
        }
    };
    let row = channels.saturating_mul(width);
    let bytes = row.saturating_mul(height).saturating_mul(sample).saturating_add(head.len());
    if bytes as u64 > limit {
        return wrong(format!(
            "is an array of shape {shape:?}, which takes {bytes} bytes ({}); \
             limits.max_field_bytes allows {limit} ({})",
            footprint::bytes(bytes as u64),
            footprint::bytes(limit)
        ));
    }
    file.clear();
    reserve::reserve(file, bytes)?;
    file.extend_from_slice(head.as_bytes());
    match numbers {
        Flat::Bytes(list) => file.extend_from_slice(list),
        Flat::Integers(list) if !is_pfm => {
            file.extend(list.iter().flat_map(|it| (*it as u16).to_be_bytes()));
        }
        Flat::Integers(list) => put_floats(list, row, file, |it| it as f32),
        Flat::Floats(list) => put_floats(list, row, file, |it| it),
        Flat::Doubles(list) => put_floats(list, row, file, |it| it as f32),
    }
    Ok(())
}

/// Appends the rows of an array to a PFM file, from the bottom.
fn put_floats<T: Copy>(list: &[T], row: usize, file: &mut Vec<u8>, float: impl Fn(T) -> f32) {
    for row in list.chunks_exact(row.max(1)).rev() {
        file.extend(row.iter().flat_map(|it| float(*it).to_le_bytes()));
    }
}
