//! Runs a plan on decoded pixels, into a sample's part of a batch.

mod host;

pub use host::{HostTransform, Picture};
