//! `gamma`: raises each channel to a power.
use super::super::FieldError;
use super::super::settings::one_or_each;
use super::{check_number, check_pair, drawn};
use crate::random::SampleRng;
use serde::{Deserialize, Serialize};

/// Raises each channel to a power, like torchvision's `adjust_gamma`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gamma {
    /// Exponent, 0 to 100. One number, or `[low, high]`, from which it is drawn uniformly.
    #[serde(deserialize_with = "one_or_each")]
    pub gamma: [f64; 2],
    /// Factor, 0 to 1000. Default 1.
    #[serde(default = "unchanged")]
    pub gain: f64,
}

impl Gamma {
    /// Draws the parameters of one sample.
    pub fn draw(&self, rng: &mut SampleRng) -> Params {
        Params { gamma: drawn(self.gamma, rng), gain: self.gain }
    }

    /// Checks the numbers.
    pub fn check(&self) -> Result<(), FieldError> {
        check_pair("gamma", self.gamma, 0.0, 100.0)?;
        check_number("gain", self.gain, 0.0, 1000.0)
    }
}

fn unchanged() -> f64 {
    1.0
}

/// Parameters of one sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// Exponent, at least 0.
    pub gamma: f64,
    /// Factor, at least 0.
    pub gain: f64,
}

/// `255.999 * gain * (byte / 255)^gamma`, truncated and cut to 0..=255: torchvision's `adjust_gamma` on PIL images.
pub fn byte(params: &Params, byte: u8) -> u8 {
    let power = libm::pow(f64::from(byte) / 255.0, params.gamma);
    ((255.0 + 1.0 - 1e-3) * params.gain * power) as u8
}
