//! `saturation`: blends each pixel with its gray.

use bytemuck::{Pod, Zeroable};

use super::blend::blend_pixel;
use super::grayscale;

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
