//! `saturation`: blends each pixel with its gray value.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

use crate::op::kind::ColourFormula;
use crate::op::settings::{check_pair, drawn, needs_colours, one_or_each};
use crate::op::shared::pillow_blend::{MAX_FACTOR, blend, blend_pixel};
use crate::op::shared::{luma, luma_of};
use crate::op::wide::pixels::{BLOCK, Planes};
use crate::op::{BuiltIn, Cuda, Draw, FieldError, Kind, Kinds, Operator};

/// Blends each pixel with its gray value, like torchvision's `adjust_saturation`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saturation {
    /// Saturation factor: 0 gives the gray image, 1 leaves the image unchanged. One number, or a
    /// range `[low, high]` from which the factor is drawn uniformly.
    #[serde(deserialize_with = "one_or_each")]
    pub factor: [f64; 2],
}

impl Operator for Saturation {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::colour::<Self>()])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let factor = drawn(self.factor, draw.rng());
        self::draw(draw, factor);
    }

    fn check(&self) -> Result<(), FieldError> {
        check_pair("factor", self.factor, 0.0, MAX_FACTOR)
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        needs_colours(Self::NAME, input)
    }
}

impl BuiltIn for Saturation {
    const NAME: &'static str = "saturation";

    fn examples() -> Vec<Self> {
        [[1.3; 2], [0.0; 2], [0.6, 1.4]].map(|factor| Self { factor }).to_vec()
    }
}

impl ColourFormula for Saturation {
    type Params = Params;
    const CUDA: Option<Cuda> =
        Some(Cuda::new("Saturation", include_str!("../../../kernels/saturation.cu")));

    /// Blends each channel with the pixel's luma: torchvision's `adjust_saturation` on PIL images
    /// (`ImageEnhance.Color`).
    #[inline(always)]
    fn pixel(params: &Params, pixel: [u8; 3]) -> [u8; 3] {
        blend_pixel([luma(pixel); 3], pixel, params.factor)
    }

    /// Computes the luma of the whole block before blending. Luma needs 16-bit and blending 32-bit
    /// arithmetic, so the compiler vectorizes two loops better than one.
    #[inline(always)]
    fn block(params: &Params, planes: &mut Planes) {
        let gray = luma_of(planes);
        let [r, g, b] = planes;
        for at in 0..BLOCK {
            r[at] = blend(gray[at], r[at], params.factor);
            g[at] = blend(gray[at], g[at], params.factor);
            b[at] = blend(gray[at], b[at], params.factor);
        }
    }
}

/// Adds an action that changes the saturation by `factor`.
pub(in crate::op) fn draw(draw: &mut Draw<'_>, factor: f64) {
    draw.colour::<Saturation>(&Params { factor: factor as f32, padding: 0 });
}

/// Parameters of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable, Serialize)]
#[repr(C)]
pub struct Params {
    /// Saturation factor: 0 gives the gray image, 1 the unchanged image.
    pub factor: f32,
    /// Always 0.
    #[serde(skip)]
    pub padding: u32,
}
