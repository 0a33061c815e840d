//! Conversion of CMYK pixels to RGB.

use crate::tensor::CHANNELS;

/// Converts inverted CMYK pixels to RGB in place: pixel `i` of four bytes becomes pixel `i` of
/// three bytes. Adobe's convention is inverted CMYK, and Pillow assumes it for all CMYK JPEGs. The
/// formula is Pillow's `cmyk2rgb` (Convert.c).
pub fn to_rgb(pixels: &mut [u8]) {
    for index in 0..pixels.len() / 4 {
        let [c, m, y, k] = [0, 1, 2, 3].map(|ink| 255 - i32::from(pixels[4 * index + ink]));
        let white = 255 - k;
        for (channel, ink) in [c, m, y].into_iter().enumerate() {
            let product = ink * white + 128;
            let value = white - ((product + (product >> 8)) >> 8);
            pixels[CHANNELS * index + channel] = value.clamp(0, 255) as u8;
        }
    }
}
