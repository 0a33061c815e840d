//! Fast row form of a warp: no tests where all neighbours are inside, and no arithmetic in the parts outside if positions are
//! integers. Three channels and a fourth, unused one are computed side by side, in f64 as in the reference.

use crate::geometry::Roi;
use crate::image::Image;

use super::{Interpolation, Kind, Warp, cubic, interpolated, lerp, pixel};

/// Writes output pixels `(x, y)`, `(x + 1, y)`, … to `out`. `src` holds at least what [`demand`](super::demand()) returned.
/// Equal to [`pixel`] bit for bit.
pub fn row(warp: &Warp, table: &[i32], src: &Image<u8>, x: u32, y: u32, out: &mut [[u8; 3]]) {
    let (x, y) = (x as i32, y as i32);
    match warp.kind() {
        Kind::Whole => whole(warp, src, x, y, out),
        Kind::Fixed => fixed(warp, src, x, y, out),
        Kind::Summed => summed(warp, src, x, y, out),
        Kind::Affine => real(warp, src, (x, y), out, |above, _| above),
        Kind::Perspective => {
            let divided = |(x, y): (f64, f64), below: f64| (x / below, y / below);
            real(warp, src, (x, y), out, divided);
        }
        Kind::Displaced => each(warp, table, src, x, y, out),
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

/// Positions in f64. `position` is given the numerators and the divisor.
#[inline(always)]
fn real(
    warp: &Warp,
    src: &Image<u8>,
    place: (i32, i32),
    out: &mut [[u8; 3]],
    position: impl Fn((f64, f64), f64) -> (f64, f64),
) {
    match warp.interpolation() {
        Interpolation::Nearest => interpolate::<Nearest>(warp, src, place, out, position),
        Interpolation::Bilinear => interpolate::<Bilinear>(warp, src, place, out, position),
        Interpolation::Bicubic => interpolate::<Bicubic>(warp, src, place, out, position),
    }
}

#[inline(always)]
fn interpolate<N: Neighbours>(
    warp: &Warp,
    src: &Image<u8>,
    (x, y): (i32, i32),
    out: &mut [[u8; 3]],
    position: impl Fn((f64, f64), f64) -> (f64, f64),
) {
    let [a, b, c, d, e, f, g, h] = [0, 1, 2, 3, 4, 5, 6, 7].map(|number| warp.real(number));
    let row = f64::from(y) + 0.5;
    let (b, e, h) = (b * row, e * row, h * row);
    // Positions whose neighbours are all inside, and whose last pixel has a byte after it.
    let (first, before) = (f64::from(N::BEFORE), f64::from(N::AFTER));
    let (low, high_x) = (first + N::FROM_CENTRE, f64::from(warp.width) - before + N::FROM_CENTRE);
    let high_y = f64::from(warp.height) - before + N::FROM_CENTRE;
    let pixels = Pixels::of(src);
    let (bytes, pitch) = (src.data(), 3 * pixels.window.width as usize);
    let read = |x: i32, y: i32| pixels.at(x, y);
    for (place, x) in out.iter_mut().zip(x..) {
        let column = f64::from(x) + 0.5;
        let below = g * column + h + 1.0;
        let (at_x, at_y) = position((a * column + b + c, d * column + e + f), below);
        if at_x >= low && at_x < high_x && at_y >= low && at_y < high_y {
            let (at_x, at_y) = (at_x - N::FROM_CENTRE, at_y - N::FROM_CENTRE);
            let (left, top) = (at_x as i32, at_y as i32);
            let at = (at_x - f64::from(left), at_y - f64::from(top));
            let from = 3 * pixels.index(left, top);
            if from + N::AFTER as usize * (pitch + 3) + 4 <= bytes.len() {
                *place = N::value(bytes, from, pitch, at);
                continue;
            }
        }
        *place = interpolated(warp, &read, at_x, at_y);
    }
}

/// Interpolation where all neighbours are inside.
trait Neighbours {
    /// Pixels that are read before and after the position, on each axis.
    const BEFORE: i32;
    const AFTER: i32;
    /// What is subtracted from a position before it is split into a whole number and a rest.
    const FROM_CENTRE: f64 = 0.5;

    /// Value from the pixel at byte `from` and its neighbours, in rows of `pitch` bytes; `at` is the rest of the position.
    fn value(bytes: &[u8], from: usize, pitch: usize, at: (f64, f64)) -> [u8; 3];
}

struct Nearest;
struct Bilinear;
struct Bicubic;

impl Neighbours for Nearest {
    const BEFORE: i32 = 0;
    const AFTER: i32 = 0;
    const FROM_CENTRE: f64 = 0.0;

    #[inline(always)]
    fn value(bytes: &[u8], from: usize, _: usize, _: (f64, f64)) -> [u8; 3] {
        [bytes[from], bytes[from + 1], bytes[from + 2]]
    }
}

impl Neighbours for Bilinear {
    const BEFORE: i32 = 0;
    const AFTER: i32 = 1;

    #[inline(always)]
    fn value(bytes: &[u8], from: usize, pitch: usize, (dx, dy): (f64, f64)) -> [u8; 3] {
        let row = |from: usize| {
            let row = &bytes[from..from + 7];
            let (a, b) = (four(row, 0), four(row, 3));
            lanes(|lane| lerp(a[lane], b[lane], dx))
        };
        let (upper, lower) = (row(from), row(from + pitch));
        truncated(lanes(|lane| lerp(upper[lane], lower[lane], dy)))
    }
}

impl Neighbours for Bicubic {
    const BEFORE: i32 = 1;
    const AFTER: i32 = 2;

    #[inline(always)]
    fn value(bytes: &[u8], from: usize, pitch: usize, (dx, dy): (f64, f64)) -> [u8; 3] {
        let row = |from: usize| {
            let row = &bytes[from - 3..from + 10];
            let (a, b, c, d) = (four(row, 0), four(row, 3), four(row, 6), four(row, 9));
            lanes(|lane| cubic([a[lane], b[lane], c[lane], d[lane]], dx))
        };
        let (a, b) = (row(from - pitch), row(from));
        let (c, d) = (row(from + pitch), row(from + 2 * pitch));
        truncated(lanes(|lane| cubic([a[lane], b[lane], c[lane], d[lane]], dy)))
    }
}

/// A pixel, and one byte after it.
#[inline(always)]
fn four(bytes: &[u8], from: usize) -> [f64; 4] {
    let four: [u8; 4] = bytes[from..from + 4].try_into().unwrap_or_default();
    lanes(|lane| f64::from(i32::from(four[lane])))
}

#[inline(always)]
fn lanes<T>(value: impl Fn(usize) -> T) -> [T; 4] {
    [value(0), value(1), value(2), value(3)]
}

#[inline(always)]
fn truncated(values: [f64; 4]) -> [u8; 3] {
    let byte = |lane: usize| values[lane].clamp(0.0, 255.0) as i32 as u8;
    [byte(0), byte(1), byte(2)]
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

/// Writes the fill colour outside of a range; returns the range, `first <= end`.
fn fill_outside(warp: &Warp, (first, end): (usize, usize), out: &mut [[u8; 3]]) -> (usize, usize) {
    let (first, end) = if first < end { (first, end) } else { (0, 0) };
    out[..first].fill(warp.fill);
    out[end..].fill(warp.fill);
    (first, end)
}
