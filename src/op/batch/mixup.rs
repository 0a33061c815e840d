//! `mixup`: weighted sums of two images and of their targets.

use serde::{Deserialize, Serialize};

use super::beta::beta;
use super::{BatchOperator, BuiltIn, PairDraw, check_alpha, check_probability};
use crate::op::FieldError;

/// Replaces each sample of a pair by `l * own + (1 - l) * other`. `own` is this sample, `other` is
/// the other sample of the pair, and `l` is drawn from Beta(`alpha`, `alpha`). Targets are replaced
/// in the same way. This is mixup (Zhang et al., ICLR 2018), like timm's `Mixup` in mode `pair`.
/// torchvision's `MixUp` draws one `l` for the whole batch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mixup {
    /// Parameter of the Beta distribution, 0.001 to 1000. Default 1, the uniform distribution.
    pub alpha: f64,
    /// Probability that a pair is mixed, 0 to 1. Default 1.
    pub probability: f64,
}

impl Mixup {
    /// Mixes every pair, with this parameter of the Beta distribution.
    pub fn alpha(alpha: f64) -> Self {
        Self { alpha, ..Self::default() }
    }
}

impl Default for Mixup {
    fn default() -> Self {
        Self { alpha: 1.0, probability: 1.0 }
    }
}

impl BatchOperator for Mixup {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn draw(&self, draw: &mut PairDraw<'_>) {
        if draw.rng().chance(self.probability) {
            mix(self.alpha, draw);
        }
    }

    fn check(&self) -> Result<(), FieldError> {
        check_alpha("alpha", self.alpha)?;
        check_probability("probability", self.probability)
    }
}

impl BuiltIn for Mixup {
    const NAME: &'static str = "mixup";
}

/// Mixes both samples of the pair.
pub(super) fn mix(alpha: f64, draw: &mut PairDraw<'_>) {
    let weight = beta(alpha, draw.rng()) as f32;
    draw.blend(draw.size().window(), weight, weight);
}
