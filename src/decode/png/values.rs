//! Reads the samples of PNGs as stored: one number per pixel for masks, or the channels of images
//! of 16 bits and of floats.

use png::{BitDepth, ColorType, DecodeOptions, Decoder, Limits};

use super::{Chunks, crate_bytes, ending, error, packed_sample};
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
    let mut rows = values.chunks_exact_mut(size.width as usize);
    let check = |color: ColorType, depth| {
        if matches!(color, ColorType::Grayscale | ColorType::Indexed) {
            return Ok((color, depth));
        }
        let channels = color.samples();
        let problem =
            format!("has {channels} channels; save it as a gray PNG, or as indices of a palette");
        Err(DataError::new(Reason::Unsupported, problem))
    };
    read(bytes, size, size.height, scratch, check, |(color, depth), _, stored| {
        rows.next().into_iter().for_each(|row| unpack(stored, color, depth, row));
    })
}

/// Receives the number of a row, and a function that returns the number in a column.
pub type IndexSink<'a> = dyn FnMut(u32, &dyn Fn(usize) -> u8) + 'a;

/// Passes the rows above row `end` of a PNG with one number of up to 8 bits per pixel to `put`,
/// from the top: the row's number, and a function that returns the number in a column. `scratch`
/// holds the stored rows of an interlaced PNG.
pub fn read_indices(
    bytes: &[u8],
    size: Size,
    end: u32,
    scratch: &mut Vec<u8>,
    put: &mut IndexSink<'_>,
) -> Result<(), DataError> {
    let check = |color: ColorType, depth: BitDepth| {
        if depth != BitDepth::Sixteen && color == ColorType::Indexed {
            return Ok((depth as usize, 1));
        }
        if depth != BitDepth::Sixteen && color == ColorType::Grayscale {
            return Ok((depth as usize, scale_of_gray(depth)));
        }
        let (channels, bits) = (color.samples(), depth as usize);
        let problem = format!(
            "the PNG has {channels} channels of {bits} bits, but indices are read from PNGs with a \
             palette or in gray of up to 8 bits; u8x3 reads all PNGs"
        );
        Err(DataError::new(Reason::Unsupported, problem))
    };
    read(bytes, size, end, scratch, check, |(bits, scale), y, stored| {
        put(y, &|x| match bits {
            8 => stored[x],
            _ => scale * packed_sample(stored, bits, x),
        });
    })
}

/// Factor of Pillow for samples of gray.
fn scale_of_gray(depth: BitDepth) -> u8 {
    match depth {
        BitDepth::Two => 85,
        BitDepth::Four => 17,
        _ => 1,
    }
}

/// How a PNG stores the samples of a pixel.
#[derive(Clone, Copy, Debug)]
pub struct PngSamples {
    /// Number of samples per pixel, including alpha.
    pub per_pixel: usize,
    /// Number of bits per sample: 1, 2, 4, 8 or 16.
    pub bits: usize,
}

impl PngSamples {
    /// Number of channels without alpha: 1 or 3.
    pub fn channels(self) -> usize {
        if self.per_pixel < 3 { 1 } else { 3 }
    }
}

/// Passes the stored samples of each row above row `end` to `row`, from the top. Calls `check`
/// first. `scratch` holds the stored rows of an interlaced PNG.
pub fn read_png(
    bytes: &[u8],
    size: Size,
    end: u32,
    scratch: &mut Vec<u8>,
    check: impl FnOnce(PngSamples) -> Result<(), DataError>,
    row: impl FnMut(PngSamples, u32, &[u8]),
) -> Result<(), DataError> {
    let samples = |color: ColorType, depth: BitDepth| {
        if color == ColorType::Indexed {
            let problem = "the file is a PNG with a palette; use u8x3 for its colours, or a mask \
                           for its indices";
            return Err(DataError::new(Reason::Unsupported, problem));
        }
        let samples = PngSamples { per_pixel: color.samples(), bits: depth as usize };
        check(samples).map(|()| samples)
    };
    read(bytes, size, end, scratch, samples, row)
}

/// Passes the stored samples of each row above row `end` to `row`, with the result of `check`.
/// Checks the data after the rows if all rows were read, or if the PNG is interlaced.
fn read<T: Copy>(
    bytes: &[u8],
    size: Size,
    end: u32,
    scratch: &mut Vec<u8>,
    check: impl FnOnce(ColorType, BitDepth) -> Result<T, DataError>,
    mut row: impl FnMut(T, u32, &[u8]),
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
    let checked = check(color, depth)?;
    if interlaced {
        let len = reader.output_buffer_size().unwrap_or(usize::MAX);
        reserve::renew(scratch, len)?;
        // The crate adds the bits of pixels smaller than a byte to the bits of the buffer.
        scratch.fill(0);
        let stride = reader.next_frame(scratch).map_err(error)?.line_size;
        let stored = (0..end).zip(scratch.chunks_exact(stride));
        stored.for_each(|(y, stored)| row(checked, y, stored));
    } else {
        let cut = || DataError::new(Reason::Truncated, "the PNG ends before its last row");
        for y in 0..end {
            let stored = reader.next_row().map_err(error)?.ok_or_else(cut)?;
            row(checked, y, stored.data());
        }
    }
    if end < size.height && !interlaced {
        return Ok(());
    }
    reader.finish().map_err(error)?;
    ending(&layout, true).map(drop)
}

/// Unpacks the samples of a row. The first sample of a byte is in its highest bits.
fn unpack(stored: &[u8], color: ColorType, depth: BitDepth, row: &mut [u16]) {
    let small = |bits: usize, scale: u16, row: &mut [u16]| {
        for (x, value) in row.iter_mut().enumerate() {
            *value = scale * u16::from(packed_sample(stored, bits, x));
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
