//! Batches on the device. Workers read files and bring pixels onto the device by one of several
//! routes. One thread launches the kernels that turn the pixels into tensors.
//!
//! ```text
//! worker      takes a page and a cell, reads the file, parses the header, plans the sample, then one of:
//!             |-- a decoder on the worker's stream                          --> launcher
//!             |-- a CPU decoder, then an upload of the window               --> launcher
//!             |-- the whole sample on the CPU, uploaded by the launcher     --> launcher
//!             '-- a route that batches                                      --> gatherer
//! gatherer    decodes several pages in one call                             --> launcher
//! launcher    launches kernels for a group of pages whose pixels are ready:
//!             |-- the fused kernel
//!             |-- the passes of the program kernel
//!             |-- for each view on the device, its fused kernel and its passes
//!             |-- the kernel that moves the masks of all pages of the group
//!             '-- with a batch stage, the kernel that mixes the pairs that are complete
//! ```
//!
//! Each of the following points has a test in `tests/gpu/`:
//!
//! * A worker acquires a page first and a cell second. So every cell in use has a page and will be
//!   filled, and the two rings cannot deadlock.
//! * For each image, the balancer chooses the route on which the image is expected to finish first.
//!   The balancer considers only routes that the image's header and the settings allow. The route
//!   affects when a sample is finished, never its position.
//! * An image is processed on the CPU if no route accepts it, if a route rejects it, or if it does
//!   not fit into a page. The finished sample has the same bits as without a device. The sample is
//!   uploaded, and the reason is recorded. Files that seem corrupt are never decoded on the device.
//!   If the coded data is corrupt but every marker is valid, only some decoders report the damage.
//! * Events in the streams time some spans of each kind of device work. All events are created at
//!   the start. No stream and no thread ever waits for a timing event.
//! * While another thread of the process captures a CUDA graph, the loader's threads continue and
//!   do not end the capture.
//! * The host waits for the device only in these cases: a page, decoder or upload buffer is still
//!   in use; a call of the JPEG engines is running; an image is about to be passed to the engines.
//!   The last wait is needed because on Hopper the engines write when they are called and not in
//!   stream order.
//! * A page is launched after the host has observed that its pixels are ready. A slow image or call
//!   delays no other image.
//! * An image that nvJPEG skipped although its call succeeded is processed on the CPU and counted.

use std::ops::Range;
use std::sync::Arc;

use crate::decode::{DeviceImage, Fingerprint, RowIndex};
use crate::error::{Result, SampleError};
use crate::footprint::Memory;
use crate::geometry::{Orientation, Roi, Size};
use crate::gpu::{self, DeviceBuffer, Event, PinnedBuffer, Stopwatch, Stream, TensorSlot, Upload};
use crate::header::{FrameKind, Header, Sampling};
use crate::image::Planes;
use crate::loader::sample::cache::Caches;
use crate::loader::sample::record::SampleRecord;
use crate::loader::slot::column::{HostCell, HostColumns};
use crate::loader::slot::feed::Job;
use crate::loader::slot::{BatchInfo, BatchSlot};
use crate::op::kernel_text::RoiParams;
use crate::plan::{ColumnPlan, ColumnRole, Plan, SamplePlan};
use crate::ring::{Filling, Slot};

pub(super) use decoder::Decoders;
pub(super) use gatherer::Gatherer;
pub(super) use launcher::Launcher;
pub(super) use mask_launcher::MaskLauncher;
pub(super) use mixer::Mixer;
pub(super) use parts::Parts;
pub(super) use router::Router;
pub use routes::offered;
pub(super) use routes::offered_routes;
pub(super) use start::{DeviceMemory, SpareSlots, Taken};
pub(super) use trials::try_routes;
pub(super) use worker::PageWorker;

use page_masks::PageMasks;
use router::Submitted;

mod block;
mod clocks;
mod column_copies;
mod decoder;
mod encoded;
mod file_memory;
mod gatherer;
mod held;
mod launcher;
mod mask_launcher;
mod mixer;
mod object_pool;
mod page_masks;
mod parts;
mod router;
mod routes;
mod start;
mod trials;
mod worker;

pub(super) use clocks::Clocks;
pub(super) use column_copies::ColumnCopies;
pub(super) use object_pool::ObjectPool;

/// Memory of a batch on the device.
pub(super) struct DeviceSlot {
    /// The images, with the events that order work on all columns.
    pub tensor: TensorSlot,
    /// Columns on the device, in the order of [`ColumnPlan::slot`]. The first one has the memory of
    /// `tensor`.
    pub columns: Arc<[DeviceColumn]>,
    host: HostColumns,
    /// Copies of columns in host memory.
    copies: Option<Box<ColumnCopies>>,
    info: BatchInfo,
    /// Stopwatch for waits of the consumer's stream, shared by all slots.
    waits: Arc<Stopwatch>,
}

/// A column in device memory.
pub(super) struct DeviceColumn {
    pub buffer: Arc<DeviceBuffer>,
    sample_bytes: usize,
}

/// Memory of one sample of a batch.
pub(super) struct Cell {
    columns: Arc<[DeviceColumn]>,
    place: usize,
    host: HostCell,
}

impl Cell {
    /// Buffer of the device column with this number, and the sample's part of it in bytes.
    fn part(&self, column: usize) -> (&DeviceBuffer, Range<usize>) {
        let DeviceColumn { buffer, sample_bytes } = &self.columns[column];
        (buffer, self.place * sample_bytes..(self.place + 1) * sample_bytes)
    }

    /// Address of the sample's part of the device column with this number.
    fn address(&self, column: usize) -> u64 {
        let DeviceColumn { buffer, sample_bytes } = &self.columns[column];
        buffer.address() + (self.place * sample_bytes) as u64
    }
}

impl DeviceSlot {
    /// Creates a slot whose images are in `tensor`. `buffer` returns memory for each other column
    /// on the device. `copies` are the copies of columns in host memory.
    pub fn new(
        plan: &Plan,
        tensor: TensorSlot,
        mut buffer: impl FnMut(&ColumnPlan) -> Result<DeviceBuffer>,
        copies: Option<Box<ColumnCopies>>,
        waits: Arc<Stopwatch>,
    ) -> Result<Self> {
        let columns = plan.columns_in(Memory::Device).map(|column| {
            let buffer = match column.role {
                ColumnRole::Image => tensor.buffer().clone(),
                _ => Arc::new(buffer(column)?),
            };
            Ok(DeviceColumn { buffer, sample_bytes: column.sample_bytes() })
        });
        let columns = columns.collect::<Result<_>>()?;
        let host = HostColumns::new(&plan.columns, plan.shape.batch)?;
        let info = BatchInfo::with_room(plan.shape.batch, plan.stage.is_some())?;
        Ok(Self { tensor, columns, host, copies, info, waits })
    }

    /// Copies of columns in host memory.
    pub fn copies(&self) -> Option<&ColumnCopies> {
        self.copies.as_deref()
    }

    /// Columns in host memory.
    pub fn host(&self) -> &HostColumns {
        &self.host
    }

    /// Columns in host memory, for writing.
    pub fn host_mut(&mut self) -> &mut HostColumns {
        &mut self.host
    }
}

impl Slot for DeviceSlot {
    fn begin_fill(&mut self) -> Result<()> {
        self.tensor.begin_fill()
    }
    /// The samples are written in the producer's stream. The moves that close the gaps of dropped
    /// samples, and the copies of columns in host memory, run in that stream too.
    fn end_fill(&mut self) -> Result<()> {
        let moves = self.info.drop_failed();
        self.host.join(&moves, self.info.records.len())?;
        let stream = self.tensor.producer();
        for (to, from) in moves {
            for DeviceColumn { buffer, sample_bytes } in &*self.columns {
                gpu::copy_within(stream, buffer, [from, to], *sample_bytes)?;
            }
        }
        if let Some(copies) = &mut self.copies {
            copies.enqueue(&self.host, self.info.records.len(), stream)?;
        }
        self.tensor.end_fill()
    }
    /// Times the wait of the consumer's stream with an event before it and one after it.
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
    fn host_columns(&mut self) -> &mut HostColumns {
        &mut self.host
    }
    fn take_cell(&mut self, place: usize) -> Cell {
        Cell { columns: self.columns.clone(), place, host: self.host.take(place) }
    }
    fn return_cell(&mut self, place: usize, cell: Cell) {
        self.host.put_back(place, cell.host);
    }
}

/// Buffers of one sample on its way from a worker to the launcher.
pub(super) struct DevicePage {
    /// The encoded file, in memory that nvJPEG can read. A route of nvJPEG may read the file until
    /// the image is decoded.
    encoded: Option<PinnedBuffer>,
    /// The decoded window.
    pixels: DeviceBuffer,
    /// Event that is reached when `pixels` are written. Not recorded if the page is published only
    /// after they were written.
    decoded: Event,
    /// Event that is reached when the kernel has read `pixels`.
    read: Event,
    sample: SamplePlan,
    /// Plans of the outputs of the views on the device, in order.
    outputs: Vec<SamplePlan>,
    /// The masks of the sample. `None` if the plan has no masks.
    masks: Option<PageMasks>,
    work: Option<Work>,
}

impl DevicePage {
    /// Creates a page, and enqueues clearing its pixels in the stream of the kernels. Decoders do
    /// not write the gaps between rows, but kernels read the gaps together with pixels. The values
    /// in the gaps do not matter, but must be initialized.
    pub fn new(
        encoded: Option<PinnedBuffer>,
        pixels: DeviceBuffer,
        outputs: Vec<SamplePlan>,
        masks: Option<PageMasks>,
        stream: &Stream,
    ) -> Result<Self> {
        let device = pixels.device();
        let (decoded, read) = (Event::new(device)?, Event::new(device)?);
        gpu::fill(stream, &pixels, 0..pixels.len(), 0)?;
        read.record(stream)?;
        let (sample, work) = (SamplePlan::default(), None);
        Ok(Self { encoded, pixels, decoded, read, sample, outputs, masks, work })
    }
}

/// These methods do nothing, because the thread that fills a page arranges the waits: the host
/// waits for `decoded` before it reads a file into the page, and the stream that writes pixels
/// waits for `read`.
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

/// A cell of a batch, with the result of processing its sample.
struct Work {
    job: Job<Cell>,
    payload: Payload,
    result: Result<SampleRecord>,
    errors: Vec<SampleError>,
}

/// Content of a page.
enum Payload {
    /// Nothing, because the sample failed.
    Nothing,
    /// Zeros, which replace the image and the views of a failed sample.
    Zeros,
    /// The page's `pixels`, which are valid when `decoded` is reached.
    Pixels(Pixels),
    /// The finished image and the finished views in host memory, to be uploaded.
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
    /// Index of the first operator that is still to run.
    first: usize,
    /// Layout of the planes of samples, from the start of `pixels`, that a decoder has written in
    /// place of interleaved pixels. They cover the window. `first` is then 0.
    planes: Option<Planes>,
}

impl Pixels {
    /// Description of the pixels for the kernels. They begin at `address`, and are bytes.
    fn leaf(&self, address: u64) -> RoiParams {
        let Self { window, stored, orientation, .. } = *self;
        match &self.planes {
            Some(planes) => {
                RoiParams::planes(planes.addresses(address), planes, stored, orientation)
            }
            None => RoiParams::new(address, window.pitch_bytes(), window, stored, orientation),
        }
    }
}

/// Page on its way to a gatherer thread.
pub(super) struct Waiting {
    page: Filling<DevicePage>,
    gathered: Gathered,
}

/// Data of a page's image for the group decoder.
struct Gathered {
    submitted: Submitted,
    /// Size of the file, in bytes.
    len: usize,
    image: Size,
    /// Class of the image's header; `None` if it is not a JPEG.
    class: Option<HeaderClass>,
    wanted: Roi,
    reduction: u32,
    /// Description of the image for the kernels of the route `feedwater`.
    jpeg: Option<Box<DeviceImage>>,
    /// Place of the coded data, if it is in the device memory of files.
    place: Option<u64>,
    /// What to keep of the image after the route `feedwater` has decoded it.
    keeps: Option<Box<Keeps>>,
}

/// What to keep of an image after the route `feedwater` has decoded it.
struct Keeps {
    caches: Arc<Caches>,
    /// The row index, or the fingerprint of the file if the kernels make the index.
    index: KeptIndex,
    /// Whether to keep a new index in the cache of row indexes.
    stores_index: bool,
    /// The file, to keep it in device memory.
    file: Option<KeptFile>,
}

/// Row index of an image.
enum KeptIndex {
    /// There is none.
    None,
    /// The kernels decode with this index.
    Used(RowIndex),
    /// The kernels make an index for the file with this fingerprint.
    Made(Fingerprint),
}

/// A file whose coded data is copied to device memory.
struct KeptFile {
    /// Number of the sample in the caches.
    number: u64,
    header: Header,
    /// Range of the coded data in the file.
    coded: Range<usize>,
    /// Restart markers, as positions in the file.
    restarts: Vec<usize>,
}

/// Properties of an image's header that mostly determine whether a decoder supports the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct HeaderClass {
    sampling: Sampling,
    frame: FrameKind,
    has_restarts: bool,
    /// Binary logarithms of width and height, rounded down.
    sides: [u32; 2],
    reduction: u32,
    /// Whether only a part of the image is decoded.
    windowed: bool,
}

impl HeaderClass {
    /// Class of a header; `None` for an image that is not a JPEG.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernels read the planes that a decoder has written, at their offsets in the page, and
    /// the pixels if there are no planes.
    #[test]
    fn a_page_may_hold_planes() {
        let planes = Planes {
            part: Roi::new(16, 32, 48, 64),
            pitches: [48, 32],
            chroma: [48 * 64, 48 * 64 + 32 * 32],
            ratio: [2, 2],
            is_gray: false,
            chroma_size: [50, 50],
            bytes: 48 * 64 + 2 * 32 * 32,
        };
        let (window, stored) = (Roi::new(20, 40, 30, 40), Size::new(100, 99));
        let orientation = Orientation::from_exif(6);
        let pixels = Pixels { window, stored, orientation, first: 0, planes: Some(planes) };
        let addresses = [4096, 4096 + 3072, 4096 + 3072 + 1024];
        let expected = RoiParams::planes(addresses, &planes, stored, orientation);
        assert_eq!(pixels.leaf(4096), expected);
        let interleaved = Pixels { planes: None, ..pixels };
        let expected = RoiParams::new(4096, window.pitch_bytes(), window, stored, orientation);
        assert_eq!(interleaved.leaf(4096), expected);
    }
}
