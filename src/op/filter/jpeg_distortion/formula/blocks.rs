//! Compression of several blocks at once, in loops that compilers can vectorize.

#![allow(clippy::needless_range_loop, reason = "transposed accesses are clearer by index")]

use super::{BITS, Block, PASS_BITS, Quality, SIDE, forward_line, inverse_line, rounded};

/// Number of blocks that are compressed at once.
const COUNT: usize = 8;

/// Number of columns of `COUNT` blocks side by side.
pub const WIDTH: usize = SIDE * COUNT;

/// Values at the same place in all blocks.
type Lane = [i32; COUNT];

/// Values of all blocks, by row and column in the block.
type Blocks = [[Lane; SIDE]; SIDE];

/// Quantization steps of a block, with their reciprocals.
#[derive(Clone, Copy, Debug)]
pub struct Steps([[QuantizationStep; SIDE]; SIDE]);

impl Steps {
    /// Quantization steps of luma.
    pub fn of_luma(quality: &Quality) -> Self {
        Self::new(&quality.luma)
    }

    /// Quantization steps of chroma.
    pub fn of_chroma(quality: &Quality) -> Self {
        Self::new(&quality.chroma)
    }

    fn new(steps: &Block) -> Self {
        Self(steps.map(|row| row.map(QuantizationStep::new)))
    }
}

/// A quantization step, 1 to 255, with numbers that replace the division by a multiplication and a
/// shift.
#[derive(Clone, Copy, Debug)]
struct QuantizationStep {
    step: i32,
    reciprocal: u32,
    shift: u32,
}

impl QuantizationStep {
    fn new(step: i32) -> Self {
        let divisor = Self::divisor(step) as u32;
        // The reciprocal is rounded up, so it is too large by less than 1. The divisor is at most
        // 2^(shift - 15). The product of the reciprocal with a number below 2^15 is therefore too
        // large by less than 2^shift / divisor, which does not change the quotient.
        let shift = 15 + divisor.next_power_of_two().trailing_zeros();
        Self { step, reciprocal: (1u32 << shift).div_ceil(divisor), shift }
    }

    /// The forward transform gives 8 times the coefficients, so the divisor is 8 times the step.
    fn divisor(step: i32) -> i32 {
        8 * step
    }

    /// Multiple of the step that is nearest to `value / 8`. The magnitude of `value` must be below
    /// 2^15 - 1020.
    #[inline(always)]
    fn quantized(self, value: i32) -> i32 {
        let sum = (value.abs() + Self::divisor(self.step) / 2) as u32;
        let multiple = (sum.wrapping_mul(self.reciprocal) >> self.shift) as i32 * self.step;
        if value < 0 { -multiple } else { multiple }
    }
}

/// Compresses and decompresses neighbouring blocks of a plane in place: the [`WIDTH`] columns from
/// `left` on.
#[inline(always)]
pub fn compress<const LEN: usize>(plane: &mut [[u8; LEN]; SIDE], left: usize, steps: &Steps) {
    // Each word holds one row of a block, which has eight bytes.
    let mut words = [[0; SIDE]; COUNT];
    for y in 0..SIDE {
        let row = plane[y][left..left + WIDTH].as_chunks::<SIDE>().0;
        for block in 0..COUNT {
            words[block][y] = u64::from_le_bytes(row[block]);
        }
    }
    transpose(&mut words);
    let mut blocks = [[[0; COUNT]; SIDE]; SIDE];
    for y in 0..SIDE {
        for x in 0..SIDE {
            let bytes = words[x][y].to_le_bytes();
            for lane in 0..COUNT {
                blocks[y][x][lane] = i32::from(bytes[lane]) - 128;
            }
        }
    }
    transform(&mut blocks, steps);
    for y in 0..SIDE {
        for x in 0..SIDE {
            let mut bytes = [0; COUNT];
            for lane in 0..COUNT {
                bytes[lane] = (blocks[y][x][lane] + 128).clamp(0, 255) as u8;
            }
            words[x][y] = u64::from_le_bytes(bytes);
        }
    }
    transpose(&mut words);
    for y in 0..SIDE {
        let row = plane[y][left..left + WIDTH].as_chunks_mut::<SIDE>().0;
        for block in 0..COUNT {
            row[block] = words[block][y].to_le_bytes();
        }
    }
}

/// Exchanges byte `i` of word `j` with byte `j` of word `i`, separately for each row.
#[inline(always)]
fn transpose(words: &mut [[u64; SIDE]; COUNT]) {
    const HALVES: [(usize, u64); 3] =
        [(1, 0x00ff_00ff_00ff_00ff), (2, 0x0000_ffff_0000_ffff), (4, 0x0000_0000_ffff_ffff)];
    for (distance, low) in HALVES {
        for first in 0..COUNT {
            if first & distance != 0 {
                continue;
            }
            for y in 0..SIDE {
                let (a, b) = (words[first][y], words[first + distance][y]);
                let exchanged = ((a >> (8 * distance)) ^ b) & low;
                words[first][y] = a ^ exchanged << (8 * distance);
                words[first + distance][y] = b ^ exchanged;
            }
        }
    }
}

/// Forward transform, quantization and inverse transform of all blocks.
#[inline(always)]
fn transform(blocks: &mut Blocks, steps: &Steps) {
    for row in blocks.iter_mut() {
        for lane in 0..COUNT {
            let mut line = [0; SIDE];
            for x in 0..SIDE {
                line[x] = row[x][lane];
            }
            let line = forward_line(line, BITS - PASS_BITS, |sum| sum << PASS_BITS);
            for x in 0..SIDE {
                row[x][lane] = line[x];
            }
        }
    }
    for x in 0..SIDE {
        for lane in 0..COUNT {
            let mut line = [0; SIDE];
            for y in 0..SIDE {
                line[y] = blocks[y][x][lane];
            }
            let line = forward_line(line, BITS + PASS_BITS, |sum| rounded(sum, PASS_BITS));
            for y in 0..SIDE {
                blocks[y][x][lane] = steps.0[y][x].quantized(line[y]);
            }
        }
        for lane in 0..COUNT {
            let mut line = [0; SIDE];
            for y in 0..SIDE {
                line[y] = blocks[y][x][lane];
            }
            let line = inverse_line(line, BITS - PASS_BITS);
            for y in 0..SIDE {
                blocks[y][x][lane] = line[y];
            }
        }
    }
    for row in blocks {
        for lane in 0..COUNT {
            let mut line = [0; SIDE];
            for x in 0..SIDE {
                line[x] = row[x][lane];
            }
            let line = inverse_line(line, BITS + PASS_BITS + 3);
            for x in 0..SIDE {
                row[x][lane] = line[x];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lossy;
    use super::*;

    #[test]
    fn reciprocals_divide_exactly() {
        for step in 1..=255 {
            let divisor = QuantizationStep::divisor(step);
            for value in 0..(1 << 15) - 1020 {
                let multiple = (value + divisor / 2) / divisor * step;
                let found = [value, -value].map(|it| QuantizationStep::new(step).quantized(it));
                assert_eq!(found, [multiple, -multiple], "{value} {step}");
            }
        }
    }

    /// Tests noise, and blocks with the largest possible coefficients. In such a block, each pixel
    /// is black or white: the sign that the wave of one coefficient has at the pixel decides.
    #[test]
    fn blocks_are_compressed_as_single_ones() {
        let wave = |at: usize, number: usize| {
            libm::cos((2 * at + 1) as f64 * number as f64 * std::f64::consts::PI / 16.0)
        };
        let mut seed = 1u32;
        for number in 0..96 {
            let (u, v) = (number % 8, number / 8);
            let mut plane = [[0u8; WIDTH + 9]; SIDE];
            for (y, row) in plane.iter_mut().enumerate() {
                for (x, byte) in row.iter_mut().enumerate() {
                    seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let is_white = wave(x % 8, u) * wave(y, v) > 0.0;
                    *byte = match v {
                        0..8 if x % 16 < 8 => 255 * u8::from(is_white),
                        0..8 => 255 * u8::from(!is_white),
                        _ => (seed >> 24) as u8,
                    };
                }
            }
            for quality in [1, 10, 50, 75, 90, 100] {
                let quality = Quality::new(quality);
                for (steps, fast) in [
                    (&quality.luma, Steps::of_luma(&quality)),
                    (&quality.chroma, Steps::of_chroma(&quality)),
                ] {
                    let mut found = plane;
                    compress(&mut found, 9, &fast);
                    for block in 0..COUNT {
                        let left = 9 + SIDE * block;
                        let exact = lossy(|x, y| plane[y][left + x].into(), steps);
                        for y in 0..SIDE {
                            assert_eq!(found[y][left..left + SIDE], exact[y], "{number} {block}");
                        }
                    }
                    assert!((0..SIDE).all(|y| found[y][..9] == plane[y][..9]));
                }
            }
        }
    }
}
