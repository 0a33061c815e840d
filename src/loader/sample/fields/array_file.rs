//! Encodes arrays in fields as PNM, PFM or `.npy` files, which the image decoders read.

use crate::error::{DataError, Reason, reserve};
use crate::field::Flat;
use crate::footprint;
use crate::image::PixelFormat;
use crate::numpy::{self, Item};

/// Integers up to this number are exact in f32.
const MOST_EXACT: i64 = 1 << 24;

/// Writes an array `[height, width]` or `[height, width, channels]` as a PNM, PFM or `.npy` file of
/// at most `limit` bytes, whose decoded pixels of this format have the numbers of the array.
///
/// # Errors
/// [`Reason::Field`] for other shapes, and for numbers that the format cannot hold.
pub(super) fn write(
    numbers: Flat<'_>,
    shape: &[usize],
    format: PixelFormat,
    (limit, file): (u64, &mut Vec<u8>),
) -> Result<(), DataError> {
    let (height, width, channels) = sides(shape, format)?;
    let (sample, is_floats) = match stored_as(numbers, format)? {
        Stored::Bytes => (size_of::<u8>(), false),
        Stored::Words => (size_of::<u16>(), false),
        Stored::Floats => (size_of::<f32>(), true),
    };
    let head = match (is_floats, channels) {
        (_, 4) => {
            // Words are stored as in a PNM, and floats as in a PFM.
            let kind = if is_floats { b'f' } else { b'u' };
            let item = Item { kind, bytes: sample as u64, big_endian: sample == size_of::<u16>() };
            numpy::head(item, &[height, width, 4].map(|side| side as u64))
        }
        (true, 1) => format!("Pf\n{width} {height}\n-1\n").into_bytes(),
        (true, _) => format!("PF\n{width} {height}\n-1\n").into_bytes(),
        (false, _) => {
            let (kind, white) = (if channels == 1 { 5 } else { 6 }, (1u32 << (8 * sample)) - 1);
            format!("P{kind} {width} {height} {white}\n").into_bytes()
        }
    };
    let row = channels.saturating_mul(width);
    let bytes = row.saturating_mul(height).saturating_mul(sample).saturating_add(head.len());
    if bytes as u64 > limit {
        return Err(wrong(format!(
            "is an array of shape {shape:?}, which takes {bytes} bytes ({}); \
             limits.max_field_bytes allows {limit} ({})",
            footprint::bytes(bytes as u64),
            footprint::bytes(limit)
        )));
    }
    let is_pfm = is_floats && channels != 4;
    file.clear();
    reserve::reserve(file, bytes)?;
    file.extend_from_slice(&head);
    match numbers {
        Flat::Bytes(list) => file.extend_from_slice(list),
        Flat::Integers(list) if !is_floats => {
            file.extend(list.iter().flat_map(|it| (*it as u16).to_be_bytes()));
        }
        Flat::Integers(list) => put_floats(list, (row, is_pfm), file, |it| it as f32),
        Flat::Floats(list) => put_floats(list, (row, is_pfm), file, |it| it),
        Flat::Doubles(list) => put_floats(list, (row, is_pfm), file, |it| it as f32),
    }
    Ok(())
}

/// Height, width and number of channels of an array of this shape.
fn sides(shape: &[usize], format: PixelFormat) -> Result<(usize, usize, usize), DataError> {
    match *shape {
        [height, width, 3] => Ok((height, width, 3)),
        [height, width] | [height, width, 1] if format != PixelFormat::U8x3 => {
            Ok((height, width, 1))
        }
        [height, width, 4] if format.has_alpha() => Ok((height, width, 4)),
        _ => {
            let shapes = match format {
                PixelFormat::U8x3 => "[height, width, 3]",
                _ if format.has_alpha() => {
                    "[height, width], or [height, width, channels] with 1, 3 or 4 channels"
                }
                _ => "[height, width], [height, width, 1] or [height, width, 3]",
            };
            Err(wrong(format!(
                "is an array of shape {shape:?}, and an image of {} pixels has {shapes}",
                format.name()
            )))
        }
    }
}

/// Type of the samples in the file.
enum Stored {
    /// PNM of 8 bits.
    Bytes,
    /// PNM of 16 bits.
    Words,
    /// PFM.
    Floats,
}

/// Type of the samples whose decoded pixels of this format have these numbers.
fn stored_as(numbers: Flat<'_>, format: PixelFormat) -> Result<Stored, DataError> {
    let name = format.name();
    match numbers {
        Flat::Bytes(_) if format.is_16_bit() => Err(wrong(format!(
            "is an array of 8 bits, but its pixels are decoded to {name}; convert it to 16 bits on \
             the scale of 0 to 65535, or set pixels of the view to f32 or f32x3"
        ))),
        Flat::Bytes(_) => Ok(Stored::Bytes),
        Flat::Integers(list) if format.is_floats() => {
            let Some(outside) = list.iter().find(|it| !(0..=0xffff).contains(*it)) else {
                return Ok(Stored::Words);
            };
            if format.is_16_bit() {
                return Err(wrong(format!(
                    "has the number {outside}, but {name} pixels are from 0 to 65535; set pixels of \
                     the view to f32 or f32x3"
                )));
            }
            match list.iter().find(|it| it.unsigned_abs() > MOST_EXACT as u64) {
                Some(number) => Err(wrong(format!(
                    "has the number {number}, but {name} pixels hold integers up to {MOST_EXACT} \
                     exactly; convert the array to floats"
                ))),
                None => Ok(Stored::Floats),
            }
        }
        Flat::Floats(_) if format.is_as_stored() => Ok(Stored::Floats),
        Flat::Doubles(list) if format.is_as_stored() => {
            let is_large = |it: &&f64| it.is_finite() && !(**it as f32).is_finite();
            match list.iter().find(is_large) {
                Some(number) => {
                    Err(wrong(format!("has the number {number}, which is too large for f32")))
                }
                None => Ok(Stored::Floats),
            }
        }
        _ => {
            let (found, way_out) = match numbers {
                Flat::Integers(_) => ("integers of more than 8 bits", "u16, u16x3, f32 or f32x3"),
                _ => ("floats", "f32 or f32x3"),
            };
            Err(wrong(format!(
                "is an array of {found}, but its pixels are decoded to {name}; set pixels of the \
                 view to {way_out}, or convert the array"
            )))
        }
    }
}

fn wrong(problem: String) -> DataError {
    DataError::new(Reason::Field, problem)
}

/// Appends the rows of an array to a file, for a PFM file from the bottom.
fn put_floats<T: Copy>(
    list: &[T],
    (row, from_bottom): (usize, bool),
    file: &mut Vec<u8>,
    float: impl Fn(T) -> f32,
) {
    let mut put = |row: &[T]| file.extend(row.iter().flat_map(|it| float(*it).to_le_bytes()));
    let rows = list.chunks_exact(row.max(1));
    match from_bottom {
        true => rows.rev().for_each(&mut put),
        false => rows.for_each(&mut put),
    }
}
