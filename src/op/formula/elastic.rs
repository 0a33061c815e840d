//! `elastic`: the displacements of torchvision's `ElasticTransform` (`torchvision/transforms/v2/_geometry.py`).
//!
//! torchvision adds `alpha / side` times blurred noise to a grid that reaches from -1 to 1, and samples the image there, all in
//! f32 with sums in an order that it does not promise. Here a displacement is `alpha / 2` pixels times the blurred noise, rounded to
//! 1/65536 pixel. Sums are f32 in a fixed order, and pixels are interpolated in integers
//! ([`Warp::displaced`](super::warp::Warp::displaced)). Results differ from torchvision's by at most one.

use crate::geometry::Size;

use super::pad::{PadMode, Padding};

/// Displacements of a whole image in units of 1/65536 pixel: pairs (x, y) in row order.
///
/// * `alpha` is the strength in units of half a pixel, along columns and rows. Default 50.
/// * `sigma` is the standard deviation of the blur in pixels. Default 5. Both are 0, without blur, or both are above 0.
/// * `noise` returns uniform numbers from 0 to 1: of all pixels along columns, then of all along rows.
///
/// Unlike in torchvision, the image may be smaller than the blur.
pub fn displacements(
    size: Size,
    alpha: [f64; 2],
    sigma: [f64; 2],
    mut noise: impl FnMut() -> f32,
) -> Vec<i32> {
    let mut table = vec![0; 2 * size.pixels() as usize];
    for axis in [0, 1] {
        let mut field: Vec<f32> = (0..size.pixels()).map(|_| noise() * 2.0 - 1.0).collect();
        if sigma[axis] > 0.0 {
            let radius = ((8.0 * sigma[axis] + 1.0) as usize) / 2;
            blur(&mut field, size, sigma.map(|sigma| kernel(radius, sigma)));
        }
        let unit = alpha[axis] * 0.5 * 65536.0;
        for (pair, value) in table.chunks_exact_mut(2).zip(field) {
            pair[axis] = (f64::from(value) * unit).round_ties_even() as i32;
        }
    }
    table
}

/// Weights of a normal distribution at whole pixels up to `radius`; their sum is 1.
fn kernel(radius: usize, sigma: f64) -> Vec<f32> {
    let distances = (0..=2 * radius).map(|at| at as f64 - radius as f64);
    let weights = distances.map(|it| libm::exp(-(it * it) / (2.0 * sigma * sigma)));
    let weights: Vec<f64> = weights.collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|it| (it / sum) as f32).collect()
}

/// Blurs rows, then columns. Outside, the field is mirrored at the centres of its edge pixels.
fn blur(field: &mut [f32], size: Size, [along_rows, along_columns]: [Vec<f32>; 2]) {
    let (width, radius) = (size.width as usize, along_rows.len() / 2);
    let around = radius as i32;
    let padding = Padding { left: around, right: around, top: around, bottom: around };
    let (columns, rows) =
        (padding.columns(PadMode::Reflect, size), padding.rows(PadMode::Reflect, size));
    let inside = |at: Option<u32>| at.map_or(0, |at| at as usize);
    let mut out = vec![0.0; field.len()];
    let mut padded = Vec::new();
    for (row, out) in field.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
        padded.clear();
        padded.extend((0..size.width + 2 * radius as u32).map(|at| row[inside(columns.at(at))]));
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
