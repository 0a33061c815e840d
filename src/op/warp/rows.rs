//! Fast implementation of a warp, row by row. It does not check coordinates where all neighbours
//! are inside of the input. For maps in integers, it computes no positions in the parts of a row
//! that lie outside of the input.

use crate::image::Image;
use crate::op::wide::Instructions;

use super::blocks::{Bilinear, Displaced, Real};
use super::nearest::{Integers, LEN, Reals};
use super::pixels::Pixels;
use super::{Interpolation, Positions, Warp, cubic, interpolated, pixel};

/// Writes output pixels `(x, y)`, `(x + 1, y)`, … to `out`. `src` holds at least the window that
/// [`demand`](super::demand()) returned. The result equals that of [`pixel`] bit for bit.
pub fn row(warp: &Warp, table: &[i32], src: &Image<u8>, x: u32, y: u32, out: &mut [[u8; 3]]) {
    row_with(Instructions::here(), warp, table, src, (x as i32, y as i32), out);
}

/// Does the same as [`row`] with a given instruction set.
pub(super) fn row_with(
    set: Instructions,
    warp: &Warp,
    table: &[i32],
    src: &Image<u8>,
    (x, y): (i32, i32),
    out: &mut [[u8; 3]],
) {
    match warp.positions() {
        Positions::Whole => integers(set, warp, src, (x, y), 0, out),
        Positions::Fixed => integers(set, warp, src, (x, y), 16, out),
        Positions::Summed => summed(set, warp, src, (x, y), out),
        Positions::Affine => real(set, warp, src, x, out, positions::<false>(warp, y)),
        Positions::Perspective => real(set, warp, src, x, out, positions::<true>(warp, y)),
        Positions::Displaced => displaced(set, warp, table, src, (x, y), out),
    }
}

fn displaced(
    set: Instructions,
    warp: &Warp,
    table: &[i32],
    src: &Image<u8>,
    (x, y): (i32, i32),
    out: &mut [[u8; 3]],
) {
    if warp.interpolation() == Interpolation::Bilinear {
        let [left, top, columns] = [0, 1, 2].map(|number| warp.integer(number));
        let first = (y - top) as usize * columns as usize + (x - left) as usize;
        let pairs = &table.as_chunks().0[first..][..out.len()];
        let line = Displaced { pairs, x, y, table };
        return set.run(Bilinear { warp, src, line, out });
    }
    let src = Pixels::of(src);
    let read = |x: i32, y: i32| src.at(x, y);
    for (place, x) in out.iter_mut().zip(x..) {
        *place = pixel(warp, table, &read, x, y);
    }
}

/// Computes a row of a map in integers. The lowest `bits` bits of a position are its fraction.
fn integers(
    set: Instructions,
    warp: &Warp,
    src: &Image<u8>,
    (x, y): (i32, i32),
    bits: u32,
    out: &mut [[u8; 3]],
) {
    let start = |first: usize| {
        let moved = warp.integer(first).wrapping_mul(x);
        let moved = moved.wrapping_add(warp.integer(first + 1).wrapping_mul(y));
        warp.integer(first + 2).wrapping_add(moved)
    };
    let (at, step) = ((start(0), start(3)), (warp.integer(0), warp.integer(3)));
    let mut inside = inside((at.0.into(), step.0.into()), i64::from(warp.width) << bits, out.len());
    let height = i64::from(warp.height) << bits;
    narrow(&mut inside, (at.1.into(), step.1.into()), height, out.len());
    let (first, end) = fill_outside(warp, inside, out);
    let out = &mut out[first..end];
    let ahead = |at: i32, step: i32| at.wrapping_add(step.wrapping_mul(first as i32));
    let at = (ahead(at.0, step.0), ahead(at.1, step.1));
    let src = Pixels::of(src);
    if bits == 0 && step == (1, 0) && !out.is_empty() {
        out.copy_from_slice(&src.from(at.0, at.1)[..out.len()]);
        return;
    }
    set.run(Integers { src, at, step, bits, out });
}

fn summed(
    set: Instructions,
    warp: &Warp,
    src: &Image<u8>,
    (x, y): (i32, i32),
    out: &mut [[u8; 3]],
) {
    let (mut at, step) = (warp.real_position(x, y), (warp.real(0), warp.real(3)));
    let positions = move |columns: &mut [f64; LEN], rows: &mut [f64; LEN]| {
        for (x, y) in columns.iter_mut().zip(rows) {
            (*x, *y) = at;
            at = (at.0 + step.0, at.1 + step.1);
        }
    };
    set.run(Reals { warp, src, positions, out });
}

/// Function from a column to the position of its pixel in row `y`, as [`Warp::real_position`]
/// computes it.
#[inline(always)]
fn positions<const PERSPECTIVE: bool>(warp: &Warp, y: i32) -> impl Fn(i32) -> (f64, f64) + Copy {
    let [a, b, c, d, e, f, g, h] = [0, 1, 2, 3, 4, 5, 6, 7].map(|number| warp.real(number));
    let y = f64::from(y) + 0.5;
    let (b, e, h) = (b * y, e * y, h * y);
    move |x| {
        let x = f64::from(x) + 0.5;
        let above = (a * x + b + c, d * x + e + f);
        if !PERSPECTIVE {
            return above;
        }
        let below = g * x + h + 1.0;
        (above.0 / below, above.1 / below)
    }
}

/// Computes a row of a map in f64. Bicubic interpolation computes three channels and an unused
/// fourth one together.
#[inline(always)]
fn real(
    set: Instructions,
    warp: &Warp,
    src: &Image<u8>,
    x: i32,
    out: &mut [[u8; 3]],
    position: impl Fn(i32) -> (f64, f64) + Copy,
) {
    match warp.interpolation() {
        Interpolation::Nearest => {
            let mut first = x;
            let positions = move |columns: &mut [f64; LEN], rows: &mut [f64; LEN]| {
                for (number, (x, y)) in (0..).zip(columns.iter_mut().zip(rows)) {
                    (*x, *y) = position(first.wrapping_add(number));
                }
                first = first.wrapping_add(LEN as i32);
            };
            set.run(Reals { warp, src, positions, out });
        }
        Interpolation::Bilinear => {
            let line = Real { x, position };
            set.run(Bilinear { warp, src, line, out });
        }
        Interpolation::Bicubic => bicubic(warp, src, x, out, position),
    }
}

#[inline(always)]
fn bicubic(
    warp: &Warp,
    src: &Image<u8>,
    x: i32,
    out: &mut [[u8; 3]],
    position: impl Fn(i32) -> (f64, f64),
) {
    // The fast path needs all 16 neighbours inside the input. It also reads one byte after the last
    // neighbour.
    let (high_x, high_y) = (f64::from(warp.width) - 1.5, f64::from(warp.height) - 1.5);
    let pixels = Pixels::of(src);
    let (bytes, pitch) = (src.data(), 3 * src.window().width as usize);
    let read = |x: i32, y: i32| pixels.at(x, y);
    for (place, x) in out.iter_mut().zip(x..) {
        let (at_x, at_y) = position(x);
        if at_x >= 1.5 && at_x < high_x && at_y >= 1.5 && at_y < high_y {
            let (at_x, at_y) = (at_x - 0.5, at_y - 0.5);
            let (left, top) = (at_x as i32, at_y as i32);
            let at = (at_x - f64::from(left), at_y - f64::from(top));
            let from = 3 * pixels.index(left, top);
            if from + 2 * (pitch + 3) + 4 <= bytes.len() {
                *place = sixteen(bytes, from, pitch, at);
                continue;
            }
        }
        *place = interpolated(warp, &read, at_x, at_y);
    }
}

/// Bicubic value from the pixel at byte `from` and its 15 neighbours, in rows of `pitch` bytes.
/// `(dx, dy)` is the fraction of the position.
#[inline(always)]
fn sixteen(bytes: &[u8], from: usize, pitch: usize, (dx, dy): (f64, f64)) -> [u8; 3] {
    let row = |from: usize| {
        let row = &bytes[from - 3..from + 10];
        let (a, b, c, d) = (four(row, 0), four(row, 3), four(row, 6), four(row, 9));
        lanes(|lane| cubic([a[lane], b[lane], c[lane], d[lane]], dx))
    };
    let (a, b) = (row(from - pitch), row(from));
    let (c, d) = (row(from + pitch), row(from + 2 * pitch));
    truncated(lanes(|lane| cubic([a[lane], b[lane], c[lane], d[lane]], dy)))
}

/// Reads a pixel and one byte after it.
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

/// Range of numbers in `0..len` for which `start + step * number` is in `0..below`.
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

/// Writes the fill colour outside of a range. Returns the range with `first <= end`.
fn fill_outside(warp: &Warp, (first, end): (usize, usize), out: &mut [[u8; 3]]) -> (usize, usize) {
    let (first, end) = if first < end { (first, end) } else { (0, 0) };
    out[..first].fill(warp.fill);
    out[end..].fill(warp.fill);
    (first, end)
}
