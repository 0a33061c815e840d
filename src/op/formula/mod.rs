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
pub mod elastic;
pub mod equalize;
pub mod gamma;
pub mod gaussian_blur;
pub mod gaussian_noise;
pub mod grayscale;
pub mod grid_mask;
pub mod hue;
pub mod invert;
pub mod iou_crop;
pub mod letterbox;
pub mod lighting;
pub mod noise;
pub mod normalize_image;
pub mod pad;
pub mod perspective;
pub mod photometric_distort;
pub mod policy;
pub mod posterize;
pub mod random_erasing;
pub mod random_sizes;
pub mod rotate;
pub mod salt_and_pepper;
pub mod saturation;
pub mod sharpen;
pub mod sharpness;
pub mod solarize;
pub mod statistics;
pub mod thumbnail;
pub mod to_ycbcr;
pub mod warp;

pub use statistics::Histograms;

/// Three tables from byte to byte, one for each channel.
pub type Tables = [[u8; 256]; 3];

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
