//! A batch as a cudarc slice.

use std::ops::Deref;
use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, CudaView, CudaViewMut};

use crate::error::{Error, Result};
use crate::gpu::{BorrowedSlice, Element, Stream};
use crate::loader::Batch;

/// Batch on the device, as memory that cudarc 0.19 can use in one of its streams.
///
/// It owns the batch. Dropping it returns the slot. The slot is filled again after the work in that
/// stream, and after the uses of the slice in other streams of its context that cudarc has tracked.
/// cudarc never frees the memory. While cudarc's event tracking is on (its default), each
/// `CudaTensor` creates two events and nothing else. `disable_event_tracking` turns it off.
///
/// A library that needs an owned `CudaSlice`, such as candle for its storage, must copy the data.
#[derive(Debug)]
pub struct CudaTensor<T: Element> {
    slice: BorrowedSlice<T, Batch>,
}

impl<T: Element> CudaTensor<T> {
    /// Passes a batch to a cudarc stream. The stream must belong to `CudaContext::new` of the same
    /// GPU, which is its primary context.
    ///
    /// # Errors
    /// [`Error::Config`] if the batch is in host memory or has another element type, or if the
    /// stream belongs to another context. [`Error::Device`] if a driver call fails.
    pub fn new(batch: Batch, stream: &Arc<CudaStream>) -> Result<Self> {
        let dtype = batch.shape().dtype;
        if dtype != T::DTYPE {
            let problem = format!(
                "is {dtype}, but the elements of the CudaTensor are of type {}; make both the same",
                T::DTYPE
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

impl<T: Element> Deref for CudaTensor<T> {
    type Target = CudaSlice<T>;

    fn deref(&self) -> &CudaSlice<T> {
        &self.slice
    }
}
