//! Batches on the device: workers read, and bring pixels onto the device by one of several routes; one thread
//! launches the kernel that makes tensors of them.
//!
//! ```text
//! worker      page, place, read, header, plan, route, and one of
//!               a decoder on the worker's stream   |   libjpeg-turbo and an upload   |   the whole sample, on the CPU
//! gatherer    for a route that batches: gathers pages and decodes them in one call
//! launcher    for a group of pages whose pixels are there: one launch of the fused kernel
//! ```
//!
//! Each sentence with a test in `tests/loader_gpu.rs`:
//!
//! * A worker takes a page first and a place second, so every place that was taken has a page and will arrive: that is
//!   what keeps the two rings from waiting on each other.
//! * The balancer gives each image to the route on which it is expected to be over first, among those that its header
//!   and the settings allow. The route changes when a sample arrives and never where it stands.
//! * What no route takes, what a route refuses, and what does not fit into a page is made on the CPU to the same bits
//!   as without a device and uploaded as a finished sample, with the reason. What looks damaged never reaches the device:
//!   the CPU judges it. Damage inside the coded data that leaves every marker right is seen only by a decoder that tells.
//! * What the device does is timed by marks in its streams, of some spans of each sort, all of whose events are made at
//!   start; no stream and no thread ever waits for one of them.
//! * While another thread of the process captures a graph, these threads go on and do not end the capture.
//! * The host waits for the device only where it must: for a page, a decoder or an upload that is still in use,
//!   and before an image goes to the hardware engine, which on Hopper writes when it is called and not in the order
//!   of its stream.

use std::sync::Arc;

use crate::error::{Result, SampleError};
use crate::geometry::{Orientation, Roi, Size};
use crate::gpu::{DeviceBuffer, Event, PinnedBuffer, Stopwatch, TensorSlot, Upload};
use crate::plan::SamplePlan;
use crate::ring::{Filling, Slot};
use crate::tensor::TensorShape;

use super::feed::Job;
use super::record::SampleRecord;
use super::slot::{BatchInfo, BatchSlot};

pub(super) use decoder::Decoders;
pub(super) use gatherer::Gatherer;
pub(super) use launcher::Launcher;
pub(super) use parts::Parts;
pub(super) use router::Router;
pub use routes::offered;
pub(super) use routes::offered_routes;
pub(super) use start::{DeviceMemory, Taken};
pub(super) use worker::PageWorker;

use router::Submitted;

mod clocks;
mod decoder;
mod encoded;
mod gatherer;
mod launcher;
mod object_pool;
mod parts;
mod router;
mod routes;
mod start;
mod worker;

pub(super) use clocks::Clocks;
pub(super) use object_pool::ObjectPool;

/// A batch's memory on the device.
pub(super) struct DeviceSlot {
    pub tensor: TensorSlot,
    sample_bytes: usize,
    info: BatchInfo,
    /// How long the consumer's stream waits; one for all slots.
    waits: Arc<Stopwatch>,
}

/// A sample's part of it.
pub(super) struct Cell {
    buffer: Arc<DeviceBuffer>,
    offset: usize,
}

impl DeviceSlot {
    pub fn new(tensor: TensorSlot, shape: TensorShape, waits: Arc<Stopwatch>) -> Result<Self> {
        let info = BatchInfo::with_room(shape.batch)?;
        Ok(Self { tensor, sample_bytes: shape.sample_bytes(), info, waits })
    }
}

impl Slot for DeviceSlot {
    fn begin_fill(&mut self) -> Result<()> {
        self.tensor.begin_fill()
    }
    fn end_fill(&mut self) -> Result<()> {
        self.tensor.end_fill()
    }
    /// From the mark before the wait to the one behind it is what the consumer's stream waits.
    fn begin_use(&mut self) -> Result<()> {
        let waits = self.waits.clone();
        let mut lap = waits.lap()?;
        lap.start(self.tensor.consumer())?;
        self.tensor.begin_use()?;
        lap.stop(self.tensor.consumer(), self.info.records.len() as u64)
    }
    fn end_use(&mut self) -> Result<()> {
        self.tensor.end_use()
    }
}

impl BatchSlot for DeviceSlot {
    type Cell = Cell;
    const BEGIN_BEFORE_CELLS: bool = false;

    fn info(&self) -> &BatchInfo {
        &self.info
    }
    fn info_mut(&mut self) -> &mut BatchInfo {
        &mut self.info
    }
    fn take_cell(&mut self, place: usize) -> Cell {
        Cell { buffer: self.tensor.buffer().clone(), offset: place * self.sample_bytes }
    }
    fn return_cell(&mut self, _: usize, _: Cell) {}
}

/// One sample between a worker and the launcher.
pub(super) struct DevicePage {
    /// The file, where nvJPEG may read it. The hardware engine does until `decoded`, the other routes while they are
    /// called.
    encoded: Option<PinnedBuffer>,
    /// The decoded window.
    pixels: DeviceBuffer,
    /// Reached when `pixels` are there.
    decoded: Event,
    /// Reached when the kernel has read them.
    read: Event,
    sample: SamplePlan,
    work: Option<Work>,
}

impl DevicePage {
    pub fn new(encoded: Option<PinnedBuffer>, pixels: DeviceBuffer) -> Result<Self> {
        let device = pixels.device();
        let (decoded, read) = (Event::new(device)?, Event::new(device)?);
        Ok(Self { encoded, pixels, decoded, read, sample: SamplePlan::default(), work: None })
    }
}

/// Who fills a page waits for what it needs: the host for `decoded` before it reads a file into it, the stream
/// that writes the pixels for `read`.
impl Slot for DevicePage {
    fn begin_fill(&mut self) -> Result<()> {
        Ok(())
    }
    fn end_fill(&mut self) -> Result<()> {
        Ok(())
    }
    fn begin_use(&mut self) -> Result<()> {
        Ok(())
    }
    fn end_use(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A place with what shall be put there.
struct Work {
    job: Job<Cell>,
    payload: Payload,
    result: Result<SampleRecord>,
    faults: Vec<SampleError>,
}

/// What a page brings.
enum Payload {
    /// Nothing: the place failed.
    Nothing,
    /// Zeros are put there.
    Zeros,
    /// `pixels` will be there when `decoded` is reached.
    Pixels(Pixels),
    /// The whole tensor, on its way to the device.
    Finished(Upload),
}

/// What lies in a page's `pixels`.
#[derive(Clone, Copy)]
struct Pixels {
    /// The window, in the coordinates of the image as stored.
    window: Roi,
    /// Size of the whole image as stored.
    stored: Size,
    orientation: Orientation,
    /// The first operator that is left to do.
    first: usize,
}

/// A page on its way to the thread of a route that batches.
pub(super) struct Waiting {
    page: Filling<DevicePage>,
    gathered: Gathered,
}

/// What the decoder of a group must know of a page's image.
struct Gathered {
    submitted: Submitted,
    /// Bytes of the file.
    len: usize,
    image: Size,
    wanted: Roi,
    reduction: u32,
}
