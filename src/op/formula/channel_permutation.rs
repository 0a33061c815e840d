//! `channel_permutation`: exchanges channels.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

use crate::random::SampleRng;

use super::super::FieldError;

/// Exchanges channels, like torchvision's `permute_channels` and `RandomChannelPermutation`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChannelPermutation {
    /// Channel of the input, 0 to 2, that each channel of the output copies. Default: one of the six orders, drawn per
    /// sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<[u32; 3]>,
}

impl ChannelPermutation {
    /// Draws the parameters of one sample.
    pub fn draw(&self, rng: &mut SampleRng) -> Params {
        self.order.map_or_else(|| Params::draw(rng), |order| Params { order, padding: 0 })
    }

    /// Checks the order.
    pub fn check(&self) -> Result<(), FieldError> {
        let Some(order) = self.order else { return Ok(()) };
        if (0..3).all(|channel| order.contains(&channel)) {
            return Ok(());
        }
        Err(FieldError::new("order", format!("must hold 0, 1 and 2 once each, is {order:?}")))
    }
}

/// Parameters of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Params {
    /// Channel of the input, 0 to 2, that each channel of the output copies.
    pub order: [u32; 3],
    /// Always 0.
    pub padding: u32,
}

impl Params {
    /// One of the six orders, all equally likely, as torchvision's `RandomChannelPermutation` draws them.
    pub fn draw(rng: &mut SampleRng) -> Self {
        let mut order = [0, 1, 2];
        shuffle(&mut order, rng);
        Self { order, padding: 0 }
    }
}

/// torchvision's `permute_channels`.
#[inline(always)]
pub fn pixel(params: &Params, pixel: [u8; 3]) -> [u8; 3] {
    params.order.map(|channel| pixel[channel as usize])
}

/// Puts a list into random order (Fisher and Yates).
pub(super) fn shuffle<T>(list: &mut [T], rng: &mut SampleRng) {
    for last in (1..list.len()).rev() {
        list.swap(last, rng.below(last as u64 + 1) as usize);
    }
}
