//! `lighting`: AlexNet's noise along the principal components of natural colours.

use crate::random::SampleRng;

use super::noise::normal;

/// Parameters of one sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// Added to each channel, in bytes.
    pub shift: [f64; 3],
}

/// Square roots of the covariance's eigenvalues for pixels of ImageNet between 0 and 1 (`Lighting` of
/// fb.resnet.torch, `datasets/transforms.lua`).
const EIGENVALUES: [f64; 3] = [0.2175, 0.0188, 0.0045];

/// Eigenvectors, one per column.
const EIGENVECTORS: [[f64; 3]; 3] =
    [[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]];

impl Params {
    /// Shift for three normal numbers, already multiplied by their deviation.
    pub fn new(alphas: [f64; 3]) -> Self {
        let amounts: [f64; 3] = std::array::from_fn(|at| alphas[at] * EIGENVALUES[at]);
        let shift = EIGENVECTORS
            .map(|row| 255.0 * (row[0] * amounts[0] + row[1] * amounts[1] + row[2] * amounts[2]));
        Self { shift }
    }

    /// Draws the three normal numbers with the deviation `std`; AlexNet's is 0.1 (Krizhevsky, Sutskever and Hinton,
    /// "ImageNet classification with deep convolutional neural networks", 2012, section 4.1).
    pub fn draw(std: f64, rng: &mut SampleRng) -> Self {
        Self::new(std::array::from_fn(|_| std * f64::from(normal(rng.bits()))))
    }
}

/// `byte + shift[channel]`, rounded and cut to 0..=255.
pub fn byte(params: &Params, channel: usize, byte: u8) -> u8 {
    (f64::from(byte) + params.shift[channel] + 0.5) as u8
}
