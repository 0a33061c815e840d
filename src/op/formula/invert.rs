//! `invert`: the negative of the image.

/// `255 - byte`: torchvision's `invert` (`ImageOps.invert`).
pub fn byte(byte: u8) -> u8 {
    255 - byte
}
