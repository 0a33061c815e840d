//! Bilinear interpolation of a row of a warp, one block of pixels at a time. Each step is a loop
//! over arrays, which the compiler turns into vector instructions.
//!
//! Values are computed in f32, whereas the reference implementation [`pixel`](super::pixel)
//! computes in f64 or in integers. Both give the same byte unless a value is within [`TOLERANCE`]
//! of the boundary between two bytes. The few pixels with such a value are computed again with the
//! reference's arithmetic, as are pixels with neighbours beyond an edge.

use crate::geometry::Roi;
use crate::image::Image;
use crate::op::wide::Loop;
use crate::op::wide::pixels::Shuffles;

use super::pixels::Pixels;
use super::{Warp, displaced, interpolated};

/// Number of pixels in a block.
const LEN: usize = 32;

/// Tolerance for errors of f32, which are below 2^-14. Each fraction, product and sum is off by
/// 2^-17 at most. Interpolation in a row makes three of these errors, and interpolation between two
/// rows makes four more. The tolerance is twice the bound, because adding the tolerance to a value
/// also rounds.
const TOLERANCE: f32 = 1.0 / (1 << 13) as f32;

/// Loop that computes a row of a warp with bilinear interpolation.
pub struct Bilinear<'a, L> {
    pub warp: &'a Warp,
    pub src: &'a Image<u8>,
    pub line: L,
    pub out: &'a mut [[u8; 3]],
}

/// Positions in the input of the pixels of an output row. Pixels are numbered from 0.
pub trait Line {
    /// Number that is subtracted from a value before it is rounded to the nearest byte: 0.5 if the
    /// reference truncates, otherwise 0.
    const DOWN: f32;

    /// Returns the positions of the block that begins at pixel `first`. Positions of pixels beyond
    /// the end of the row are arbitrary.
    fn block(&self, warp: &Warp, first: usize) -> impl Fn(usize) -> Position;

    /// Computes pixel `number` with the arithmetic of the reference.
    fn pixel(&self, warp: &Warp, src: Pixels<'_>, number: usize) -> [u8; 3];
}

/// Position of an output pixel in the input.
#[derive(Clone, Copy)]
pub struct Position {
    /// Whether all four neighbours of the position are inside of the input.
    inside: bool,
    /// Whether the pixel certainly has the fill colour.
    outside: bool,
    /// Column and row of the upper left neighbour.
    left: f64,
    top: f64,
    /// Weights of the neighbours on the right and below, 0 to 1.
    right: f32,
    below: f32,
}

/// Positions in f64: `position` computes them from a column, and `x` is the column of the first
/// pixel.
pub struct Real<P> {
    pub x: i32,
    pub position: P,
}

/// Positions by displacements: the displacements of a row in units of 1/65536 pixel, and the
/// coordinates of its first pixel.
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

/// Working memory for the pixels of a block, which are computed together.
struct Block {
    /// Index of the input byte at which the upper left neighbour begins, or [`OUTSIDE`] or
    /// [`BORDER`]. [`WHOLE`] is added to each of these.
    from: [f64; LEN],
    right: [f32; LEN],
    below: [f32; LEN],
    /// The four neighbours of each pixel, with red in the lowest byte. The highest byte is
    /// arbitrary.
    taps: [[u32; LEN]; 4],
    pixels: [u32; LEN],
    /// Not 0 for a pixel if the reference could give a different byte.
    unsure: [u32; LEN],
}

/// From 2^52 on, an f64 has no fraction bits. The lower bits of `WHOLE + i` are the integer `i`.
const WHOLE: f64 = (1u64 << 52) as f64;
/// Marks a pixel with the fill colour. Larger than the index of any byte.
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

    /// Whether all pixels of the block have the fill colour.
    #[inline(always)]
    fn is_outside(&self) -> bool {
        self.from.iter().fold(true, |all, from| all & (*from == OUTSIDE as f64 + WHOLE))
    }

    /// Reads the four neighbours of each pixel. One load of eight bytes reads the two neighbours in
    /// a row and two unused bytes. Returns, as bits, the pixels that must be computed one by one,
    /// because a neighbour is beyond an edge or too near the end of the image for such a load.
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

    /// Interpolates all pixels. Returns, as bits, the pixels for which the reference could give
    /// different bytes.
    #[inline(always)]
    fn interpolate(&mut self, down: f32) -> u32 {
        /// Near `1.5 * 2^23`, an f32 has no fraction bits, and its lower bits are an integer.
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
                // If the four neighbours have equal bytes, the result is that byte at every
                // position, so it cannot differ from the reference. Saturated colours and borders
                // have many equal bytes.
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
        // Each pixel is written as four bytes. The next pixel overwrites the fourth byte.
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
