//! `invert`: the negative of the image.
use serde::{Deserialize, Serialize};

/// Makes the negative of the image, like torchvision's `invert`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invert {}

/// `255 - byte`: torchvision's `invert` (`ImageOps.invert`).
pub fn byte(byte: u8) -> u8 {
    255 - byte
}
