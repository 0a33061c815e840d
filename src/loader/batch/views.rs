//! Typed slices of a batch, and its shape for array crates.

use half::{bf16, f16};

use super::Batch;
use crate::plan::ColumnRole;

/// Typed slices of the tensor. Each method returns `None` if the batch is on a device or has
/// another element type.
///
/// With [`Batch::array_shape`], these slices fit every crate that takes a slice and a shape,
/// without a copy: `ndarray::ArrayView4::from_shape(batch.array_shape(), batch.as_f32().unwrap())`.
impl Batch {
    /// The tensor as bytes, if its element type is [`DType::U8`](crate::DType::U8) and it is in
    /// host memory.
    pub fn as_u8(&self) -> Option<&[u8]> {
        self.images().as_slice()
    }

    /// The tensor as f32, if that is its element type ([`DType::F32`](crate::DType::F32)) and it is
    /// in host memory.
    pub fn as_f32(&self) -> Option<&[f32]> {
        self.images().as_slice()
    }

    /// The tensor as [`struct@f16`], if that is its element type
    /// ([`DType::F16`](crate::DType::F16)) and it is in host memory.
    pub fn as_f16(&self) -> Option<&[f16]> {
        self.images().as_slice()
    }

    /// The tensor as [`bf16`], if that is its element type ([`DType::BF16`](crate::DType::BF16))
    /// and it is in host memory.
    pub fn as_bf16(&self) -> Option<&[bf16]> {
        self.images().as_slice()
    }

    /// Mutable [`as_u8`](Self::as_u8).
    pub fn as_u8_mut(&mut self) -> Option<&mut [u8]> {
        self.column_mut(ColumnRole::Image.name())
    }

    /// Mutable [`as_f32`](Self::as_f32).
    pub fn as_f32_mut(&mut self) -> Option<&mut [f32]> {
        self.column_mut(ColumnRole::Image.name())
    }

    /// Mutable [`as_f16`](Self::as_f16).
    pub fn as_f16_mut(&mut self) -> Option<&mut [f16]> {
        self.column_mut(ColumnRole::Image.name())
    }

    /// Mutable [`as_bf16`](Self::as_bf16).
    pub fn as_bf16_mut(&mut self) -> Option<&mut [bf16]> {
        self.column_mut(ColumnRole::Image.name())
    }

    /// Lengths of the four axes in memory order, slowest first: `[samples, 3, height, width]` for
    /// NCHW and `[samples, height, width, 3]` for NHWC. Strides are row-major (the last axis is
    /// contiguous) without padding, so the product is the length of the typed slice.
    pub fn array_shape(&self) -> [usize; 4] {
        self.shape().dims()
    }
}
