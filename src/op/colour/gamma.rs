//! `gamma`: raises each channel to a power.

use serde::{Deserialize, Serialize};

use crate::op::settings::{check_number, check_pair, drawn, one_or_each};
use crate::op::{BuiltIn, Draw, FieldError, Kind, Kinds, Operator};

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

impl Operator for Gamma {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::Table])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let gamma = drawn(self.gamma, draw.rng());
        draw.note("Gamma", &[("gamma", &[gamma]), ("gain", &[self.gain])]);
        // Powers take time, so not once for each channel.
        let table: [u8; 256] = std::array::from_fn(|byte| value(gamma, self.gain, byte as u8));
        draw.table(|_, byte| table[usize::from(byte)]);
    }

    fn check(&self) -> Result<(), FieldError> {
        check_pair("gamma", self.gamma, 0.0, 100.0)?;
        check_number("gain", self.gain, 0.0, 1000.0)
    }
}

impl BuiltIn for Gamma {
    const NAME: &'static str = "gamma";

    fn examples() -> Vec<Self> {
        [[0.5; 2], [1.0; 2], [0.0, 3.0]].map(|gamma| Self { gamma, gain: 1.1 }).to_vec()
    }
}

/// `255.999 * gain * (byte / 255)^gamma`, truncated and cut to 0..=255: torchvision's `adjust_gamma` on PIL images.
fn value(gamma: f64, gain: f64, byte: u8) -> u8 {
    let power = libm::pow(f64::from(byte) / 255.0, gamma);
    ((255.0 + 1.0 - 1e-3) * gain * power) as u8
}

fn unchanged() -> f64 {
    1.0
}
