//! The program kernel: everything behind the fused part of a chain, as data.
//!
//! A chain's actions become passes. A pass reads an image, does pointwise steps to each pixel, and stores an image in
//! scratch memory, or the tensor (`kernels/program.cu`). One block does all passes of a sample, so samples of one
//! launch may differ in every step.

pub use data::Addresses;
pub use passes::{Image, Passes};
pub use text::ProgramText;

mod data;
mod passes;
mod text;
mod write;
