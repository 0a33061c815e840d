//! `aug_mix`: torchvision's `AugMix` (`torchvision/transforms/v2/_auto_augment.py`).
//!
//! torchvision converts a PIL image to a tensor and applies the steps to the tensor. feedwater
//! applies the steps that torchvision has for PIL images, as in the other policies.

use crate::geometry::Size;
use crate::random::SampleRng;

use super::super::steps::{
    Drawn, Magnitudes, Operation, Space, TransformsVersion, drawn_from, normal, signed,
};

/// Operations of AugMix and their magnitudes. Without `all_ops`, only the first nine operations are
/// used.
pub const SPACE: &Space = &[
    (Operation::ShearX, Magnitudes::Signed(0.3)),
    (Operation::ShearY, Magnitudes::Signed(0.3)),
    (Operation::TranslateX, Magnitudes::Sides(|size| f64::from(size.width) / 3.0)),
    (Operation::TranslateY, Magnitudes::Sides(|size| f64::from(size.height) / 3.0)),
    (Operation::Rotate, Magnitudes::Signed(30.0)),
    (Operation::Posterize, Magnitudes::Bits(4.0, 4.0)),
    (Operation::Solarize, Magnitudes::Plain(1.0, 0.0)),
    (Operation::AutoContrast, Magnitudes::None),
    (Operation::Equalize, Magnitudes::None),
    (Operation::Brightness, Magnitudes::Signed(0.9)),
    (Operation::Color, Magnitudes::Signed(0.9)),
    (Operation::Contrast, Magnitudes::Signed(0.9)),
    (Operation::Sharpness, Magnitudes::Signed(0.9)),
];

/// Number of operations of [`SPACE`] that are used without `all_ops`.
pub const PARTIAL: usize = 9;

/// Number of magnitudes of each operation. With the severity `s`, the first `s` of them are used.
pub const BINS: u32 = 10;

/// Draws one step of a chain of operations. `severity` is 1 to 10 (default 3).
pub fn draw(
    severity: u32,
    all_ops: bool,
    version: TransformsVersion,
    size: Size,
    rng: &mut SampleRng,
) -> Drawn {
    let entry = drawn_from(if all_ops { SPACE } else { &SPACE[..PARTIAL] }, version, rng);
    let bin = match entry.1 {
        Magnitudes::None => 0,
        _ => rng.below(severity.into()) as u32,
    };
    signed(entry, (bin, BINS), size, rng)
}

/// Maximum number of operations of a chain if the user does not set the number.
pub const MOST_DEPTH: u32 = 3;

/// Draws the number of operations of a chain if the user does not set the number: 1 to
/// [`MOST_DEPTH`], all equally likely.
pub fn depth(rng: &mut SampleRng) -> u32 {
    1 + rng.below(MOST_DEPTH.into()) as u32
}

/// Maximum number of chains of operations whose results are mixed.
pub const MOST_WIDTH: usize = 16;

/// Draws the weight of the image and then the weights of the chains of operations. The sum of all
/// weights is 1. There are at most [`MOST_WIDTH`] chains, by default 3. `alpha` (default 1) is the
/// parameter of two Dirichlet distributions. One divides the weight between the image and all
/// chains together. The other divides the weight of all chains between the single chains.
pub fn put_weights(alpha: f64, weights: &mut [f32], rng: &mut SampleRng) {
    let [image, chains] = [gamma(alpha, rng), gamma(alpha, rng)];
    let mut gammas = [0.0; MOST_WIDTH];
    let gammas = &mut gammas[..weights.len() - 1];
    gammas.fill_with(|| gamma(alpha, rng));
    let (whole, sum) = (image + chains, gammas.iter().sum::<f64>());
    weights[0] = (image / whole) as f32;
    for (weight, it) in weights[1..].iter_mut().zip(gammas) {
        *weight = (*it / sum * (chains / whole)) as f32;
    }
}

/// Weighted sum of the byte of the image and the bytes of the chains' results, computed in f32 in
/// this order and truncated.
#[inline(always)]
pub fn mixed(weights: &[f32], bytes: impl IntoIterator<Item = u8>) -> u8 {
    let products = weights.iter().zip(bytes).map(|(weight, byte)| weight * f32::from(byte));
    products.fold(0.0, |sum, product| sum + product) as u8
}

/// Draws from a gamma distribution with this shape parameter (Marsaglia and Tsang, "A simple method
/// for generating gamma variables", 2000).
fn gamma(shape: f64, rng: &mut SampleRng) -> f64 {
    if shape < 1.0 {
        let uniform = 1.0 - rng.uniform();
        return gamma(shape + 1.0, rng) * libm::pow(uniform, 1.0 / shape);
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let normal = normal(rng);
        let v = 1.0 + c * normal;
        let v = v * v * v;
        let uniform = 1.0 - rng.uniform();
        if v > 0.0 && libm::log(uniform) < 0.5 * normal * normal + d - d * v + d * libm::log(v) {
            return d * v;
        }
    }
}
