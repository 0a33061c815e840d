//! `random_perspective`: moves the corners of the image to random points.

use serde::{Deserialize, Serialize};

use crate::op::settings::{check_number, equal_values, one_or_each};
use crate::op::{BuiltIn, Draw, FieldError, Interpolation, Kind, Kinds, Operator};

use super::perspective::formula::draw;
use super::perspective::{bilinear, warp};

/// Moves the corners of the image inwards by random amounts: torchvision's `RandomPerspective`. The
/// result equals that of [`Perspective`](super::perspective::Perspective) with the same corners.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RandomPerspective {
    /// Largest distance by which a corner moves, as a fraction of half the side, 0 to 1. Default
    /// 0.5.
    pub distortion_scale: f64,
    /// Probability that the image changes, 0 to 1. Default 0.5.
    pub probability: f64,
    /// Interpolation between pixels. Default bilinear.
    pub interpolation: Interpolation,
    /// Fill colour outside of the image: red, green and blue. In TOML, one number sets all three.
    /// Default 0.
    #[serde(deserialize_with = "one_or_each")]
    pub fill: [u8; 3],
}

impl Default for RandomPerspective {
    fn default() -> Self {
        let interpolation = bilinear();
        Self { distortion_scale: 0.5, probability: 0.5, interpolation, fill: [0; 3] }
    }
}

impl Operator for RandomPerspective {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn interpolation(&self) -> Option<(&'static str, bool)> {
        Some(("interpolation", self.interpolation == Interpolation::Nearest))
    }

    fn kinds(&self) -> Kinds {
        Kinds::up_to(1, [Kind::Warp])
    }

    fn draw(&self, draw_to: &mut Draw<'_>) {
        let input = draw_to.size();
        if draw_to.rng().chance(self.probability) {
            let end = draw(input, self.distortion_scale, draw_to.rng());
            draw_to.warp(warp(input, None, &end, self.interpolation, self.fill), input);
        }
    }

    fn check(&self) -> Result<(), FieldError> {
        check_number("distortion_scale", self.distortion_scale, 0.0, 1.0)?;
        check_number("probability", self.probability, 0.0, 1.0)
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        equal_values(Self::NAME, "fill", self.fill, input)
    }

    fn is_random(&self) -> bool {
        self.probability > 0.0
    }
}

impl BuiltIn for RandomPerspective {
    const NAME: &'static str = "random_perspective";

    fn examples() -> Vec<Self> {
        let base = Self::default();
        vec![
            base,
            Self { probability: 1.0, distortion_scale: 1.0, fill: [40, 50, 60], ..base },
            Self { probability: 1.0, interpolation: Interpolation::Nearest, ..base },
            Self { probability: 0.0, ..base },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_settings_are_refused() {
        let field = |op: RandomPerspective| op.check().unwrap_err().field;
        let base = RandomPerspective::default();
        assert_eq!(field(RandomPerspective { probability: 1.2, ..base }), "probability");
        assert_eq!(field(RandomPerspective { distortion_scale: -0.1, ..base }), "distortion_scale");
    }
}
