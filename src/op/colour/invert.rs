//! `invert`: the negative of the image.

use serde::{Deserialize, Serialize};

use crate::op::{BuiltIn, Draw, Kind, Kinds, Operator};

/// Makes the negative of the image, like torchvision's `invert`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invert {}

impl Operator for Invert {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::Table])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        self::draw(draw);
    }
}

impl BuiltIn for Invert {
    const NAME: &'static str = "invert";

    fn examples() -> Vec<Self> {
        vec![Self {}]
    }
}

/// Adds an action that replaces each byte by `255 - byte`: torchvision's `invert`
/// (`ImageOps.invert`).
pub(in crate::op) fn draw(draw: &mut Draw<'_>) {
    draw.note("Invert", &[]);
    draw.table(|_, byte| 255 - byte);
}
