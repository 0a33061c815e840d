//! What the CPU made of a sample, for the device to make again.

use feedwater::geometry::Size;
use feedwater::image::HostImage;
use feedwater::plan::SamplePlan;

/// What the CPU made of a sample.
pub struct Made {
    pub sample: SamplePlan,
    /// What enters each operator, then what leaves the last.
    pub images: Vec<HostImage>,
    pub tensor: Vec<u8>,
}

/// How the step of an operator is called.
pub fn operator_name(place: usize, name: &str) -> String {
    format!("chain[{place}] {name}")
}

/// Millions of pixels.
pub fn megapixels(size: Size) -> f64 {
    size.pixels() as f64 * 1e-6
}
