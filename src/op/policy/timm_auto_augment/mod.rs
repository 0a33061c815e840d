//! `timm_auto_augment`: timm's AutoAugment policies and 3-Augment, configured by a text.

use serde::{Deserialize, Serialize};

use crate::op::settings::{equal_values, one_or_each};
use crate::op::{BuiltIn, Draw, FieldError, Interpolation, Kinds, Operator};

use super::apply::{self, Warping};
use formula::AutoAugment;

pub mod formula;

/// Applies operations that a text of timm 1.0 selects, such as `original-mstd0.5`. The operations,
/// magnitudes and distributions are those of `auto_augment_transform` in
/// `timm/data/auto_augment.py`.
///
/// The text begins with the policy. `v0` (EfficientNet) and `original` (the paper of AutoAugment)
/// apply one of 25 pairs of operations to each image. `v0r` and `originalr` do the same, but
/// posterizing becomes stronger with the magnitude. `3a` applies one of the three operations of
/// DeiT III. The section `mstd` is the standard deviation of the magnitude (default 0).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimmAutoAugment {
    /// Text that configures the policy as in timm, such as `original-mstd0.5`.
    pub config: String,
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

impl TimmAutoAugment {
    /// The policy of this text, with timm's defaults.
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

    fn channels(&self, input: usize) -> Result<usize, String> {
        equal_values(Self::NAME, "fill", self.fill, input)
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
