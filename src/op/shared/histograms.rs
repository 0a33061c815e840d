//! Histograms of an image, from which operators such as `equalize` and `autocontrast` compute their
//! look-up tables.

use bytemuck::{Pod, Zeroable};

use crate::op::wide::pixels::{BLOCK, Planes, Shuffles};
use crate::op::wide::{Instructions, Loop};

/// Number of pixels with each byte value, in each channel and in the gray version of the image.
///
/// Twin in the kernels: `struct Histograms { unsigned channel[3][256], gray[256]; }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Histograms {
    /// Red, green and blue.
    pub channel: [[u32; 256]; 3],
    /// Gray as [`luma`] computes it.
    pub gray: [u32; 256],
}

impl Histograms {
    /// Histograms without any pixels.
    pub const EMPTY: Self = Self { channel: [[0; 256]; 3], gray: [0; 256] };

    /// Counts pixels.
    pub fn add(&mut self, pixels: &[[u8; 3]]) {
        self.add_channels(pixels);
        self.add_gray(pixels);
    }

    /// Counts pixels in the histograms of the channels only.
    pub fn add_channels(&mut self, pixels: &[[u8; 3]]) {
        for &pixel in pixels {
            for (bins, byte) in self.channel.iter_mut().zip(pixel) {
                bins[usize::from(byte)] += 1;
            }
        }
    }

    /// Counts only the smallest and the largest byte of each channel, for operators that need no
    /// more.
    pub fn add_extremes(&mut self, pixels: &[[u8; 3]]) {
        if pixels.is_empty() {
            return;
        }
        let mut extremes = [[255; 3], [0; 3]];
        Instructions::here().run(Extremes { extremes: &mut extremes, pixels });
        for pixel in extremes {
            self.add_channels(&[pixel]);
        }
    }

    /// Counts pixels in two bins of the gray histogram, so that the number of pixels and the sum of
    /// their gray values are correct. This is enough for operators that need only the mean.
    pub fn add_mean_gray(&mut self, pixels: &[[u8; 3]]) {
        let mut sum = 0;
        Instructions::here().run(SumOfGrays { sum: &mut sum, pixels });
        let count = pixels.len() as u64;
        let (mean, rest) = (sum / count.max(1), sum % count.max(1));
        self.gray[mean as usize] += (count - rest) as u32;
        if rest > 0 {
            self.gray[mean as usize + 1] += rest as u32;
        }
    }

    /// Counts pixels in the histogram of gray only.
    fn add_gray(&mut self, pixels: &[[u8; 3]]) {
        for pixel in pixels {
            self.gray[usize::from(luma(*pixel))] += 1;
        }
    }
}

/// Loop that finds the smallest and the largest byte of each channel.
struct Extremes<'a> {
    extremes: &'a mut [[u8; 3]; 2],
    pixels: &'a [[u8; 3]],
}

impl Loop for Extremes<'_> {
    #[inline(always)]
    fn run(self, _: impl Shuffles) {
        // A multiple of 3, so that each place in a block belongs to one channel.
        const BLOCK: usize = 3 * 64;
        let (mut low, mut high) = ([255; BLOCK], [0; BLOCK]);
        let (blocks, rest) = self.pixels.as_flattened().as_chunks::<BLOCK>();
        for block in blocks {
            for at in 0..BLOCK {
                low[at] = block[at].min(low[at]);
                high[at] = block[at].max(high[at]);
            }
        }
        let [smallest, largest] = self.extremes;
        for (at, byte) in low.iter().chain(rest).enumerate() {
            smallest[at % 3] = smallest[at % 3].min(*byte);
        }
        for (at, byte) in high.iter().chain(rest).enumerate() {
            largest[at % 3] = largest[at % 3].max(*byte);
        }
    }
}

struct SumOfGrays<'a> {
    sum: &'a mut u64,
    pixels: &'a [[u8; 3]],
}

impl Loop for SumOfGrays<'_> {
    #[inline(always)]
    fn run(self, shuffles: impl Shuffles) {
        let (blocks, rest) = self.pixels.as_chunks::<BLOCK>();
        for block in blocks {
            let gray = luma_of(&shuffles.apart(block));
            *self.sum += u64::from(gray.iter().map(|it| u32::from(*it)).sum::<u32>());
        }
        *self.sum += rest.iter().map(|pixel| u64::from(luma(*pixel))).sum::<u64>();
    }
}

/// ITU-R 601-2 luma with 16 fraction bits, rounded half up: Pillow's `convert("L")` (`Convert.c`).
///
/// The formula is `(19595 r + 38470 g + 7471 b + 0x8000) >> 16`. The upper and the lower bytes of
/// the factors are multiplied separately, so that no sum has more than 16 bits and a vector holds
/// twice as many numbers.
#[inline(always)]
pub fn luma(pixel: [u8; 3]) -> u8 {
    let [r, g, b] = [u16::from(pixel[0]), u16::from(pixel[1]), u16::from(pixel[2])];
    let low = (139 * r + 70 * g + 47 * b) >> 8;
    ((76 * r + 150 * g + 29 * b + low + 128) >> 8) as u8
}

/// [`luma`] of a block of pixels.
#[inline(always)]
pub fn luma_of([r, g, b]: &Planes) -> [u8; BLOCK] {
    let mut gray = [0; BLOCK];
    for at in 0..BLOCK {
        gray[at] = luma([r[at], g[at], b[at]]);
    }
    gray
}

/// Number of pixels in a histogram, and the sum of their byte values.
pub(in crate::op) fn count_and_sum(bins: &[u32; 256]) -> (u64, u64) {
    bins.iter().zip(0..).fold((0, 0), |(count, sum), (&pixels, byte)| {
        (count + u64::from(pixels), sum + byte * u64::from(pixels))
    })
}

/// Look-up table that changes nothing.
pub(in crate::op) fn identity() -> [u8; 256] {
    std::array::from_fn(|byte| byte as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn luma_is_that_of_32_bits() {
        for r in 0..=255 {
            for g in 0..=255 {
                for b in 0..=255 {
                    let [x, y, z] = [r, g, b].map(u32::from);
                    let luma_of_32_bits = (19595 * x + 38470 * y + 7471 * z + 0x8000) >> 16;
                    assert_eq!(u32::from(luma([r, g, b])), luma_of_32_bits, "{r} {g} {b}");
                }
            }
        }
    }

    #[test]
    fn parts_of_histograms_have_what_they_are_read_for() {
        for len in [0, 1, 63, 64, 65, 200, 1000] {
            let pixels: Vec<[u8; 3]> = (0..len)
                .map(|at| [0, 1, 2].map(|c: u32| (at * (7 + c) / 3 + 40 * c) as u8 / 2 + 20))
                .collect();
            let (mut all, mut some) = (Histograms::EMPTY, Histograms::EMPTY);
            all.add(&pixels);
            some.add_mean_gray(&pixels);
            assert_eq!(count_and_sum(&some.gray), count_and_sum(&all.gray), "{len}");
            some.add_extremes(&pixels);
            for (all, some) in all.channel.iter().zip(some.channel) {
                let ends = |bins: &[u32; 256]| {
                    let has = |bin: &u32| *bin > 0;
                    (bins.iter().position(has), bins.iter().rposition(has))
                };
                assert_eq!(ends(&some), ends(all), "{len}");
            }
        }
    }
}
