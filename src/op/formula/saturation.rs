//! `saturation`: blends each pixel with its gray.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

use crate::random::SampleRng;

use super::super::FieldError;
use super::super::settings::one_or_each;
use super::blend::MAX_FACTOR;
use super::blend::blend_pixel;
use super::grayscale;
use super::{check_pair, drawn};

/// Blends each pixel with its gray, like torchvision's `adjust_saturation`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saturation {
    /// 0 gives the gray image, 1 the image. One number, or `[low, high]`, from which it is drawn uniformly.
    #[serde(deserialize_with = "one_or_each")]
    pub factor: [f64; 2],
}

impl Saturation {
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
    /// 0 gives the gray image, 1 the image.
    pub factor: f32,
    /// Always 0.
    pub padding: u32,
}

/// Blends each channel with the pixel's luma: torchvision's `adjust_saturation` on PIL images (`ImageEnhance.Color`).
#[inline(always)]
pub fn pixel(params: &Params, pixel: [u8; 3]) -> [u8; 3] {
    blend_pixel(grayscale::pixel(pixel), pixel, params.factor)
}
