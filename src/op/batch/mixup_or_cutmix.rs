//! `mixup_or_cutmix`: mixes each pair by mixup or by CutMix.

use serde::{Deserialize, Serialize};

use super::cutmix::cut;
use super::mixup::mix;
use super::{BatchOperator, BuiltIn, PairDraw, check_alpha, check_probability};
use crate::op::FieldError;

/// Mixes each pair by [`Mixup`](super::Mixup) or by [`CutMix`](super::CutMix): timm's `Mixup` in
/// mode `pair`.
///
/// timm's mode `batch` draws once per batch, so samples depend on the batch size. feedwater does
/// not have this mode.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MixupOrCutMix {
    /// Parameter of mixup's Beta distribution, 0.001 to 1000: timm's `mixup_alpha`. Default 0.8.
    pub mixup_alpha: f64,
    /// Parameter of CutMix' Beta distribution, 0.001 to 1000: timm's `cutmix_alpha`. Default 1.
    pub cutmix_alpha: f64,
    /// Probability that a pair is mixed, 0 to 1: timm's `prob`. Default 1.
    pub probability: f64,
    /// Probability that a mixed pair is mixed by CutMix, 0 to 1: timm's `switch_prob`. Default 0.5.
    pub cutmix_probability: f64,
}

impl Default for MixupOrCutMix {
    fn default() -> Self {
        Self { mixup_alpha: 0.8, cutmix_alpha: 1.0, probability: 1.0, cutmix_probability: 0.5 }
    }
}

impl BatchOperator for MixupOrCutMix {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn draw(&self, draw: &mut PairDraw<'_>) {
        if !draw.rng().chance(self.probability) {
            return;
        }
        match draw.rng().chance(self.cutmix_probability) {
            true => cut(self.cutmix_alpha, draw),
            false => mix(self.mixup_alpha, draw),
        }
    }

    fn check(&self) -> Result<(), FieldError> {
        check_alpha("mixup_alpha", self.mixup_alpha)?;
        check_alpha("cutmix_alpha", self.cutmix_alpha)?;
        check_probability("probability", self.probability)?;
        check_probability("cutmix_probability", self.cutmix_probability)
    }
}

impl BuiltIn for MixupOrCutMix {
    const NAME: &'static str = "mixup_or_cutmix";
}
