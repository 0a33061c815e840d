//! `posterize`: keeps the leading bits of each channel.

use serde::{Deserialize, Serialize};

use crate::op::{BuiltIn, Draw, FieldError, Kind, Kinds, Operator};

/// Keeps the leading bits of each channel, like torchvision's `posterize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Posterize {
    /// Number of bits that are kept, 0 (black) to 8 (unchanged).
    pub bits: u32,
}

impl Operator for Posterize {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::Table])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        self::draw(draw, self.bits);
    }

    fn check(&self) -> Result<(), FieldError> {
        if self.bits <= 8 {
            return Ok(());
        }
        Err(FieldError::new("bits", format!("must be 0 to 8, is {}", self.bits)))
    }
}

impl BuiltIn for Posterize {
    const NAME: &'static str = "posterize";

    fn examples() -> Vec<Self> {
        [0, 3, 8].map(|bits| Self { bits }).to_vec()
    }
}

/// Adds an action that keeps the `bits` leading bits of each byte, 0 to 8: torchvision's
/// `posterize` (`ImageOps.posterize`).
pub(in crate::op) fn draw(draw: &mut Draw<'_>, bits: u32) {
    let mask = !((1u32 << (8 - bits.min(8))) - 1) as u8;
    draw.note("Posterize", &[("bits", &[bits.into()])]);
    draw.table(|_, byte| byte & mask);
}
