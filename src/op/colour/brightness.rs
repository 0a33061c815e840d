//! `brightness`: blends the image with black.

use serde::{Deserialize, Serialize};

use crate::op::settings::{check_pair, drawn, one_or_each};
use crate::op::shared::pillow_blend::{MAX_FACTOR, blend};
use crate::op::{BuiltIn, Draw, FieldError, Kind, Kinds, Operator};

/// Blends the image with black, like torchvision's `adjust_brightness`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Brightness {
    /// Brightness factor: 0 gives black, 1 leaves the image unchanged, 2 doubles each byte. One
    /// number, or a range `[low, high]` from which the factor is drawn uniformly.
    #[serde(deserialize_with = "one_or_each")]
    pub factor: [f64; 2],
}

impl Operator for Brightness {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::Table])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let factor = drawn(self.factor, draw.rng());
        self::draw(draw, factor);
    }

    fn check(&self) -> Result<(), FieldError> {
        check_pair("factor", self.factor, 0.0, MAX_FACTOR)
    }
}

impl BuiltIn for Brightness {
    const NAME: &'static str = "brightness";

    fn examples() -> Vec<Self> {
        [[1.2; 2], [0.0; 2], [0.6, 1.4]].map(|factor| Self { factor }).to_vec()
    }
}

/// Adds an action that multiplies each byte by `factor` and truncates the product: torchvision's
/// `adjust_brightness` on PIL images (`ImageEnhance.Brightness`).
pub(in crate::op) fn draw(draw: &mut Draw<'_>, factor: f64) {
    draw.note("Brightness", &[("factor", &[factor])]);
    draw.table(|_, byte| blend(0, byte, factor as f32));
}
