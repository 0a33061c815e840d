//! Shape, element type and memory layout of a batch.

use std::collections::TryReserveError;
use std::fmt;

use bytemuck::Zeroable;
use half::{bf16, f16};
use serde::{Deserialize, Serialize};

mod element;

pub use element::{Element, ElementType};

/// Element type of the output tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum DType {
    /// Unsigned byte, 0 to 255.
    U8,
    /// IEEE 754 binary16, rounded to nearest even.
    F16,
    /// bfloat16 (the upper half of an f32), rounded to nearest even.
    BF16,
    /// IEEE 754 binary32.
    #[default]
    F32,
}

impl DType {
    /// All element types.
    pub const ALL: [DType; 4] = [DType::U8, DType::F16, DType::BF16, DType::F32];

    /// Size of one element in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            DType::U8 => 1,
            DType::F16 | DType::BF16 => 2,
            DType::F32 => 4,
        }
    }

    /// Name in TOML and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            DType::U8 => "u8",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F32 => "f32",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Order of the axes in memory, slowest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Batch, channel, row, column: planes, as in PyTorch.
    #[default]
    Nchw,
    /// Batch, row, column, channel: interleaved, as in TensorFlow.
    Nhwc,
}

impl Layout {
    /// Both layouts.
    pub const ALL: [Layout; 2] = [Layout::Nchw, Layout::Nhwc];

    /// Name in TOML and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Layout::Nchw => "nchw",
            Layout::Nhwc => "nhwc",
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Number of channels of images between decoder and tensor: red, green, blue. They are equal in
/// gray images.
pub const CHANNELS: usize = 3;

/// Memory layout of one batch: dense, without padding between rows, planes or samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorShape {
    /// Number of samples.
    pub batch: usize,
    /// Width of a sample in pixels.
    pub width: u32,
    /// Height of a sample in pixels.
    pub height: u32,
    /// Number of channels: 3 (red, green, blue), or 1 (gray).
    pub channels: usize,
    /// Element type.
    pub dtype: DType,
    /// Order of the axes.
    pub layout: Layout,
}

impl TensorShape {
    /// Number of elements in one sample: channels x height x width. This number and the sizes in
    /// bytes saturate at `usize::MAX`.
    pub const fn sample_len(self) -> usize {
        self.channels.saturating_mul(self.width as usize).saturating_mul(self.height as usize)
    }

    /// Size of one sample in bytes.
    pub const fn sample_bytes(self) -> usize {
        self.sample_len().saturating_mul(self.dtype.bytes())
    }

    /// Size of the batch in bytes.
    pub const fn bytes(self) -> usize {
        self.sample_bytes().saturating_mul(self.batch)
    }

    /// Lengths of the four axes in memory order, slowest first.
    pub const fn dims(self) -> [usize; 4] {
        let (width, height) = (self.width as usize, self.height as usize);
        match self.layout {
            Layout::Nchw => [self.batch, self.channels, height, width],
            Layout::Nhwc => [self.batch, height, width, self.channels],
        }
    }
}

impl fmt::Display for TensorShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.dims();
        write!(f, "{a}x{b}x{c}x{d} {} {}", self.dtype, self.layout)
    }
}

/// Tensor in host memory that owns its elements. [`Preprocessor::run`](crate::Preprocessor::run)
/// returns one.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    shape: TensorShape,
    elements: Elements,
}

/// One vector type per element type, so callers can take the vector without a copy.
#[derive(Clone, Debug, PartialEq)]
enum Elements {
    U8(Vec<u8>),
    F16(Vec<f16>),
    BF16(Vec<bf16>),
    F32(Vec<f32>),
}

/// Defines the methods `as_…` and `into_…` for each element type.
macro_rules! typed {
    ($($as_it:ident $into_it:ident $variant:ident $type:ty),+) => {
        impl Tensor {
            $(
                #[doc = concat!("The elements, if their type is [`DType::", stringify!($variant), "`].")]
                pub fn $as_it(&self) -> Option<&[$type]> {
                    match &self.elements {
                        Elements::$variant(elements) => Some(elements),
                        _ => None,
                    }
                }

                #[doc = concat!("The vector of elements without a copy, if their type is [`DType::", stringify!($variant), "`].")]
                pub fn $into_it(self) -> Option<Vec<$type>> {
                    match self.elements {
                        Elements::$variant(elements) => Some(elements),
                        _ => None,
                    }
                }
            )+

            /// Elements as bytes in native byte order.
            pub fn bytes(&self) -> &[u8] {
                match &self.elements {
                    $(Elements::$variant(elements) => bytemuck::cast_slice(elements),)+
                }
            }

            /// Elements as mutable bytes in native byte order.
            pub fn bytes_mut(&mut self) -> &mut [u8] {
                match &mut self.elements {
                    $(Elements::$variant(elements) => bytemuck::cast_slice_mut(elements),)+
                }
            }
        }
    };
}

typed! {
    as_u8 into_u8 U8 u8,
    as_f16 into_f16 F16 f16,
    as_bf16 into_bf16 BF16 bf16,
    as_f32 into_f32 F32 f32
}

impl Tensor {
    /// Creates a tensor of zeros.
    ///
    /// # Errors
    /// [`TryReserveError`] if the allocation fails.
    pub fn zeros(shape: TensorShape) -> Result<Self, TryReserveError> {
        let len = shape.sample_len().saturating_mul(shape.batch);
        let elements = match shape.dtype {
            DType::U8 => Elements::U8(zeros(len)?),
            DType::F16 => Elements::F16(zeros(len)?),
            DType::BF16 => Elements::BF16(zeros(len)?),
            DType::F32 => Elements::F32(zeros(len)?),
        };
        Ok(Self { shape, elements })
    }

    /// Shape, element type and layout.
    pub fn shape(&self) -> TensorShape {
        self.shape
    }

    /// Lengths of the four axes in memory order, slowest first. Same as [`TensorShape::dims`].
    pub fn array_shape(&self) -> [usize; 4] {
        self.shape.dims()
    }
}

fn zeros<T: Zeroable + Clone>(len: usize) -> Result<Vec<T>, TryReserveError> {
    let mut elements = Vec::new();
    elements.try_reserve_exact(len)?;
    elements.resize(len, T::zeroed());
    Ok(elements)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_axes_follow_the_layout() {
        let shape = TensorShape {
            batch: 2,
            width: 5,
            height: 3,
            dtype: DType::F16,
            layout: Layout::Nchw,
            channels: 3,
        };
        assert_eq!(shape.bytes(), 2 * 3 * 5 * 3 * 2);
        assert_eq!(shape.dims(), [2, 3, 3, 5]);
        assert_eq!(TensorShape { layout: Layout::Nhwc, ..shape }.dims(), [2, 3, 5, 3]);
    }

    #[test]
    fn bytes_saturate() {
        let shape = TensorShape {
            batch: 1 << 20,
            width: u32::MAX,
            height: u32::MAX,
            dtype: DType::F32,
            layout: Layout::Nchw,
            channels: 3,
        };
        assert_eq!((shape.sample_bytes(), shape.bytes()), (usize::MAX, usize::MAX));
    }

    #[test]
    fn a_tensor_returns_only_its_own_element_type_and_a_failed_allocation_is_an_error() {
        let shape = TensorShape {
            batch: 1,
            width: 2,
            height: 1,
            dtype: DType::F16,
            layout: Layout::Nhwc,
            channels: 3,
        };
        let mut tensor = Tensor::zeros(shape).unwrap();
        tensor.bytes_mut()[..2].copy_from_slice(&f16::ONE.to_ne_bytes());
        assert_eq!((tensor.array_shape(), tensor.bytes().len()), ([1, 1, 2, 3], 12));
        assert_eq!(tensor.as_f16().unwrap()[..2], [f16::ONE, f16::ZERO]);
        assert!(
            tensor.as_u8().is_none() && tensor.as_bf16().is_none() && tensor.as_f32().is_none()
        );
        assert_eq!(tensor.into_f16().unwrap().len(), 6);
        let huge = TensorShape { width: u32::MAX, height: u32::MAX, ..shape };
        assert!(Tensor::zeros(huge).is_err());
    }
}
