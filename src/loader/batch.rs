//! A batch, and what is known of each sample in it.

use std::sync::Arc;

use bytes::BytesMut;

use crate::annotation::Objects;
use crate::error::{Error, Result, SampleError, Tolerated, reserve};
use crate::footprint;
use crate::geometry::{Orientation, Roi, Size, View};
use crate::gpu::{self, DeviceBuffer, Event, Stream};
use crate::op::Trace;
use crate::plan::{RECORD_BYTES, Route};
use crate::ring::{Slot, Using};
use crate::source::Source;
use crate::tensor::TensorShape;

use super::Loader;
use super::device::DeviceSlot;
use super::host::HostSlot;

/// What happened at one place of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct SampleRecord {
    /// Index in the source of the sample that stands here.
    pub index: u64,
    /// Its label; `None` where it has none.
    pub label: Option<i64>,
    /// Size of the upright image.
    pub size: Size,
    /// How the stored image was turned.
    pub orientation: Orientation,
    /// What the chain did to it.
    pub trace: Trace,
    /// How its pixels came about.
    pub outcome: Outcome,
    /// Why all its operators ran on the CPU although the plan has some on the device, where that is so: no route took
    /// it, or it did not fit into a page. The bits are those that the CPU makes without a device.
    pub cpu_fallback: Option<&'static str>,
    /// The damage that `decode.strict = false` passed over; of several sorts one. Damage outside of the decoded window may go
    /// unseen.
    pub tolerated: Option<Tolerated>,
    /// Index of the sample that should stand here and could not be used.
    pub replaces: Option<u64>,
    /// It only fills up the last batch and must not be counted again.
    pub padding: bool,
}

impl SampleRecord {
    /// Zeros, of no sample yet.
    pub(super) const SUBSTITUTED: Self = Self {
        index: 0,
        label: None,
        size: Size { width: 0, height: 0 },
        orientation: Orientation::UPRIGHT,
        trace: Trace {
            roi: Roi { x: 0, y: 0, width: 0, height: 0 },
            cropping: false,
            flipped_horizontally: false,
            flipped_vertically: false,
            view: View::NOTHING,
        },
        outcome: Outcome::Substituted,
        cpu_fallback: None,
        tolerated: None,
        replaces: None,
        padding: false,
    };
}

/// How the pixels of a sample came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// Decoded by the GPU's JPEG engines.
    NvjpegHardware,
    /// Decoded by nvJPEG's kernels, entropy coding included.
    NvjpegGpu,
    /// Decoded by nvJPEG: entropy decoding on the host, the rest on the device.
    NvjpegHybrid,
    /// Decoded on the CPU.
    Cpu,
    /// The sample could not be used; zeros stand here.
    Substituted,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Outcome; 5] = [
        Outcome::NvjpegHardware,
        Outcome::NvjpegGpu,
        Outcome::NvjpegHybrid,
        Outcome::Cpu,
        Outcome::Substituted,
    ];

    /// What becomes of a sample that a route decodes.
    pub const fn of(route: Route) -> Self {
        match route {
            Route::NvjpegHardware => Outcome::NvjpegHardware,
            Route::NvjpegGpu => Outcome::NvjpegGpu,
            Route::NvjpegHybrid => Outcome::NvjpegHybrid,
            Route::Cpu => Outcome::Cpu,
        }
    }

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::NvjpegHardware => Route::NvjpegHardware.name(),
            Outcome::NvjpegGpu => Route::NvjpegGpu.name(),
            Outcome::NvjpegHybrid => Route::NvjpegHybrid.name(),
            Outcome::Cpu => Route::Cpu.name(),
            Outcome::Substituted => "substituted",
        }
    }
}

/// What a slot carries besides its tensor; the memory stays with the slot.
#[derive(Debug, Default)]
pub(super) struct BatchInfo {
    pub epoch: u32,
    pub number: u64,
    pub records: Vec<SampleRecord>,
    pub labels: Vec<i64>,
    pub faults: Vec<SampleError>,
}

/// The error for a slot whose memory cannot be allocated.
pub(super) fn no_slot(bytes: u64) -> Error {
    let problem = format!(
        "a batch needs {} of memory, which cannot be allocated; lower loader.batch or loader.prefetch",
        footprint::bytes(bytes)
    );
    Error::Memory { needed: bytes, available: None, problem }
}

// The footprint's row `records` must cover each sample of a slot.
const _: () = assert!(
    (size_of::<SampleRecord>() + size_of::<i64>() + size_of::<Option<BytesMut>>()) as u64
        <= RECORD_BYTES
);

impl BatchInfo {
    /// Allocates room for batches of at most `samples`.
    pub fn with_room(samples: usize) -> Result<Self> {
        let mut info = Self::default();
        let records = reserve::reserve(&mut info.records, samples);
        let refused = |_| no_slot((samples as u64).saturating_mul(RECORD_BYTES));
        records.and_then(|()| reserve::reserve(&mut info.labels, samples)).map_err(refused)?;
        Ok(info)
    }

    /// Makes room for a batch of `len` samples.
    pub fn start(&mut self, epoch: u32, number: u64, len: usize) {
        self.epoch = epoch;
        self.number = number;
        self.records.clear();
        self.records.resize(len, SampleRecord::SUBSTITUTED);
        self.labels.clear();
        self.labels.resize(len, -1);
        self.faults.clear();
    }
}

/// A slot of the ring that holds one batch, split into cells of one sample each while it is filled.
pub(super) trait BatchSlot: Slot {
    /// What is handed to the thread that fills one sample.
    type Cell: Send;
    /// Whether filling must begin before cells are handed out. On a device it begins as late as can be, since
    /// the wait for the slot's last use would hold up the batches before it.
    const BEGIN_BEFORE_CELLS: bool;
    /// What the slot carries besides its tensor.
    fn info(&self) -> &BatchInfo;
    /// What the slot carries besides its tensor.
    fn info_mut(&mut self) -> &mut BatchInfo;
    /// Hands out the memory of a sample.
    fn take_cell(&mut self, place: usize) -> Self::Cell;
    /// Takes it back, filled.
    fn return_cell(&mut self, place: usize, cell: Self::Cell);
}

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
