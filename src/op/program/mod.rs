//! The program kernel: executes all actions of a chain that the fused kernel, which has a fixed
//! order of actions, does not execute. The actions of a sample are data, not code.
//!
//! The actions of a sample are grouped into passes. A pass reads an image, applies pointwise steps
//! to each pixel, and stores an image in scratch memory, or the tensor (`kernels/program.cu`).
//! Samples of a group may differ in every step. The first launch executes their first passes, the
//! second launch their second passes, and so on. A pass needs the result of the pass before it,
//! which is complete when its launch begins.

pub use data::Addresses;
pub use launches::{Extent, ProgramLaunch, Stage};
pub use passes::{Image, Passes};
pub use text::ProgramText;

mod data;
mod launches;
mod passes;
mod text;
mod write;
