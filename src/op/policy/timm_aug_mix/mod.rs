//! `timm_aug_mix`: timm's weighted sum of several augmented images, configured by a text.

use serde::{Deserialize, Serialize};

use crate::op::settings::{check_number, equal_values, one_or_each};
use crate::op::{BuiltIn, Draw, FieldError, Interpolation, Kind, Kinds, Operator};

use super::apply::{self, Warping};
use super::aug_mix::formula as aug_mix;
use formula::{AugMix, OPERATIONS};

pub mod formula;

/// Mixes the image with the results of several chains of random operations, configured by a text of
/// timm 1.0 such as `augmix-m5-w4-d2`. The operations, magnitudes and distributions are those of
/// `augment_and_mix_transform` in `timm/data/auto_augment.py`.
///
/// Sections of the text: `m` magnitude (default 3), `w` number of chains of operations (3), `d`
/// number of operations of each chain (1 to 3, drawn), `a` parameter of the distributions of the
/// weights (1), `mstd` standard deviation of the magnitude. Without `mstd`, the magnitude is
/// uniform from 0 to `m`. The weighted sum is rounded once. timm rounds the sum of the chains
/// before it adds the image, so pixels may differ from timm's by one level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimmAugMix {
    /// Text that configures the policy as in timm, such as `augmix-m5-w4-d2`.
    pub config: String,
    /// Largest translation at magnitude 10, as a fraction of the side, 0 to 1. Default 0.45. timm's
    /// `create_transform` uses 0.3.
    #[serde(default = "default_translate")]
    pub translate: f64,
    /// Interpolation between pixels. Default: bilinear or bicubic, drawn for each operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interpolation: Option<Interpolation>,
    /// Red, green and blue of pixels that an operation leaves empty. timm uses the mean of the
    /// data. In TOML, one number sets all three. Default 128.
    #[serde(default = "gray", deserialize_with = "one_or_each")]
    pub fill: [u8; 3],
}

fn gray() -> [u8; 3] {
    [128; 3]
}

fn default_translate() -> f64 {
    0.45
}

impl TimmAugMix {
    /// The policy of this text, with timm's defaults.
    pub fn of(config: &str) -> Self {
        let translate = default_translate();
        Self { config: config.to_string(), translate, interpolation: None, fill: gray() }
    }

    fn policy(&self) -> Result<AugMix, FieldError> {
        let wrong = |section: String| {
            let problem = format!(
                "is {:?}, but timm's AugMix has no section {section:?}, or the value of this \
                 section is out of range",
                self.config
            );
            FieldError::new("config", problem)
        };
        AugMix::parse(&self.config, self.translate).map_err(wrong)
    }
}

impl Operator for TimmAugMix {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        let most = self.policy().map_or(0, |policy| {
            let depth = policy.depth.unwrap_or(aug_mix::MOST_DEPTH);
            policy.width * (depth + 1) + 1
        });
        let mut kinds = apply::kinds(0, false).list().to_vec();
        kinds.push(Kind::Mix);
        Kinds::up_to(most as usize, kinds)
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let Ok(policy) = self.policy() else { return };
        let mut weights = [0.0; 1 + aug_mix::MOST_WIDTH];
        let weights = &mut weights[..=policy.width as usize];
        aug_mix::put_weights(policy.alpha, weights, draw.rng());
        let size = draw.size();
        draw.mix(weights, |draw| {
            let depth = policy.depth.unwrap_or_else(|| aug_mix::depth(draw.rng()));
            for _ in 0..depth {
                let place = draw.rng().below(OPERATIONS.len() as u64) as usize;
                let step = policy.strength.draw(OPERATIONS[place], size, draw.rng());
                let interpolation = apply::interpolation(self.interpolation, draw);
                apply::draw(draw, step, Warping { interpolation, fill: self.fill });
            }
        });
    }

    fn check(&self) -> Result<(), FieldError> {
        check_number("translate", self.translate, 0.0, 1.0)?;
        self.policy().map(|_| ())
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        equal_values(Self::NAME, "fill", self.fill, input)
    }
}

impl BuiltIn for TimmAugMix {
    const NAME: &'static str = "timm_aug_mix";

    fn examples() -> Vec<Self> {
        let fixed = Some(Interpolation::Bilinear);
        vec![
            Self::of("augmix"),
            Self { translate: 0.3, interpolation: fixed, ..Self::of("augmix-m5-w4-d2-mstd0.5") },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_section_is_named() {
        let error = TimmAugMix::of("augmix-q3").check().unwrap_err();
        assert_eq!(error.field, "config");
        assert!(error.problem.contains("\"q3\""), "{}", error.problem);
        let op = TimmAugMix { translate: 2.0, ..TimmAugMix::of("augmix") };
        assert_eq!(op.check().unwrap_err().field, "translate");
        assert_eq!(TimmAugMix::of("augmix-m5-w4-d2").check(), Ok(()));
    }
}
