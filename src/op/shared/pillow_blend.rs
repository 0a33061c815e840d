//! Pillow's `Image.blend`, the last step of brightness, contrast, saturation and sharpness.

use crate::op::wide::truncated;

/// Largest factor of a blend in settings. Pillow has no limit. From 255 on, every byte becomes 0 or
/// 255, or is unchanged.
pub const MAX_FACTOR: f64 = 1e6;

/// `from + factor * (to - from)` in f32, clamped to 0..=255 and truncated, as in Pillow's
/// `Blend.c`. `factor` must be finite.
#[inline(always)]
pub fn blend(from: u8, to: u8, factor: f32) -> u8 {
    let (from, to) = (f32::from(from), f32::from(to));
    truncated(from + factor * (to - from)) as u8
}

/// Blends each channel of a pixel.
#[inline(always)]
pub fn blend_pixel(from: [u8; 3], to: [u8; 3], factor: f32) -> [u8; 3] {
    // `from_fn` is not used, because it is not always inlined.
    [blend(from[0], to[0], factor), blend(from[1], to[1], factor), blend(from[2], to[2], factor)]
}
