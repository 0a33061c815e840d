//! The program kernel: everything behind the fused part of a chain, as data.
//!
//! A chain's actions become passes. A pass reads an image, does pointwise steps to each pixel, and stores an image in
//! scratch memory, or the tensor (`kernels/program.cu`). Samples of a group may differ in every step. Their first passes
//! are one launch, their second passes the next one, and so on. The boundary between launches is what a pass waits for.

pub use data::Addresses;
pub use launches::{Extent, ProgramLaunch, Stage};
pub use passes::{Image, Passes};
pub use text::ProgramText;

mod data;
mod launches;
mod passes;
mod text;
mod write;
