//! Batches on the device: workers read files and bring pixels onto the device by one of several routes; one thread
//! launches the kernel that turns them into tensors.
//!
//! ```text
//! worker      page, cell, read, header, plan, route, and one of
//!               a decoder on the worker's stream   |   libjpeg-turbo and an upload   |   the whole sample, on the CPU
//! gatherer    for a route that batches: gathers pages, decodes them in one call, and publishes those that were written
//! launcher    for a group of pages whose pixels are ready: one launch of the fused kernel, those of the program kernel's
//!             passes, then, with a batch stage, one of the kernel that mixes the pairs which are complete now
//! ```
//!
//! Each point has a test in `tests/loader_gpu/`:
//!
//! * A worker acquires a page first and a cell second. So every cell that was handed out has a page and will be filled,
//!   and the two rings cannot deadlock.
//! * The balancer sends each image to the route on which it is expected to finish first, among those that its header and
//!   the settings allow. The route affects when a sample arrives, never its position.
//! * An image that no route accepts, that a route rejects or that does not fit into a page is made on the CPU, with the
//!   same bits as without a device, and uploaded as a finished sample; the reason is recorded. Files that look damaged
//!   are never decoded on the device. Damage inside the coded data that leaves every marker valid is detected only by
//!   decoders that report it.
//! * Device work is timed by events in its streams, for some spans of each kind. All events are created at the start; no
//!   stream and no thread ever waits for one.
//! * While another thread of the process captures a graph, these threads continue and do not end the capture.
//! * The host waits for the device only for a page, decoder or upload that is still in use, for a call of the hardware
//!   engines, and before an image goes to them, because on Hopper they write when they are called and not in stream order.
//! * A page is launched after the host has observed that its pixels are ready. A slow image or call delays no other image.
//! * An image that nvJPEG skipped although its call succeeded is made on the CPU and counted.

use std::sync::Arc;

use crate::error::{Result, SampleError};
use crate::geometry::{Orientation, Roi, Size};
use crate::gpu::{self, DeviceBuffer, Event, PinnedBuffer, Stopwatch, Stream, TensorSlot, Upload};
use crate::header::{FrameKind, Header, Sampling};
use crate::loader::sample::record::SampleRecord;
use crate::loader::slot::feed::Job;
use crate::loader::slot::{BatchInfo, BatchSlot};
use crate::plan::SamplePlan;
use crate::ring::{Filling, Slot};
use crate::tensor::TensorShape;

pub(super) use decoder::Decoders;
pub(super) use gatherer::Gatherer;
pub(super) use launcher::Launcher;
pub(super) use mixer::Mixer;
pub(super) use parts::Parts;
pub(super) use router::Router;
pub use routes::offered;
pub(super) use routes::offered_routes;
pub(super) use start::{DeviceMemory, SpareSlots, Taken};
pub(super) use trials::try_routes;
pub(super) use worker::PageWorker;

use router::Submitted;

mod clocks;
mod decoder;
mod encoded;
mod gatherer;
mod held;
mod launcher;
mod mixer;
mod object_pool;
mod parts;
mod router;
mod routes;
mod start;
mod trials;
mod worker;

pub(super) use clocks::Clocks;
pub(super) use object_pool::ObjectPool;

/// A batch's memory on the device.
pub(super) struct DeviceSlot {
    pub tensor: TensorSlot,
    /// Soft targets, if there are any. They are filled and used in the same order as the tensor.
    pub targets: Option<Arc<DeviceBuffer>>,
    sample_bytes: usize,
    target_bytes: usize,
    info: BatchInfo,
    /// Timer of the consumer's stream waits; shared by all slots.
    waits: Arc<Stopwatch>,
}

/// A sample's part of a batch's memory.
pub(super) struct Cell {
    buffer: Arc<DeviceBuffer>,
    offset: usize,
    /// The soft target's memory, with its offset.
    target: Option<(Arc<DeviceBuffer>, usize)>,
}

impl Cell {
    fn address(&self) -> u64 {
        self.buffer.address() + self.offset as u64
    }

    /// 0 without soft targets.
    fn target_address(&self) -> u64 {
        self.target.as_ref().map_or(0, |(buffer, offset)| buffer.address() + *offset as u64)
    }
}

impl DeviceSlot {
    pub fn new(
        tensor: TensorSlot,
        targets: Option<DeviceBuffer>,
        shape: TensorShape,
        waits: Arc<Stopwatch>,
    ) -> Result<Self> {
        let info = BatchInfo::with_room(shape.batch, targets.is_some())?;
        let target_bytes = targets.as_ref().map_or(0, |it| it.len() / shape.batch);
        let (targets, sample_bytes) = (targets.map(Arc::new), shape.sample_bytes());
        Ok(Self { tensor, targets, sample_bytes, target_bytes, info, waits })
    }
}

impl Slot for DeviceSlot {
    fn begin_fill(&mut self) -> Result<()> {
        self.tensor.begin_fill()
    }
    /// The samples are in the producer's stream, and so are the moves over those that were dropped.
    fn end_fill(&mut self) -> Result<()> {
        for (to, from) in self.info.drop_failed() {
            let (stream, targets) = (self.tensor.producer(), self.targets.as_deref());
            gpu::copy_within(stream, self.tensor.buffer(), [from, to], self.sample_bytes)?;
            if let Some(targets) = targets {
                gpu::copy_within(stream, targets, [from, to], self.target_bytes)?;
            }
        }
        self.tensor.end_fill()
    }
    /// Times the wait of the consumer's stream, between an event before it and one after it.
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
        let target = self.targets.clone().map(|buffer| (buffer, place * self.target_bytes));
        Cell { buffer: self.tensor.buffer().clone(), offset: place * self.sample_bytes, target }
    }
    fn return_cell(&mut self, _: usize, _: Cell) {}
}

/// One sample on its way from a worker to the launcher.
pub(super) struct DevicePage {
    /// The file, readable by nvJPEG. The hardware engine reads it until its call is over, the other routes during theirs.
    encoded: Option<PinnedBuffer>,
    /// The decoded window.
    pixels: DeviceBuffer,
    /// Reached when `pixels` are written, unless the page was published after that.
    decoded: Event,
    /// Reached when the kernel has read `pixels`.
    read: Event,
    sample: SamplePlan,
    work: Option<Work>,
}

impl DevicePage {
    /// Creates a page, and enqueues clearing its pixels in the stream of the kernels. Decoders leave the gaps between
    /// rows as they are, and kernels read them together with pixels: what is there does not matter, but it must be
    /// initialised.
    pub fn new(
        encoded: Option<PinnedBuffer>,
        pixels: DeviceBuffer,
        stream: &Stream,
    ) -> Result<Self> {
        let device = pixels.device();
        let (decoded, read) = (Event::new(device)?, Event::new(device)?);
        gpu::fill(stream, &pixels, 0..pixels.len(), 0)?;
        read.record(stream)?;
        Ok(Self { encoded, pixels, decoded, read, sample: SamplePlan::default(), work: None })
    }
}

/// The thread that fills a page waits for what it needs: the host for `decoded` before it reads a file into it, the
/// stream that writes the pixels for `read`.
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

/// A cell with its content.
struct Work {
    job: Job<Cell>,
    payload: Payload,
    result: Result<SampleRecord>,
    errors: Vec<SampleError>,
}

/// The content that a page carries.
enum Payload {
    /// Nothing: the sample failed.
    Nothing,
    /// Zeros.
    Zeros,
    /// The page's `pixels`, valid when `decoded` is reached.
    Pixels(Pixels),
    /// The whole tensor, in host memory, still to be uploaded.
    Finished(Upload),
}

/// Description of a page's `pixels`.
#[derive(Clone, Copy)]
struct Pixels {
    /// The window, in the coordinates of the stored image.
    window: Roi,
    /// Size of the whole stored image.
    stored: Size,
    orientation: Orientation,
    /// Index of the first operator that is left to do.
    first: usize,
}

/// A page on its way to the thread of a route that batches.
pub(super) struct Waiting {
    page: Filling<DevicePage>,
    gathered: Gathered,
}

/// What the decoder of a group needs of a page's image.
struct Gathered {
    submitted: Submitted,
    /// Bytes of the file.
    len: usize,
    image: Size,
    /// Class of its header; `None` if it is no JPEG.
    class: Option<HeaderClass>,
    wanted: Roi,
    reduction: u32,
}

/// Properties of a header on which a decoder's support for a file mostly depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct HeaderClass {
    sampling: Sampling,
    frame: FrameKind,
    has_restarts: bool,
    /// Width and height, as the exponents of the powers of 2 below them.
    sides: [u32; 2],
    reduction: u32,
    /// Whether a part of the image is decoded.
    windowed: bool,
}

impl HeaderClass {
    /// `None` for an image that is no JPEG.
    fn of(header: &Header, reduction: u32, windowed: bool) -> Option<Self> {
        let jpeg = header.jpeg.as_ref()?;
        let Size { width, height } = header.size;
        Some(Self {
            sampling: jpeg.sampling(),
            frame: jpeg.frame,
            has_restarts: jpeg.restart_interval > 0,
            sides: [width, height].map(|side| side.max(1).ilog2()),
            reduction,
            windowed,
        })
    }
}
