//! Formulas that several operators or executors share: pure functions of parameters and pixels.
//!
//! Bytes are those of torchvision v2 on PIL images, or of the library that the operator's page names. A formula that
//! runs on the GPU has a twin in `kernels/`, equal bit for bit: only additions, multiplications, divisions, square roots
//! and conversions, which IEEE 754 rounds exactly. What is transcendental is computed on the host and is a parameter.
//! `tests/formulas/` compares both with the libraries and with each other.

pub mod affine;
pub mod blend;
pub mod box_blur;
pub mod elastic;
pub mod expression;
pub mod iou_crop;
pub mod jpeg;
pub mod letterbox;
pub mod noise;
pub mod pad;
pub mod perspective;
pub mod policy;
pub mod random_sizes;
pub mod rotate;
pub mod statistics;
pub mod thumbnail;
pub mod warp;

pub use statistics::{Histograms, luma};

/// A function of a pixel. Not a closure: those are not always inlined.
pub trait PixelMap {
    /// The function's value. To be `#[inline(always)]`, as everything that it calls.
    fn of(&self, pixel: [u8; 3]) -> [u8; 3];
}

/// Applies a function of a pixel to a row. Works on blocks of pixels with their channels apart, so that the compiler can
/// use vector instructions.
#[inline(always)]
pub fn map_row(pixels: &mut [[u8; 3]], map: &impl PixelMap) {
    const BLOCK: usize = 64;
    let (blocks, rest) = pixels.as_chunks_mut::<BLOCK>();
    let mut last = [[0; 3]; BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    for block in blocks.iter_mut().chain((!rest.is_empty()).then_some(&mut last)) {
        let [mut r, mut g, mut b] = [[0; BLOCK]; 3];
        for at in 0..BLOCK {
            [r[at], g[at], b[at]] = block[at];
        }
        for at in 0..BLOCK {
            [r[at], g[at], b[at]] = map.of([r[at], g[at], b[at]]);
        }
        for at in 0..BLOCK {
            block[at] = [r[at], g[at], b[at]];
        }
    }
    rest.copy_from_slice(&last[..rest.len()]);
}
