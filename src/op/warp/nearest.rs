//! Warps with nearest interpolation, one block of pixels at a time. Vector instructions compute the
//! positions of a block before its pixels are copied.

use crate::image::Image;
use crate::op::wide::Loop;
use crate::op::wide::pixels::Shuffles;

use super::Warp;
use super::pixels::Pixels;

/// Number of pixels in a block.
pub const LEN: usize = 64;

/// Loop that copies a row of pixels at integer positions, which are all inside of the input.
pub struct Integers<'a> {
    pub src: Pixels<'a>,
    /// Position of the first pixel, and the step to the next pixel. The lowest `bits` bits of a
    /// position are its fraction.
    pub at: (i32, i32),
    pub step: (i32, i32),
    pub bits: u32,
    pub out: &'a mut [[u8; 3]],
}

impl Loop for Integers<'_> {
    #[inline(always)]
    fn run(self, _: impl Shuffles) {
        let Self { src, at, step, bits, out } = self;
        let (bytes, len) = (src.bytes(), out.len());
        let position = |number: i32| {
            let axis = |at: i32, step: i32| at.wrapping_add(step.wrapping_mul(number)) >> bits;
            (axis(at.0, step.0), axis(at.1, step.1))
        };
        // Blocks compute byte indices in 32 bits. Rows of larger images, and rows shorter than a
        // block, are computed pixel by pixel.
        if len < LEN || u32::try_from(bytes.len()).is_err() {
            for (number, place) in (0..).zip(out) {
                let (x, y) = position(number);
                *place = src.at(x, y);
            }
            return;
        }
        for first in (0..len).step_by(LEN) {
            // The last block overlaps with the block before it.
            let first = first.min(len - LEN);
            let mut from = [0; LEN];
            for (number, from) in (first as i32..).zip(&mut from) {
                let (x, y) = position(number);
                *from = src.byte(x, y);
            }
            let (blocks, _) = out[first..].as_flattened_mut().as_chunks_mut();
            if let Some(block) = blocks.first_mut() {
                copy(bytes, &from, block);
            }
        }
    }
}

/// Copies the pixels that begin at the byte indices `from`.
#[inline(always)]
fn copy(bytes: &[u8], from: &[u32; LEN], out: &mut [u8; 3 * LEN]) {
    const LAST: usize = LEN - 1;
    for at in 0..LAST {
        let (from, to) = (from[at] as usize, 3 * at);
        match bytes.get(from..from + 4) {
            // The next pixel overwrites the fourth byte.
            Some(four) => out[to..to + 4].copy_from_slice(four),
            None => out[to..to + 3].copy_from_slice(&bytes[from..from + 3]),
        }
    }
    out[3 * LAST..].copy_from_slice(&bytes[from[LAST] as usize..][..3]);
}

/// Loop that copies a row of pixels at positions in f64. `positions` writes the columns and rows of
/// one block after another.
pub struct Reals<'a, P> {
    pub warp: &'a Warp,
    pub src: &'a Image<u8>,
    pub positions: P,
    pub out: &'a mut [[u8; 3]],
}

impl<P: FnMut(&mut [f64; LEN], &mut [f64; LEN])> Loop for Reals<'_, P> {
    #[inline(always)]
    fn run(self, _: impl Shuffles) {
        /// From 2^52 on, an f64 has no fraction bits. The lower bits of `WHOLE + i` are the integer
        /// `i`.
        const WHOLE: f64 = (1u64 << 52) as f64;
        /// Marks a position outside of the input. Larger than the index of any byte.
        const OUTSIDE: f64 = WHOLE + (1u64 << 50) as f64;
        let Self { warp, src, mut positions, out } = self;
        let (bytes, window) = (src.data(), src.window());
        let (width, height) = (f64::from(warp.width), f64::from(warp.height));
        let pitch = 3.0 * f64::from(window.width);
        let first = WHOLE - (f64::from(window.y) * pitch + 3.0 * f64::from(window.x));
        let [mut columns, mut rows, mut from] = [[0.0; LEN]; 3];
        for out in out.chunks_mut(LEN) {
            positions(&mut columns, &mut rows);
            for at in 0..LEN {
                let (x, y) = (columns[at], rows[at]);
                let inside = (x >= 0.0) & (x < width) & (y >= 0.0) & (y < height);
                let index = y.floor() * pitch + x.floor() * 3.0 + first;
                from[at] = if inside { index } else { OUTSIDE };
            }
            for (place, from) in out.iter_mut().zip(&from) {
                let from = (from.to_bits() & (WHOLE as u64 - 1)) as usize;
                *place = match bytes.get(from..from + 3) {
                    Some(pixel) => [pixel[0], pixel[1], pixel[2]],
                    None => warp.fill,
                };
            }
        }
    }
}
