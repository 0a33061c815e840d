//! `gamma`: raises each channel to a power.

use serde::{Deserialize, Serialize};

use crate::op::settings::{check_number, check_pair, drawn, one_or_each};
use crate::op::{BuiltIn, Draw, FieldError, Kind, Kinds, Operator};

/// Raises each channel to a power, like torchvision's `adjust_gamma`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gamma {
    /// Exponent, 0 to 100. One number, or a range `[low, high]` from which the exponent is drawn
    /// uniformly.
    #[serde(deserialize_with = "one_or_each")]
    pub gamma: [f64; 2],
    /// Factor that multiplies the power, 0 to 1000. Default 1.
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
        let table = values(gamma, self.gain);
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

/// `255.999 * gain * (byte / 255)^gamma`, clamped to 0..=255 and truncated: torchvision's
/// `adjust_gamma` on PIL images.
fn value(gamma: f64, gain: f64, byte: u8) -> u8 {
    let power = libm::pow(f64::from(byte) / 255.0, gamma);
    ((255.0 + 1.0 - 1e-3) * gain * power) as u8
}

/// Computes [`value`] of every byte with few calls of `powf`. The power of a product is the product
/// of the powers, so only primes are raised to `gamma`. Because products are rounded, a result that
/// is close to an integer might be truncated to the wrong byte. Such a result is computed again by
/// [`value`].
fn values(gamma: f64, gain: f64) -> [u8; 256] {
    /// Results closer than this to an integer are computed again. The error of a result below 256
    /// is smaller: at most nine powers and products contribute to the error, each with at most
    /// 2^-52 of the result.
    const TOLERANCE: f64 = 1e-9;
    let unit = (255.0 + 1.0 - 1e-3) * gain * 255f64.powf(-gamma);
    let mut powers = [1.0; 256];
    let mut values = [0; 256];
    for byte in 0..256 {
        let factor = usize::from(SMALLEST_FACTORS[byte]);
        powers[byte] = match byte / factor.max(1) {
            1 => (byte as f64).powf(gamma),
            other => powers[factor] * powers[other],
        };
        let power = unit * powers[byte];
        let next = power.round();
        let is_sure = (power - next).abs() > TOLERANCE || next == 0.0 || next > 255.0;
        values[byte] =
            if byte > 0 && is_sure { power as u8 } else { value(gamma, gain, byte as u8) };
    }
    values
}

/// Smallest prime factor of each number from 2 to 255.
const SMALLEST_FACTORS: [u8; 256] = {
    let mut factors = [1; 256];
    let mut number = 2;
    while number < 256 {
        let mut factor = 2;
        while number % factor != 0 {
            factor += 1;
        }
        factors[number] = factor as u8;
        number += 1;
    }
    factors
};

fn unchanged() -> f64 {
    1.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{SampleKey, SampleRng};

    #[test]
    fn values_of_products_are_those_of_powers() {
        let mut rng = SampleRng::new(SampleKey::default(), 0);
        let drawn = std::iter::from_fn(|| Some((rng.between(0.0, 4.0), rng.between(0.5, 1.5))));
        let ends = [0.0, 0.5, 1.0, 2.0, 100.0]
            .into_iter()
            .flat_map(|gamma| [0.0, 0.25, 1.0, 1000.0].map(|gain| (gamma, gain)));
        for (gamma, gain) in ends.chain(drawn.take(2000)) {
            let values = values(gamma, gain);
            for (byte, found) in (0..=255).zip(values) {
                assert_eq!(found, value(gamma, gain, byte), "{byte} {gamma} {gain}");
            }
        }
    }
}
