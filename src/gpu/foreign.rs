//! Pool memory as a slice of cudarc, for interoperability.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, CudaView, CudaViewMut, DeviceRepr};

use super::{DeviceBuffer, Stream};
use crate::error::{Error, Result};
use crate::tensor::Element;

/// Rust type of the elements of a column that cudarc supports.
pub trait DeviceElement: Element + DeviceRepr {}

impl<T: Element + DeviceRepr> DeviceElement for T {}

/// A cudarc `CudaSlice` over pool memory. cudarc never frees the memory.
///
/// The value dereferences to the slice for reading, and provides views of the slice. Dropping the
/// value makes the slice's stream wait for all uses of the slice that cudarc has tracked, and then
/// drops `keep`. Until then, `keep` prevents the memory from being reused.
pub struct BorrowedSlice<T: DeviceElement, K> {
    slice: ManuallyDrop<CudaSlice<T>>,
    /// Owner of the memory. Dropped after the slice.
    keep: K,
    buffer: Arc<DeviceBuffer>,
}

impl<T: DeviceElement, K> BorrowedSlice<T, K> {
    /// Creates a slice of the first `len` elements of a buffer, for work in a cudarc stream.
    ///
    /// # Errors
    /// [`Error::Config`] for a stream of another context. [`Error::Internal`] if the buffer has
    /// fewer than `len` elements.
    ///
    /// # Panics
    /// Panics if cudarc tracks events (its default) and the driver has no memory for an event.
    pub fn new(
        buffer: Arc<DeviceBuffer>,
        len: usize,
        stream: &Arc<CudaStream>,
        keep: K,
    ) -> Result<Self> {
        Stream::of_cudarc(buffer.device(), stream)?;
        // cudarc needs a bound context to create its events.
        let _entered = buffer.device().enter()?;
        if len.checked_mul(size_of::<T>()).is_none_or(|bytes| bytes > buffer.len()) {
            let bytes = buffer.len();
            let problem = format!(
                "{len} elements of type {} do not fit into a buffer of {bytes} bytes",
                T::TYPE
            );
            return Err(Error::Internal { problem });
        }
        // SAFETY: the buffer is in the stream's context and large enough for `len` elements. `Self`
        // holds the buffer as long as the slice. Every bit pattern is a valid `T`. The address is a
        // multiple of 256.
        let slice = unsafe { stream.upgrade_device_ptr::<T>(buffer.address(), len) };
        Ok(Self { slice: ManuallyDrop::new(slice), keep, buffer })
    }

    /// Returns the whole slice for reading.
    pub fn view(&self) -> CudaView<'_, T> {
        self.slice.as_view()
    }

    /// Returns the whole slice for writing. There is no access to a `&mut CudaSlice`, because a
    /// caller could move the slice out of it and free the memory.
    pub fn view_mut(&mut self) -> CudaViewMut<'_, T> {
        self.slice.as_view_mut()
    }

    /// Returns the owner of the memory.
    pub fn keep(&self) -> &K {
        &self.keep
    }
}

impl<T: DeviceElement, K> Deref for BorrowedSlice<T, K> {
    type Target = CudaSlice<T>;

    fn deref(&self) -> &CudaSlice<T> {
        &self.slice
    }
}

impl<T: DeviceElement, K> Drop for BorrowedSlice<T, K> {
    fn drop(&mut self) {
        let _entered = self.buffer.device().enter();
        // SAFETY: the slice is taken only once, in this destructor. `leak` frees what cudarc
        // created for the slice, but not the memory.
        let slice = unsafe { ManuallyDrop::take(&mut self.slice) };
        slice.leak();
    }
}

impl<T: DeviceElement, K> fmt::Debug for BorrowedSlice<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BorrowedSlice {{ {} x {} }}", self.slice.len(), T::TYPE)
    }
}
