//! `random_grayscale`: replaces each channel by the pixel's luma, with a probability.

use serde::{Deserialize, Serialize};

use crate::op::settings::check_number;
use crate::op::{BuiltIn, Draw, FieldError, Kind, Kinds, Operator};

use super::grayscale::{self, Grayscale};

/// Replaces each channel by the pixel's luma with a probability, like torchvision's
/// `RandomGrayscale`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RandomGrayscale {
    /// Probability of gray, 0 to 1. Default 0.1.
    pub probability: f64,
}

impl Default for RandomGrayscale {
    fn default() -> Self {
        Self { probability: 0.1 }
    }
}

impl Operator for RandomGrayscale {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::up_to(1, [Kind::colour::<Grayscale>()])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        if draw.rng().chance(self.probability) {
            grayscale::draw(draw);
        }
    }

    fn check(&self) -> Result<(), FieldError> {
        check_number("probability", self.probability, 0.0, 1.0)
    }

    fn is_random(&self) -> bool {
        self.probability > 0.0 && self.probability < 1.0
    }
}

impl BuiltIn for RandomGrayscale {
    const NAME: &'static str = "random_grayscale";

    fn examples() -> Vec<Self> {
        [0.0, 0.5, 1.0].map(|probability| Self { probability }).to_vec()
    }
}
