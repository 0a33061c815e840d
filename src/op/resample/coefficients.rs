//! Resampling coefficients of Pillow (`precompute_coeffs` and `normalize_coeffs_8bpc` of
//! `Resample.c`, and `ImagingScaleAffine` of `Geometry.c`), computed in Pillow's order of
//! operations.
//!
//! Sines come from the `libm` crate, so that a table does not depend on the platform's C library.

use std::f64::consts::PI;
use std::marker::PhantomData;
use std::ops::Range;

use crate::op::resample::params::{Filter, PRECISION_BITS, WORDS, nearest};
use crate::op::wide::pixels::Shuffles;
use crate::op::wide::{Instructions, Loop, truncated_double};

/// One axis of a resampling.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub filter: Filter,
    /// Factor by which the decoder has shrunk the input; see `Wanted::reduction`.
    pub reduction: u32,
    /// Number of pixels that the decoder has added before the first one; see `Wanted::padding`.
    pub padding: u32,
    /// Number of pixels of the reduced input.
    pub input: u32,
    /// First pixel of the resampled box, before the reduction.
    pub box_first: u32,
    /// Number of pixels of the resampled box, before the reduction.
    pub box_len: u32,
    /// Number of pixels of the whole output.
    pub output: u32,
}

impl Line {
    /// Appends the bounds (first input and number of inputs) and the coefficients of the outputs
    /// `wanted` to `table`. Returns the number of coefficients per output.
    pub fn append(&self, wanted: Range<u32>, table: &mut Vec<i32>) -> usize {
        match self.filter {
            Filter::Nearest => self.append_nearest(wanted, table),
            _ => self.append_weights(wanted, table),
        }
    }

    /// Like [`append`](Self::append), with f64 coefficients, two entries each: `precompute_coeffs`
    /// of `Resample.c`, as Pillow uses it for images of mode `F`. Returns the number of entries per
    /// output.
    ///
    /// If the length of the axis does not change, each output has only the input at its place. In
    /// this case, Pillow copies the axis, so a NaN does not spread, and -0.0 does not become 0.0.
    /// There are no coefficients then, nor for the filter `nearest`.
    pub fn append_doubles(&self, wanted: Range<u32>, table: &mut Vec<i32>) -> usize {
        let is_unchanged = self.reduction == 1 && self.box_len == self.output;
        match self.filter {
            _ if is_unchanged => append_copies(wanted.map(|at| self.box_first + at), table),
            Filter::Nearest => {
                let (in0, in1, offset, len) = self.reduced_box();
                let all = nearest((in0, in1), len, self.output).map(|at| offset + at);
                append_copies(all.take(wanted.end as usize).skip(wanted.start as usize), table)
            }
            _ => self.append_double_weights(wanted, table),
        }
    }

    fn append_double_weights(&self, wanted: Range<u32>, table: &mut Vec<i32>) -> usize {
        let weight = match self.filter {
            Filter::Nearest => unreachable!("nearest has no weights"),
            Filter::Box => Area::weight,
            Filter::Bilinear => Triangle::weight,
            Filter::Hamming => Hamming::weight,
            Filter::Bicubic => Cubic::weight,
            Filter::Lanczos => Lanczos::weight,
        };
        let (windows, offset) = self.windows();
        for index in wanted.clone() {
            let Window { first, count, .. } = windows.of(index);
            table.extend([(offset + first) as i32, count as i32]);
        }
        let entries = WORDS * windows.taps(wanted.clone());
        for index in wanted {
            let window = windows.of(index);
            let weights =
                (0..window.count).map(|tap| weight(window.distance(tap, windows.inverse)));
            let sum: f64 = weights.clone().sum();
            let divisor = if sum == 0.0 { 1.0 } else { sum };
            let end = table.len() + entries;
            for weight in weights {
                table.extend(bytemuck::must_cast::<f64, [i32; WORDS]>(weight / divisor));
            }
            table.resize(end, 0);
        }
        entries
    }

    /// Windows of the outputs, and the index of the input from which they are counted.
    fn windows(&self) -> (Windows, u32) {
        let (in0, in1, offset, len) = self.reduced_box();
        let scale = f64::from(in1 - in0) / f64::from(self.output);
        let filterscale = scale.max(1.0);
        let support = support(self.filter) * filterscale;
        let windows = Windows { in0: in0.into(), scale, support, inverse: 1.0 / filterscale, len };
        (windows, offset)
    }

    /// Returns the box after the reduction: its start and end relative to the first whole pixel
    /// that it touches, the index of this pixel, and the number of pixels that the box touches.
    ///
    /// Pillow stores boxes as f32; quotients by 2, 4 and 8 are exact in f32.
    fn reduced_box(&self) -> (f32, f32, u32, u32) {
        let first = self.padding + self.box_first;
        let end = first + self.box_len;
        let whole = first / self.reduction;
        let touched = end.div_ceil(self.reduction).min(self.input) - whole;
        let relative = |edge: u32| (edge - whole * self.reduction) as f32 / self.reduction as f32;
        (relative(first), relative(end).min(touched as f32), whole, touched)
    }

    fn append_weights(&self, wanted: Range<u32>, table: &mut Vec<i32>) -> usize {
        let (windows, offset) = self.windows();
        let taps = windows.taps(wanted.clone());
        for index in wanted.clone() {
            let Window { first, count, .. } = windows.of(index);
            table.extend([(offset + first) as i32, count as i32]);
        }
        let start = table.len();
        table.resize(start + taps * wanted.len(), 0);
        let coefs = &mut table[start..];
        let set = Instructions::here();
        match self.filter {
            Filter::Nearest => unreachable!("nearest has no weights"),
            Filter::Box => {
                set.run(Axis::<Area> { windows, wanted, taps, coefs, shape: PhantomData })
            }
            Filter::Bilinear => {
                set.run(Axis::<Triangle> { windows, wanted, taps, coefs, shape: PhantomData })
            }
            Filter::Hamming => {
                set.run(Axis::<Hamming> { windows, wanted, taps, coefs, shape: PhantomData })
            }
            Filter::Bicubic => {
                set.run(Axis::<Cubic> { windows, wanted, taps, coefs, shape: PhantomData })
            }
            Filter::Lanczos => {
                set.run(Axis::<Lanczos> { windows, wanted, taps, coefs, shape: PhantomData })
            }
        }
        taps
    }

    fn append_nearest(&self, wanted: Range<u32>, table: &mut Vec<i32>) -> usize {
        let (in0, in1, offset, len) = self.reduced_box();
        let all = nearest((in0, in1), len, self.output);
        for nearest in all.take(wanted.end as usize).skip(wanted.start as usize) {
            table.extend([(offset + nearest) as i32, 1]);
        }
        table.resize(table.len() + wanted.len(), 1 << PRECISION_BITS);
        1
    }
}

/// Appends the bounds of outputs that are copies of one input each. Returns the number of entries
/// of coefficients per output, which is 0.
fn append_copies(inputs: impl Iterator<Item = u32>, table: &mut Vec<i32>) -> usize {
    table.extend(inputs.flat_map(|input| [input as i32, 1]));
    0
}

/// Maximum number of coefficients of one output if the axis shrinks by at most the factor `scale`.
///
/// Pillow's bound is `ceil(support) * 2 + 1`. Two taps (input pixels that an output reads) are
/// added, because the bound on a whole table is computed only for the most elongated images.
/// Another image may need slightly more taps, because their number is rounded up.
pub(super) fn most_taps(filter: Filter, scale: f64) -> u64 {
    match filter {
        Filter::Nearest => 1,
        _ => (support(filter) * scale.max(1.0)).ceil() as u64 * 2 + 3,
    }
}

/// Half the width of a filter, in input pixels. If the image is shrunk, this half width is
/// multiplied by the scale.
fn support(filter: Filter) -> f64 {
    match filter {
        Filter::Nearest => 0.0,
        Filter::Box => 0.5,
        Filter::Bilinear | Filter::Hamming => 1.0,
        Filter::Bicubic => 2.0,
        Filter::Lanczos => 3.0,
    }
}

/// Computes which input pixels (taps) each output reads.
#[derive(Clone, Copy)]
struct Windows {
    in0: f64,
    scale: f64,
    support: f64,
    /// Factor from a distance in input pixels to a distance in units of the filter.
    inverse: f64,
    /// Number of input pixels that the box touches.
    len: u32,
}

/// Taps of one output: `count` input pixels from `first` on.
struct Window {
    /// Position of the output's centre in the input.
    center: f64,
    first: u32,
    count: u32,
}

impl Windows {
    #[inline(always)]
    fn of(&self, index: u32) -> Window {
        let center = self.in0 + (f64::from(index) + 0.5) * self.scale;
        // Casts to integers truncate towards 0 and saturate. Pillow gets the same numbers with
        // comparisons.
        let first = (center - self.support + 0.5) as u32;
        let end = ((center + self.support + 0.5) as u32).min(self.len);
        Window { center, first, count: end - first }
    }

    /// Maximum number of taps of these outputs.
    fn taps(&self, wanted: Range<u32>) -> usize {
        wanted.map(|index| self.of(index).count).max().unwrap_or(0) as usize
    }
}

/// Weight function of a filter.
trait Shape {
    /// Weight at the distance `x` from the centre. Implementations are `#[inline(always)]`.
    /// Compilers vectorize implementations without branches.
    fn weight(x: f64) -> f64;
}

/// Loop that computes the coefficients of an axis, `taps` for each output.
struct Axis<'a, S> {
    windows: Windows,
    wanted: Range<u32>,
    taps: usize,
    coefs: &'a mut [i32],
    shape: PhantomData<S>,
}

/// Number of taps that are computed at once.
const LANES: usize = 8;

impl<S: Shape> Loop for Axis<'_, S> {
    #[inline(always)]
    fn run(self, _: impl Shuffles) {
        /// Number of blocks whose weights are kept until the sum of all weights is known. Weights
        /// of further blocks are computed twice.
        const KEPT: usize = 16;
        let Self { windows, wanted, taps, coefs, .. } = self;
        let mut kept = [[0.0; LANES]; KEPT];
        for (index, coefs) in wanted.zip(coefs.chunks_exact_mut(taps.max(1))) {
            let window = windows.of(index);
            let coefs = &mut coefs[..window.count as usize];
            let mut sum = 0.0;
            for block in 0..coefs.len().div_ceil(LANES) {
                let weights = window.weights::<S>(block, windows.inverse);
                for weight in weights {
                    sum += weight;
                }
                if let Some(kept) = kept.get_mut(block) {
                    *kept = weights;
                }
            }
            let divisor = if sum == 0.0 { 1.0 } else { sum };
            for (block, coefs) in coefs.chunks_mut(LANES).enumerate() {
                let weights = match kept.get(block) {
                    Some(kept) => *kept,
                    None => window.weights::<S>(block, windows.inverse),
                };
                let mut fixed = [0; LANES];
                for at in 0..LANES {
                    fixed[at] = self::fixed(weights[at] / divisor);
                }
                coefs.copy_from_slice(&fixed[..coefs.len()]);
            }
        }
    }
}

impl Window {
    /// Distance of a tap from the output's centre, in units of the filter.
    #[inline(always)]
    fn distance(&self, tap: u32, inverse: f64) -> f64 {
        // As in Pillow, the two integers are added first.
        (f64::from(self.first + tap) - self.center + 0.5) * inverse
    }

    /// Weights of a block of taps. Taps beyond the window have weight 0.
    #[inline(always)]
    fn weights<S: Shape>(&self, block: usize, inverse: f64) -> [f64; LANES] {
        let mut weights = [0.0; LANES];
        for (tap, place) in ((LANES * block) as u32..).zip(&mut weights) {
            let weight = S::weight(self.distance(tap, inverse));
            *place = if tap < self.count { weight } else { 0.0 };
        }
        weights
    }
}

struct Area;

impl Shape for Area {
    #[inline(always)]
    fn weight(x: f64) -> f64 {
        if (x > -0.5) & (x <= 0.5) { 1.0 } else { 0.0 }
    }
}

struct Triangle;

impl Shape for Triangle {
    #[inline(always)]
    fn weight(x: f64) -> f64 {
        (1.0 - x.abs()).max(0.0)
    }
}

struct Hamming;

impl Shape for Hamming {
    #[inline(always)]
    fn weight(x: f64) -> f64 {
        let x = x.abs();
        if x == 0.0 {
            return 1.0;
        }
        if x >= 1.0 {
            return 0.0;
        }
        let x = x * PI;
        // Pillow declares these constants as `float`, which rounds them to f32.
        libm::sin(x) / x * (f64::from(0.54f32) + f64::from(0.46f32) * libm::cos(x))
    }
}

struct Cubic;

impl Shape for Cubic {
    #[inline(always)]
    fn weight(x: f64) -> f64 {
        const A: f64 = -0.5;
        let x = x.abs();
        let inner = ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
        let outer = (((x - 5.0) * x + 8.0) * x - 4.0) * A;
        let outer = if x < 2.0 { outer } else { 0.0 };
        if x < 1.0 { inner } else { outer }
    }
}

struct Lanczos;

impl Shape for Lanczos {
    #[inline(always)]
    fn weight(x: f64) -> f64 {
        if (-3.0..3.0).contains(&x) { sinc(x) * sinc(x / 3.0) } else { 0.0 }
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    let x = x * PI;
    libm::sin(x) / x
}

/// A weight in units of 2^-22, rounded half away from zero.
#[inline(always)]
fn fixed(weight: f64) -> i32 {
    let scaled = weight * f64::from(1u32 << PRECISION_BITS);
    truncated_double(scaled + if weight < 0.0 { -0.5 } else { 0.5 })
}
