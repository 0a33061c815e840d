//! `brightness`: blends the image with black.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

use crate::random::SampleRng;

use super::super::FieldError;
use super::super::settings::one_or_each;
use super::blend::MAX_FACTOR;
use super::blend::blend;
use super::{check_pair, drawn};

/// Blends the image with black, like torchvision's `adjust_brightness`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Brightness {
    /// 0 gives black, 1 the image, 2 twice its bytes. One number, or `[low, high]`, from which it is drawn uniformly.
    #[serde(deserialize_with = "one_or_each")]
    pub factor: [f64; 2],
}

impl Brightness {
    /// Draws the parameters of one sample.
    pub fn draw(&self, rng: &mut SampleRng) -> Params {
        Params { factor: drawn(self.factor, rng) as f32 }
    }

    /// Checks the range.
    pub fn check(&self) -> Result<(), FieldError> {
        check_pair("factor", self.factor, 0.0, MAX_FACTOR)
    }
}

/// Parameters of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Params {
    /// 0 gives black, 1 the image, 2 twice its bytes.
    pub factor: f32,
}

/// `byte * factor`, truncated: torchvision's `adjust_brightness` on PIL images (`ImageEnhance.Brightness`).
pub fn byte(params: &Params, byte: u8) -> u8 {
    blend(0, byte, params.factor)
}
