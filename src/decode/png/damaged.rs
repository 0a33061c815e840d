//! Pixels of a damaged PNG, read as Pillow reads them: a copy of Pillow's loop over zlib's rows
//! (`ZipDecode.c`).
//!
//! Pillow accepts more damage than the `png` crate. Pillow stops at the last row and does not
//! detect damage after it. It also accepts data that ends after any row, of any pass of an
//! interlaced image, if the data is complete for zlib.

use std::mem;
use std::ops::Range;

use png::Info;

use crate::decode::rows::grown;
use crate::error::{DataError, Reason, reserve};
use crate::header::{Inflater, PngLayout, PngStream};

/// Maximum number of bytes that Pillow passes to zlib at once. This number affects which errors
/// zlib detects in the checksum at the end.
const READ_BYTES: usize = 64 << 10;

/// For each pass of an interlaced image: column and row of the first pixel, and steps to the next
/// column and row.
const PASSES: [[u32; 4]; 7] = [
    [0, 0, 8, 8],
    [4, 0, 8, 8],
    [0, 4, 4, 8],
    [2, 0, 4, 4],
    [0, 2, 2, 4],
    [1, 0, 2, 2],
    [0, 1, 1, 2],
];

/// Pixel format in IHDR.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    width: u32,
    height: u32,
    /// Bits per pixel.
    bits: usize,
    pub interlaced: bool,
}

/// Pixels of an image that are stored in sequence: the whole image, or one pass.
#[derive(Clone, Copy)]
struct Pass {
    columns: u32,
    rows: u32,
    first: [u32; 2],
    step: [u32; 2],
    /// Whether this is the last pass, after which Pillow reads nothing.
    is_last: bool,
}

impl Shape {
    pub fn new(info: &Info<'_>) -> Self {
        Self {
            width: info.width,
            height: info.height,
            bits: info.color_type.samples() * info.bit_depth as usize,
            interlaced: info.interlaced,
        }
    }

    /// Returns the bytes per row of the whole image.
    pub fn stride(self) -> usize {
        self.row_bytes(self.width)
    }

    fn row_bytes(self, columns: u32) -> usize {
        (columns as usize * self.bits).div_ceil(8)
    }

    /// Returns the passes that have pixels. A non-interlaced image is one pass.
    fn passes(self) -> Vec<Pass> {
        let passes = if self.interlaced { &PASSES[..] } else { &[[0, 0, 1, 1]] };
        let mut passes: Vec<_> = passes.iter().filter_map(|pass| self.pass(*pass)).collect();
        if let Some(last) = passes.last_mut() {
            last.is_last = true;
        }
        passes
    }

    fn pass(self, [x, y, across, down]: [u32; 4]) -> Option<Pass> {
        let columns = self.width.checked_sub(x)?.div_ceil(across);
        let rows = self.height.checked_sub(y)?.div_ceil(down);
        let pass = Pass { columns, rows, first: [x, y], step: [across, down], is_last: false };
        (columns > 0 && rows > 0).then_some(pass)
    }
}

/// Callback that receives the number of a row in the image, the row's pass, and its unfiltered
/// samples. Returns whether more rows are needed.
type EachRow<'a> = dyn FnMut(u32, Pass, &[u8]) -> Result<bool, DataError> + 'a;

/// Reads rows until `row` needs no more. Returns whether all needed rows were present.
fn rows(layout: &PngLayout<'_>, shape: Shape, row: &mut EachRow<'_>) -> Result<bool, DataError> {
    let longest = 1 + shape.stride();
    let mut inflater = Inflater::new(longest)?;
    let [mut current, mut previous] = [Vec::new(), Vec::new()];
    reserve::resize(&mut current, longest)?;
    reserve::resize(&mut previous, longest)?;
    let pixel_bytes = shape.bits.div_ceil(8);
    let mut chunks = layout.data();
    let mut reads = [].chunks(READ_BYTES);
    let mut input: &[u8] = &[];
    let mut ended = false;
    for pass in shape.passes() {
        let length = 1 + shape.row_bytes(pass.columns);
        previous.fill(0);
        for y in 0..pass.rows {
            if ended {
                return at_end(layout, chunks.next()).map(|()| false);
            }
            let mut filled = 0;
            while filled < length {
                if input.is_empty() {
                    let Some(read) = reads.next() else {
                        let next =
                            chunks.next().ok_or_else(|| ends_early("before its last row"))?;
                        reads = next.chunks(READ_BYTES);
                        continue;
                    };
                    input = read;
                }
                let last = pass.is_last && y + 1 == pass.rows;
                let step = inflater.step(input, length - filled, last)?;
                if step.state == PngStream::Damaged {
                    let problem = "the compressed pixel data of the PNG is corrupt";
                    return Err(DataError::new(Reason::Corrupt, problem));
                }
                let found = step.output.len();
                current[filled..filled + found].copy_from_slice(step.output);
                filled += found;
                ended = step.state == PngStream::Ended;
                // If a row is not complete, zlib has consumed all input, or the rest of the input
                // lies after the end of zlib's data. In both cases, no input is left for later
                // rows.
                input = if filled == length { &input[step.consumed..] } else { &[] };
            }
            unfilter(&mut current[..length], &previous[..length], pixel_bytes)?;
            let y = pass.first[1] + y * pass.step[1];
            if !row(y, pass, &current[1..length])? && y + 1 < shape.height {
                return Ok(true);
            }
            mem::swap(&mut current, &mut previous);
        }
    }
    at_end(layout, chunks.next()).map(|()| true)
}

/// Checks the end of the data as Pillow does. Pillow skips the rest of the chunk that it read last,
/// and fails if the file ends inside a later chunk.
fn at_end(layout: &PngLayout<'_>, unread: Option<&[u8]>) -> Result<(), DataError> {
    match unread {
        Some(_) if !layout.data_whole => Err(ends_early("inside its last IDAT chunk")),
        _ => Ok(()),
    }
}

fn ends_early(place: &str) -> DataError {
    DataError::new(Reason::Truncated, format!("the PNG ends {place}"))
}

/// Reverses the filter of a row. The first byte of the row is the filter's number.
fn unfilter(row: &mut [u8], previous: &[u8], pixel_bytes: usize) -> Result<(), DataError> {
    let filter = row[0];
    let (row, previous) = (&mut row[1..], &previous[1..]);
    let left = |row: &[u8], at: usize| at.checked_sub(pixel_bytes).map_or(0, |at| row[at]);
    for at in 0..row.len() {
        let (a, b) = (left(row, at), previous[at]);
        let guess = match filter {
            0 => return Ok(()),
            1 => a,
            2 => b,
            3 => u8::midpoint(a, b),
            4 => paeth(a, b, left(previous, at)),
            _ => {
                let problem =
                    format!("a row of the PNG has the filter {filter}; it must be from 0 to 4");
                return Err(DataError::new(Reason::Corrupt, problem));
            }
        };
        row[at] = row[at].wrapping_add(guess);
    }
    Ok(())
}

fn paeth(a: u8, b: u8, c: u8) -> u8 {
    let [left, above, corner] = [a, b, c].map(i16::from);
    let distance = |value: i16| (left + above - corner - value).abs();
    let [to_left, to_above, to_corner] = [distance(left), distance(above), distance(corner)];
    if to_left <= to_above && to_left <= to_corner {
        a
    } else if to_above <= to_corner {
        b
    } else {
        c
    }
}

/// Passes the wanted rows of a non-interlaced image to `row`, as far as they are present. Returns
/// whether all wanted rows were present.
pub(super) fn in_order(
    layout: &PngLayout<'_>,
    shape: Shape,
    wanted: Range<u32>,
    row: &mut dyn FnMut(&[u8]) -> Result<(), DataError>,
) -> Result<bool, DataError> {
    rows(layout, shape, &mut |y, _, samples| {
        if wanted.contains(&y) {
            row(samples)?;
        }
        Ok(y + 1 < wanted.end)
    })
}

/// Fills `image` with the samples of an interlaced image. Missing samples are 0. Returns whether
/// all were present.
pub(super) fn interlaced(
    layout: &PngLayout<'_>,
    shape: Shape,
    image: &mut Vec<u8>,
) -> Result<bool, DataError> {
    let stride = shape.stride();
    let image = grown(image, stride * shape.height as usize)?;
    image.fill(0);
    let bytes = shape.bits / 8;
    rows(layout, shape, &mut |y, pass, samples| {
        let image = &mut image[stride * y as usize..][..stride];
        let columns = (pass.first[0] as usize..).step_by(pass.step[0] as usize);
        for (from, to) in (0..pass.columns as usize).zip(columns) {
            if bytes > 0 {
                image[bytes * to..][..bytes].copy_from_slice(&samples[bytes * from..][..bytes]);
            } else {
                let shift = |pixel: usize| 8 - shape.bits - shape.bits * pixel % 8;
                let value =
                    samples[shape.bits * from / 8] >> shift(from) & ((1u8 << shape.bits) - 1);
                image[shape.bits * to / 8] |= value << shift(to);
            }
        }
        Ok(true)
    })
}
