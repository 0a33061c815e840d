//! `grayscale`: replaces each channel by the pixel's luma.

use serde::{Deserialize, Serialize};

use crate::op::kind::ColourFormula;
use crate::op::shared::{luma, luma_of};
use crate::op::wide::pixels::Planes;
use crate::op::{BuiltIn, Cuda, Draw, FieldError, Kind, Kinds, Operator};

/// Replaces each channel by the pixel's luma: torchvision's `Grayscale`, and `convert("L")` of
/// Pillow.
///
/// With `channels = 1` the tensor has one channel, and the operators after this one process images
/// with one channel. Operators that are only for colours are then refused, and so are fill colours,
/// values, means and standard deviations whose three numbers differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Grayscale {
    /// Number of channels of the output: 3 (default), which are equal, or 1.
    pub channels: u32,
}

impl Default for Grayscale {
    fn default() -> Self {
        Self { channels: 3 }
    }
}

impl Operator for Grayscale {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::colour::<Self>()])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        self::draw(draw);
    }

    fn check(&self) -> Result<(), FieldError> {
        match self.channels {
            1 | 3 => Ok(()),
            channels => Err(FieldError::new("channels", format!("must be 1 or 3, is {channels}"))),
        }
    }

    fn channels(&self, _: usize) -> Result<usize, String> {
        Ok(self.channels as usize)
    }
}

impl BuiltIn for Grayscale {
    const NAME: &'static str = "grayscale";

    fn examples() -> Vec<Self> {
        [3, 1].map(|channels| Self { channels }).to_vec()
    }
}

impl ColourFormula for Grayscale {
    type Params = [u32; 2];
    const CUDA: Option<Cuda> =
        Some(Cuda::new("Grayscale", include_str!("../../../kernels/grayscale.cu")));

    /// Copies the luma into all three channels: torchvision's `rgb_to_grayscale` with three output
    /// channels on PIL images.
    #[inline(always)]
    fn pixel(_: &Self::Params, pixel: [u8; 3]) -> [u8; 3] {
        [luma(pixel); 3]
    }

    /// Computes the luma of the whole block, then copies it. In the default implementation, the
    /// compiler would compute the three equal bytes of each pixel as one number, which is slower.
    #[inline(always)]
    fn block(_: &Self::Params, planes: &mut Planes) {
        *planes = [luma_of(planes); 3];
    }
}

/// Adds an action that converts the image to gray.
pub(in crate::op) fn draw(draw: &mut Draw<'_>) {
    draw.colour::<Grayscale>(&[0; 2]);
}
