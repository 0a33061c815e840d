//! `channel_permutation`: reorders the channels.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

use crate::op::kind::ColourFormula;
use crate::op::settings::needs_colours;
use crate::op::wide::pixels::Planes;
use crate::op::{BuiltIn, Cuda, Draw, FieldError, Kind, Kinds, Operator};
use crate::random::SampleRng;

/// Reorders the channels, like torchvision's `permute_channels` and `RandomChannelPermutation`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChannelPermutation {
    /// For each channel of the output, the channel of the input (0 to 2) that it copies. Default:
    /// one of the six orders, drawn per sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<[u32; 3]>,
}

impl Operator for ChannelPermutation {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::colour::<Self>()])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        let order = self.order.unwrap_or_else(|| drawn_order(draw.rng()));
        self::draw(draw, order);
    }

    fn check(&self) -> Result<(), FieldError> {
        let Some(order) = self.order else { return Ok(()) };
        if (0..3).all(|channel| order.contains(&channel)) {
            return Ok(());
        }
        Err(FieldError::new("order", format!("must contain 0, 1 and 2 once each, is {order:?}")))
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        needs_colours(Self::NAME, input)
    }
}

impl BuiltIn for ChannelPermutation {
    const NAME: &'static str = "channel_permutation";

    fn examples() -> Vec<Self> {
        [None, Some([2, 1, 0]), Some([1, 2, 0])].map(|order| Self { order }).to_vec()
    }
}

impl ColourFormula for ChannelPermutation {
    type Params = Params;
    const CUDA: Option<Cuda> = Some(Cuda::new(
        "ChannelPermutation",
        include_str!("../../../kernels/channel_permutation.cu"),
    ));

    /// Reorders the channels of a pixel like torchvision's `permute_channels`.
    #[inline(always)]
    fn pixel(params: &Params, pixel: [u8; 3]) -> [u8; 3] {
        let [a, b, c] = params.order;
        [pixel[a as usize], pixel[b as usize], pixel[c as usize]]
    }

    #[inline(always)]
    fn block(params: &Params, planes: &mut Planes) {
        let [a, b, c] = params.order;
        *planes = [planes[a as usize], planes[b as usize], planes[c as usize]];
    }
}

/// Adds an action that reorders the channels. `order` holds, for each channel of the output, the
/// channel of the input that it copies.
pub(in crate::op) fn draw(draw: &mut Draw<'_>, order: [u32; 3]) {
    draw.colour::<ChannelPermutation>(&Params { order, padding: 0 });
}

/// Draws one of the six orders, all equally likely, like torchvision's `RandomChannelPermutation`.
pub(super) fn drawn_order(rng: &mut SampleRng) -> [u32; 3] {
    let mut order = [0, 1, 2];
    shuffle(&mut order, rng);
    order
}

/// Parameters of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable, Serialize)]
#[repr(C)]
pub struct Params {
    /// For each channel of the output, the channel of the input (0 to 2) that it copies.
    pub order: [u32; 3],
    /// Always 0.
    #[serde(skip)]
    pub padding: u32,
}

/// Puts a list into random order (Fisher-Yates shuffle).
pub(super) fn shuffle<T>(list: &mut [T], rng: &mut SampleRng) {
    for last in (1..list.len()).rev() {
        list.swap(last, rng.below(last as u64 + 1) as usize);
    }
}
