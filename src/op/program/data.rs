//! Data of the program kernel. Twins of the structs in `kernels/steps.cu`.

use bytemuck::{Pod, Zeroable};

use crate::op::MAX_PARAMS_BYTES;
use crate::op::kernel_text::RoiParams;
use crate::tensor::CHANNELS;

/// Size of the largest leaf's parameters, in bytes.
pub const LEAF_BYTES: usize = size_of::<RoiParams>();

/// What happens to one sample.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Program {
    pub passes: u64,
    pub steps: u64,
    pub statistics: u64,
    pub count: i32,
    pub unused: i32,
}

/// Size of a sample's histograms, of three channels and gray, in bytes.
pub const HISTOGRAM_BYTES: usize = 4 * 256 * size_of::<u32>();

/// Size of a sample's histograms and of the table that is made from them, in bytes.
pub const STATISTICS_BYTES: usize = HISTOGRAM_BYTES + CHANNELS * 256 * size_of::<f32>();

/// What makes an image.
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
    /// Left, top, right and bottom of what can be read.
    pub readable: [i32; 4],
    pub whole: [i32; 2],
    /// Parameters of the source, then those of what reads it.
    pub source: SourceBytes,
}

/// Parameters of the type that a pass reads through.
pub type SourceBytes = [u8; LEAF_BYTES + MAX_PARAMS_BYTES];

/// What is done to a pixel.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Step {
    pub code: i32,
    pub columns: Along,
    pub rows: Along,
    pub unused: i32,
    pub params: [u8; MAX_PARAMS_BYTES],
}

/// Pixels outside of a rectangle are filled.
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

/// Position along an axis for number `i` of a pass's output: `at + step * i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Along {
    pub at: i32,
    pub step: i32,
}

/// Device memory of one sample.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// The tensor.
    pub out: u64,
    /// Two scratch images. The fused kernel stores the first.
    pub scratch: [u64; 2],
    /// Start of the tables.
    pub tables: u64,
    /// Passes, steps and statistics.
    pub passes: u64,
}

/// Codes of steps.
pub mod step {
    pub const TABLE: i32 = 0;
    pub const FLOAT_TABLE: i32 = 1;
    pub const MADE: i32 = 2;
    pub const FLOATS_MADE: i32 = 3;
    pub const FILL: i32 = 4;
    pub const FILL_FLOATS: i32 = 5;
}

/// Codes of readers. Some kinds have one of their own (`ProgramRole::reader`).
pub mod read {
    pub const BYTES: i32 = 0;
    pub const FLOATS: i32 = 1;
    pub const ACROSS: i32 = 2;
    pub const DOWN: i32 = 3;
}

/// Code of the first formula. Each has two codes: for bytes and for floats.
pub const FORMULAS: i32 = 16;
