//! `equalize`: makes the bytes of each channel equally frequent.

use super::statistics::identity;
use super::{Histograms, Tables};

/// Maps a byte to the number of smaller bytes, in steps of (pixels - pixels of the largest byte) / 255: torchvision's
/// `equalize` on PIL images (`ImageOps.equalize`). A channel of one byte, or with a step of 0, is unchanged.
pub fn tables(histograms: &Histograms) -> Tables {
    histograms.channel.map(|bins| table(&bins))
}

fn table(bins: &[u32; 256]) -> [u8; 256] {
    let count: u64 = bins.iter().map(|&pixels| u64::from(pixels)).sum();
    let last = bins.iter().rev().find(|&&pixels| pixels > 0).map_or(0, |&pixels| u64::from(pixels));
    let step = (count - last) / 255;
    if step == 0 {
        return identity();
    }
    let mut below = step / 2;
    bins.map(|pixels| {
        let level = below / step;
        below += u64::from(pixels);
        level.min(255) as u8
    })
}
