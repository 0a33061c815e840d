//! Fast row form of a warp: the part of a row whose neighbours are all inside needs no tests, and the part outside no arithmetic.

use crate::geometry::Roi;
use crate::image::Image;

use super::{Interpolation, Kind, Warp, cubic, lerp, pixel};

/// Writes output pixels `(x, y)`, `(x + 1, y)`, … to `out`. `src` holds at least what [`demand`](super::demand()) returned.
/// Equal to [`pixel`] bit for bit.
pub fn row(warp: &Warp, table: &[i32], src: &Image<u8>, x: u32, y: u32, out: &mut [[u8; 3]]) {
    let (x, y) = (x as i32, y as i32);
    match (warp.kind(), warp.interpolation()) {
        (Kind::Whole, _) => whole(warp, src, x, y, out),
        (Kind::Fixed, _) => fixed(warp, src, x, y, out),
        (Kind::Summed, _) => summed(warp, src, x, y, out),
        (Kind::Affine, Interpolation::Bilinear) => affine::<Bilinear>(warp, src, x, y, out),
        (Kind::Affine, _) => affine::<Bicubic>(warp, src, x, y, out),
        (Kind::Perspective | Kind::Displaced, _) => each(warp, table, src, x, y, out),
    }
}

/// Pixel by pixel.
fn each(warp: &Warp, table: &[i32], src: &Image<u8>, x: i32, y: i32, out: &mut [[u8; 3]]) {
    let src = Pixels::of(src);
    let read = |x: i32, y: i32| src.at(x, y);
    for (place, x) in out.iter_mut().zip(x..) {
        *place = pixel(warp, table, &read, x, y);
    }
}

/// Stored pixels by their coordinates in the whole image.
#[derive(Clone, Copy)]
struct Pixels<'a> {
    pixels: &'a [[u8; 3]],
    window: Roi,
}

impl<'a> Pixels<'a> {
    fn of(image: &'a Image<u8>) -> Self {
        Self { pixels: image.data().as_chunks().0, window: image.window() }
    }

    #[inline(always)]
    fn index(&self, x: i32, y: i32) -> usize {
        let (x, y) = (x - self.window.x as i32, y - self.window.y as i32);
        y as usize * self.window.width as usize + x as usize
    }

    #[inline(always)]
    fn at(&self, x: i32, y: i32) -> [u8; 3] {
        self.pixels[self.index(x, y)]
    }
}

fn whole(warp: &Warp, src: &Image<u8>, x: i32, y: i32, out: &mut [[u8; 3]]) {
    let [dx, dy] = [warp.integer(0), warp.integer(3)];
    let (sx, sy) = warp.integer_position(x, y);
    let mut inside = inside((sx.into(), dx.into()), warp.width.into(), out.len());
    narrow(&mut inside, (sy.into(), dy.into()), warp.height.into(), out.len());
    let src = Pixels::of(src);
    let (first, end) = fill_outside(warp, inside, out);
    let (mut sx, mut sy) = (sx + dx * first as i32, sy + dy * first as i32);
    let out = &mut out[first..end];
    if out.is_empty() {
        return;
    }
    if (dx, dy) == (1, 0) {
        let start = src.index(sx, sy);
        out.copy_from_slice(&src.pixels[start..start + out.len()]);
        return;
    }
    for place in out {
        *place = src.at(sx, sy);
        (sx, sy) = (sx + dx, sy + dy);
    }
}

fn fixed(warp: &Warp, src: &Image<u8>, x: i32, y: i32, out: &mut [[u8; 3]]) {
    let start = |first: usize| {
        let moved = warp.integer(first).wrapping_mul(x);
        let moved = moved.wrapping_add(warp.integer(first + 1).wrapping_mul(y));
        warp.integer(first + 2).wrapping_add(moved)
    };
    let (mut sx, mut sy) = (start(0), start(3));
    let (dx, dy) = (warp.integer(0), warp.integer(3));
    let mut inside = inside((sx.into(), dx.into()), i64::from(warp.width) << 16, out.len());
    narrow(&mut inside, (sy.into(), dy.into()), i64::from(warp.height) << 16, out.len());
    let (first, end) = fill_outside(warp, inside, out);
    sx = sx.wrapping_add(dx.wrapping_mul(first as i32));
    sy = sy.wrapping_add(dy.wrapping_mul(first as i32));
    let src = Pixels::of(src);
    for place in &mut out[first..end] {
        *place = src.at(sx >> 16, sy >> 16);
        (sx, sy) = (sx.wrapping_add(dx), sy.wrapping_add(dy));
    }
}

fn summed(warp: &Warp, src: &Image<u8>, x: i32, y: i32, out: &mut [[u8; 3]]) {
    let (mut at_x, mut at_y) = warp.real_position(x, y);
    let (width, height) = (f64::from(warp.width), f64::from(warp.height));
    let src = Pixels::of(src);
    for place in out {
        let inside = at_x >= 0.0 && at_x < width && at_y >= 0.0 && at_y < height;
        *place = if inside { src.at(at_x as i32, at_y as i32) } else { warp.fill };
        at_x += warp.real(0);
        at_y += warp.real(3);
    }
}

/// Interpolation where all neighbours are inside.
trait Neighbours {
    /// Pixels that are read before and after the position, on each axis.
    const BEFORE: i32;
    const AFTER: i32;

    /// Value from the pixel at `index` and its neighbours, in rows of `columns` pixels; `at` is the position from its centre.
    fn value(pixels: &[[u8; 3]], index: usize, columns: usize, at: (f64, f64)) -> [u8; 3];
}

struct Bilinear;
struct Bicubic;

impl Neighbours for Bilinear {
    const BEFORE: i32 = 0;
    const AFTER: i32 = 1;

    #[inline(always)]
    fn value(pixels: &[[u8; 3]], index: usize, columns: usize, (dx, dy): (f64, f64)) -> [u8; 3] {
        let upper = &pixels[index..][..2];
        let lower = &pixels[index + columns..][..2];
        [0, 1, 2].map(|channel| {
            let row = |of: &[[u8; 3]]| lerp(of[0][channel].into(), of[1][channel].into(), dx);
            lerp(row(upper), row(lower), dy) as u8
        })
    }
}

impl Neighbours for Bicubic {
    const BEFORE: i32 = 1;
    const AFTER: i32 = 2;

    #[inline(always)]
    fn value(pixels: &[[u8; 3]], index: usize, columns: usize, (dx, dy): (f64, f64)) -> [u8; 3] {
        let rows = [0, 1, 2, 3].map(|row| &pixels[index - 1 + columns * row - columns..][..4]);
        [0, 1, 2].map(|channel| {
            let row = |of: &[[u8; 3]]| cubic([0, 1, 2, 3].map(|at| f64::from(of[at][channel])), dx);
            cubic(rows.map(row), dy) as u8
        })
    }
}

fn affine<N: Neighbours>(warp: &Warp, src: &Image<u8>, x: i32, y: i32, out: &mut [[u8; 3]]) {
    let a = |number| warp.real(number);
    // With coefficients of usual size, rounding moves a position by less than the margin.
    const MARGIN: f64 = 1e-6;
    if [0, 1, 3, 4].iter().any(|&it| a(it).abs() > 1e3) || a(2).abs() > 1e7 || a(5).abs() > 1e7 {
        return each(warp, &[], src, x, y, out);
    }
    let middle =
        |len: i32| (f64::from(N::BEFORE) + 0.5 + MARGIN, f64::from(len - N::AFTER) + 0.5 - MARGIN);
    let around = |len: i32| (-MARGIN, f64::from(len) + MARGIN);
    let (start, len) = (warp.real_position(x, y), out.len());
    let range = |(low_x, high_x): (f64, f64), (low_y, high_y): (f64, f64)| {
        let (first, end) = between((start.0, a(0)), (low_x, high_x), len);
        let (from, to) = between((start.1, a(3)), (low_y, high_y), len);
        (first.max(from), end.min(to))
    };
    let outer = fill_outside(warp, range(around(warp.width), around(warp.height)), out);
    let (first, end) = range(middle(warp.width), middle(warp.height));
    let (first, end) = if first < end { (first, end) } else { (outer.1, outer.1) };
    let pixels = Pixels::of(src);
    let read = |x: i32, y: i32| pixels.at(x, y);
    for at in (outer.0..first.min(outer.1)).chain(end..outer.1) {
        out[at] = pixel(warp, &[], &read, x + at as i32, y);
    }
    let (columns, row) = (pixels.window.width as usize, f64::from(y) + 0.5);
    let (by_x, by_y) = (a(1) * row, a(4) * row);
    for (place, x) in out[first..end].iter_mut().zip(x + first as i32..) {
        let column = f64::from(x) + 0.5;
        let (at_x, at_y) = (a(0) * column + by_x + a(2) - 0.5, a(3) * column + by_y + a(5) - 0.5);
        let (left, top) = (at_x as i32, at_y as i32);
        let at = (at_x - f64::from(left), at_y - f64::from(top));
        *place = N::value(pixels.pixels, pixels.index(left, top), columns, at);
    }
}

/// Range of `0..len` for which `start + step * number` is in `0..below`.
fn inside((start, step): (i64, i64), below: i64, len: usize) -> (usize, usize) {
    let len = len as i64;
    let (first, end) = match step {
        0 if (0..below).contains(&start) => (0, len),
        0 => (0, 0),
        1.. => (-(start.div_euclid(step)), -((start - below).div_euclid(step))),
        _ => ((start - below).div_euclid(-step) + 1, start.div_euclid(-step) + 1),
    };
    (first.clamp(0, len) as usize, end.clamp(0, len) as usize)
}

fn narrow(range: &mut (usize, usize), line: (i64, i64), below: i64, len: usize) {
    let (first, end) = inside(line, below, len);
    *range = (range.0.max(first), range.1.min(end));
}

/// Range of `0..len` for which `start + step * number` is in `low..high`, up to rounding.
fn between((start, step): (f64, f64), (low, high): (f64, f64), len: usize) -> (usize, usize) {
    if low >= high {
        return (0, 0);
    }
    if step == 0.0 {
        return if low <= start && start < high { (0, len) } else { (0, 0) };
    }
    let (a, b) = ((low - start) / step, (high - start) / step);
    let clamped = |value: f64| value.ceil().clamp(0.0, len as f64) as usize;
    (clamped(a.min(b)), clamped(a.max(b)))
}

/// Writes the fill colour outside of a range; returns the range, `first <= end`.
fn fill_outside(warp: &Warp, (first, end): (usize, usize), out: &mut [[u8; 3]]) -> (usize, usize) {
    let (first, end) = if first < end { (first, end) } else { (0, 0) };
    out[..first].fill(warp.fill);
    out[end..].fill(warp.fill);
    (first, end)
}
