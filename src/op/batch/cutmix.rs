//! `cutmix`: exchanges a box of two images, and blends their targets by area.

use serde::{Deserialize, Serialize};

use super::beta::beta;
use super::{BatchOperator, BuiltIn, PairDraw, check_alpha, check_probability};
use crate::geometry::{Roi, Size};
use crate::op::FieldError;

/// Exchanges a box between both samples of a pair: CutMix (Yun et al., ICCV 2019). Each target
/// becomes `l * own + (1 - l) * other`. `own` is this target, `other` is the target of the other
/// sample, and `l` is the fraction of the image outside the box.
///
/// The box is drawn as in torchvision. A number `m` is drawn from Beta(`alpha`, `alpha`), and a
/// pixel is drawn uniformly. The box extends from this pixel by `int(width * sqrt(1 - m) / 2)`
/// columns and `int(height * sqrt(1 - m) / 2)` rows to each side, clipped to the image. timm's box
/// is up to one pixel larger.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CutMix {
    /// Parameter of the Beta distribution, 0.001 to 1000. Default 1, the uniform distribution.
    pub alpha: f64,
    /// Probability that a pair is mixed, 0 to 1. Default 1.
    pub probability: f64,
}

impl CutMix {
    /// Mixes every pair, with this parameter of the Beta distribution.
    pub fn alpha(alpha: f64) -> Self {
        Self { alpha, ..Self::default() }
    }

    /// Box around the pixel `(x, y)` for the drawn number `m`.
    #[doc(hidden)]
    pub fn window(Size { width, height }: Size, m: f64, (x, y): (u32, u32)) -> Roi {
        let half = 0.5 * (1.0 - m).sqrt();
        let along = |center: u32, side: u32| {
            let reach = (half * f64::from(side)) as u32;
            let low = center.saturating_sub(reach);
            (low, (center + reach).min(side) - low)
        };
        let ((x, width), (y, height)) = (along(x, width), along(y, height));
        Roi::new(x, y, width, height)
    }

    /// Weight of a sample's own target: the fraction of the image outside the box.
    #[doc(hidden)]
    pub fn target_weight(size: Size, window: Roi) -> f32 {
        (1.0 - window.size().pixels() as f64 / size.pixels() as f64) as f32
    }
}

impl Default for CutMix {
    fn default() -> Self {
        Self { alpha: 1.0, probability: 1.0 }
    }
}

impl BatchOperator for CutMix {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn only_exchanges(&self) -> bool {
        true
    }

    fn draw(&self, draw: &mut PairDraw<'_>) {
        if draw.rng().chance(self.probability) {
            cut(self.alpha, draw);
        }
    }

    fn check(&self) -> Result<(), FieldError> {
        check_alpha("alpha", self.alpha)?;
        check_probability("probability", self.probability)
    }
}

impl BuiltIn for CutMix {
    const NAME: &'static str = "cutmix";
}

/// Exchanges a box between the samples of the pair.
pub(super) fn cut(alpha: f64, draw: &mut PairDraw<'_>) {
    let size = draw.size();
    let m = beta(alpha, draw.rng());
    let [x, y] = [size.width, size.height].map(|side| draw.rng().below(side.into()) as u32);
    let window = CutMix::window(size, m, (x, y));
    draw.blend(window, 0.0, CutMix::target_weight(size, window));
}
