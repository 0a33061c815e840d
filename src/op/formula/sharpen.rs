//! `sharpen`: blends the image with Pillow's `SHARPEN` filter.

use bytemuck::{Pod, Zeroable};

use super::blend::blend;

/// Parameters of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Params {
    /// 0 gives the image, 1 the filtered one.
    pub amount: f32,
    /// Always 0.
    pub padding: u32,
}

/// Blends the pixel in the middle of a 3x3 neighbourhood, given in row order, with Pillow's `ImageFilter.SHARPEN`
/// (weights 32/16 in the middle, -2/16 elsewhere, rounded half up): `Image.blend(image, image.filter(SHARPEN),
/// amount)`. Pixels at the border of the image, and images of fewer than three rows or columns, are unchanged.
#[inline(always)]
pub fn pixel(params: &Params, around: &[[u8; 3]; 9]) -> [u8; 3] {
    std::array::from_fn(|channel| {
        let sum: i32 = around.iter().map(|pixel| i32::from(pixel[channel])).sum();
        let middle = around[4][channel];
        let sharp = (34 * i32::from(middle) - 2 * sum + 8) >> 4;
        blend(middle, sharp.clamp(0, 255) as u8, params.amount)
    })
}
