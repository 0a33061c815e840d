//! `autocontrast`: stretches each channel to 0..=255.

use super::statistics::identity;
use super::{Histograms, Tables};

/// Maps the smallest byte of a channel to 0 and the largest to 255: torchvision's `autocontrast` on PIL images
/// (`ImageOps.autocontrast` without cutoff). A channel of one byte is unchanged.
pub fn tables(histograms: &Histograms) -> Tables {
    histograms.channel.map(|bins| table(&bins))
}

/// In f64 and truncated like Pillow's, whose rounding is visible where the exact value is an integer.
fn table(bins: &[u32; 256]) -> [u8; 256] {
    let low = bins.iter().position(|&pixels| pixels > 0).unwrap_or(255);
    let high = bins.iter().rposition(|&pixels| pixels > 0).unwrap_or(0);
    if high <= low {
        return identity();
    }
    let scale = 255.0 / (high - low) as f64;
    let offset = -(low as f64) * scale;
    std::array::from_fn(|byte| (byte as f64 * scale + offset) as u8)
}
