//! Warps: each output pixel is read at a position of the input, as `Image.transform` of Pillow 12.3
//! does (`src/libImaging/Geometry.c`), bit for bit on x86-64.
//!
//! The centre of output pixel `(x, y)` is `(x + 0.5, y + 0.5)`. The map converts it to a position
//! in the input, where the centre of the first pixel is also at 0.5. A position outside of the
//! input gives the fill colour. Neighbours beyond an edge have the value of the edge pixel.
//!
//! Pillow computes positions in different ways, which round differently:
//!
//! * Affine maps with shear or rotation, interpolation `nearest` and all corners within 32,768
//!   pixels: positions are i32 with 16 fraction bits.
//! * Other affine maps with interpolation `nearest`: positions are f64, and a step is added from
//!   pixel to pixel and from row to row.
//! * Affine maps with bilinear or bicubic interpolation, and perspective maps: positions are f64,
//!   and each position is computed separately.
//!
//! Values of bilinear and bicubic interpolation are f64 and are truncated, not rounded.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

use crate::geometry::{Orientation, Plane, Size};

pub use demand::demand;
pub use floats::row as row_of_floats;
pub use origin_map::OriginMap;
pub(in crate::op) use origin_map::Step;
pub use origin_rows::OriginRows;
pub use rows::row;
pub use starts::START_ENTRIES;

mod blocks;
mod demand;
#[cfg(test)]
mod displaced_tests;
pub mod field;
mod floats;
mod nearest;
mod origin_map;
mod origin_rows;
pub mod origins;
mod pixels;
mod rows;
mod starts;
#[cfg(test)]
mod tests;

/// Interpolation between pixels. Pillow supports these three for warps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Interpolation {
    /// The pixel that covers the position.
    #[default]
    Nearest,
    /// Linear interpolation between two pixels per axis.
    Bilinear,
    /// Cubic interpolation between four pixels per axis, with the coefficient a = -1.
    Bicubic,
}

/// Map of one sample from output positions to input positions, with its interpolation and fill
/// colour. Twin of `WarpParams` in `kernels/warp.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Warp {
    /// Coefficients of the map as f64. Maps in integers store six i32 in the first three numbers,
    /// and [`Positions::Fixed`] stores its f64 coefficients after them. [`Positions::Summed`]
    /// stores the distances of its start values in number 6. The last number is the address of the
    /// table of displacements or start values.
    data: [u64; 9],
    /// Size of the input.
    width: i32,
    height: i32,
    /// Fill colour outside of the input: red, green and blue.
    fill: [u8; 3],
    kind: u8,
    interpolation: u32,
}

/// How positions in the input are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Positions {
    /// Positions are integers, for maps that mirror, transpose or move by whole pixels.
    Whole,
    /// Positions are integers with 16 fraction bits.
    Fixed,
    /// Positions are f64. A step is added from pixel to pixel.
    Summed,
    /// Positions are f64. Each position is computed separately.
    Affine,
    /// Positions are f64. Each position is computed separately, as a quotient.
    Perspective,
    /// A position is that of the output pixel plus a displacement from a table.
    Displaced,
}

/// Displacements of a window of the output: pairs (x, y) in units of 1/65536 pixel, in row order.
/// Output pixel `(x, y)` reads the input at `(x, y)` plus its displacement.
#[derive(Clone, Copy, Debug)]
pub struct Displacements<'a> {
    /// First column and row of the window.
    pub origin: (i32, i32),
    /// Number of columns of the window.
    pub columns: i32,
    /// Two numbers per pixel: the displacements in x and in y direction.
    pub table: &'a [i32],
}

impl Warp {
    /// Affine map of Pillow's `Image.transform(output, AFFINE, matrix)`: the position in the input
    /// is `(m[0] x + m[1] y + m[2], m[3] x + m[4] y + m[5])`.
    pub fn affine(
        input: Size,
        output: Size,
        matrix: [f64; 6],
        interpolation: Interpolation,
        fill: [u8; 3],
    ) -> Self {
        let warp = |kind| Self::new(kind, input, interpolation, fill);
        let [a, b, c, d, e, f] = matrix;
        let whole = |value: f64| value == value.floor() && value.abs() < f64::from(1 << 30);
        if [a, b, d, e] == [1.0, 0.0, 0.0, 1.0] && whole(c) && whole(f) {
            return warp(Positions::Whole).integers([1, 0, c as i32, 0, 1, f as i32]);
        }
        if interpolation != Interpolation::Nearest {
            return warp(Positions::Affine).coefficients(&matrix);
        }
        let (width, height) = (f64::from(output.width), f64::from(output.height));
        let fits = |x: f64, y: f64| {
            (x * a + y * b + c).abs() < 32768.0 && (x * d + y * e + f).abs() < 32768.0
        };
        let corners = [(0.0, 0.0), (width, height), (0.0, height), (width, 0.0)];
        if (b == 0.0 && d == 0.0) || !corners.iter().all(|&(x, y)| fits(x, y)) {
            return warp(Positions::Summed).coefficients(&matrix);
        }
        // A coefficient that does not fit an i32 has no effect: the output then has one column or
        // row, so the coefficient is multiplied by 0.
        let fixed = |value: f64| (value * 65536.0 + 0.5).floor() as i64 as i32;
        let (x, y) = (c + a * 0.5 + b * 0.5, f + d * 0.5 + e * 0.5);
        let mut warp = warp(Positions::Fixed).integers([a, b, x, d, e, y].map(fixed));
        warp.data[3..].copy_from_slice(&matrix.map(f64::to_bits));
        warp
    }

    /// Perspective map of Pillow's `Image.transform(output, PERSPECTIVE, c)`: the position in the
    /// input is `(c[0] x + c[1] y + c[2], c[3] x + c[4] y + c[5])`, both divided by `c[6] x + c[7]
    /// y + 1`.
    pub fn perspective(
        input: Size,
        coefficients: [f64; 8],
        interpolation: Interpolation,
        fill: [u8; 3],
    ) -> Self {
        Self::new(Positions::Perspective, input, interpolation, fill).coefficients(&coefficients)
    }

    /// Quarter turns and mirroring: Pillow's `Image.transpose`. `orientation` is the EXIF
    /// orientation of the input, and the output is upright.
    pub fn turn(input: Size, orientation: Orientation) -> Self {
        let upright = orientation.upright_size(input);
        let axis = |mirror: bool, len: u32| if mirror { (-1, len as i32 - 1) } else { (1, 0) };
        let (x, x0) = axis(orientation.mirror_x, upright.width);
        let (y, y0) = axis(orientation.mirror_y, upright.height);
        let map = if orientation.transpose { [0, y, y0, x, 0, x0] } else { [x, 0, x0, 0, y, y0] };
        Self::new(Positions::Whole, input, Interpolation::Nearest, [0; 3]).integers(map)
    }

    /// Warp by a table of [`Displacements`] with `columns` columns, for the window of the output
    /// that begins at `origin`. `interpolation` is nearest or bilinear. The address of the table is
    /// set later.
    pub fn displaced(
        input: Size,
        origin: (i32, i32),
        columns: i32,
        interpolation: Interpolation,
        fill: [u8; 3],
    ) -> Self {
        debug_assert_ne!(interpolation, Interpolation::Bicubic);
        let integers = [origin.0, origin.1, columns, 0, 0, 0];
        Self::new(Positions::Displaced, input, interpolation, fill).integers(integers)
    }

    /// Sets the address of the table of displacements or start values.
    pub fn set_table(&mut self, address: u64) {
        self.data[8] = address;
    }

    /// Transform from positions of the output to positions of the input, with which boxes move.
    /// `None` for displacements.
    pub fn back(&self) -> Option<Plane> {
        let real = |first: usize| [0, 1, 2, 3, 4, 5].map(|number| self.real(first + number));
        match self.positions() {
            Positions::Whole => {
                let [a, b, c, d, e, f] =
                    [0, 1, 2, 3, 4, 5].map(|number| f64::from(self.integer(number)));
                // The integers map centres of pixels, the transform maps edges.
                let edge = |a: f64, b: f64, c: f64| c + 0.5 - (a + b) * 0.5;
                Some(Plane::affine([a, b, edge(a, b, c), d, e, edge(d, e, f)]))
            }
            Positions::Fixed => Some(Plane::affine(real(3))),
            Positions::Summed | Positions::Affine => Some(Plane::affine(real(0))),
            Positions::Perspective => {
                let [a, b, c, d, e, f] = real(0);
                Some(Plane::new([a, b, c, d, e, f, self.real(6), self.real(7), 1.0]))
            }
            Positions::Displaced => None,
        }
    }

    /// Fill colour outside of the input: red, green and blue.
    pub fn fill(&self) -> [u8; 3] {
        self.fill
    }

    /// Whether every output pixel equals the input pixel at the same position.
    pub fn is_identity(&self) -> bool {
        let integers = [0, 1, 2, 3, 4, 5].map(|number| self.integer(number));
        self.positions() == Positions::Whole && integers == [1, 0, 0, 0, 1, 0]
    }

    fn new(kind: Positions, input: Size, interpolation: Interpolation, fill: [u8; 3]) -> Self {
        Self {
            data: [0; 9],
            width: input.width as i32,
            height: input.height as i32,
            fill,
            kind: kind as u8,
            interpolation: interpolation as u32,
        }
    }

    fn coefficients(mut self, values: &[f64]) -> Self {
        for (place, value) in self.data.iter_mut().zip(values) {
            *place = value.to_bits();
        }
        self
    }

    fn integers(mut self, values: [i32; 6]) -> Self {
        for (place, pair) in self.data.iter_mut().zip(values.chunks(2)) {
            *place = u64::from(pair[0] as u32) | u64::from(pair[1] as u32) << 32;
        }
        self
    }

    fn positions(&self) -> Positions {
        match self.kind {
            0 => Positions::Whole,
            1 => Positions::Fixed,
            2 => Positions::Summed,
            3 => Positions::Affine,
            4 => Positions::Perspective,
            _ => Positions::Displaced,
        }
    }

    /// Interpolation between pixels.
    pub fn interpolation(&self) -> Interpolation {
        match self.interpolation {
            0 => Interpolation::Nearest,
            1 => Interpolation::Bilinear,
            _ => Interpolation::Bicubic,
        }
    }

    #[inline(always)]
    fn real(&self, number: usize) -> f64 {
        f64::from_bits(self.data[number])
    }

    #[inline(always)]
    fn integer(&self, number: usize) -> i32 {
        (self.data[number / 2] >> (32 * (number % 2))) as i32
    }

    /// Position of output pixel `(x, y)` in whole pixels of the input, for [`Positions::Whole`] and
    /// [`Positions::Fixed`].
    fn integer_position(&self, x: i32, y: i32) -> (i32, i32) {
        let sum = |first: usize| {
            let (dx, dy) = (self.integer(first), self.integer(first + 1));
            let moved = dx.wrapping_mul(x).wrapping_add(dy.wrapping_mul(y));
            self.integer(first + 2).wrapping_add(moved)
        };
        let bits = if self.positions() == Positions::Fixed { 16 } else { 0 };
        (sum(0) >> bits, sum(3) >> bits)
    }

    /// Whether a pixel is inside of the input.
    fn is_inside(&self, x: i32, y: i32) -> bool {
        (0..self.width).contains(&x) && (0..self.height).contains(&y)
    }

    /// Position of output pixel `(x, y)` in the input, for maps that compute in f64.
    #[inline(always)]
    fn real_position(&self, x: i32, y: i32) -> (f64, f64) {
        let a = |number| self.real(number);
        if self.positions() == Positions::Summed {
            let sum = |first: usize| {
                let mut at = a(first + 2) + a(first + 1) * 0.5 + a(first) * 0.5;
                for (count, step) in [(y, a(first + 1)), (x, a(first))] {
                    // Usually one of the two steps is 0, and its additions can be skipped.
                    if step != 0.0 {
                        (0..count).for_each(|_| at += step);
                    }
                }
                at
            };
            return (sum(0), sum(3));
        }
        let (x, y) = (f64::from(x) + 0.5, f64::from(y) + 0.5);
        let above = (a(0) * x + a(1) * y + a(2), a(3) * x + a(4) * y + a(5));
        if self.positions() == Positions::Affine {
            return above;
        }
        let below = a(6) * x + a(7) * y + 1.0;
        (above.0 / below, above.1 / below)
    }
}

/// Reference implementation: computes output pixel `(x, y)`, where `src(x, y)` returns an input
/// pixel. `table` has the numbers of a displacement table and is ignored for other maps.
pub fn pixel(
    warp: &Warp,
    table: &[i32],
    src: &impl Fn(i32, i32) -> [u8; 3],
    x: i32,
    y: i32,
) -> [u8; 3] {
    match warp.positions() {
        Positions::Whole | Positions::Fixed => {
            let (x, y) = warp.integer_position(x, y);
            if warp.is_inside(x, y) { src(x, y) } else { warp.fill }
        }
        Positions::Displaced => displaced(warp, table, src, x, y),
        Positions::Summed | Positions::Affine | Positions::Perspective => {
            let (at_x, at_y) = warp.real_position(x, y);
            interpolated(warp, src, at_x, at_y)
        }
    }
}

/// Interpolated value at the position `(x, y)` of the input.
#[inline(always)]
fn interpolated(warp: &Warp, src: &impl Fn(i32, i32) -> [u8; 3], x: f64, y: f64) -> [u8; 3] {
    // Do not invert this condition. It is false for NaN, because Pillow treats a NaN position as
    // inside, except with nearest interpolation.
    if x < 0.0 || y < 0.0 || x >= f64::from(warp.width) || y >= f64::from(warp.height) {
        return warp.fill;
    }
    if warp.interpolation() == Interpolation::Nearest {
        return if x.is_nan() || y.is_nan() { warp.fill } else { src(x as i32, y as i32) };
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
            [0, 1, 2].map(|channel| lerp(a[channel].into(), b[channel].into(), dx))
        };
        let (upper, lower) = (row(top), row(top + 1));
        return [0, 1, 2].map(|channel| lerp(upper[channel], lower[channel], dy) as u8);
    }
    let row = |y| {
        let taps = [left - 1, left, left + 1, left + 2].map(|x| read(x, y).map(f64::from));
        [0, 1, 2].map(|channel| cubic(taps.map(|it| it[channel]), dx))
    };
    let rows = [top - 1, top, top + 1, top + 2].map(row);
    [0, 1, 2].map(|channel| cubic(rows.map(|it| it[channel]), dy) as u8)
}

#[inline(always)]
fn lerp(a: f64, b: f64, d: f64) -> f64 {
    a + (b - a) * d
}

#[inline(always)]
fn cubic([a, b, c, d]: [f64; 4], at: f64) -> f64 {
    let (p1, p2) = (b, -a + c);
    let p3 = 2.0 * (a - b) + c - d;
    let p4 = -a + b - c + d;
    p1 + at * (p2 + at * (p3 + at * p4))
}

/// Displacement of output pixel `(x, y)` in units of 1/65536 pixel.
fn displacement(warp: &Warp, table: &[i32], x: i32, y: i32) -> (i32, i32) {
    let [first, top, columns] = [0, 1, 2].map(|number| warp.integer(number));
    let pair = 2 * ((y - top) as usize * columns as usize + (x - first) as usize);
    (table[pair], table[pair + 1])
}

/// Value of a displaced pixel: torchvision's `elastic` (`grid_sample` with zeros outside, and a
/// mask that blends in the fill colour), computed in integers. Products of weights have 32 fraction
/// bits, and the result is rounded.
fn displaced(
    warp: &Warp,
    table: &[i32],
    src: &impl Fn(i32, i32) -> [u8; 3],
    x: i32,
    y: i32,
) -> [u8; 3] {
    let (dx, dy) = displacement(warp, table, x, y);
    if warp.interpolation() == Interpolation::Nearest {
        let (x, y) =
            (x + (dx.saturating_add(1 << 15) >> 16), y + (dy.saturating_add(1 << 15) >> 16));
        return if warp.is_inside(x, y) { src(x, y) } else { warp.fill };
    }
    let (x, y) = (x + (dx >> 16), y + (dy >> 16));
    let (wx, wy) = (i64::from(dx & 0xffff), i64::from(dy & 0xffff));
    let weights = [(65536 - wx) * (65536 - wy), wx * (65536 - wy), (65536 - wx) * wy, wx * wy];
    let (mut sums, mut mask) = ([0i64; 3], 0i64);
    for (weight, (x, y)) in
        weights.into_iter().zip([(x, y), (x + 1, y), (x, y + 1), (x + 1, y + 1)])
    {
        if warp.is_inside(x, y) {
            let pixel = src(x, y);
            (0..3).for_each(|channel| sums[channel] += weight * i64::from(pixel[channel]));
            mask += weight;
        }
    }
    const UNIT: f64 = 1.0 / 4_294_967_296.0;
    let mask = mask as f64 * UNIT;
    [0, 1, 2].map(|channel| {
        let fill = f64::from(warp.fill[channel]);
        ((sums[channel] as f64 * UNIT - fill) * mask + fill + 0.5) as u8
    })
}
