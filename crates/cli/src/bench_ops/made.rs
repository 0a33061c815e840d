//! Results of a sample on the CPU, which the kernels must reproduce.

use feedwater::internals::geometry::Size;
use feedwater::internals::image::HostImage;
use feedwater::internals::plan::SamplePlan;

/// Results of a sample on the CPU.
pub struct Made {
    pub sample: SamplePlan,
    /// Input image of each operator, followed by the output of the last operator.
    pub images: Vec<HostImage>,
    pub tensor: Vec<u8>,
}

/// Formats the name of an operator, with its position in the chain.
pub fn operator_name(place: usize, name: &str) -> String {
    format!("chain[{place}] {name}")
}

/// Size in millions of pixels.
pub fn megapixels(size: Size) -> f64 {
    size.pixels() as f64 * 1e-6
}
