//! Interoperability: pool memory as a slice of cudarc.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;

use bytemuck::AnyBitPattern;
use cudarc::driver::{CudaSlice, CudaStream, CudaView, CudaViewMut, DeviceRepr};
use half::{bf16, f16};

use super::{DeviceBuffer, Stream};
use crate::error::{Error, Result};
use crate::tensor::DType;

/// Rust type of a tensor element.
pub trait Element: DeviceRepr + AnyBitPattern + Send + Sync + 'static {
    /// Corresponding [`DType`].
    const DTYPE: DType;
}

impl Element for u8 {
    const DTYPE: DType = DType::U8;
}

impl Element for f16 {
    const DTYPE: DType = DType::F16;
}

impl Element for bf16 {
    const DTYPE: DType = DType::BF16;
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;
}

/// A `CudaSlice` of cudarc over pool memory, which cudarc never frees.
///
/// Dereferences to the slice for reading, and returns views. Dropping it makes the slice's stream wait for all uses
/// that cudarc has tracked, and then drops `K`, which keeps the memory from being reused.
pub struct BorrowedSlice<T: Element, K> {
    slice: ManuallyDrop<CudaSlice<T>>,
    /// Dropped after the slice.
    keep: K,
    buffer: Arc<DeviceBuffer>,
}

impl<T: Element, K> BorrowedSlice<T, K> {
    /// The first `len` elements of a buffer, for work in a stream of cudarc.
    ///
    /// # Errors
    /// [`Error::Config`] for a stream of another context, [`Error::Internal`] if the buffer is shorter.
    ///
    /// # Panics
    /// If cudarc tracks events, as it does by default, and the driver has no memory for one.
    pub fn new(
        buffer: Arc<DeviceBuffer>,
        len: usize,
        stream: &Arc<CudaStream>,
        keep: K,
    ) -> Result<Self> {
        Stream::of_cudarc(buffer.device(), stream)?;
        // cudarc binds the context for its events.
        let _entered = buffer.device().enter()?;
        if len.checked_mul(size_of::<T>()).is_none_or(|bytes| bytes > buffer.len()) {
            let bytes = buffer.len();
            let problem = format!("{len} {}s of a buffer of {bytes} bytes", T::DTYPE);
            return Err(Error::Internal { problem });
        }
        // SAFETY: that many bytes of the stream's context, held below as long as the slice; every bit pattern
        // is a `T`. The address is a multiple of 256.
        let slice = unsafe { stream.upgrade_device_ptr::<T>(buffer.address(), len) };
        Ok(Self { slice: ManuallyDrop::new(slice), keep, buffer })
    }

    /// The whole slice, for reading.
    pub fn view(&self) -> CudaView<'_, T> {
        self.slice.as_view()
    }

    /// The whole slice, for writing. There is no access to a `&mut CudaSlice`, out of which the slice could be moved
    /// and freed.
    pub fn view_mut(&mut self) -> CudaViewMut<'_, T> {
        self.slice.as_view_mut()
    }

    /// Owner of the memory.
    pub fn keep(&self) -> &K {
        &self.keep
    }
}

impl<T: Element, K> Deref for BorrowedSlice<T, K> {
    type Target = CudaSlice<T>;

    fn deref(&self) -> &CudaSlice<T> {
        &self.slice
    }
}

impl<T: Element, K> Drop for BorrowedSlice<T, K> {
    fn drop(&mut self) {
        let _entered = self.buffer.device().enter();
        // SAFETY: taken once, here. `leak` gives back what cudarc made for the slice, and not the memory.
        let slice = unsafe { ManuallyDrop::take(&mut self.slice) };
        slice.leak();
    }
}

impl<T: Element, K> fmt::Debug for BorrowedSlice<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BorrowedSlice {{ {} x {} }}", self.slice.len(), T::DTYPE)
    }
}
