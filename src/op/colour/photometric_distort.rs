//! `photometric_distort`: SSD's random changes of colour.

use serde::{Deserialize, Serialize};

use crate::op::settings::{check_number, check_pair, needs_colours};
use crate::op::shared::pillow_blend::MAX_FACTOR;
use crate::op::{BuiltIn, Draw, FieldError, Kinds, Operator};
use crate::random::SampleRng;

use super::channel_permutation::drawn_order;
use super::color_jitter::ColorStep;

/// Changes brightness, contrast, saturation, hue and the order of channels, each with a
/// probability, like torchvision's `RandomPhotometricDistort` (Liu et al., "SSD: Single shot
/// multibox detector", 2016).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PhotometricDistort {
    /// Range of the brightness factor. Default `[0.875, 1.125]`.
    pub brightness: [f64; 2],
    /// Range of the contrast factor. Default `[0.5, 1.5]`.
    pub contrast: [f64; 2],
    /// Range of the saturation factor. Default `[0.5, 1.5]`.
    pub saturation: [f64; 2],
    /// Range of the hue rotation, as fractions of a full circle, -0.5 to 0.5. Default
    /// `[-0.05, 0.05]`.
    pub hue: [f64; 2],
    /// Probability of each change, 0 to 1. Default 0.5.
    pub probability: f64,
}

impl Default for PhotometricDistort {
    fn default() -> Self {
        Self {
            brightness: [0.875, 1.125],
            contrast: [0.5, 1.5],
            saturation: [0.5, 1.5],
            hue: [-0.05, 0.05],
            probability: 0.5,
        }
    }
}

impl PhotometricDistort {
    /// Draws the steps of one sample and returns them in the order in which they run: brightness,
    /// contrast, saturation, hue, order of channels. With probability 0.5, contrast runs after hue
    /// and not before saturation.
    #[doc(hidden)]
    pub fn steps(&self, rng: &mut SampleRng) -> [Option<ColorStep>; 6] {
        let mut factor =
            |[low, high]: [f64; 2]| rng.chance(self.probability).then(|| rng.between(low, high));
        let brightness = factor(self.brightness).map(ColorStep::Brightness);
        let contrast = factor(self.contrast).map(ColorStep::Contrast);
        let saturation = factor(self.saturation).map(ColorStep::Saturation);
        let hue = factor(self.hue).map(ColorStep::Hue);
        let is_early = rng.chance(0.5);
        let channels = rng.chance(self.probability).then(|| ColorStep::Channels(drawn_order(rng)));
        let (early, late) = if is_early { (contrast, None) } else { (None, contrast) };
        [brightness, early, saturation, hue, late, channels]
    }
}

impl Operator for PhotometricDistort {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::up_to(5, ColorStep::kinds())
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let steps = self.steps(draw.rng());
        steps.into_iter().flatten().for_each(|step| step.draw(draw));
    }

    fn check(&self) -> Result<(), FieldError> {
        check_pair("brightness", self.brightness, 0.0, MAX_FACTOR)?;
        check_pair("contrast", self.contrast, 0.0, MAX_FACTOR)?;
        check_pair("saturation", self.saturation, 0.0, MAX_FACTOR)?;
        check_pair("hue", self.hue, -0.5, 0.5)?;
        check_number("probability", self.probability, 0.0, 1.0)
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        needs_colours(Self::NAME, input)
    }

    fn is_random(&self) -> bool {
        self.probability > 0.0
    }
}

impl BuiltIn for PhotometricDistort {
    const NAME: &'static str = "photometric_distort";

    fn examples() -> Vec<Self> {
        [0.5, 1.0, 0.0].map(|probability| Self { probability, ..Self::default() }).to_vec()
    }
}
