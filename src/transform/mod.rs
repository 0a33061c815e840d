//! Runs a plan on decoded pixels, into a sample's part of a batch; and decodes whole images for what keeps them.

mod full_decoder;
mod host;
mod upright;

pub use full_decoder::FullDecoder;
pub use host::{HostTransform, PlannedImage};
