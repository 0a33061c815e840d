//! `sharpness`: blends the image with a smoothed copy.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

use crate::op::kind::StencilFormula;
use crate::op::settings::{check_pair, drawn, one_or_each};
use crate::op::shared::pillow_blend::{MAX_FACTOR, blend};
use crate::op::{BuiltIn, Cuda, Draw, FieldError, Kind, Kinds, Operator};

/// Blends the image with a smoothed copy, like torchvision's `adjust_sharpness`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sharpness {
    /// Sharpness factor: 0 gives the smoothed image, 1 leaves the image unchanged, 2 gives a
    /// sharpened image. One number, or a range `[low, high]` from which the factor is drawn
    /// uniformly.
    #[serde(deserialize_with = "one_or_each")]
    pub factor: [f64; 2],
}

impl Operator for Sharpness {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::stencil::<Self>()])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let factor = drawn(self.factor, draw.rng());
        self::draw(draw, factor);
    }

    fn check(&self) -> Result<(), FieldError> {
        check_pair("factor", self.factor, 0.0, MAX_FACTOR)
    }
}

impl BuiltIn for Sharpness {
    const NAME: &'static str = "sharpness";

    fn examples() -> Vec<Self> {
        [[1.7; 2], [0.0; 2], [0.5, 2.0]].map(|factor| Self { factor }).to_vec()
    }
}

impl StencilFormula for Sharpness {
    type Params = Params;
    const CUDA: Option<Cuda> =
        Some(Cuda::new("Sharpness", include_str!("../../../kernels/sharpness.cu")));

    /// Blends the middle pixel of a 3x3 neighbourhood, given in row order, with the weighted mean
    /// of the neighbourhood: torchvision's `adjust_sharpness` on PIL images
    /// (`ImageEnhance.Sharpness`). The weight is 5 in the middle and 1 elsewhere, and the mean is
    /// rounded. Pixels at the border of the image, and images of fewer than three rows or columns,
    /// are unchanged.
    #[inline(always)]
    fn pixel(params: &Params, around: &[[u8; 3]; 9]) -> [u8; 3] {
        std::array::from_fn(|channel| {
            let sum: u32 = around.iter().map(|pixel| u32::from(pixel[channel])).sum();
            let middle = around[4][channel];
            // A multiple of 1/13 is never halfway between two integers, so Pillow's f32 arithmetic
            // gives the same byte.
            let smooth = (2 * (sum + 4 * u32::from(middle)) + 13) / 26;
            blend(smooth as u8, middle, params.factor)
        })
    }
}

/// Adds an action that changes the sharpness by `factor`.
pub(in crate::op) fn draw(draw: &mut Draw<'_>, factor: f64) {
    draw.stencil::<Sharpness>(&Params { factor: factor as f32, padding: 0 });
}

/// Parameters of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable, Serialize)]
#[repr(C)]
pub struct Params {
    /// Sharpness factor: 0 gives the smoothed image, 1 the unchanged image, 2 a sharpened image.
    pub factor: f32,
    /// Always 0.
    #[serde(skip)]
    pub padding: u32,
}
