//! `to_ycbcr`: converts RGB to luma and two chroma channels.

use serde::{Deserialize, Serialize};

use crate::op::kind::ColourFormula;
use crate::op::settings::needs_colours;
use crate::op::{BuiltIn, Cuda, Draw, Kind, Kinds, Operator};

/// Converts RGB to YCbCr with the full range of bytes, like Pillow's `convert("YCbCr")`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToYcbcr {}

impl Operator for ToYcbcr {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::colour::<Self>()])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        draw.colour::<Self>(&[0; 2]);
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        needs_colours(Self::NAME, input)
    }
}

impl BuiltIn for ToYcbcr {
    const NAME: &'static str = "to_ycbcr";

    fn examples() -> Vec<Self> {
        vec![Self {}]
    }
}

impl ColourFormula for ToYcbcr {
    type Params = [u32; 2];
    const CUDA: Option<Cuda> =
        Some(Cuda::new("ToYcbcr", include_str!("../../../kernels/to_ycbcr.cu")));

    /// Computes JPEG's YCbCr as Pillow's `convert("YCbCr")` does (`ConvertYCbCr.c`). Each product
    /// has 6 fraction bits and is rounded by adding a half and truncating towards 0. The sum of the
    /// products is rounded down. 128 is added to the chroma channels.
    #[inline(always)]
    fn pixel(_: &Self::Params, [r, g, b]: [u8; 3]) -> [u8; 3] {
        let [r, g, b] = [i32::from(r), i32::from(g), i32::from(b)];
        let y = plus(r, 627_048) + plus(g, 1_231_028) + plus(b, 239_075);
        let cb = plus(b, HALF) - minus(r, 353_873) - minus(g, 694_703);
        let cr = plus(r, HALF) - minus(g, 878_057) - minus(b, 170_519);
        [(y >> 6) as u8, ((cb >> 6) + 128) as u8, ((cr >> 6) + 128) as u8]
    }
}

/// A weight has 6 + `BITS` fraction bits. The product of a byte and a weight is shifted right by
/// `BITS`. So the product has 6 fraction bits, as in Pillow's tables.
const BITS: u32 = 15;
const ROUND: i32 = 1 << (BITS - 1);
/// 0.5 with 6 + `BITS` fraction bits.
const HALF: i32 = 32 << BITS;

/// Product of a byte with a positive weight, rounded to 6 fraction bits.
#[inline(always)]
fn plus(byte: i32, weight: i32) -> i32 {
    (byte * weight + ROUND) >> BITS
}

/// Product of a byte with a negative weight, rounded to 6 fraction bits. `weight` and the result
/// are given without their sign.
#[inline(always)]
fn minus(byte: i32, weight: i32) -> i32 {
    (byte * weight - ROUND).max(0) >> BITS
}
