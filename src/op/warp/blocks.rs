//! Bilinear interpolation of a row in blocks of pixels: each step is a loop over arrays that the compiler turns into vector
//! instructions.
//!
//! Values are computed in f32, where the reference computes in f64 or in integers. Both give the same byte unless a value is
//! within [`TOLERANCE`] of the next byte. The few pixels with such a value are computed again as in the reference, as are
//! those with neighbours beyond an edge.

use crate::geometry::Roi;
use crate::image::Image;
use crate::op::wide::Loop;
use crate::op::wide::pixels::Shuffles;

use super::pixels::Pixels;
use super::{Warp, displaced, interpolated};

/// Pixels of a block.
const LEN: usize = 32;

/// More than the error of a value in f32, 2^-14: a fraction and a product are off by 2^-17 at most, and so is each sum.
/// Three of these errors are in the value of a row, the mean of two rows has no more, and four are in what follows. Twice
/// that, because the tolerance itself is added with an error.
const TOLERANCE: f32 = 1.0 / (1 << 13) as f32;

/// Bilinear row of a warp.
pub struct Bilinear<'a, L> {
    pub warp: &'a Warp,
    pub src: &'a Image<u8>,
    pub line: L,
    pub out: &'a mut [[u8; 3]],
}

/// Positions of the pixels of a row, which are counted from 0.
pub trait Line {
    /// What is subtracted from a value before it is rounded to the nearest byte: 0.5 if the reference truncates.
    const DOWN: f32;

    /// Positions of the block that begins at a pixel. Those of pixels beyond the row are arbitrary.
    fn block(&self, warp: &Warp, first: usize) -> impl Fn(usize) -> Position;

    /// Value of a pixel as in the reference.
    fn pixel(&self, warp: &Warp, src: Pixels<'_>, number: usize) -> [u8; 3];
}

/// Position of a pixel in the input.
#[derive(Clone, Copy)]
pub struct Position {
    /// Whether its four neighbours are inside.
    inside: bool,
    /// Whether it certainly has the fill colour.
    outside: bool,
    /// Column and row of the left upper neighbour.
    left: f64,
    top: f64,
    /// Weights of the neighbours on the right and below.
    right: f32,
    below: f32,
}

/// Positions in f64 by their column, and the first column.
pub struct Real<P> {
    pub x: i32,
    pub position: P,
}

/// Displacements of a row in units of 1/65536 pixel, and the coordinates of its first pixel.
pub struct Displaced<'a> {
    pub pairs: &'a [[i32; 2]],
    pub x: i32,
    pub y: i32,
    pub table: &'a [i32],
}

impl<P: Fn(i32) -> (f64, f64) + Copy> Line for Real<P> {
    const DOWN: f32 = 0.5;

    #[inline(always)]
    fn block(&self, warp: &Warp, first: usize) -> impl Fn(usize) -> Position {
        let (first, position) = (self.x.wrapping_add(first as i32), self.position);
        let (width, height) = (f64::from(warp.width), f64::from(warp.height));
        move |at| {
            let (x, y) = position(first.wrapping_add(at as i32));
            let inside = (x >= 0.5) & (x < width - 0.5) & (y >= 0.5) & (y < height - 0.5);
            let outside = (x < 0.0) | (x >= width) | (y < 0.0) | (y >= height);
            let (x, y) = (x - 0.5, y - 0.5);
            let (left, top) = (x.floor(), y.floor());
            let (right, below) = ((x - left) as f32, (y - top) as f32);
            Position { inside, outside, left, top, right, below }
        }
    }

    #[inline(always)]
    fn pixel(&self, warp: &Warp, src: Pixels<'_>, number: usize) -> [u8; 3] {
        let (x, y) = (self.position)(self.x.wrapping_add(number as i32));
        interpolated(warp, &|x, y| src.at(x, y), x, y)
    }
}

impl Line for Displaced<'_> {
    const DOWN: f32 = 0.0;

    #[inline(always)]
    fn block(&self, warp: &Warp, first: usize) -> impl Fn(usize) -> Position {
        let mut pairs = [[0; 2]; LEN];
        let part = &self.pairs[first..];
        let part = &part[..part.len().min(LEN)];
        pairs[..part.len()].copy_from_slice(part);
        let (x, y) = (self.x.wrapping_add(first as i32), self.y);
        let (width, height) = (warp.width, warp.height);
        move |at| {
            let [dx, dy] = pairs[at];
            let left = x.wrapping_add(at as i32).wrapping_add(dx >> 16);
            let top = y.wrapping_add(dy >> 16);
            let inside = (left >= 0) & (left < width - 1) & (top >= 0) & (top < height - 1);
            let outside = (left < -1) | (left >= width) | (top < -1) | (top >= height);
            let [right, below] = [dx, dy].map(|it| (it & 0xffff) as f32 * (1.0 / 65536.0));
            Position { inside, outside, left: left.into(), top: top.into(), right, below }
        }
    }

    #[inline(always)]
    fn pixel(&self, warp: &Warp, src: Pixels<'_>, number: usize) -> [u8; 3] {
        let x = self.x.wrapping_add(number as i32);
        displaced(warp, self.table, &|x, y| src.at(x, y), x, self.y)
    }
}

impl<L: Line> Loop for Bilinear<'_, L> {
    #[inline(always)]
    fn run(self, _: impl Shuffles) {
        let Self { warp, src, line, out } = self;
        let pixels = Pixels::of(src);
        let mut block = Block::new();
        for (number, out) in out.chunks_mut(LEN).enumerate() {
            let first = number * LEN;
            block.place(src.window(), line.block(warp, first));
            if block.is_outside() {
                out.fill(warp.fill);
                continue;
            }
            let mut again = block.read(warp.fill, src);
            again |= block.interpolate(L::DOWN);
            block.store(out);
            while again != 0 {
                let at = again.trailing_zeros() as usize;
                again &= again - 1;
                if let Some(place) = out.get_mut(at) {
                    *place = line.pixel(warp, pixels, first + at);
                }
            }
        }
    }
}

/// Pixels that are computed side by side.
struct Block {
    /// Byte of the input at which the left upper neighbour begins, or [`OUTSIDE`] or [`BORDER`], each plus [`WHOLE`].
    from: [f64; LEN],
    right: [f32; LEN],
    below: [f32; LEN],
    /// The four neighbours, with red in the lowest byte. The highest byte is arbitrary.
    taps: [[u32; LEN]; 4],
    pixels: [u32; LEN],
    /// Not 0 if a byte may be another one in the reference.
    unsure: [u32; LEN],
}

/// From here on, an f64 has no bits after the point, and its lower bits are an integer.
const WHOLE: f64 = (1u64 << 52) as f64;
/// Larger than any image.
const OUTSIDE: u64 = 1 << 50;
const BORDER: u64 = OUTSIDE + 1;

impl Block {
    #[inline(always)]
    fn new() -> Self {
        Self {
            from: [0.0; LEN],
            right: [0.0; LEN],
            below: [0.0; LEN],
            taps: [[0; LEN]; 4],
            pixels: [0; LEN],
            unsure: [0; LEN],
        }
    }

    #[inline(always)]
    fn place(&mut self, window: Roi, position: impl Fn(usize) -> Position) {
        let pitch = 3.0 * f64::from(window.width);
        let first = WHOLE - (f64::from(window.y) * pitch + 3.0 * f64::from(window.x));
        let (outside, border) = (OUTSIDE as f64 + WHOLE, BORDER as f64 + WHOLE);
        for at in 0..LEN {
            let it = position(at);
            let from = it.top * pitch + it.left * 3.0 + first;
            let other = if it.outside { outside } else { border };
            self.from[at] = if it.inside { from } else { other };
            (self.right[at], self.below[at]) = (it.right, it.below);
        }
    }

    /// Whether all pixels have the fill colour.
    #[inline(always)]
    fn is_outside(&self) -> bool {
        self.from.iter().fold(true, |all, from| all & (*from == OUTSIDE as f64 + WHOLE))
    }

    /// Reads the neighbours: two pixels and two bytes after them at once. Returns the pixels with others, as bits.
    #[inline(always)]
    fn read(&mut self, [r, g, b]: [u8; 3], src: &Image<u8>) -> u32 {
        let pitch = 3 * src.window().width as usize;
        let lower = src.data().get(pitch..).unwrap_or_default();
        let upper = &src.data()[..lower.len()];
        let fill = u32::from_le_bytes([r, g, b, 0]);
        let mut others = 0;
        for at in 0..LEN {
            let from = self.from[at].to_bits() & (WHOLE as u64 - 1);
            let taps = match (eight(upper, from as usize), eight(lower, from as usize)) {
                (Some(upper), Some(lower)) => {
                    [upper as u32, (upper >> 24) as u32, lower as u32, (lower >> 24) as u32]
                }
                _ => {
                    others |= u32::from(from != OUTSIDE) << at;
                    [fill; 4]
                }
            };
            for (place, tap) in self.taps.iter_mut().zip(taps) {
                place[at] = tap;
            }
        }
        others
    }

    /// Computes the pixels. Returns those that the reference may have otherwise, as bits.
    #[inline(always)]
    fn interpolate(&mut self, down: f32) -> u32 {
        /// Around it, an f32 has no bits after the point, and its lower bits are an integer.
        const WHOLE: f32 = (3 << 22) as f32;
        let Self { taps: [a, b, c, d], right, below, pixels, unsure, .. } = self;
        for shift in [0, 8, 16] {
            for at in 0..LEN {
                let differ = (a[at] ^ b[at]) | (a[at] ^ c[at]) | (a[at] ^ d[at]);
                let same = a[at] & 255 << shift;
                let [a, b, c, d] =
                    [a[at], b[at], c[at], d[at]].map(|tap| (tap >> shift & 255) as i32 as f32);
                let (upper, lower) = (a + (b - a) * right[at], c + (d - c) * right[at]);
                let value = upper + (lower - upper) * below[at] - down;
                let low = (value - TOLERANCE + WHOLE).to_bits();
                let high = (value + TOLERANCE + WHOLE).to_bits();
                // Four equal bytes always give the same byte. Saturated colours and borders have many.
                let (byte, no) = match differ & 255 << shift {
                    0 => (same, 0),
                    _ => ((high & 255) << shift, low ^ high),
                };
                (pixels[at], unsure[at]) = match shift {
                    0 => (byte, no),
                    _ => (pixels[at] | byte, unsure[at] | no),
                };
            }
        }
        if unsure.iter().fold(0, |any, it| any | it) == 0 {
            return 0;
        }
        (0..LEN).fold(0, |bits, at| bits | u32::from(unsure[at] != 0) << at)
    }

    #[inline(always)]
    fn store(&self, out: &mut [[u8; 3]]) {
        // Each pixel overwrites the byte after the one before it.
        let mut bytes = [0; 3 * LEN + 1];
        for (at, pixel) in self.pixels.iter().enumerate() {
            bytes[3 * at..3 * at + 4].copy_from_slice(&pixel.to_le_bytes());
        }
        match <&mut [[u8; 3]; LEN]>::try_from(&mut *out) {
            Ok(out) => out.as_flattened_mut().copy_from_slice(&bytes[..3 * LEN]),
            Err(_) => {
                let out = out.as_flattened_mut();
                out.copy_from_slice(&bytes[..out.len()]);
            }
        }
    }
}

#[inline(always)]
fn eight(bytes: &[u8], from: usize) -> Option<u64> {
    let eight = bytes.get(from..from + 8)?;
    Some(u64::from_le_bytes(eight.try_into().ok()?))
}
