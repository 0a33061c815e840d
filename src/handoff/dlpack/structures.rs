//! Structures and constants of dlpack.h.

use std::ffi::c_void;

use crate::tensor::ElementType;

/// Version of the DLPack structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DLPackVersion {
    /// Major version. A reader that does not support this major version may only call the deleter.
    pub major: u32,
    /// Minor version. Minor versions add codes, but keep the layout.
    pub minor: u32,
}

/// Version of the exported structures.
pub const VERSION: DLPackVersion = DLPackVersion { major: 1, minor: 1 };

/// Flag of [`DLManagedTensorVersioned`](super::DLManagedTensorVersioned): the tensor must not be
/// written.
pub const READ_ONLY: u64 = 1;

/// Device of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DLDevice {
    /// [`CPU`] or [`CUDA`].
    pub device_type: i32,
    /// Number of the GPU, or 0 for the CPU.
    pub device_id: i32,
}

/// `kDLCPU`.
pub const CPU: i32 = 1;
/// `kDLCUDA`.
pub const CUDA: i32 = 2;

/// Element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DLDataType {
    /// Type code: 0 is `kDLInt`, 1 is `kDLUInt`, 2 is `kDLFloat`, 4 is `kDLBfloat`.
    pub code: u8,
    /// Number of bits of an element.
    pub bits: u8,
    /// Number of elements of a vector: 1.
    pub lanes: u16,
}

impl From<ElementType> for DLDataType {
    fn from(element: ElementType) -> Self {
        let code = match element {
            ElementType::I64 => 0,
            ElementType::U8 => 1,
            ElementType::F16 | ElementType::F32 => 2,
            ElementType::BF16 => 4,
        };
        Self { code, bits: 8 * element.bytes() as u8, lanes: 1 }
    }
}

/// Address, shape and element type of a tensor. It does not own the memory.
#[derive(Debug)]
#[repr(C)]
pub struct DLTensor {
    /// First element, in host or device memory.
    pub data: *mut c_void,
    /// Device of the memory.
    pub device: DLDevice,
    /// Number of axes, such as 4 for images.
    pub ndim: i32,
    /// Element type.
    pub dtype: DLDataType,
    /// Extent of each axis.
    pub shape: *mut i64,
    /// Stride of each axis, in elements. Never null in exported tensors.
    pub strides: *mut i64,
    /// Number of bytes from `data` to the first element: 0.
    pub byte_offset: u64,
}
