//! Compression of several blocks at once, in loops that compilers make vector instructions of.

#![allow(clippy::needless_range_loop, reason = "transposed accesses are clearer by index")]

use super::{BITS, Block, PASS_BITS, Quality, SIDE, forward_line, inverse_line, rounded};

/// Blocks that are compressed at once.
const COUNT: usize = 8;

/// Columns of that many blocks.
pub const WIDTH: usize = SIDE * COUNT;

/// Values of a place in all blocks.
type Lane = [i32; COUNT];

/// Blocks, by row and column.
type Blocks = [[Lane; SIDE]; SIDE];

/// Quantization steps with their reciprocals.
#[derive(Clone, Copy, Debug)]
pub struct Steps([[QuantizationStep; SIDE]; SIDE]);

impl Steps {
    /// Steps of luma.
    pub fn of_luma(quality: &Quality) -> Self {
        Self::new(&quality.luma)
    }

    /// Steps of chroma.
    pub fn of_chroma(quality: &Quality) -> Self {
        Self::new(&quality.chroma)
    }

    fn new(steps: &Block) -> Self {
        Self(steps.map(|row| row.map(QuantizationStep::new)))
    }
}

/// A quantization step, 1 to 255. Divides by a multiplication and a shift.
#[derive(Clone, Copy, Debug)]
struct QuantizationStep {
    step: i32,
    reciprocal: u32,
    shift: u32,
}

impl QuantizationStep {
    fn new(step: i32) -> Self {
        let divisor = Self::divisor(step) as u32;
        // The product of a number below 2^15 with the reciprocal is too large by less than 2^shift / divisor: the
        // reciprocal is too large by less than 1, and the divisor is at most 2^(shift - 15).
        let shift = 15 + divisor.next_power_of_two().trailing_zeros();
        Self { step, reciprocal: (1u32 << shift).div_ceil(divisor), shift }
    }

    /// The transform's results are 8 times the coefficients.
    fn divisor(step: i32) -> i32 {
        8 * step
    }

    /// Multiple of the step that is nearest to an eighth of `value`, whose magnitude is below 2^15 - 1020.
    #[inline(always)]
    fn quantized(self, value: i32) -> i32 {
        let sum = (value.abs() + Self::divisor(self.step) / 2) as u32;
        let multiple = (sum.wrapping_mul(self.reciprocal) >> self.shift) as i32 * self.step;
        if value < 0 { -multiple } else { multiple }
    }
}

/// Compresses neighbouring blocks of a plane, in place: the [`WIDTH`] columns from `left` on.
#[inline(always)]
pub fn compress<const LEN: usize>(plane: &mut [[u8; LEN]; SIDE], left: usize, steps: &Steps) {
    // Bytes of a row of a block, by block and row.
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

/// Exchanges byte `i` of word `j` with byte `j` of word `i`, in each row.
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

/// Both transforms with the quantization between them.
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

    /// Blocks of the largest coefficients: black and white by the sign of each one's wave, and noise.
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
