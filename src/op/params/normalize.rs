//! Parameters of a normalization, shared by CPU and GPU.

use bytemuck::{Pod, Zeroable};

use crate::tensor::CHANNELS;

/// Mean and standard deviation of each channel, on a scale of 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Params {
    /// Means, subtracted first.
    pub mean: [f32; 3],
    /// Standard deviations, divided by after that.
    pub std: [f32; 3],
}

impl Params {
    /// Normalized value of a byte of `channel`.
    pub fn value(&self, channel: usize, byte: u8) -> f32 {
        (f32::from(byte) / 255.0 - self.mean[channel]) / self.std[channel]
    }

    /// Normalized values of all bytes of all channels.
    pub fn tables(&self) -> [[f32; 256]; CHANNELS] {
        std::array::from_fn(|channel| std::array::from_fn(|byte| self.value(channel, byte as u8)))
    }
}
