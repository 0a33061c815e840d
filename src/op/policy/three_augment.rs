//! `three_augment`: makes each image gray, solarized or blurred.

use serde::{Deserialize, Serialize};

use crate::op::{BuiltIn, Draw, Interpolation, Kinds, Operator};
use crate::random::SampleRng;

use super::apply::{self, Warping};
use super::steps::PolicyStep;

/// Makes each image gray, solarized from 128 on, or blurred with a radius of 0.1 to 2 pixels, with
/// equal probability: 3-Augment of DeiT III (`augment.py` of facebookresearch/deit). The recipe of
/// DeiT III continues with `color_jitter` of 0.3.
///
/// The blur is Pillow's `ImageFilter.GaussianBlur`, which approximates a Gaussian by three box
/// filters along each axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreeAugment {}

impl Operator for ThreeAugment {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        apply::kinds(1, true)
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let step = draw_step(draw.rng());
        // No step warps, so these values are not used.
        let warping = Warping { interpolation: Interpolation::Nearest, fill: [0; 3] };
        apply::draw(draw, step, warping);
    }
}

impl BuiltIn for ThreeAugment {
    const NAME: &'static str = "three_augment";

    fn examples() -> Vec<Self> {
        vec![Self {}]
    }
}

/// Draws one of three steps, all equally likely: gray, solarized from 128 on, or blurred with a
/// radius that is drawn uniformly from 0.1 to 2 pixels. DeiT III's recipe continues with
/// `color_jitter` (0.3 for brightness, contrast and saturation).
pub fn draw_step(rng: &mut SampleRng) -> PolicyStep {
    match rng.below(3) {
        0 => PolicyStep::Grayscale,
        1 => PolicyStep::Solarize(128.0),
        _ => PolicyStep::GaussianBlur(rng.between(0.1, 2.0)),
    }
}
