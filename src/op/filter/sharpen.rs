//! `sharpen`: blends the image with Pillow's `SHARPEN` filter.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

use crate::op::kind::StencilFormula;
use crate::op::settings::{check_pair, drawn, one_or_each};
use crate::op::shared::pillow_blend::{MAX_FACTOR, blend};
use crate::op::{BuiltIn, Cuda, Draw, FieldError, Kind, Kinds, Operator};

/// Blends the image with Pillow's filter `SHARPEN`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sharpen {
    /// Amount of sharpening: 0 leaves the image unchanged, 1 gives the filtered image. One number,
    /// or a range `[low, high]` from which the amount is drawn uniformly.
    #[serde(deserialize_with = "one_or_each")]
    pub amount: [f64; 2],
}

impl Operator for Sharpen {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::stencil::<Self>()])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let amount = drawn(self.amount, draw.rng());
        self::draw(draw, amount);
    }

    fn check(&self) -> Result<(), FieldError> {
        check_pair("amount", self.amount, 0.0, MAX_FACTOR)
    }
}

impl BuiltIn for Sharpen {
    const NAME: &'static str = "sharpen";

    fn examples() -> Vec<Self> {
        [[1.7; 2], [0.0; 2], [0.5, 2.0]].map(|amount| Self { amount }).to_vec()
    }
}

impl StencilFormula for Sharpen {
    type Params = Params;
    const CUDA: Option<Cuda> =
        Some(Cuda::new("Sharpen", include_str!("../../../kernels/sharpen.cu")));

    /// Blends the middle pixel of a 3x3 neighbourhood, given in row order, with the result of
    /// Pillow's `ImageFilter.SHARPEN`, like `Image.blend(image, image.filter(SHARPEN), amount)`.
    /// The weights of the filter are 32/16 in the middle and -2/16 elsewhere, and its result is
    /// rounded half up. Pixels at the border of the image, and images of fewer than three rows or
    /// columns, are unchanged.
    #[inline(always)]
    fn pixel(params: &Params, around: &[[u8; 3]; 9]) -> [u8; 3] {
        std::array::from_fn(|channel| {
            let sum: i32 = around.iter().map(|pixel| i32::from(pixel[channel])).sum();
            let middle = around[4][channel];
            let sharp = (34 * i32::from(middle) - 2 * sum + 8) >> 4;
            blend(middle, sharp.clamp(0, 255) as u8, params.amount)
        })
    }
}

/// Adds an action that sharpens by `amount`.
pub(in crate::op) fn draw(draw: &mut Draw<'_>, amount: f64) {
    draw.stencil::<Sharpen>(&Params { amount: amount as f32, padding: 0 });
}

/// Parameters of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable, Serialize)]
#[repr(C)]
pub struct Params {
    /// Amount of sharpening: 0 leaves the image unchanged, 1 gives the filtered image.
    pub amount: f32,
    /// Always 0.
    #[serde(skip)]
    pub padding: u32,
}
