//! Reads PNGs with one number per pixel: gray, or indices into a palette.

use png::{BitDepth, ColorType, DecodeOptions, Decoder, Limits};

use super::{Chunks, crate_bytes, ending, error};
use crate::decode::size_changed;
use crate::error::{DataError, Reason, reserve};
use crate::geometry::Size;
use crate::header::png_layout;

/// Reads the numbers of a PNG of this size, row by row. `scratch` holds the stored rows of an
/// interlaced PNG.
pub fn read_values(
    bytes: &[u8],
    size: Size,
    scratch: &mut Vec<u8>,
    values: &mut [u16],
) -> Result<(), DataError> {
    let layout = png_layout(bytes)?;
    let mut options = DecodeOptions::default();
    options.set_ignore_adler32(false);
    options.set_ignore_crc(false);
    // The crate aborts the process if an allocation fails, so the memory is checked first.
    let _crate = reserve::promise(crate_bytes(size.width) as u64)?;
    let mut decoder = Decoder::new_with_options(Chunks::new(&layout), options);
    decoder.set_limits(Limits { bytes: crate_bytes(size.width) });
    let mut reader = decoder.read_info().map_err(error)?;
    let info = reader.info();
    let found = Size::new(info.width, info.height);
    if found != size {
        return Err(size_changed(size, found));
    }
    let (color, depth, interlaced) = (info.color_type, info.bit_depth, info.interlaced);
    if !matches!(color, ColorType::Grayscale | ColorType::Indexed) {
        let channels = color.samples();
        let problem =
            format!("has {channels} channels; save it as a gray PNG, or as indices of a palette");
        return Err(DataError::new(Reason::Unsupported, problem));
    }
    let mut rows = values.chunks_exact_mut(size.width as usize);
    if interlaced {
        let len = reader.output_buffer_size().unwrap_or(usize::MAX);
        reserve::renew(scratch, len)?;
        // The crate adds the bits of pixels smaller than a byte to the bits of the buffer.
        scratch.fill(0);
        let stride = reader.next_frame(scratch).map_err(error)?.line_size;
        let stored = scratch.chunks_exact(stride);
        rows.zip(stored).for_each(|(row, stored)| unpack(stored, color, depth, row));
    } else {
        let cut = || DataError::new(Reason::Truncated, "the PNG ends before its last row");
        rows.try_for_each(|row| {
            let stored = reader.next_row().map_err(error)?.ok_or_else(cut)?;
            unpack(stored.data(), color, depth, row);
            Ok::<_, DataError>(())
        })?;
    }
    reader.finish().map_err(error)?;
    ending(&layout, true).map(drop)
}

/// Unpacks the samples of a row. The first sample of a byte is in its highest bits.
fn unpack(stored: &[u8], color: ColorType, depth: BitDepth, row: &mut [u16]) {
    let small = |bits: usize, scale: u16, row: &mut [u16]| {
        for (x, value) in row.iter_mut().enumerate() {
            let shift = 8 - bits - bits * x % 8;
            *value = scale * u16::from(stored[bits * x / 8] >> shift & ((1u16 << bits) - 1) as u8);
        }
    };
    let is_gray = color == ColorType::Grayscale;
    match depth {
        BitDepth::One => small(1, 1, row),
        BitDepth::Two => small(2, if is_gray { 85 } else { 1 }, row),
        BitDepth::Four => small(4, if is_gray { 17 } else { 1 }, row),
        BitDepth::Eight => {
            row.iter_mut().zip(stored).for_each(|(value, byte)| *value = (*byte).into());
        }
        BitDepth::Sixteen => {
            let words = stored.as_chunks().0.iter();
            row.iter_mut().zip(words).for_each(|(value, word)| *value = u16::from_be_bytes(*word));
        }
    }
}
