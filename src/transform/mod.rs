//! Runs a plan on decoded pixels, into a sample's part of a batch; and decodes whole pictures for what keeps them.

mod host;
mod whole;

pub use host::{HostTransform, Picture};
pub use whole::Whole;
