//! Histograms of an image, from which the statistics operators make their tables.

use bytemuck::{Pod, Zeroable};

use super::{PixelMap, map_row};
use crate::op::wide::{Instructions, Loop};

/// Number of pixels with each byte: in each channel, and in the image's gray version.
///
/// Twin: `struct Histograms { unsigned channel[3][256], gray[256]; }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Histograms {
    /// Red, green and blue.
    pub channel: [[u32; 256]; 3],
    /// Gray as [`luma`] computes it.
    pub gray: [u32; 256],
}

impl Histograms {
    /// Histograms of no pixels.
    pub const EMPTY: Self = Self { channel: [[0; 256]; 3], gray: [0; 256] };

    /// Counts pixels.
    pub fn add(&mut self, pixels: &[[u8; 3]]) {
        self.add_channels(pixels);
        self.add_gray(pixels);
    }

    /// Counts pixels by their channels only.
    pub fn add_channels(&mut self, pixels: &[[u8; 3]]) {
        for &pixel in pixels {
            for (bins, byte) in self.channel.iter_mut().zip(pixel) {
                bins[usize::from(byte)] += 1;
            }
        }
    }

    /// Counts pixels by their gray only.
    pub fn add_gray(&mut self, pixels: &[[u8; 3]]) {
        Instructions::here().run(Grays { bins: &mut self.gray, pixels });
    }
}

struct Grays<'a> {
    bins: &'a mut [u32; 256],
    pixels: &'a [[u8; 3]],
}

struct Gray;

impl PixelMap for Gray {
    #[inline(always)]
    fn of(&self, pixel: [u8; 3]) -> [u8; 3] {
        [luma(pixel); 3]
    }
}

impl Loop for Grays<'_> {
    #[inline(always)]
    fn run(self) {
        let mut block = [[0; 3]; 256];
        for pixels in self.pixels.chunks(block.len()) {
            let block = &mut block[..pixels.len()];
            block.copy_from_slice(pixels);
            map_row(block, &Gray);
            for [gray, _, _] in block {
                self.bins[usize::from(*gray)] += 1;
            }
        }
    }
}

/// ITU-R 601-2 luma in 16 fraction bits, rounded half up: Pillow's `convert("L")` (`Convert.c`).
#[inline(always)]
pub fn luma([r, g, b]: [u8; 3]) -> u8 {
    ((19595 * u32::from(r) + 38470 * u32::from(g) + 7471 * u32::from(b) + 0x8000) >> 16) as u8
}

/// Number of pixels of a histogram, and the sum of their bytes.
pub(in crate::op) fn count_and_sum(bins: &[u32; 256]) -> (u64, u64) {
    bins.iter().zip(0..).fold((0, 0), |(count, sum), (&pixels, byte)| {
        (count + u64::from(pixels), sum + byte * u64::from(pixels))
    })
}

/// The table that changes nothing.
pub(in crate::op) fn identity() -> [u8; 256] {
    std::array::from_fn(|byte| byte as u8)
}
