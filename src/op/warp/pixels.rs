//! Access to the pixels that a warp reads.

use crate::geometry::Roi;
use crate::image::Image;

/// Pixels of a window of an image, addressed by their coordinates in the whole image.
#[derive(Clone, Copy)]
pub struct Pixels<'a> {
    pixels: &'a [[u8; 3]],
    window: Roi,
}

impl<'a> Pixels<'a> {
    /// Pixels of an image.
    pub fn of(image: &'a Image<u8>) -> Self {
        Self { pixels: image.data().as_chunks().0, window: image.window() }
    }

    /// Index of the pixel `(x, y)` in the stored pixels.
    #[inline(always)]
    pub fn index(&self, x: i32, y: i32) -> usize {
        let (x, y) = (x - self.window.x as i32, y - self.window.y as i32);
        y as usize * self.window.width as usize + x as usize
    }

    /// Bytes of all stored pixels.
    #[inline(always)]
    pub fn bytes(&self) -> &'a [u8] {
        self.pixels.as_flattened()
    }

    /// Lower 32 bits of the index of the first byte of pixel `(x, y)`.
    #[inline(always)]
    pub fn byte(&self, x: i32, y: i32) -> u32 {
        let (x, y) = (x.wrapping_sub(self.window.x as i32), y.wrapping_sub(self.window.y as i32));
        (y as u32).wrapping_mul(3 * self.window.width).wrapping_add((x as u32).wrapping_mul(3))
    }

    /// The pixel `(x, y)`.
    #[inline(always)]
    pub fn at(&self, x: i32, y: i32) -> [u8; 3] {
        self.pixels[self.index(x, y)]
    }

    /// The pixel `(x, y)` and all pixels that are stored after it.
    pub fn from(&self, x: i32, y: i32) -> &'a [[u8; 3]] {
        &self.pixels[self.index(x, y)..]
    }
}
