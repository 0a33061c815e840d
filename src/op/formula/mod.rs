//! Formulas of operators: pure functions of parameters and pixels.
//!
//! Bytes are those of torchvision v2 on PIL images, or of the library that the operator's page names. A formula that
//! runs on the GPU has a twin of its file's name in `kernels/`, equal bit for bit: only additions, multiplications,
//! divisions, square roots and conversions, which IEEE 754 rounds exactly. What is transcendental is computed on the
//! host and is a parameter. `tests/formulas/` compares both with the libraries and with each other.
//!
//! | kind | functions |
//! |---|---|
//! | table | `byte(params, byte)` for each channel by itself |
//! | colour | `pixel(params, rgb)` |
//! | statistics | `tables(params, histograms)`: a table for each channel |
//! | position | `pixel(params, x, y, rgb)` |
//! | stencil | `pixel(params, neighbourhood)`; pixels at the border of the image are unchanged |

use crate::random::SampleRng;

use super::FieldError;

pub mod affine;
pub mod autocontrast;
pub mod blend;
pub mod brightness;
pub mod channel_permutation;
pub mod color_jitter;
pub mod color_twist;
pub mod contrast;
pub mod cutout;
pub mod equalize;
pub mod gamma;
pub mod gaussian_blur;
pub mod gaussian_noise;
pub mod grayscale;
pub mod grid_mask;
pub mod hue;
pub mod invert;
pub mod lighting;
pub mod noise;
pub mod normalize_image;
pub mod perspective;
pub mod photometric_distort;
pub mod policy;
pub mod posterize;
pub mod random_erasing;
pub mod rotate;
pub mod salt_and_pepper;
pub mod saturation;
pub mod sharpen;
pub mod sharpness;
pub mod solarize;
pub mod statistics;
pub mod to_ycbcr;
pub mod warp;

pub use statistics::Histograms;

/// Three tables from byte to byte, one for each channel.
pub type Tables = [[u8; 256]; 3];

/// Applies a function of a pixel to a row. Works on 64 pixels at a time with their channels apart, so that the compiler
/// can use vector instructions.
#[inline(always)]
pub fn map_row(pixels: &mut [[u8; 3]], of: impl Fn([u8; 3]) -> [u8; 3]) {
    const LEN: usize = 64;
    let (blocks, rest) = pixels.as_chunks_mut::<LEN>();
    for block in blocks {
        let mut planes = [[0u8; LEN]; 3];
        for (at, pixel) in block.iter().enumerate() {
            for (plane, &byte) in planes.iter_mut().zip(pixel) {
                plane[at] = byte;
            }
        }
        let [r, g, b] = &mut planes;
        for at in 0..LEN {
            [r[at], g[at], b[at]] = of([r[at], g[at], b[at]]);
        }
        for (at, pixel) in block.iter_mut().enumerate() {
            *pixel = [r[at], g[at], b[at]];
        }
    }
    for pixel in rest {
        *pixel = of(*pixel);
    }
}

/// Draws a number from a range; none where both ends are equal.
fn drawn([low, high]: [f64; 2], rng: &mut SampleRng) -> f64 {
    if low == high { low } else { rng.between(low, high) }
}

/// Checks a number against `low..=high`.
fn check_number(field: &str, value: f64, low: f64, high: f64) -> Result<(), FieldError> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(FieldError::new(field, format!("must be a number from {low} to {high}, is {value}")))
}

/// Checks a range `[first, last]` with `low <= first <= last <= high`.
fn check_pair(field: &str, pair: [f64; 2], low: f64, high: f64) -> Result<(), FieldError> {
    let [first, last] = pair;
    if low <= first && first <= last && last <= high {
        return Ok(());
    }
    let problem =
        format!("must be [low, high] with {low} <= low <= high <= {high}, is [{first}, {last}]");
    Err(FieldError::new(field, problem))
}
