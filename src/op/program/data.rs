//! Data that the program kernel reads. The structs are twins of those in `kernels/steps.cu`.

use bytemuck::{Pod, Zeroable};

use crate::op::MAX_PARAMS_BYTES;
use crate::op::kernel_text::RoiParams;
use crate::tensor::CHANNELS;

/// Size in bytes of the largest leaf. A *leaf* is the parameters with which a pass reads its source
/// image from memory.
pub const LEAF_BYTES: usize = size_of::<RoiParams>();

/// Addresses of the passes, steps and statistics of one sample, and number of its passes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Program {
    pub passes: u64,
    pub steps: u64,
    pub statistics: u64,
    pub count: i32,
    pub unused: i32,
}

/// Size in bytes of a sample's histograms: three of the channels and one of gray.
pub const HISTOGRAM_BYTES: usize = 4 * 256 * size_of::<u32>();

/// Size in bytes of a sample's histograms and of the table that is computed from them.
pub const STATISTICS_BYTES: usize = HISTOGRAM_BYTES + CHANNELS * 256 * size_of::<f32>();

/// Data of a pass, which computes an image or the tensor.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Pass {
    pub out: u64,
    pub reader: i32,
    pub statistics: i32,
    pub steps: [i32; 2],
    pub floats: i32,
    pub stores_tensor: i32,
    pub columns: Along,
    pub rows: Along,
    pub width: i32,
    pub height: i32,
    /// Left, top, right and bottom edges of the region that the pass can read.
    pub readable: [i32; 4],
    pub whole: [i32; 2],
    /// Whether the image that the pass reads is planes of samples.
    pub planes: i32,
    pub unused: i32,
    /// Parameters of the image that the pass reads, then those of the action that reads this image.
    pub source: SourceBytes,
}

/// Parameters of the image that a pass reads, and of the action that reads this image.
pub type SourceBytes = [u8; LEAF_BYTES + MAX_PARAMS_BYTES];

/// Data of a step, which changes each pixel of a pass.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Step {
    pub code: i32,
    pub columns: Along,
    pub rows: Along,
    pub unused: i32,
    pub params: [u8; MAX_PARAMS_BYTES],
}

/// Parameters of a step that fills the pixels outside of a rectangle.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct FillParams {
    pub left: i32,
    pub top: i32,
    pub right: i32,
    pub bottom: i32,
    pub fill: [f32; 3],
    pub unused: i32,
}

/// Map from the number `i` of a column or row of a pass's output to a position: `at + step * i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Along {
    pub at: i32,
    pub step: i32,
}

/// Addresses of one sample's data in device memory.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// Address of the tensor.
    pub out: u64,
    /// Addresses of two scratch images. The fused kernel stores its output in the first.
    pub scratch: [u64; 2],
    /// Start of the tables of the actions.
    pub tables: u64,
    /// Start of the passes, steps and statistics.
    pub passes: u64,
}

/// Codes of the steps that need no formula.
pub mod step {
    pub const TABLE: i32 = 0;
    pub const FLOAT_TABLE: i32 = 1;
    pub const MADE: i32 = 2;
    pub const FLOATS_MADE: i32 = 3;
    pub const FILL: i32 = 4;
    pub const FILL_FLOATS: i32 = 5;
}

/// Codes for how a pass reads its input image. Some kinds of actions have a code of their own
/// (`ProgramRole::reader`).
pub mod read {
    pub const BYTES: i32 = 0;
    pub const FLOATS: i32 = 1;
    pub const ACROSS: i32 = 2;
    pub const DOWN: i32 = 3;
}

/// Code of the first formula. Each formula has two codes: for pixels of bytes and for pixels of
/// floats.
pub const FORMULAS: i32 = 16;
