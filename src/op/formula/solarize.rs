//! `solarize`: inverts bytes from a threshold on.
use super::super::FieldError;
use super::check_number;
use serde::{Deserialize, Serialize};

/// Inverts bytes from a threshold on, like torchvision's `solarize`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Solarize {
    /// Smallest inverted byte, 0 (all) to 256 (none). Default 128.
    pub threshold: f64,
}

impl Default for Solarize {
    fn default() -> Self {
        Self { threshold: 128.0 }
    }
}

impl Solarize {
    /// Checks the threshold.
    pub fn check(&self) -> Result<(), FieldError> {
        check_number("threshold", self.threshold, 0.0, 256.0)
    }
}

/// `255 - byte` if `byte >= threshold`: torchvision's `solarize` (`ImageOps.solarize`). The threshold may be a
/// fraction, as RandAugment's is.
pub fn byte(threshold: f64, byte: u8) -> u8 {
    if f64::from(byte) < threshold { byte } else { 255 - byte }
}
