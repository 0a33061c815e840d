//! `normalize`.

use bytemuck::{Pod, Zeroable};

/// Mean and standard deviation of each channel, in terms of 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Params {
    /// Subtracted.
    pub mean: [f32; 3],
    /// Then divided by.
    pub std: [f32; 3],
}
