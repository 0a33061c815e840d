//! `grayscale`: replaces each channel by the pixel's luma.

use serde::{Deserialize, Serialize};

use crate::op::kind::ColourFormula;
use crate::op::shared::{luma, luma_of};
use crate::op::wide::pixels::Planes;
use crate::op::{BuiltIn, Cuda, Draw, Kind, Kinds, Operator};

/// Replaces each channel by the pixel's luma, like torchvision's `Grayscale(3)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grayscale {}

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
}

impl BuiltIn for Grayscale {
    const NAME: &'static str = "grayscale";

    fn examples() -> Vec<Self> {
        vec![Self {}]
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
