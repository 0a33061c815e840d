//! `timm_auto_augment`: timm's policies that were found by search, and 3-Augment, by their text.

use serde::{Deserialize, Serialize};

use crate::op::settings::one_or_each;
use crate::op::{BuiltIn, Draw, FieldError, Interpolation, Kinds, Operator};

use super::apply::{self, Warping};
use formula::AutoAugment;

pub mod formula;

/// Applies operations by a text of timm 1.0, such as `original-mstd0.5`: `auto_augment_transform` of
/// `timm/data/auto_augment.py`, whose operations, magnitudes and distributions it has.
///
/// The text begins with the policy: `v0` (EfficientNet), `original` (the paper), `v0r` and `originalr` (the same, where
/// posterizing becomes stronger with the magnitude), each one of 25 pairs per image, or `3a`, one of the three operations of
/// DeiT III. `mstd` is the standard deviation of the magnitude (0).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimmAutoAugment {
    /// The text.
    pub config: String,
    /// Interpolation between pixels. Default: bilinear or bicubic, drawn for each operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interpolation: Option<Interpolation>,
    /// Red, green and blue of what becomes empty: in timm the mean of the data. In TOML also one number for all.
    /// Default 128.
    #[serde(default = "gray", deserialize_with = "one_or_each")]
    pub fill: [u8; 3],
}

fn gray() -> [u8; 3] {
    [128; 3]
}

impl TimmAutoAugment {
    /// The policy of a text, with timm's defaults.
    pub fn of(config: &str) -> Self {
        Self { config: config.to_string(), interpolation: None, fill: gray() }
    }

    fn policy(&self) -> Result<AutoAugment, FieldError> {
        let wrong = |part: String| {
            let problem =
                format!("is {:?}, but timm's AutoAugment has no part {part:?}", self.config);
            FieldError::new("config", problem)
        };
        AutoAugment::parse(&self.config).map_err(wrong)
    }
}

impl Operator for TimmAutoAugment {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        match self.policy() {
            Ok(policy) => apply::kinds(policy.layers(), policy.blurs()),
            Err(_) => apply::kinds(0, false),
        }
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let Ok(policy) = self.policy() else { return };
        let size = draw.size();
        for entry in policy.draw_entries(draw.rng()).into_iter().flatten() {
            let step = policy.draw(entry, size, draw.rng());
            let interpolation = apply::interpolation(self.interpolation, draw);
            apply::draw(draw, step, Warping { interpolation, fill: self.fill });
        }
    }

    fn check(&self) -> Result<(), FieldError> {
        self.policy().map(|_| ())
    }
}

impl BuiltIn for TimmAutoAugment {
    const NAME: &'static str = "timm_auto_augment";

    fn examples() -> Vec<Self> {
        let fixed = Some(Interpolation::Bicubic);
        vec![
            Self::of("original-mstd0.5"),
            Self { interpolation: fixed, fill: [1, 2, 3], ..Self::of("v0r") },
            Self::of("3a"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_part_is_named() {
        let error = TimmAutoAugment::of("v0-q3").check().unwrap_err();
        assert_eq!(error.field, "config");
        assert!(error.problem.contains("\"q3\""), "{}", error.problem);
        assert_eq!(TimmAutoAugment::of("originalr-mstd0.5").check(), Ok(()));
    }
}
