//! A batch, as the consumer has it.

use std::sync::Arc;

use crate::annotation::Objects;
use crate::error::{Result, SampleError};
use crate::gpu::{self, DeviceBuffer, Event, Stream};
use crate::ring::Using;
use crate::source::Source;
use crate::tensor::TensorShape;

use super::Loader;
use super::device::DeviceSlot;
use super::host::HostSlot;
use super::record::{Outcome, SampleRecord};
use super::slot::{BatchInfo, BatchSlot};

/// One batch, ready for the model. Dropping it gives its slot back to the loader.
///
/// Samples are in the order of the epoch. A batch may be sent to another thread and outlive the loader. A
/// batch that is leaked (`mem::forget`) shortens the ring by a slot and does nothing else.
pub struct Batch {
    slot: BatchMemory,
    shape: TensorShape,
    source: Arc<dyn Source>,
    /// The process that built the loader.
    process: u32,
}

/// Where a batch lives.
pub(super) enum BatchMemory {
    Host(Using<HostSlot>),
    Device(Using<DeviceSlot>),
}

impl Batch {
    pub(super) fn new(slot: BatchMemory, full: TensorShape, loader: &Loader) -> Self {
        let (source, process) = (loader.source.clone(), loader.process);
        let mut this = Self { slot, shape: full, source, process };
        this.shape.batch = this.info().records.len();
        this
    }

    /// Samples, width, height, element type and layout of this batch; the last of an epoch may be smaller.
    pub fn shape(&self) -> TensorShape {
        self.shape
    }

    /// How many samples it has.
    pub fn len(&self) -> usize {
        self.shape.batch
    }

    /// Whether it has none; never so.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The epoch that it belongs to, from 0.
    pub fn epoch(&self) -> u32 {
        self.info().epoch
    }

    /// Its number in the epoch, from 0.
    pub fn number(&self) -> u64 {
        self.info().number
    }

    /// The label of each sample, -1 where it has none.
    pub fn labels(&self) -> &[i64] {
        &self.info().labels
    }

    /// What is known of each sample.
    pub fn samples(&self) -> &[SampleRecord] {
        &self.info().records
    }

    /// Index in the source of each sample.
    pub fn indices(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.samples().iter().map(|sample| sample.index)
    }

    /// The objects of the sample at `place` that can be seen in its tensor, with their boxes in its pixels; none where the
    /// source has none, and where zeros stand in the place of a sample. Made anew by every call, on the thread that
    /// calls.
    ///
    /// # Panics
    ///
    /// `place` must be below [`len`](Self::len).
    pub fn objects(&self, place: usize) -> Objects {
        let SampleRecord { index, size, orientation, trace, outcome, .. } = self.samples()[place];
        if outcome == Outcome::Substituted {
            return Objects::default();
        }
        let (objects, frame) = (self.source.objects(index), self.source.canvas(index).frame);
        Objects::place(objects, frame, (size, orientation), trace.view)
    }

    /// Every sample that could not be used while this batch was made, with the reason.
    pub fn faults(&self) -> &[SampleError] {
        &self.info().faults
    }

    /// The tensor, where it lives in host memory: dense, in the shape's layout, native byte order.
    /// [`as_f32`](Self::as_f32) and its like give the elements.
    pub fn host(&self) -> Option<&[u8]> {
        match &self.slot {
            BatchMemory::Host(slot) => Some(&slot.tensor()[..self.shape.bytes()]),
            BatchMemory::Device(_) => None,
        }
    }

    /// The same for writing, for what is changed in place.
    pub fn host_mut(&mut self) -> Option<&mut [u8]> {
        let bytes = self.shape.bytes();
        match &mut self.slot {
            BatchMemory::Host(slot) => Some(&mut slot.tensor_mut()[..bytes]),
            BatchMemory::Device(_) => None,
        }
    }

    /// Address of the tensor, where it lives on the device. What is put into [`stream`](Self::stream) finds it
    /// filled; other streams are let in with [`on`](Self::on). Valid until the batch is dropped, and after that
    /// for what is in that stream already.
    pub fn device_ptr(&self) -> Option<u64> {
        match &self.slot {
            BatchMemory::Host(_) => None,
            BatchMemory::Device(slot) => Some(slot.tensor.buffer().address()),
        }
    }

    /// The consumer's stream, where the batch lives on the device: the one that the loader was built with, or
    /// one that it made. A dropped batch is filled again behind the work that is in it then.
    pub fn stream(&self) -> Option<&Stream> {
        match &self.slot {
            BatchMemory::Host(_) => None,
            BatchMemory::Device(slot) => Some(slot.tensor.consumer()),
        }
    }

    /// Lets another stream than the consumer's use the tensor, as often and for as many streams as is wanted: what is put
    /// into it from now on finds the tensor filled, and the slot is filled again behind what is in it when
    /// the batch is dropped, and so is what comes into the consumer's stream after that. Nothing waits on the host. The
    /// default stream of threads counts for all threads. In host memory there is nothing to wait for.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) for a stream of another device,
    /// [`Error::Device`](crate::Error::Device) where the driver refuses.
    pub fn on(&self, stream: &Arc<Stream>) -> Result<()> {
        match &self.slot {
            BatchMemory::Host(_) => Ok(()),
            BatchMemory::Device(slot) => slot.tensor.lend(stream),
        }
    }

    /// Reached when the tensor is filled, where it lives on the device: for streams that are driven from
    /// elsewhere. It is the slot's, so it means this batch until that is dropped. Waiting for it does not
    /// keep the slot from being filled again; [`on`](Self::on) does both.
    pub fn ready(&self) -> Option<&Event> {
        match &self.slot {
            BatchMemory::Host(_) => None,
            BatchMemory::Device(slot) => Some(slot.tensor.ready()),
        }
    }

    /// The memory of the tensor, where it lives on the device; the last batch of an epoch may fill less of it.
    pub fn device_buffer(&self) -> Option<&Arc<DeviceBuffer>> {
        match &self.slot {
            BatchMemory::Host(_) => None,
            BatchMemory::Device(slot) => Some(slot.tensor.buffer()),
        }
    }

    /// A copy of the tensor in host memory, wherever it lives; waits for the device.
    pub fn to_host(&self) -> Result<Vec<u8>> {
        match &self.slot {
            BatchMemory::Host(slot) => Ok(slot.tensor()[..self.shape.bytes()].to_vec()),
            BatchMemory::Device(slot) => {
                let mut bytes = vec![0; self.shape.bytes()];
                gpu::read_back(slot.tensor.consumer(), slot.tensor.buffer(), 0, &mut bytes)?;
                Ok(bytes)
            }
        }
    }

    pub(super) fn info(&self) -> &BatchInfo {
        self.slot.info()
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // The slot's ring is the parent's after `fork`, and a thread of the parent may hold its lock.
        if self.process != std::process::id() {
            match &mut self.slot {
                BatchMemory::Host(slot) => slot.abandon(),
                BatchMemory::Device(slot) => slot.abandon(),
            }
            std::mem::forget(self.source.clone());
        }
    }
}

impl BatchMemory {
    pub fn info(&self) -> &BatchInfo {
        match self {
            BatchMemory::Host(slot) => slot.info(),
            BatchMemory::Device(slot) => slot.info(),
        }
    }
}
