//! Functions of a pixel, applied to rows.

use crate::tensor::CHANNELS;

use super::Loop;

/// Pixels of a block.
pub const BLOCK: usize = 64;

/// Pixels, next to each other.
pub type Pixels = [[u8; CHANNELS]; BLOCK];
/// The channels of as many pixels, apart.
pub type Planes = [[u8; BLOCK]; CHANNELS];

/// How the channels of pixels are taken apart and put together: with instructions that the CPU has. To be
/// `#[inline(always)]`.
pub trait Shuffles: Copy {
    /// Separates the channels.
    fn apart(self, pixels: &Pixels) -> Planes;

    /// Interleaves the channels.
    fn together(self, planes: &Planes) -> Pixels;
}

/// What the compiler makes of loops.
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

/// A function of pixels, whose channels it changes. Not a closure: those are not always inlined.
pub trait PixelMap {
    /// Changes a block. To be `#[inline(always)]`, as everything that it calls.
    fn change(&self, planes: &mut Planes);
}

/// A row, and the function that is applied to its pixels. Works on blocks of pixels with their channels apart, so that the
/// compiler can use vector instructions.
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
