//! `sharpness`: blends the image with a smoothed one.

use bytemuck::{Pod, Zeroable};

use super::blend::blend;

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
