//! `flip`: mirrors the image left to right, top to bottom, or both.

use serde::{Deserialize, Serialize};

use super::{BuiltIn, Draw, FieldError, Kind, Kinds, Operator};

/// Mirrors each image left to right and top to bottom, each with its own probability.
///
/// Draws like torchvision's `RandomHorizontalFlip` and `RandomVerticalFlip`: the image is mirrored
/// if a uniform number in `[0, 1)` is below the probability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Flip {
    /// Probability of mirroring left to right, 0 to 1. Default 0.
    pub horizontal: f64,
    /// Probability of mirroring top to bottom, 0 to 1. Default 0.
    pub vertical: f64,
}

impl Operator for Flip {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::Flip])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let horizontal = draw.rng().chance(self.horizontal);
        let vertical = draw.rng().chance(self.vertical);
        draw.flip(horizontal, vertical);
    }

    fn check(&self) -> Result<(), FieldError> {
        for (field, p) in [("horizontal", self.horizontal), ("vertical", self.vertical)] {
            if !(0.0..=1.0).contains(&p) {
                let problem = format!("must be a probability from 0 to 1, is {p}");
                return Err(FieldError::new(field, problem));
            }
        }
        Ok(())
    }

    fn is_random(&self) -> bool {
        // `draw` draws a number for each of the two probabilities, but this number has no effect if
        // the probability is 0 or 1. So the operator is random only if a probability is between 0
        // and 1.
        [self.horizontal, self.vertical].iter().any(|&p| p > 0.0 && p < 1.0)
    }
}

impl BuiltIn for Flip {
    const NAME: &'static str = "flip";

    fn examples() -> Vec<Self> {
        [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.5, 0.5)]
            .map(|(horizontal, vertical)| Flip { horizontal, vertical })
            .to_vec()
    }
}
