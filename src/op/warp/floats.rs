//! Warps of images of floats, bit-identical to `Image.transform` of Pillow for images of mode `F`
//! (`bilinear_filter32F` and `bicubic_filter32F` of `Geometry.c`). On a row, the difference of two
//! neighbours and the coefficients of a cubic polynomial are f32, as in Pillow's C code. All other
//! intermediate values are f64. Displacements have no counterpart in Pillow.
//!
//! The functions for bytes round differently at each step, so only the positions are shared.

use crate::image::Image;
use crate::tensor::CHANNELS;

use super::{Interpolation, Positions, Warp, cubic, displacement, lerp};

type Pixel = [f32; CHANNELS];

/// Writes output pixels `(x, y)`, `(x + 1, y)`, … to `out`. `src` holds at least the window that
/// [`demand`](super::demand()) returned.
pub fn row(warp: &Warp, table: &[i32], src: &Image<f32>, (x, y): (u32, u32), out: &mut [Pixel]) {
    let read = |x: i32, y: i32| src.pixel(x as u32, y as u32);
    let (y, columns) = (y as i32, x as i32..);
    match warp.positions() {
        Positions::Whole | Positions::Fixed => {
            for (place, x) in out.iter_mut().zip(columns) {
                let (x, y) = warp.integer_position(x, y);
                *place = if warp.is_inside(x, y) { read(x, y) } else { fill(warp) };
            }
        }
        Positions::Displaced => {
            for (place, x) in out.iter_mut().zip(columns) {
                *place = displaced(warp, displacement(warp, table, x, y), &read, (x, y));
            }
        }
        Positions::Summed => {
            let (mut at, step) = (warp.real_position(x as i32, y), (warp.real(0), warp.real(3)));
            for place in out {
                *place = interpolated(warp, &read, at);
                at = (at.0 + step.0, at.1 + step.1);
            }
        }
        Positions::Affine | Positions::Perspective => {
            for (place, x) in out.iter_mut().zip(columns) {
                *place = interpolated(warp, &read, warp.real_position(x, y));
            }
        }
    }
}

#[inline(always)]
fn fill(warp: &Warp) -> Pixel {
    warp.fill.map(f32::from)
}

/// Interpolated value at the position `(x, y)` of the input.
#[inline(always)]
fn interpolated(warp: &Warp, src: &impl Fn(i32, i32) -> Pixel, (x, y): (f64, f64)) -> Pixel {
    // As for bytes, the condition is false for NaN.
    if x < 0.0 || y < 0.0 || x >= f64::from(warp.width) || y >= f64::from(warp.height) {
        return fill(warp);
    }
    if warp.interpolation() == Interpolation::Nearest {
        return if x.is_nan() || y.is_nan() { fill(warp) } else { src(x as i32, y as i32) };
    }
    let (x, y) = (x - 0.5, y - 0.5);
    let (left, top) = (x.floor(), y.floor());
    let (dx, dy) = (x - left, y - top);
    let read =
        |column: i32, row: i32| src(column.clamp(0, warp.width - 1), row.clamp(0, warp.height - 1));
    let (left, top) = (left as i32, top as i32);
    if warp.interpolation() == Interpolation::Bilinear {
        let row = |y| {
            let (a, b) = (read(left, y), read(left + 1, y));
            [0, 1, 2].map(|channel| {
                let (a, b): (f32, f32) = (a[channel], b[channel]);
                f64::from(a) + f64::from(b - a) * dx
            })
        };
        let (upper, lower) = (row(top), row(top + 1));
        return [0, 1, 2].map(|channel| lerp(upper[channel], lower[channel], dy) as f32);
    }
    let row = |y| {
        let taps = [left - 1, left, left + 1, left + 2].map(|x| read(x, y));
        [0, 1, 2].map(|channel| cubic_of_floats(taps.map(|it| it[channel]), dx))
    };
    let rows = [top - 1, top, top + 1, top + 2].map(row);
    [0, 1, 2].map(|channel| cubic(rows.map(|it| it[channel]), dy) as f32)
}

/// Interpolates on a row. The coefficients of the polynomial are f32.
#[inline(always)]
fn cubic_of_floats([a, b, c, d]: [f32; 4], at: f64) -> f64 {
    let (p1, p2) = (b, -a + c);
    let p3 = 2.0 * (a - b) + c - d;
    let p4 = -a + b - c + d;
    let [p1, p2, p3, p4] = [p1, p2, p3, p4].map(f64::from);
    p1 + at * (p2 + at * (p3 + at * p4))
}

/// Value of a displaced pixel, as for bytes, but computed in f64 and not rounded to an integer.
#[inline(always)]
fn displaced(
    warp: &Warp,
    (dx, dy): (i32, i32),
    src: &impl Fn(i32, i32) -> Pixel,
    (x, y): (i32, i32),
) -> Pixel {
    if warp.interpolation() == Interpolation::Nearest {
        let nearest = |at: i32, by: i32| at + (by.saturating_add(1 << 15) >> 16);
        let (x, y) = (nearest(x, dx), nearest(y, dy));
        return if warp.is_inside(x, y) { src(x, y) } else { fill(warp) };
    }
    const UNIT: f64 = 1.0 / 65_536.0;
    let (x, y) = (x + (dx >> 16), y + (dy >> 16));
    let (wx, wy) = (f64::from(dx & 0xffff) * UNIT, f64::from(dy & 0xffff) * UNIT);
    let weights = [(1.0 - wx) * (1.0 - wy), wx * (1.0 - wy), (1.0 - wx) * wy, wx * wy];
    let (mut sums, mut mask) = ([0.0; CHANNELS], 0.0);
    for (weight, (x, y)) in
        weights.into_iter().zip([(x, y), (x + 1, y), (x, y + 1), (x + 1, y + 1)])
    {
        if warp.is_inside(x, y) {
            let pixel = src(x, y);
            (0..CHANNELS).for_each(|channel| sums[channel] += weight * f64::from(pixel[channel]));
            mask += weight;
        }
    }
    [0, 1, 2].map(|channel| {
        let fill = f64::from(warp.fill[channel]);
        ((sums[channel] - fill) * mask + fill) as f32
    })
}
