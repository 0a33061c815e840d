//! `elastic`: the displacements of torchvision's `ElasticTransform` (`torchvision/transforms/v2/_geometry.py`).
//!
//! torchvision adds `alpha / side` times blurred noise to a grid that reaches from -1 to 1, and samples the image
//! there, all in f32 with sums in an order that it does not promise. Here a displacement is `alpha / 2` pixels times
//! the blurred noise, rounded to 1/65536 pixel. Sums are f32 in a fixed order, and pixels are interpolated in
//! integers ([`Warp::displaced`](super::warp::Warp::displaced)). Results differ from torchvision's by at most one.

use crate::geometry::Size;

use super::noise::words;
use super::pad::{PadMode, Padding};

/// Strength and smoothness of displacements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Smoothness {
    /// Strength in units of half a pixel, along columns and rows. Default 50.
    pub alpha: [f64; 2],
    /// Standard deviation of the blur in pixels. Default 5. Both are 0, without blur, or both are above 0.
    pub sigma: [f64; 2],
}

/// Displacements of one sample, which are computed when they are needed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Field {
    /// Strength and smoothness.
    pub smoothness: Smoothness,
    /// Key of the noise.
    pub key: [u32; 2],
}

impl Field {
    /// Appends the displacements of an image of this size: see [`Smoothness::append`].
    pub fn append(&self, size: Size, table: &mut Vec<i32>) {
        let mut at = 0;
        let noise = || {
            let (axis, pixel) = (at / size.pixels(), at % size.pixels());
            let (x, y) = (pixel % u64::from(size.width), pixel / u64::from(size.width));
            at += 1;
            // 24 bits, as torch's.
            (words(self.key, x as i32, y as i32)[axis as usize] >> 8) as f32 / (1 << 24) as f32
        };
        self.smoothness.append(size, noise, table);
    }
}

impl Smoothness {
    /// Appends the displacements of a whole image to `table`, in units of 1/65536 pixel: pairs (x, y) in row order.
    /// `noise` returns uniform numbers from 0 to 1: of all pixels along columns, then of all along rows.
    ///
    /// Unlike in torchvision, the image may be smaller than the blur. The end of `table` is scratch memory, so that
    /// nothing else is allocated: [`entries`](Self::entries) in all.
    pub fn append(self, size: Size, mut noise: impl FnMut() -> f32, table: &mut Vec<i32>) {
        let Self { alpha, sigma } = self;
        let (pixels, start) = (size.pixels() as usize, table.len());
        table.resize(start + self.entries(size), 0);
        let (pairs, scratch) = table[start..].split_at_mut(2 * pixels);
        let (field, rest) = bytemuck::cast_slice_mut::<i32, f32>(scratch).split_at_mut(pixels);
        for axis in [0, 1] {
            field.fill_with(|| noise() * 2.0 - 1.0);
            if sigma[axis] > 0.0 {
                blur(field, size, radius(sigma[axis]), sigma, rest);
            }
            let unit = alpha[axis] * 0.5 * 65536.0;
            for (pair, value) in pairs.chunks_exact_mut(2).zip(&*field) {
                pair[axis] = (f64::from(*value) * unit).round_ties_even() as i32;
            }
        }
        table.truncate(start + 2 * pixels);
    }

    /// Entries that [`append`](Self::append) needs for an image of this size: two per pixel that stay, and scratch
    /// memory.
    pub fn entries(self, size: Size) -> usize {
        let taps = 2 * radius(self.sigma[0].max(self.sigma[1])) + 1;
        let padded = size.width as usize + taps;
        (4 * size.pixels() as usize).saturating_add(padded + 2 * taps)
    }
}

fn radius(sigma: f64) -> usize {
    ((8.0 * sigma + 1.0) as usize) / 2
}

/// Weights of a normal distribution at whole pixels up to a radius; their sum is 1.
fn put_kernel(sigma: f64, kernel: &mut [f32]) {
    let radius = (kernel.len() / 2) as f64;
    let weight = |at: usize| {
        let distance = at as f64 - radius;
        libm::exp(-(distance * distance) / (2.0 * sigma * sigma))
    };
    let sum: f64 = (0..kernel.len()).map(weight).sum();
    for (at, value) in kernel.iter_mut().enumerate() {
        *value = (weight(at) / sum) as f32;
    }
}

/// Blurs rows, then columns. Outside, the field is mirrored at the centres of its edge pixels.
fn blur(field: &mut [f32], size: Size, radius: usize, sigma: [f64; 2], scratch: &mut [f32]) {
    let (width, taps, around) = (size.width as usize, 2 * radius + 1, radius as i32);
    let (out, rest) = scratch.split_at_mut(field.len());
    let (padded, rest) = rest.split_at_mut(width + 2 * radius);
    let (along_rows, rest) = rest.split_at_mut(taps);
    let along_columns = &mut rest[..taps];
    put_kernel(sigma[0], along_rows);
    put_kernel(sigma[1], along_columns);
    let padding = Padding { left: around, right: around, top: around, bottom: around };
    let (columns, rows) =
        (padding.columns(PadMode::Reflect, size), padding.rows(PadMode::Reflect, size));
    let inside = |at: Option<u32>| at.map_or(0, |at| at as usize);
    out.fill(0.0);
    for (row, out) in field.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
        for (at, value) in (0..).zip(padded.iter_mut()) {
            *value = row[inside(columns.at(at))];
        }
        for (tap, weight) in along_rows.iter().enumerate() {
            add(out, *weight, &padded[tap..]);
        }
    }
    field.fill(0.0);
    for (y, row) in field.chunks_exact_mut(width).enumerate() {
        for (tap, weight) in along_columns.iter().enumerate() {
            let from = inside(rows.at((y + tap) as u32));
            add(row, *weight, &out[from * width..]);
        }
    }
}

fn add(sums: &mut [f32], weight: f32, values: &[f32]) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += weight * value;
    }
}
