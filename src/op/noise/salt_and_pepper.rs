//! `salt_and_pepper`: turns single pixels white or black.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

use crate::op::kind::PositionFormula;
use crate::op::settings::check_number;
use crate::op::shared::noise::{key, words};
use crate::op::{BuiltIn, Cuda, Draw, FieldError, Kind, Kinds, Operator};

/// Turns single pixels white or black, like DALI's `noise.salt_and_pepper`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SaltAndPepper {
    /// Probability that a pixel changes, 0 to 1. Default 0.05.
    pub probability: f64,
    /// Probability that a changed pixel is white, 0 to 1. Default 0.5.
    pub salt_vs_pepper: f64,
    /// Whether each channel changes independently. Default: false, all channels of a pixel change
    /// together.
    pub per_channel: bool,
}

impl Default for SaltAndPepper {
    fn default() -> Self {
        Self { probability: 0.05, salt_vs_pepper: 0.5, per_channel: false }
    }
}

impl Operator for SaltAndPepper {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::position::<Self>()])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let key = key(draw.rng());
        draw.position::<Self>(&Params::new(
            self.probability,
            self.salt_vs_pepper,
            self.per_channel && draw.channels() > 1,
            key,
        ));
    }

    fn check(&self) -> Result<(), FieldError> {
        check_number("probability", self.probability, 0.0, 1.0)?;
        check_number("salt_vs_pepper", self.salt_vs_pepper, 0.0, 1.0)
    }
}

impl BuiltIn for SaltAndPepper {
    const NAME: &'static str = "salt_and_pepper";

    fn examples() -> Vec<Self> {
        vec![
            Self::default(),
            Self { probability: 0.5, salt_vs_pepper: 0.1, per_channel: true },
            Self { probability: 1.0, ..Self::default() },
            Self { probability: 0.0, ..Self::default() },
        ]
    }
}

impl PositionFormula for SaltAndPepper {
    type Params = Params;
    const CUDA: Option<Cuda> =
        Some(Cuda::new("SaltAndPepper", include_str!("../../../kernels/salt_and_pepper.cu")));

    /// Returns 255 with the probability `probability * salt_vs_pepper`, 0 with the probability
    /// `probability * (1 - salt_vs_pepper)`, and else the unchanged byte: DALI's
    /// `noise.salt_and_pepper`.
    #[inline(always)]
    fn bytes(params: &Params, x: i32, y: i32, pixel: [u8; 3]) -> [u8; 3] {
        let words = words(params.key, x, y);
        // Selects with bit operations, because compilers can vectorize them.
        let each = 0u32.wrapping_sub(params.per_channel);
        std::array::from_fn(|channel| {
            let word = u64::from(words[0] ^ (words[0] ^ words[channel]) & each);
            let byte = if word < params.noise { 0 } else { pixel[channel] };
            if word < params.salt { 255 } else { byte }
        })
    }
}

/// Parameters of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable, Serialize)]
#[repr(C)]
pub struct Params {
    /// Random words below this number make the value white.
    pub salt: u64,
    /// Random words that are below this number, but not below `salt`, make the value black.
    pub noise: u64,
    /// Key of the random numbers for the sample's noise.
    pub key: [u32; 2],
    /// 1 if each channel has its own random word, 0 if all channels of a pixel share one.
    pub per_channel: u32,
    /// Always 0.
    #[serde(skip)]
    pub padding: u32,
}

impl Params {
    /// Parameters for the probability `prob` that a value changes, and the probability
    /// `salt_vs_pepper` that a changed value is white. Both are from 0 to 1, as in DALI.
    pub fn new(prob: f64, salt_vs_pepper: f64, per_channel: bool, key: [u32; 2]) -> Self {
        let words = |share: f64| (share * (1u64 << 32) as f64) as u64;
        let (salt, noise) = (words(prob * salt_vs_pepper), words(prob));
        Self { salt, noise, key, per_channel: per_channel.into(), padding: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_white_and_black_are_those_asked_for() {
        const PIXELS: i32 = 100_000;
        for (prob, white, per_channel) in [(0.05, 0.5, false), (0.3, 0.2, true), (1.0, 0.9, false)]
        {
            let params = Params::new(prob, white, per_channel, [3, 4]);
            let mut counts = [[0; 2]; 3];
            let mut whole = 0;
            for at in 0..PIXELS {
                let out = SaltAndPepper::bytes(&params, at % 300, at / 300, [100; 3]);
                whole += i32::from(out == [out[0]; 3]);
                for (counts, byte) in counts.iter_mut().zip(out) {
                    counts[0] += i32::from(byte == 255);
                    counts[1] += i32::from(byte == 0);
                }
            }
            assert_eq!(whole == PIXELS, !per_channel);
            for counts in counts {
                for (count, share) in counts.into_iter().zip([prob * white, prob * (1.0 - white)]) {
                    let expected = f64::from(PIXELS) * share;
                    let off = (f64::from(count) - expected).abs();
                    assert!(off <= 4.0 * (expected * (1.0 - share)).sqrt(), "{count} {expected}");
                }
            }
        }
    }

    #[test]
    fn probabilities_of_0_and_1_are_exact() {
        let none = Params::new(0.0, 0.5, true, [1, 2]);
        let all = Params::new(1.0, 1.0, true, [1, 2]);
        for x in 0..10_000 {
            assert_eq!(SaltAndPepper::bytes(&none, x, 0, [1, 2, 3]), [1, 2, 3]);
            assert_eq!(SaltAndPepper::bytes(&all, x, 0, [1, 2, 3]), [255; 3]);
        }
    }
}
