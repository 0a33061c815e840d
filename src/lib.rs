//! feedwater keeps a GPU fed: compressed images in, batches that are ready for the model out.

pub mod error;
pub mod footprint;
pub mod geometry;
pub mod header;
pub mod image;
pub mod op;
pub mod random;
pub mod synth;
pub mod tensor;

pub use error::{Error, Result};
