//! Execution of a plan on the CPU, and decoding of whole images for caches and packing.

#[doc(hidden)]
pub mod blend;
mod full_decoder;
mod host;
mod images;
mod pass;
mod resampling;
mod run;
mod upright;

pub use full_decoder::FullDecoder;
pub use host::{HostTransform, PlannedImage};
