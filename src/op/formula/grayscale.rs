//! `grayscale`: replaces each channel by the pixel's luma.

/// ITU-R 601-2 luma in 16 fraction bits, rounded half up: Pillow's `convert("L")` (`Convert.c`).
#[inline(always)]
pub fn luma([r, g, b]: [u8; 3]) -> u8 {
    ((19595 * u32::from(r) + 38470 * u32::from(g) + 7471 * u32::from(b) + 0x8000) >> 16) as u8
}

/// Three times the luma: torchvision's `rgb_to_grayscale` with three output channels on PIL images.
#[inline(always)]
pub fn pixel(pixel: [u8; 3]) -> [u8; 3] {
    [luma(pixel); 3]
}
