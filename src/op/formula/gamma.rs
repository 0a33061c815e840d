//! `gamma`: raises each channel to a power.

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
