//! Resampling, bit-identical to Pillow up to 12.1. All operators that resize images use it, such as
//! `resize` and `random_resized_crop`.
//!
//! This is Pillow's integer algorithm (`src/libImaging/Resample.c`, 8 bits per channel). For every
//! output column, the filter's weights over the input columns are computed in f64, normalized to
//! the sum 1, scaled by 2^22 and rounded to i32. A horizontal pass computes the weighted sums, adds
//! half, shifts by 22 and clamps to a byte. A vertical pass does the same with the result. The
//! filter is cut off at the border of the resampled box, so pixels outside of the box are never
//! read. The filter `nearest` is Pillow's affine nearest (`Geometry.c`).
//!
//! One difference remains: from 12.2 on, Pillow's `Image.resize` resizes the rows first if an image
//! is more than 100 times as high as wide. feedwater, like Pillow up to 12.1, always resizes the
//! columns first. Channel values of such images differ by at most one level.
//!
//! **The table** (`&[i32]`), which `fill_table` writes, holds the coefficients of both axes,
//! columns first. The entries of an axis with `n` outputs in the wanted window have two parts. At
//! the offset `*_bounds` are `n` pairs `(first, count)`: the first input index (in coordinates of
//! the whole input image) and the number of taps. At the offset `*_coefs` are `n` times `*_taps`
//! coefficients, zero-padded. Offsets are counted from the first entry that the operator's `demand`
//! appends.
//!
//! **Floats** (16-bit and float images): sums are f64, and are rounded to f32 after each pass.
//! Coefficients are f64 and take two entries each. Filters are bit-identical to Pillow's mode `F`:
//! their coefficients are not rounded to multiples of 2^-22. The coefficients of a blur are those
//! for bytes.
//!
//! The filter `nearest` uses the same kind of table, with one tap of weight 1. Adding half and
//! shifting then give the byte itself.
//!
//! **After a reduction by the decoder** (by the factor r = `Wanted::reduction` > 1), the box is
//! `box / r`. It may be fractional, as in Pillow's `resize(box=...)`, and the input consists of the
//! whole pixels that the box touches. If EXIF mirrors an axis, the box begins after the pixels that
//! the decoder added (`Wanted::padding`).

use std::ops::Range;

use crate::error::DataError;
use crate::geometry::{Roi, Size};
use crate::image::{HostImage, Image};
use crate::tensor::CHANNELS;

use super::{Bounds, Wanted};

pub use blur::Blur;
pub use fast::Resampler;
pub use floats::{across, between, down};
pub use gaussian::MAX_BLUR;
pub use params::{Axis, Filter, HALF, PRECISION_BITS, Params, TableBounds, WORDS};
pub use scratch::ScratchBytes;

#[cfg(target_arch = "x86_64")]
mod avx2;
mod blur;
mod coefficients;
mod fast;
mod floats;
mod gaussian;
mod params;
mod row_ring;
mod scratch;
#[cfg(target_arch = "x86_64")]
mod vnni;

/// How the coefficients of a resampling are computed.
#[derive(Clone, Copy, Debug)]
pub enum Weights {
    /// A resampling filter, whose width is scaled separately for each axis.
    Filter(Filter),
    /// A blur, which keeps the size of the image.
    Blur(Blur),
}

impl Weights {
    /// Appends the table for the wanted window and writes its offsets into `params`. Returns the
    /// input window that the table reads. Coefficients are for bytes, or f64 if `floats`.
    pub fn fill_table(
        &self,
        params: &mut Params,
        wanted: Wanted,
        floats: bool,
        table: &mut Vec<i32>,
    ) -> Roi {
        let (start, out) = (table.len(), wanted.output);
        (params.x, params.y) = (out.x as i32, out.y as i32);
        (params.width, params.height) = (out.width as i32, out.height as i32);
        params.h_bounds = (table.len() - start) as i32;
        params.h_taps = self.append(params, wanted, (0, out.x..out.right()), floats, table);
        params.h_coefs = params.h_bounds + 2 * params.width;
        params.v_bounds = (table.len() - start) as i32;
        params.v_taps = self.append(params, wanted, (1, out.y..out.bottom()), floats, table);
        params.v_coefs = params.v_bounds + 2 * params.height;
        let table = &table[start..];
        let (x, y) = (params.columns(table).inputs(), params.rows(table).inputs());
        Roi::new(x.start, y.start, x.end - x.start, y.end - y.start)
    }

    /// Bounds on the table to resample a region of size `of` to an image of size `to`, whatever
    /// window of the output is wanted.
    pub fn table_bounds(&self, of: Size, to: Size) -> TableBounds {
        let taps = match self {
            Weights::Filter(filter) => [(of.width, to.width), (of.height, to.height)]
                .map(|(of, to)| coefficients::most_taps(*filter, f64::from(of) / f64::from(to))),
            Weights::Blur(blur) => blur.kernel.map(u64::from),
        };
        let taps = taps.map(|taps| usize::try_from(taps).unwrap_or(usize::MAX));
        let axis = |outputs: u32, taps: usize| (outputs as usize).saturating_mul(2 + taps);
        let [columns, rows] = [axis(to.width, taps[0]), axis(to.height, taps[1])];
        TableBounds { entries: columns.saturating_add(rows), columns, taps }
    }

    /// Appends the entries of one axis (0: columns, 1: rows) to the table. Returns the number of
    /// entries of coefficients per output.
    fn append(
        &self,
        params: &Params,
        wanted: Wanted,
        (axis, outputs): (usize, Range<u32>),
        floats: bool,
        table: &mut Vec<i32>,
    ) -> i32 {
        let pick = |both: [u32; 2]| both[axis];
        let input = pick([wanted.input.width, wanted.input.height]);
        let of = params.of();
        let taps = match self {
            Weights::Blur(blur) if floats => blur.append_doubles(axis, input, outputs, table),
            Weights::Blur(blur) => blur.append(axis, input, outputs, table),
            Weights::Filter(filter) => {
                let line = coefficients::Line {
                    filter: *filter,
                    reduction: wanted.reduction,
                    padding: pick([wanted.padding.width, wanted.padding.height]),
                    input,
                    box_first: pick([of.x, of.y]),
                    box_len: pick([of.width, of.height]),
                    output: pick([params.output().width, params.output().height]),
                };
                if floats {
                    line.append_doubles(outputs, table)
                } else {
                    line.append(outputs, table)
                }
            }
        };
        taps as i32
    }
}

/// Calls [`Weights::fill_table`] for a resampling filter on bytes.
pub fn fill_table(
    params: &mut Params,
    wanted: Wanted,
    filter: Filter,
    table: &mut Vec<i32>,
) -> Roi {
    Weights::Filter(filter).fill_table(params, wanted, false, table)
}

/// Sizes of the images within `bounds` whose tables have the most entries: the widest and the
/// highest image.
///
/// A table has entries for every column and row, so it grows with the sum of columns and rows. For
/// a given number of pixels, this sum is largest for the most elongated image.
pub(super) fn longest_inputs(bounds: Bounds) -> [(f64, f64); 2] {
    let long = u64::from(bounds.side).min(bounds.pixels).max(1);
    let short = (bounds.pixels / long).clamp(1, long);
    [(long as f64, short as f64), (short as f64, long as f64)]
}

/// Maximum number of table entries if an image is resized to fit into `most` and its aspect ratio
/// is preserved up to rounding.
pub(super) fn within_len(filter: Filter, most: Size, bounds: Bounds) -> usize {
    between_len(filter, [most; 2], bounds)
}

/// Maximum number of table entries if an image is resized to fit into a size between `least` and
/// `most`.
pub(super) fn between_len(filter: Filter, [least, most]: [Size; 2], bounds: Bounds) -> usize {
    // Rounding or truncating to at least one pixel shortens a side by less than half, so the scale
    // grows by less than a factor of 2.
    let scales = longest_inputs(bounds).map(|(width, height)| {
        let scale = (width / f64::from(least.width)).max(height / f64::from(least.height));
        (2.0 * scale, 2.0 * scale)
    });
    table_len(filter, (most.width.into(), most.height.into()), bounds, scales)
}

/// Maximum number of table entries if the shorter side of an image is resized to at least `least`
/// pixels, or less if the longer side would exceed `longest` pixels.
pub(super) fn shortest_len(
    filter: Filter,
    least: u32,
    most: Size,
    longest: Option<u32>,
    bounds: Bounds,
) -> usize {
    let (shorter, side) = ((bounds.pixels as f64).sqrt(), f64::from(bounds.side));
    let by_shorter = shorter.min(side) / f64::from(least);
    let by_longest = longest.map_or(0.0, |longest| side / f64::from(longest));
    let scale = 2.0 * by_shorter.max(by_longest);
    table_len(filter, (most.width.into(), most.height.into()), bounds, [(scale, scale); 2])
}

/// Maximum number of table entries for any of the given pairs of factors by which columns and rows
/// shrink. `output` is the largest whole output.
pub(super) fn table_len(
    filter: Filter,
    output: (u64, u64),
    bounds: Bounds,
    scales: [(f64, f64); 2],
) -> usize {
    let most = |side: u64, wanted: Option<u32>| wanted.map_or(side, |n| side.min(n.into()));
    let columns = most(output.0, bounds.wanted.map(|size| size.width));
    let rows = most(output.1, bounds.wanted.map(|size| size.height));
    let axis =
        |outputs: u64, scale| outputs.saturating_mul(2 + coefficients::most_taps(filter, scale));
    let len = scales.map(|(x, y)| axis(columns, x).saturating_add(axis(rows, y)));
    usize::try_from(len[0].max(len[1])).unwrap_or(usize::MAX)
}

/// Reference implementation: a horizontal pass into bytes, then a vertical pass.
pub fn reference(params: &Params, table: &[i32], src: &HostImage, out: &mut HostImage) {
    let (src, out) = match (src, out) {
        (HostImage::U8(src), HostImage::U8(out)) => (src, out),
        (HostImage::F32(src), HostImage::F32(out)) => {
            let mut middle = Image::new(between(params, table));
            across(params, table, src, &mut middle);
            return down(params, table, &middle, out);
        }
        _ => unreachable!("resampling keeps the pixel type"),
    };
    let (columns, rows) = (params.columns(table), params.rows(table));
    let wanted = params.wanted();
    let mut between = Image::<u8>::new(between(params, table));
    for y in rows.inputs() {
        for column in 0..columns.len() {
            let (first, coefs) = columns.output(column);
            let taps = coefs.iter().zip(first..).map(|(&k, x)| (k, src.pixel(x, y)));
            between.set_pixel(wanted.x + column as u32, y, weighted(taps));
        }
    }
    let window = out.window();
    for y in window.y..window.bottom() {
        let (first, coefs) = rows.output((y - wanted.y) as usize);
        for x in window.x..window.right() {
            let taps = coefs.iter().zip(first..).map(|(&k, y)| (k, between.pixel(x, y)));
            out.set_pixel(x, y, weighted(taps));
        }
    }
}

fn weighted(taps: impl Iterator<Item = (i32, [u8; CHANNELS])>) -> [u8; CHANNELS] {
    let mut sums = [HALF; CHANNELS];
    for (k, pixel) in taps {
        for (sum, value) in sums.iter_mut().zip(pixel) {
            *sum += k * i32::from(value);
        }
    }
    sums.map(|sum| (sum >> PRECISION_BITS).clamp(0, 255) as u8)
}

/// Resamples with [`Resampler`], for tests that compare it with [`reference`]. Loaders call
/// [`Resampler::begin`] and [`run`] instead.
///
/// # Errors
/// [`DataError`] if a buffer cannot be allocated.
pub fn apply(
    params: &Params,
    table: &[i32],
    src: &HostImage,
    out: &mut HostImage,
) -> Result<(), DataError> {
    let (HostImage::U8(src), HostImage::U8(out)) = (src, out) else {
        unreachable!("resampling needs an input and an output of bytes");
    };
    let mut line = vec![0; CHANNELS * params.wanted().width as usize];
    let mut resampler = Resampler::default();
    resampler.begin(params, table, src.window())?;
    run(&mut resampler, params, table, src, &mut line, out);
    Ok(())
}

/// Resamples an image. The caller has called [`Resampler::begin`] with the window of `src`. `line`
/// is memory for a row of the wanted window.
pub fn run(
    resampler: &mut Resampler,
    params: &Params,
    table: &[i32],
    src: &Image<u8>,
    line: &mut [u8],
    out: &mut Image<u8>,
) {
    let (wanted, window) = (params.wanted(), out.window());
    let skipped = CHANNELS * (window.x - wanted.x) as usize;
    for y in params.rows(table).inputs() {
        resampler.push_row(y, src.row(y));
        while let Some(y) = resampler.next_output() {
            resampler.output_row(y, line);
            if (window.y..window.bottom()).contains(&y) {
                let row = out.row_mut(y);
                row.copy_from_slice(&line[skipped..][..row.len()]);
            }
        }
    }
}
