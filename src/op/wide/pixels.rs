//! Applies functions of a pixel to rows of pixels.

use crate::tensor::CHANNELS;

use super::Loop;

/// Number of pixels in a block.
pub const BLOCK: usize = 64;

/// A block of adjacent pixels.
pub type Pixels = [[u8; CHANNELS]; BLOCK];
/// The separated channels of a block of pixels.
pub type Planes = [[u8; BLOCK]; CHANNELS];

/// Separates and interleaves the channels of pixels with the instructions that the CPU has.
/// Implementations must be `#[inline(always)]`.
pub trait Shuffles: Copy {
    /// Separates the channels of a block of pixels.
    fn apart(self, pixels: &Pixels) -> Planes;

    /// Interleaves the channels of a block of pixels.
    fn together(self, planes: &Planes) -> Pixels;
}

/// Loops without special instructions. The compiler vectorizes them.
#[derive(Clone, Copy)]
pub struct Plain;

impl Shuffles for Plain {
    #[inline(always)]
    fn apart(self, pixels: &Pixels) -> Planes {
        let [mut r, mut g, mut b] = [[0; BLOCK]; CHANNELS];
        for at in 0..BLOCK {
            [r[at], g[at], b[at]] = pixels[at];
        }
        [r, g, b]
    }

    #[inline(always)]
    fn together(self, [r, g, b]: &Planes) -> Pixels {
        let mut pixels = [[0; CHANNELS]; BLOCK];
        for at in 0..BLOCK {
            pixels[at] = [r[at], g[at], b[at]];
        }
        pixels
    }
}

/// A function that changes the channels of pixels. It is a trait because closures are not always
/// inlined.
pub trait PixelMap {
    /// Changes a block of pixels. Implementations and everything that they call must be
    /// `#[inline(always)]`.
    fn change(&self, planes: &mut Planes);
}

/// Loop that applies a function to the pixels of a row. It separates the channels of each block of
/// pixels, so that the compiler can use vector instructions.
pub struct MapRow<'a, M> {
    /// Pixels of the row.
    pub row: &'a mut [[u8; CHANNELS]],
    /// Function applied to each block.
    pub map: &'a M,
}

impl<M: PixelMap> Loop for MapRow<'_, M> {
    #[inline(always)]
    fn run(self, shuffles: impl Shuffles) {
        let Self { row, map } = self;
        let (blocks, rest) = row.as_chunks_mut::<BLOCK>();
        let mut last = [[0; CHANNELS]; BLOCK];
        last[..rest.len()].copy_from_slice(rest);
        for block in blocks.iter_mut().chain((!rest.is_empty()).then_some(&mut last)) {
            let mut planes = shuffles.apart(block);
            map.change(&mut planes);
            *block = shuffles.together(&planes);
        }
        rest.copy_from_slice(&last[..rest.len()]);
    }
}
