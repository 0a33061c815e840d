//! Batch as delivered to the consumer.

mod column;
mod copy;
mod views;

use std::sync::Arc;

use crate::annotation::Objects;
use crate::error::{Result, SampleError};
use crate::geometry::BoundingBox;
use crate::gpu::{DeviceBuffer, Event, Stream};
use crate::loader::device::DeviceSlot;
use crate::loader::host::HostSlot;
use crate::loader::sample::record::{Pair, SampleRecord};
use crate::loader::slot::{BatchInfo, BatchSlot};
use crate::plan::{ColumnPlan, ColumnRole, Plan};
use crate::ring::Using;
use crate::source::Source;
use crate::tensor::TensorShape;

pub use column::Column;

/// One batch, ready for the model. Dropping the batch returns its slot to the loader.
///
/// Samples are in the order of the epoch. A batch may be sent to another thread and may outlive the
/// loader. Leaking a batch (`mem::forget`) removes one slot from the ring and has no other effect.
pub struct Batch {
    slot: BatchMemory,
    shape: TensorShape,
    /// The plan's columns, all in host memory if this batch is a copy.
    columns: Arc<[ColumnPlan]>,
    source: Arc<dyn Source>,
    plan: Arc<Plan>,
    /// Process id of the process that built the loader.
    process: u32,
}

/// Slot of a batch, in host or device memory.
pub(super) enum BatchMemory {
    Host(Using<HostSlot>),
    Device(Using<DeviceSlot>),
}

impl Batch {
    pub(super) fn new(
        slot: BatchMemory,
        source: Arc<dyn Source>,
        plan: Arc<Plan>,
        process: u32,
    ) -> Self {
        let shape = TensorShape { batch: slot.info().records.len(), ..plan.shape };
        Self { slot, shape, columns: plan.columns.clone(), source, plan, process }
    }

    /// Shape, element type and layout of this batch. The last batch of an epoch may have fewer
    /// samples.
    pub fn shape(&self) -> TensorShape {
        self.shape
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.shape.batch
    }

    /// Whether the batch has no samples. Loops never get such a batch.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Epoch of the batch, from 0.
    pub fn epoch(&self) -> u32 {
        self.info().epoch
    }

    /// Number of the batch in the epoch, from 0.
    pub fn number(&self) -> u64 {
        self.info().number
    }

    /// Label of each sample; -1 for samples without a label.
    pub fn labels(&self) -> &[i64] {
        self.column_of(ColumnRole::Label).and_then(|it| it.as_slice()).unwrap_or_default()
    }

    /// Soft targets of shape `[samples, classes]`, row-major. `None` if
    /// [`targets.classes`](crate::plan::TargetSettings::classes) is not set or the batch is in
    /// device memory. The targets are all zeros for a sample that was replaced by zeros and has no
    /// label.
    pub fn soft_targets(&self) -> Option<&[f32]> {
        self.column_of(ColumnRole::Target)?.as_slice()
    }

    /// Mutable [`soft_targets`](Self::soft_targets).
    pub fn soft_targets_mut(&mut self) -> Option<&mut [f32]> {
        self.column_mut(ColumnRole::Target.name())
    }

    /// Address of the soft targets: f32, `[samples, classes]`, row-major. `None` without soft
    /// targets or if the batch is in host memory. A stream may use the targets whenever it may use
    /// the tensor, see [`device_ptr`](Self::device_ptr).
    pub fn soft_targets_ptr(&self) -> Option<u64> {
        self.column_of(ColumnRole::Target)?.device_ptr()
    }

    /// Copies the soft targets to host memory, and waits for the device. Empty without soft
    /// targets.
    pub fn soft_targets_to_host(&self) -> Result<Vec<f32>> {
        let Some(column) = self.column_of(ColumnRole::Target) else { return Ok(Vec::new()) };
        let mut targets = vec![0.0; self.len() * self.classes()];
        column.copy_to(bytemuck::cast_slice_mut(&mut targets))?;
        Ok(targets)
    }

    /// Number of classes of the soft targets; 0 without soft targets.
    pub fn classes(&self) -> usize {
        self.plan.stage.as_ref().map_or(0, |stage| stage.classes as usize)
    }

    /// Result of the batch operators for each pair of samples, at the places 2k and 2k + 1. A last
    /// sample without a partner is a pair too. Empty without soft targets.
    pub fn pairs(&self) -> &[Pair] {
        &self.info().pairs
    }

    /// Record of each sample: its index, size, transforms and outcome.
    pub fn samples(&self) -> &[SampleRecord] {
        &self.info().records
    }

    /// Index of each sample in the source.
    pub fn indices(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.samples().iter().map(|sample| sample.index)
    }

    /// Annotated objects that are visible in the tensor of the sample at `place`, with boxes in
    /// pixels of the tensor. Empty if the source has no annotations or the sample was replaced by
    /// zeros. Batch operators do not change objects, although a mixed sample also shows objects of
    /// its partner. Computed on each call, on the calling thread. If the chain displaces pixels
    /// (`elastic`), the displacements are computed again for this. They take 16 bytes per displaced
    /// pixel during the call, and 8 bytes as long as the objects live. The plan does not count this
    /// memory.
    ///
    /// # Panics
    ///
    /// If `place` is not below [`len`](Self::len).
    pub fn objects(&self, place: usize) -> Objects {
        self.samples()[place].objects(&*self.source, &self.plan, self.epoch())
    }

    /// The loader's source.
    pub fn source(&self) -> Arc<dyn Source> {
        self.source.clone()
    }

    /// The loader's plan. [`Plan::drawn`] returns the random actions of a sample.
    pub fn plan(&self) -> Arc<Plan> {
        self.plan.clone()
    }

    /// Boxes of all annotated objects of the sample at `place`, in its upright image.
    ///
    /// # Panics
    ///
    /// If `place` is not below [`len`](Self::len).
    #[doc(hidden)]
    pub fn upright_boxes(&self, place: usize) -> Vec<BoundingBox> {
        self.samples()[place].upright_boxes(&*self.source)
    }

    /// Errors of the samples that failed while this batch was filled.
    pub fn errors(&self) -> &[SampleError] {
        &self.info().errors
    }

    /// The tensor as bytes, if it is in host memory: dense, in the shape's layout, native byte
    /// order. [`as_f32`](Self::as_f32) and similar methods return typed elements.
    pub fn host(&self) -> Option<&[u8]> {
        self.images().bytes()
    }

    /// Mutable [`host`](Self::host).
    pub fn host_mut(&mut self) -> Option<&mut [u8]> {
        self.column_bytes_mut(ColumnRole::Image.name())
    }

    /// Address of the tensor, if it is in device memory. Work enqueued in [`stream`](Self::stream)
    /// runs after the tensor is filled. For other streams, call [`wait_in`](Self::wait_in). The
    /// address is valid until the batch is dropped. Work that is already in the stream at that time
    /// may still use the tensor.
    pub fn device_ptr(&self) -> Option<u64> {
        self.images().device_ptr()
    }

    /// Stream of the consumer, if the batch is in device memory. The stream was given to the
    /// builder or created by the loader. When the batch is dropped, the loader refills its slot
    /// only after the work that is then in this stream has finished.
    pub fn stream(&self) -> Option<&Stream> {
        match &self.slot {
            BatchMemory::Host(_) => None,
            BatchMemory::Device(slot) => Some(slot.tensor.consumer()),
        }
    }

    /// Makes a stream wait for the batch, and lets it use the tensor. May be called repeatedly, and
    /// for any number of streams. Work that is enqueued in the stream after the call runs after the
    /// tensor is filled. When the batch is dropped, its slot is refilled only after the work that
    /// is then in the stream has finished. Later work in the consumer's stream also waits for that
    /// work. The host does not wait. The per-thread default stream stands for the default streams
    /// of all threads. Does nothing for a batch in host memory.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) for a stream of another device,
    /// [`Error::Device`](crate::Error::Device) if the driver fails.
    pub fn wait_in(&self, stream: &Arc<Stream>) -> Result<()> {
        match &self.slot {
            BatchMemory::Host(_) => Ok(()),
            BatchMemory::Device(slot) => slot.tensor.lend(stream),
        }
    }

    /// Lets streams with unknown handles use the tensor. Blocks the host until the tensor is
    /// filled. When the batch is dropped, the loader refills its slot only after all work that is
    /// then queued in the GPU's primary context has finished.
    pub(crate) fn on_unnamed_streams(&self) -> Result<()> {
        match &self.slot {
            BatchMemory::Host(_) => Ok(()),
            BatchMemory::Device(slot) => slot.tensor.lend_to_unnamed(),
        }
    }

    /// Event that is reached when the tensor is filled, for streams outside of this crate. `None`
    /// for a batch in host memory. The event belongs to the slot, so it is valid until the batch is
    /// dropped. A stream that waits for this event is unknown to the loader, so the loader may
    /// refill the slot while the stream still reads the tensor. [`wait_in`](Self::wait_in) prevents
    /// this.
    pub fn ready(&self) -> Option<&Event> {
        match &self.slot {
            BatchMemory::Host(_) => None,
            BatchMemory::Device(slot) => Some(slot.tensor.ready()),
        }
    }

    /// Device memory of the tensor, if it is in device memory. The last batch of an epoch may use
    /// only a part of it.
    pub fn device_buffer(&self) -> Option<&Arc<DeviceBuffer>> {
        match &self.slot {
            BatchMemory::Host(_) => None,
            BatchMemory::Device(slot) => Some(slot.tensor.buffer()),
        }
    }

    /// Copies the tensor to host memory, and waits for the device.
    pub fn to_host(&self) -> Result<Vec<u8>> {
        self.images().to_host()
    }

    pub(super) fn info(&self) -> &BatchInfo {
        self.slot.info()
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // After `fork`, the slot's ring belongs to the parent, and a thread of the parent may hold
        // its lock.
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
