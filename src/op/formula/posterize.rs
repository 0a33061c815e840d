//! `posterize`: keeps the leading bits of each channel.
use super::super::FieldError;
use serde::{Deserialize, Serialize};

/// Keeps the leading bits of each channel, like torchvision's `posterize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Posterize {
    /// Number of bits, 0 (black) to 8 (unchanged).
    pub bits: u32,
}

impl Posterize {
    /// Checks the number of bits.
    pub fn check(&self) -> Result<(), FieldError> {
        if self.bits <= 8 {
            return Ok(());
        }
        Err(FieldError::new("bits", format!("must be 0 to 8, is {}", self.bits)))
    }
}

/// Keeps the `bits` leading bits, 0 to 8: torchvision's `posterize` (`ImageOps.posterize`).
pub fn byte(bits: u32, byte: u8) -> u8 {
    byte & !((1u32 << (8 - bits.min(8))) - 1) as u8
}
