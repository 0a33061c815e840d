//! Pillow's coefficients (`precompute_coeffs` and `normalize_coeffs_8bpc` of `Resample.c`, and `ImagingScaleAffine` of
//! `Geometry.c`), in Pillow's order of operations.
//!
//! Sines come from the `libm` crate, so that a table does not depend on the platform's C library.

use std::f64::consts::PI;
use std::ops::Range;

use crate::op::resample::params::{Filter, PRECISION_BITS};

/// One axis of a resampling.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub filter: Filter,
    /// See `Wanted::reduction`.
    pub reduction: u32,
    /// Pixels of the reduced input.
    pub input: u32,
    /// First pixel of the box, before the reduction.
    pub box_first: u32,
    /// Pixels of the box, before the reduction.
    pub box_len: u32,
    /// Pixels of the whole output.
    pub output: u32,
}

impl Line {
    /// Appends bounds and coefficients of the outputs `wanted`. Returns the number of coefficients per output.
    pub fn append(&self, wanted: Range<u32>, table: &mut Vec<i32>) -> usize {
        match self.filter {
            Filter::Nearest => self.append_nearest(wanted, table),
            _ => self.append_weights(wanted, table),
        }
    }

    /// Box relative to the first whole pixel that it touches, that pixel, and how many pixels it touches.
    ///
    /// Pillow stores boxes as f32; quotients by 2, 4 and 8 are exact in f32.
    fn reduced_box(&self) -> (f32, f32, u32, u32) {
        let (first, end) = (self.box_first, self.box_first + self.box_len);
        let whole = first / self.reduction;
        let touched = end.div_ceil(self.reduction).min(self.input) - whole;
        let relative = |edge: u32| (edge - whole * self.reduction) as f32 / self.reduction as f32;
        (relative(first), relative(end).min(touched as f32), whole, touched)
    }

    fn append_weights(&self, wanted: Range<u32>, table: &mut Vec<i32>) -> usize {
        let (in0, in1, offset, len) = self.reduced_box();
        let scale = f64::from(in1 - in0) / f64::from(self.output);
        let filterscale = scale.max(1.0);
        let support = support(self.filter) * filterscale;
        let inverse = 1.0 / filterscale;
        let window = |index: u32| {
            let center = f64::from(in0) + (f64::from(index) + 0.5) * scale;
            // Casts to integers truncate towards 0 and saturate, like Pillow's after its comparisons.
            let first = (center - support + 0.5) as u32;
            let end = ((center + support + 0.5) as u32).min(len);
            (center, first, end - first)
        };
        let taps = wanted.clone().map(|index| window(index).2).max().unwrap_or(0) as usize;
        for index in wanted.clone() {
            let (_, first, count) = window(index);
            table.extend([(offset + first) as i32, count as i32]);
        }
        for index in wanted {
            let (center, first, count) = window(index);
            let (start, count) = (table.len(), count as usize);
            // Until their sum is known, weights stand in the table as f64: entry by entry their low halves, and their
            // high halves behind.
            table.resize(start + taps + count, 0);
            let (low, high) = table[start..].split_at_mut(taps);
            let mut sum = 0.0;
            for (x, (low, high)) in (first..).zip(low.iter_mut().zip(high.iter_mut())) {
                // Pillow adds two integers first: the tap and the start of the window.
                let weight = weight(self.filter, (f64::from(x) - center + 0.5) * inverse);
                (*low, *high) = halves(weight);
                sum += weight;
            }
            for (low, high) in low.iter_mut().zip(high) {
                let weight = whole(*low, *high);
                *low = fixed(if sum == 0.0 { weight } else { weight / sum });
            }
            table.truncate(start + taps);
        }
        taps
    }

    fn append_nearest(&self, wanted: Range<u32>, table: &mut Vec<i32>) -> usize {
        let (in0, in1, offset, len) = self.reduced_box();
        let step = f64::from(in1 - in0) / f64::from(self.output);
        let mut position = f64::from(in0) + step * 0.5;
        for index in 0..wanted.end {
            if index >= wanted.start {
                let nearest = (position as u32).min(len - 1);
                table.extend([(offset + nearest) as i32, 1]);
            }
            // Pillow accumulates instead of multiplying, and the rounding must match.
            position += step;
        }
        table.resize(table.len() + wanted.len(), 1 << PRECISION_BITS);
        1
    }
}

/// Maximum number of coefficients of one output if the axis shrinks at most `scale` times.
///
/// Pillow's `ceil(support) * 2 + 1`, plus two: the bound for the most elongated images bounds the sum over both axes
/// only up to the rounding of each.
pub(super) fn most_taps(filter: Filter, scale: f64) -> u64 {
    match filter {
        Filter::Nearest => 1,
        _ => (support(filter) * scale.max(1.0)).ceil() as u64 * 2 + 3,
    }
}

/// Half the width of a filter, in input pixels when enlarging.
fn support(filter: Filter) -> f64 {
    match filter {
        Filter::Nearest => 0.0,
        Filter::Box => 0.5,
        Filter::Bilinear | Filter::Hamming => 1.0,
        Filter::Bicubic => 2.0,
        Filter::Lanczos => 3.0,
    }
}

fn weight(filter: Filter, x: f64) -> f64 {
    match filter {
        Filter::Nearest => unreachable!("nearest has no weights"),
        Filter::Box => f64::from(u8::from(x > -0.5 && x <= 0.5)),
        Filter::Bilinear => (1.0 - x.abs()).max(0.0),
        Filter::Hamming => hamming(x.abs()),
        Filter::Bicubic => bicubic(x.abs()),
        Filter::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
        Filter::Lanczos => 0.0,
    }
}

fn hamming(x: f64) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    if x >= 1.0 {
        return 0.0;
    }
    let x = x * PI;
    // Pillow declares these constants as floats.
    libm::sin(x) / x * (f64::from(0.54f32) + f64::from(0.46f32) * libm::cos(x))
}

fn bicubic(x: f64) -> f64 {
    const A: f64 = -0.5;
    if x < 1.0 {
        ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * A
    } else {
        0.0
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    let x = x * PI;
    libm::sin(x) / x
}

/// Low and high half of a number's bits.
fn halves(weight: f64) -> (i32, i32) {
    let bits = weight.to_bits();
    (bits as i32, (bits >> 32) as i32)
}

/// The number with these halves.
fn whole(low: i32, high: i32) -> f64 {
    f64::from_bits(u64::from(high as u32) << 32 | u64::from(low as u32))
}

/// A weight in units of 2^-22, rounded half away from zero.
fn fixed(weight: f64) -> i32 {
    let scaled = weight * f64::from(1u32 << PRECISION_BITS);
    (if weight < 0.0 { scaled - 0.5 } else { scaled + 0.5 }) as i32
}
