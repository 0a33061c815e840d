//! Resampling as Pillow up to 12 does it, bit for bit: what `resize` and `random_resized_crop` share.
//!
//! Pillow's integer algorithm (`src/libImaging/Resample.c`, 8 bits per channel): for every output column
//! the filter's weights over the input columns are computed in f64, normalised to sum 1, scaled by 2^22 and
//! rounded to i32; a horizontal pass forms the sums, adds half, shifts by 22 and clamps to a byte; a vertical
//! pass does the same with the result. The window of the filter is truncated at the border of the box
//! that is resampled, so that nothing outside it is ever read. `nearest` is Pillow's affine
//! nearest instead (`Geometry.c`).
//!
//! One difference is left: from 12.2 on, Pillow's `Image.resize` shrinks the rows first where an image is
//! more than 100 times as high as wide; here, as in Pillow up to 12.1, columns always come first. Such
//! images come out at most a level apart.
//!
//! **The table** (`&[i32]`), made by `fill_table`, holds two axes, columns first. An axis of `n` outputs
//! (those of the wanted window) is: `n` pairs `(first, count)`, the first input index (absolute, in the
//! coordinates of the input image) and the number of taps, at `*_bounds`; then `n` times `*_taps`
//! coefficients, zero-padded, at `*_coefs`. Offsets are in entries from the start of the operator's own
//! table: the first entry that its `demand` appends.
//!
//! `nearest` is a table like the others, with one tap of weight 1: the sum, the half and the shift give
//! the byte back.
//!
//! **After a reduction by the decoder** (`Wanted::reduction` r > 1) the box is `box / r`, fractional as in
//! Pillow's `resize(box=...)`, and the image is the whole pixels that it touches.

use crate::geometry::Roi;
use crate::image::{HostImage, Image, PixelType};
use crate::tensor::CHANNELS;

use super::{Bounds, Cuda, FastPath, Fusion, Tiling, Wanted};

pub use fast::Resampler;
pub use params::{Axis, Filter, HALF, PRECISION_BITS, Params};

#[cfg(target_arch = "x86_64")]
mod avx2;
mod coefficients;
mod fast;
mod params;
mod ring;
#[cfg(target_arch = "x86_64")]
mod vnni;

/// The form on the GPU of every operator that resamples.
pub(super) const CUDA: Cuda =
    Cuda::new("Resample", include_str!("../../../kernels/resample.cu")).tiled(Tiling::Resamples);

/// Appends the table for the wanted window and writes its offsets into `params`; gives the window of the
/// input that it reads.
pub fn fill_table(
    params: &mut Params,
    wanted: Wanted,
    filter: Filter,
    table: &mut Vec<i32>,
) -> Roi {
    let (start, out, input) = (table.len(), wanted.output, wanted.input);
    let columns = coefficients::Line {
        filter,
        reduction: wanted.reduction,
        input: input.width,
        box_first: params.box_x as u32,
        box_len: params.box_width as u32,
        output: params.out_width as u32,
    };
    let rows = coefficients::Line {
        input: input.height,
        box_first: params.box_y as u32,
        box_len: params.box_height as u32,
        output: params.out_height as u32,
        ..columns
    };
    (params.x, params.y) = (out.x as i32, out.y as i32);
    (params.width, params.height) = (out.width as i32, out.height as i32);

    params.h_bounds = (table.len() - start) as i32;
    params.h_taps = columns.append(out.x..out.right(), table) as i32;
    params.h_coefs = params.h_bounds + 2 * params.width;
    params.v_bounds = (table.len() - start) as i32;
    params.v_taps = rows.append(out.y..out.bottom(), table) as i32;
    params.v_coefs = params.v_bounds + 2 * params.height;

    let (x, y) = (params.columns(&table[start..]).inputs(), params.rows(&table[start..]).inputs());
    Roi::new(x.start, y.start, x.end - x.start, y.end - y.start)
}

/// The sides of the images within `bounds` whose tables are longest: as wide and as high as can be.
///
/// A table's length grows with columns and rows, and of all images with so many pixels their sum is
/// largest for the longest.
pub(super) fn longest_inputs(bounds: Bounds) -> [(f64, f64); 2] {
    let long = u64::from(bounds.side).min(bounds.pixels).max(1);
    let short = (bounds.pixels / long).clamp(1, long);
    [(long as f64, short as f64), (short as f64, long as f64)]
}

/// Most table entries for any of the given factors by which columns and rows shrink, where `output` is the
/// largest whole output.
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

/// What an operator that resamples says to a pixel type.
pub(super) fn pixels(name: &str, input: PixelType) -> Result<PixelType, String> {
    match input {
        PixelType::U8 => Ok(PixelType::U8),
        PixelType::F32 => {
            Err(format!("{name} works on bytes and gets floats: put {name} before normalize"))
        }
    }
}

/// The reference: a horizontal pass into bytes, a vertical pass over them.
pub fn reference(params: &Params, table: &[i32], src: &HostImage, out: &mut HostImage) {
    let (HostImage::U8(src), HostImage::U8(out)) = (src, out) else {
        unreachable!("resampling takes bytes and gives bytes");
    };
    let (columns, rows) = (params.columns(table), params.rows(table));
    let wanted = params.wanted();
    let inputs = rows.inputs();
    let between = Roi::new(wanted.x, inputs.start, wanted.width, inputs.end - inputs.start);
    let mut between = Image::<u8>::new(between);
    for y in inputs {
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

/// What operators that resample have in common on the CPU.
pub(super) struct Fast;

impl FastPath<Params> for Fast {
    fn apply(&self, params: &Params, table: &[i32], src: &HostImage, out: &mut HostImage) {
        apply(params, table, src, out);
    }

    fn fusion(&self, params: &Params) -> Fusion {
        Fusion::Resample(*params)
    }
}

/// The same with [`Resampler`].
///
/// # Panics
/// If a buffer cannot be allocated. Only the self-test, tests and benches call this, to compare it with [`reference`]: samples
/// go through [`Resampler::begin`] and [`run`], where a failed allocation is the sample's error.
pub fn apply(params: &Params, table: &[i32], src: &HostImage, out: &mut HostImage) {
    let (HostImage::U8(src), HostImage::U8(out)) = (src, out) else {
        unreachable!("resampling takes bytes and gives bytes");
    };
    let mut line = vec![0; CHANNELS * params.wanted().width as usize];
    let mut resampler = Resampler::default();
    if let Err(fault) = resampler.begin(params, table, src.window()) {
        panic!("{fault}");
    }
    run(&mut resampler, params, table, src, &mut line, out);
}

/// Resamples an image with a resampler that has begun with its window; `line` holds a row of the wanted window.
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
