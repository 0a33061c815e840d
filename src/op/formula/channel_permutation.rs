//! `channel_permutation`: exchanges channels.

use bytemuck::{Pod, Zeroable};

use crate::random::SampleRng;

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
