//! `gaussian_noise`: adds normal noise to each channel of each pixel.

use bytemuck::{Pod, Zeroable};

use super::noise::{normal, words};

/// Parameters of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Params {
    /// Mean of the noise, in bytes.
    pub mean: f32,
    /// Deviation of the noise, in bytes, at most 2550.
    pub sigma: f32,
    /// Key of the sample's noise.
    pub key: [u32; 2],
}

impl Params {
    /// Parameters for a mean and a deviation on a scale of 0 to 1, as in torchvision.
    pub fn new(mean: f64, sigma: f64, key: [u32; 2]) -> Self {
        Self { mean: (mean * 255.0) as f32, sigma: (sigma * 255.0) as f32, key }
    }
}

/// Adds `mean + sigma * n`, truncated towards 0, and cuts to 0..=255: torchvision's `gaussian_noise` on tensors of
/// bytes, with `n` from [`normal`]. torchvision refuses PIL images.
#[inline(always)]
pub fn pixel(params: &Params, x: i32, y: i32, pixel: [u8; 3]) -> [u8; 3] {
    let words = words(params.key, x, y);
    std::array::from_fn(|channel| {
        let noise = params.mean + params.sigma * normal(words[channel]);
        (i32::from(pixel[channel]) + noise as i32).clamp(0, 255) as u8
    })
}
