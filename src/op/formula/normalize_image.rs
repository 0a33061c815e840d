//! `normalize_image`: subtracts the image's own mean and divides by its own deviation.

use bytemuck::{Pod, Zeroable};

use super::Histograms;

/// Parameters of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Params {
    /// 1 for the mean and deviation of each channel, 0 for those of all values.
    pub per_channel: u32,
    /// Always 0.
    pub padding: u32,
}

/// Added to the deviation, in bytes, so that an image of one colour gives 0.
const EPSILON: f64 = 1e-4;

/// Largest magnitude of a result.
const LIMIT: f64 = 20.0;

/// `(byte - mean) / (deviation + 1e-4)`, cut to -20..=20: Albumentations' `Normalize(normalization="image")` and
/// `"image_per_channel"` (`albucore/functions.py`). Statistics and result are computed in f64 and rounded once.
pub fn tables(params: &Params, histograms: &Histograms) -> [[f32; 256]; 3] {
    let [r, g, b] = &histograms.channel;
    let all =
        || std::array::from_fn(|byte| [r, g, b].map(|bins| u64::from(bins[byte])).iter().sum());
    histograms
        .channel
        .map(|bins| table(&if params.per_channel == 1 { bins.map(u64::from) } else { all() }))
}

fn table(bins: &[u64; 256]) -> [f32; 256] {
    let (mut count, mut sum) = (0, 0);
    for (pixels, byte) in bins.iter().zip(0..) {
        count += pixels;
        sum += byte * pixels;
    }
    let count = count.max(1) as f64;
    let mean = sum as f64 / count;
    let mut squares = 0.0;
    for (byte, &pixels) in bins.iter().enumerate() {
        let distance = byte as f64 - mean;
        squares += pixels as f64 * (distance * distance);
    }
    let deviation = (squares / count).sqrt() + EPSILON;
    std::array::from_fn(|byte| ((byte as f64 - mean) / deviation).clamp(-LIMIT, LIMIT) as f32)
}
