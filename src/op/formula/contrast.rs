//! `contrast`: blends the image with its mean gray.

use bytemuck::{Pod, Zeroable};

use super::blend::blend;
use super::statistics::count_and_sum;
use super::{Histograms, Tables};

/// Parameters of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Params {
    /// 0 gives the mean gray, 1 the image.
    pub factor: f32,
    /// Always 0.
    pub padding: u32,
}

/// Blends each byte with the mean of the gray image, rounded half up: torchvision's `adjust_contrast` on PIL images
/// (`ImageEnhance.Contrast`).
pub fn tables(params: &Params, histograms: &Histograms) -> Tables {
    let mean = mean(&histograms.gray);
    [std::array::from_fn(|byte| blend(mean, byte as u8, params.factor)); 3]
}

/// Mean of a histogram, rounded half up. Pillow's f64 gives the same, since the distance of a mean from any other
/// half is more than its error.
fn mean(bins: &[u32; 256]) -> u8 {
    let (count, sum) = count_and_sum(bins);
    ((2 * sum + count) / (2 * count).max(1)) as u8
}
