//! Writes arrays in fields as `.npy` files, which the image decoders read.

use crate::error::{DataError, Reason, reserve};
use crate::field::Flat;
use crate::footprint;
use crate::numpy::{self, Item};

/// Writes an array of this shape as a `.npy` file of at most `limit` bytes, without its header.
///
/// # Errors
/// [`Reason::Oversized`] if the array has more bytes.
pub(super) fn write(
    numbers: Flat<'_>,
    shape: &[usize],
    limit: u64,
    file: &mut Vec<u8>,
) -> Result<(), DataError> {
    let (kind, elements): (u8, &[u8]) = match numbers {
        Flat::Bytes(list) => (b'u', list),
        Flat::Integers(list) => (b'i', bytemuck::must_cast_slice(list)),
        Flat::Floats(list) => (b'f', bytemuck::must_cast_slice(list)),
        Flat::Doubles(list) => (b'f', bytemuck::must_cast_slice(list)),
    };
    let bytes = match numbers {
        Flat::Bytes(_) => size_of::<u8>(),
        Flat::Floats(_) => size_of::<f32>(),
        Flat::Integers(_) | Flat::Doubles(_) => size_of::<f64>(),
    };
    if elements.len() as u64 > limit {
        let problem = format!(
            "is an array of shape {shape:?}, which takes {} bytes ({}); limits.max_field_bytes is \
             {limit} ({}); raise it",
            elements.len(),
            footprint::bytes(elements.len() as u64),
            footprint::bytes(limit)
        );
        return Err(DataError::new(Reason::Oversized, problem));
    }
    let big_endian = cfg!(target_endian = "big") && bytes > 1;
    let item = Item { kind, bytes: bytes as u64, big_endian };
    let sides: Vec<u64> = shape.iter().map(|&side| side as u64).collect();
    let head = numpy::head(item, &sides);
    file.clear();
    reserve::reserve(file, head.len() + elements.len())?;
    file.extend_from_slice(&head);
    file.extend_from_slice(elements);
    Ok(())
}
