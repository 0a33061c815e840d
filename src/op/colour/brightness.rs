//! `brightness`: blends the image with black.

use serde::{Deserialize, Serialize};

use crate::op::settings::{check_pair, drawn, one_or_each};
use crate::op::shared::pillow_blend::{MAX_FACTOR, blend};
use crate::op::{BuiltIn, Draw, FieldError, Kind, Kinds, Operator};

/// Blends the image with black, like torchvision's `adjust_brightness`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Brightness {
    /// 0 gives black, 1 the image, 2 twice its bytes. One number, or `[low, high]`, from which it is drawn uniformly.
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

/// Adds a brightness with this factor: torchvision's `adjust_brightness` on PIL images (`ImageEnhance.Brightness`),
/// `byte * factor`, truncated.
pub(in crate::op) fn draw(draw: &mut Draw<'_>, factor: f64) {
    draw.note("Brightness", &[("factor", &[factor])]);
    draw.table(|_, byte| blend(0, byte, factor as f32));
}
