//! `solarize`: inverts bytes from a threshold on.

/// `255 - byte` if `byte >= threshold`: torchvision's `solarize` (`ImageOps.solarize`). The threshold may be a
/// fraction, as RandAugment's is.
pub fn byte(threshold: f64, byte: u8) -> u8 {
    if f64::from(byte) < threshold { byte } else { 255 - byte }
}
