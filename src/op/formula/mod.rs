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

/// Applies a function of a pixel to a row. Works on 64 pixels at a time with their channels apart, so that the compiler
/// can use vector instructions.
#[inline(always)]
pub fn map_row(pixels: &mut [[u8; 3]], of: impl Fn([u8; 3]) -> [u8; 3]) {
    const LEN: usize = 64;
    let (blocks, rest) = pixels.as_chunks_mut::<LEN>();
    for block in blocks {
        let [mut r, mut g, mut b] = [[0; LEN]; 3];
        for at in 0..LEN {
            [r[at], g[at], b[at]] = block[at];
        }
        for at in 0..LEN {
            [r[at], g[at], b[at]] = of([r[at], g[at], b[at]]);
        }
        for at in 0..LEN {
            block[at] = [r[at], g[at], b[at]];
        }
    }
    for pixel in rest {
        *pixel = of(*pixel);
    }
}

/// Integer part of a number from 0 to 255. A cast would be the same, but compilers make no vector instructions of it.
#[inline(always)]
pub fn truncated(value: f32) -> i32 {
    // At this size f32 has no fraction bits: the addition rounds.
    const ROUNDS: f32 = 8_388_608.0;
    let rounded = ((value + ROUNDS).to_bits() & 0x1ff) as i32;
    rounded - i32::from(rounded as f32 > value)
}
