//! `posterize`: keeps the leading bits of each channel.

/// Keeps the `bits` leading bits, 0 to 8: torchvision's `posterize` (`ImageOps.posterize`).
pub fn byte(bits: u32, byte: u8) -> u8 {
    byte & !((1u32 << (8 - bits.min(8))) - 1) as u8
}
