//! `solarize`: inverts bytes that reach a threshold.

use serde::{Deserialize, Serialize};

use crate::op::settings::check_number;
use crate::op::{BuiltIn, Draw, FieldError, Kind, Kinds, Operator};

/// Inverts bytes that reach a threshold, like torchvision's `solarize`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Solarize {
    /// Smallest byte that is inverted: 0 inverts all bytes, 256 none. Default 128.
    pub threshold: f64,
}

impl Default for Solarize {
    fn default() -> Self {
        Self { threshold: 128.0 }
    }
}

impl Operator for Solarize {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::Table])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        self::draw(draw, self.threshold);
    }

    fn check(&self) -> Result<(), FieldError> {
        check_number("threshold", self.threshold, 0.0, 256.0)
    }
}

impl BuiltIn for Solarize {
    const NAME: &'static str = "solarize";

    fn examples() -> Vec<Self> {
        [0.0, 127.5, 256.0].map(|threshold| Self { threshold }).to_vec()
    }
}

/// Adds an action that replaces each byte with `byte >= threshold` by `255 - byte`: torchvision's
/// `solarize` (`ImageOps.solarize`). The threshold need not be an integer: RandAugment uses
/// fractions.
pub(in crate::op) fn draw(draw: &mut Draw<'_>, threshold: f64) {
    draw.note("Solarize", &[("threshold", &[threshold])]);
    draw.table(|_, byte| if f64::from(byte) < threshold { byte } else { 255 - byte });
}
