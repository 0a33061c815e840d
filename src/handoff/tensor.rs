//! A batch as a cudarc slice.

use std::ops::Deref;
use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, CudaView, CudaViewMut};

use crate::error::{Error, Result};
use crate::gpu::{BorrowedSlice, DeviceElement, Stream};
use crate::loader::Batch;

/// Batch on the device, as memory that cudarc 0.19 can use in one of its streams.
///
/// The tensor owns the batch. Dropping the tensor returns the slot to the loader. The slot is
/// filled again only after two things have ended: the work in the tensor's stream, and the uses of
/// the slice that cudarc has tracked in other streams of the context. cudarc never frees the
/// memory. While cudarc's event tracking is on, which is the default, each `CudaTensor` creates two
/// CUDA events and nothing else. `disable_event_tracking` turns the tracking off.
///
/// A library that needs an owned `CudaSlice`, such as candle for its storage, must copy the data,
/// because the batch owns the memory.
#[derive(Debug)]
pub struct CudaTensor<T: DeviceElement> {
    slice: BorrowedSlice<T, Batch>,
}

impl<T: DeviceElement> CudaTensor<T> {
    /// Passes a batch to a cudarc stream. The stream must belong to the primary context of the same
    /// GPU, which `CudaContext::new` returns.
    ///
    /// # Errors
    /// [`Error::Config`] if the batch is in host memory or has another element type, or if the
    /// stream belongs to another context. [`Error::Device`] if a driver call fails.
    pub fn new(batch: Batch, stream: &Arc<CudaStream>) -> Result<Self> {
        let dtype = batch.shape().dtype;
        if batch.images().element_type() != T::TYPE {
            let problem = format!(
                "is {dtype}, but the elements of the CudaTensor are of type {}; make both the same",
                T::TYPE
            );
            return Err(Error::config("output.dtype", problem));
        }
        let Some(buffer) = batch.device_buffer().cloned() else {
            let problem =
                "the batch is in host memory: use `Batch::host`, or build the loader on a GPU";
            return Err(Error::config("device", problem));
        };
        batch.wait_in(&Arc::new(Stream::of_cudarc(buffer.device(), stream)?))?;
        let len = batch.shape().sample_len() * batch.len();
        Ok(Self { slice: BorrowedSlice::new(buffer, len, stream, batch)? })
    }

    /// Returns all elements, in the order of the batch's shape.
    pub fn view(&self) -> CudaView<'_, T> {
        self.slice.view()
    }

    /// Returns all elements, for changes in place.
    pub fn view_mut(&mut self) -> CudaViewMut<'_, T> {
        self.slice.view_mut()
    }

    /// Returns the batch, for its shape, labels and records.
    pub fn batch(&self) -> &Batch {
        self.slice.keep()
    }
}

impl<T: DeviceElement> Deref for CudaTensor<T> {
    type Target = CudaSlice<T>;

    fn deref(&self) -> &CudaSlice<T> {
        &self.slice
    }
}
