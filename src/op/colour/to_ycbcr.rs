//! `to_ycbcr`: converts to luma and two differences of colour.

use serde::{Deserialize, Serialize};

use crate::op::kind::ColourFormula;
use crate::op::{BuiltIn, Cuda, Draw, Kind, Kinds, Operator};

/// Converts to YCbCr with the full range of bytes, like Pillow's `convert("YCbCr")`.
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

    /// JPEG's YCbCr as Pillow's `convert("YCbCr")` computes it (`ConvertYCbCr.c`): each product in 6 fraction bits, rounded
    /// by adding a half and truncating towards 0; the sum truncated downwards; 128 added to the differences.
    #[inline(always)]
    fn pixel(_: &Self::Params, [r, g, b]: [u8; 3]) -> [u8; 3] {
        let [r, g, b] = [i32::from(r), i32::from(g), i32::from(b)];
        let y = plus(r, 627_048) + plus(g, 1_231_028) + plus(b, 239_075);
        let cb = plus(b, HALF) - minus(r, 353_873) - minus(g, 694_703);
        let cr = plus(r, HALF) - minus(g, 878_057) - minus(b, 170_519);
        [(y >> 6) as u8, ((cb >> 6) + 128) as u8, ((cr >> 6) + 128) as u8]
    }
}

/// Bits below those that Pillow's tables hold.
const BITS: u32 = 15;
const ROUND: i32 = 1 << (BITS - 1);
/// 0.5 with 6 and `BITS` fraction bits.
const HALF: i32 = 32 << BITS;

/// A product with a positive weight.
#[inline(always)]
fn plus(byte: i32, weight: i32) -> i32 {
    (byte * weight + ROUND) >> BITS
}

/// A product with a negative weight, without its sign.
#[inline(always)]
fn minus(byte: i32, weight: i32) -> i32 {
    (byte * weight - ROUND).max(0) >> BITS
}
