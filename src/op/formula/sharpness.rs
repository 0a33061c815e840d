//! `sharpness`: blends the image with a smoothed one.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

use crate::random::SampleRng;

use super::super::FieldError;
use super::super::settings::one_or_each;
use super::blend::MAX_FACTOR;
use super::blend::blend;
use super::{check_pair, drawn};

/// Blends the image with a smoothed one, like torchvision's `adjust_sharpness`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sharpness {
    /// 0 gives the smoothed image, 1 the image, 2 a sharpened one. One number, or `[low, high]`, from which it is drawn uniformly.
    #[serde(deserialize_with = "one_or_each")]
    pub factor: [f64; 2],
}

impl Sharpness {
    /// Draws the parameters of one sample.
    pub fn draw(&self, rng: &mut SampleRng) -> Params {
        Params { factor: drawn(self.factor, rng) as f32, padding: 0 }
    }

    /// Checks the range.
    pub fn check(&self) -> Result<(), FieldError> {
        check_pair("factor", self.factor, 0.0, MAX_FACTOR)
    }
}

/// Parameters of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Params {
    /// 0 gives the smoothed image, 1 the image, 2 a sharpened one.
    pub factor: f32,
    /// Always 0.
    pub padding: u32,
}

/// Blends the pixel in the middle of a 3x3 neighbourhood, given in row order, with the neighbourhood's weighted mean
/// (5 in the middle, 1 elsewhere, rounded): torchvision's `adjust_sharpness` on PIL images
/// (`ImageEnhance.Sharpness`). Pixels at the border of the image, and images of fewer than three rows or columns, are
/// unchanged.
#[inline(always)]
pub fn pixel(params: &Params, around: &[[u8; 3]; 9]) -> [u8; 3] {
    std::array::from_fn(|channel| {
        let sum: u32 = around.iter().map(|pixel| u32::from(pixel[channel])).sum();
        let middle = around[4][channel];
        // Thirteenths are never half-way between two integers, so Pillow's f32 gives the same.
        let smooth = (2 * (sum + 4 * u32::from(middle)) + 13) / 26;
        blend(smooth as u8, middle, params.factor)
    })
}
