//! Batches on the device: workers read and decode on the host's side, one thread launches everything else.
//!
//! ```text
//! worker      page, place, read, header, plan, and one of
//!               nvJPEG                |   pixels in the page   |   the finished tensor in the page
//! launcher    a group of pages: nothing | upload of pixels | upload of the tensor,
//!             then one launch of the fused kernel for all that have pixels
//! ```
//!
//! A worker takes a page first and a place second, so every place that was taken has a page and will arrive:
//! that is what keeps the two rings from waiting on each other. What nvJPEG cannot take, and what does not fit
//! into a page, is made on the CPU to the same bits and uploaded as a finished tensor; it is counted as `cpu`.

use std::sync::Arc;
use std::time::Instant;

use crate::error::{Error, Result, SampleError};
use crate::geometry::{Orientation, Roi, Size};
use crate::gpu::nvjpeg::{DecodeFault, Jpeg, PageDecoder, Window};
use crate::gpu::{self, DeviceBuffer, Kernel, Staged, Stream, TensorSlot, Upload};
use crate::header::{ColorSpace, FrameKind, Header, Sampling};
use crate::image::HostImage;
use crate::op::kernel_text::{FloatsParams, Leaf, RoiParams, write_sample};
use crate::plan::{DevicePlan, Place, Plan, SamplePlan};
use crate::random::SampleKey;
use crate::ring::{Consumer, Producer, Slot, Using};
use crate::source::Source;

use super::batch::{BatchInfo, BatchSlot, Outcome, SampleRecord};
use super::feed::{Done, Feed, Job};
use super::host::Maker;
use super::policy::{Trouble, produce, record};
use super::stats::Counters;

/// A batch's memory on the device.
pub(super) struct DeviceSlot {
    pub tensor: TensorSlot,
    sample_bytes: usize,
    info: BatchInfo,
}

/// A sample's part of it.
pub(super) struct Cell {
    buffer: Arc<DeviceBuffer>,
    offset: usize,
}

impl DeviceSlot {
    pub fn new(tensor: TensorSlot, sample_bytes: usize) -> Self {
        Self { tensor, sample_bytes, info: BatchInfo::default() }
    }
}

impl Slot for DeviceSlot {
    fn begin_fill(&mut self) -> Result<()> {
        self.tensor.begin_fill()
    }
    fn end_fill(&mut self) -> Result<()> {
        self.tensor.end_fill()
    }
    fn begin_use(&mut self) -> Result<()> {
        self.tensor.begin_use()
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
    decoder: Option<PageDecoder>,
    pixels: Pixels,
    finished: Upload,
    work: Option<Work>,
    sample: SamplePlan,
}

/// Where a page's decoded pixels lie.
pub(super) enum Pixels {
    /// nvJPEG writes them on the device.
    Device(DeviceBuffer),
    /// The host writes them, and they are uploaded.
    Staged(Staged),
}

impl Pixels {
    fn device(&self) -> &DeviceBuffer {
        match self {
            Pixels::Device(buffer) => buffer,
            Pixels::Staged(staged) => staged.device(),
        }
    }
}

/// A place with what shall be put there.
struct Work {
    job: Job<Cell>,
    payload: Payload,
    result: Result<SampleRecord>,
    faults: Vec<SampleError>,
}

/// What a page holds.
#[derive(Clone, Copy)]
enum Payload {
    /// Nothing: the place failed.
    Nothing,
    /// Zeros are put there.
    Zeros,
    /// nvJPEG decodes this window, in the producer's stream.
    Decoding(Window),
    /// So many bytes of pixels, of this window, upright.
    Pixels(usize, Roi),
    /// The whole tensor.
    Finished,
}

impl DevicePage {
    pub fn new(decoder: Option<PageDecoder>, pixels: Pixels, finished: Upload) -> Self {
        Self { decoder, pixels, finished, work: None, sample: SamplePlan::default() }
    }
}

/// A page may be filled again at once: each of its parts that the device may still read waits by itself when the host
/// writes it, and what is on the device is written and read in the order of one stream.
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

/// Fills pages until there are no places left.
pub(super) struct PageWorker {
    source: Arc<dyn Source>,
    plan: Arc<Plan>,
    counters: Arc<Counters>,
    jpeg: Option<Arc<Jpeg>>,
    stream: Arc<Stream>,
    maker: Maker,
}

impl PageWorker {
    pub fn new(
        source: Arc<dyn Source>,
        plan: Arc<Plan>,
        counters: Arc<Counters>,
        jpeg: Option<Arc<Jpeg>>,
        stream: Arc<Stream>,
    ) -> Self {
        let maker = Maker::new(source.clone(), plan.clone(), counters.clone());
        Self { source, plan, counters, jpeg, stream, maker }
    }

    pub fn run(mut self, feed: &Feed<DeviceSlot>, pages: &Producer<DevicePage>) -> Result<()> {
        loop {
            let begin = Instant::now();
            let Some(mut page) = pages.acquire() else { return Ok(()) };
            let Some(job) = feed.take() else { return Ok(()) };
            self.counters.blocked.add(begin.elapsed());
            let work = self.fill(&mut page, job);
            page.work = Some(work);
            page.publish()?;
        }
    }

    fn fill(&mut self, page: &mut DevicePage, job: Job<Cell>) -> Work {
        let (plan, source) = (self.plan.clone(), self.source.clone());
        let wanted =
            SampleKey { seed: plan.settings.loader.seed, epoch: job.epoch, index: job.index };
        let mut payload = Payload::Nothing;
        let mut faults = Vec::new();
        let result = produce(&plan, &*source, wanted, &mut faults, |key| {
            let record;
            (payload, record) = self.attempt(page, key)?;
            Ok(record)
        });
        match &result {
            Ok(record) if record.outcome == Outcome::Substituted => payload = Payload::Zeros,
            Ok(_) => {}
            Err(_) => payload = Payload::Nothing,
        }
        let result = result.map(|record| SampleRecord { padding: job.padding, ..record });
        Work { job, payload, result, faults }
    }

    /// Makes a sample in the page, as far as the plan wants it on the host.
    fn attempt(
        &mut self,
        page: &mut DevicePage,
        key: SampleKey,
    ) -> Result<(Payload, SampleRecord), Trouble> {
        let header = self.maker.read(key)?;
        let plan = self.plan.clone();
        let Some(device) = &plan.device else {
            return Err(
                Error::Internal { problem: "a device's worker without a device".into() }.into()
            );
        };
        let made = match (&self.jpeg, plan.decode) {
            (Some(_), Place::Gpu) => self.decode(page, device, &header)?,
            _ => self.pixels(page, device, &header)?,
        };
        if let Some((payload, outcome)) = made {
            std::mem::swap(&mut page.sample, &mut self.maker.sample);
            return Ok((payload, record(&*self.source, key.index, &page.sample, outcome)));
        }
        let record = self.maker.finish_read(key, &header, page.finished.bytes()?)?;
        Ok((Payload::Finished, SampleRecord { finished_on_cpu: true, ..record }))
    }

    /// nvJPEG's decoding; `None` where the picture is not for nvJPEG or does not fit.
    fn decode(
        &mut self,
        page: &mut DevicePage,
        device: &DevicePlan,
        header: &Header,
    ) -> Result<Option<(Payload, Outcome)>, Trouble> {
        let (Some(jpeg), Some(decoder)) = (&self.jpeg, &mut page.decoder) else { return Ok(None) };
        let wanted = self.maker.sample.stored_window;
        let fits = jpeg.window(header.size, wanted).bytes() <= device.pixels_bytes;
        if !nvjpeg_takes(header) || !fits || !self.tables_fit(device) {
            return Ok(None);
        }
        let begin = Instant::now();
        let destination = page.pixels.device();
        let decoded = decoder.decode(&self.stream, self.maker.page.bytes(), wanted, destination);
        self.counters.decode.add(begin.elapsed());
        match decoded {
            Ok(window) => Ok(Some((Payload::Decoding(window), Outcome::Host))),
            Err(fault) => on_cpu_instead(fault).map(|()| None).map_err(Trouble::from),
        }
    }

    /// Decoding and the first operators on the host; `None` where the pixels do not fit.
    fn pixels(
        &mut self,
        page: &mut DevicePage,
        device: &DevicePlan,
        header: &Header,
    ) -> Result<Option<(Payload, Outcome)>, Trouble> {
        let Pixels::Staged(staged) = &mut page.pixels else { return Ok(None) };
        let sample = &self.maker.sample;
        let window =
            sample.steps.get(self.plan.cpu_steps()).map_or(sample.window, |step| step.input);
        let pixel_bytes = if device.leaf == Leaf::Roi { 3 } else { 12 };
        let bytes = pixel_bytes * window.size().pixels() as usize;
        if bytes > device.pixels_bytes || !self.tables_fit(device) {
            return Ok(None);
        }
        let image: &[u8] = match self.maker.prefix(header)? {
            HostImage::U8(image) => image.data(),
            HostImage::F32(image) => bytemuck::cast_slice(image.data()),
        };
        staged.bytes()?[..bytes].copy_from_slice(image);
        Ok(Some((Payload::Pixels(bytes, window), Outcome::Cpu)))
    }

    fn tables_fit(&self, device: &DevicePlan) -> bool {
        let tables = device_tables(&self.maker.sample, self.plan.cpu_steps());
        size_of_val(tables) <= device.table_bytes
    }
}

/// Whether nvJPEG's hybrid decoder takes a picture; the header alone decides, so that it never has to find out by
/// failing: Huffman-coded YCbCr or gray with 8 bits, sequential or progressive.
fn nvjpeg_takes(header: &Header) -> bool {
    header.jpeg.as_ref().is_some_and(|jpeg| {
        jpeg.precision == 8
            && !jpeg.arithmetic
            && matches!(
                jpeg.frame,
                FrameKind::Baseline | FrameKind::Extended | FrameKind::Progressive
            )
            && matches!(jpeg.color_space(), ColorSpace::Gray | ColorSpace::YCbCr)
            && jpeg.sampling() != Sampling::Other
    })
}

/// What nvJPEG refuses, for whatever reason of its own, the CPU decides: so that a file is good or bad on every
/// machine alike. Only a failure of the machine comes back.
fn on_cpu_instead(fault: DecodeFault) -> Result<()> {
    match fault {
        DecodeFault::Sample(_) | DecodeFault::Fatal(Error::Budget { .. }) => Ok(()),
        DecodeFault::Fatal(error) => Err(error),
    }
}

/// The tables of the operators on the device, which come after `cpu_steps` others. A sample is planned backwards, so
/// theirs are the first.
fn device_tables(sample: &SamplePlan, cpu_steps: usize) -> &[i32] {
    let end = sample.steps.get(cpu_steps).map_or(0, |first| first.table.end);
    &sample.table[..end]
}

/// Puts everything that happens on the device into the producer's stream.
pub(super) struct Launcher {
    plan: Arc<Plan>,
    counters: Arc<Counters>,
    stream: Arc<Stream>,
    kernel: Kernel,
    blocks: Vec<Staged>,
}

impl Launcher {
    pub fn new(
        plan: Arc<Plan>,
        counters: Arc<Counters>,
        stream: Arc<Stream>,
        kernel: Kernel,
        blocks: Vec<Staged>,
    ) -> Self {
        Self { plan, counters, stream, kernel, blocks }
    }

    /// Launches until all workers are gone. The stream is empty afterwards, whatever went wrong: nothing that
    /// the device may still use is given back.
    pub fn run(mut self, feed: &Feed<DeviceSlot>, pages: &Consumer<DevicePage>) -> Result<()> {
        let launched = self.launch_all(feed, pages);
        let emptied = self.stream.synchronize();
        launched.and(emptied)
    }

    fn launch_all(&mut self, feed: &Feed<DeviceSlot>, pages: &Consumer<DevicePage>) -> Result<()> {
        let group = self.plan.device.as_ref().map_or(1, |device| device.group);
        let mut held: Vec<Using<DevicePage>> = Vec::with_capacity(group);
        while let Some(first) = pages.next() {
            held.push(first?);
            while held.len() < group
                && let Some(next) = pages.try_next()
            {
                held.push(next?);
            }
            let begin = Instant::now();
            self.launch(feed, &mut held)?;
            self.counters.transform.add(begin.elapsed());
            held.clear();
        }
        Ok(())
    }

    fn launch(&mut self, feed: &Feed<DeviceSlot>, pages: &mut [Using<DevicePage>]) -> Result<()> {
        // The block that was used longest ago: its upload is over.
        self.blocks.rotate_left(1);
        let plan = self.plan.clone();
        let Some(device) = &plan.device else { return Ok(()) };
        let mut count = 0;
        for page in pages.iter_mut() {
            let Some(mut work) = page.work.take() else { continue };
            if !feed.begin(work.job.batch) {
                return Ok(());
            }
            self.fill(device, page, &mut work, &mut count)?;
            page.work = Some(work);
        }
        if count > 0 {
            let tables = device.group * device.kernel.sample_bytes;
            let used = tables.next_multiple_of(8) + count * device.table_bytes;
            let block = &mut self.blocks[0];
            block.upload(&self.stream, 0..used)?;
            let Size { width, height } = Size::new(plan.shape.width, plan.shape.height);
            self.kernel.launch(&self.stream, block.device(), 0, count as u32, width, height)?;
        }
        for page in pages {
            let Some(Work { job, result, faults, .. }) = page.work.take() else { continue };
            let Job { batch, place, cell, .. } = job;
            feed.complete(Done { batch, place, cell, result, faults });
        }
        Ok(())
    }

    /// Puts one page's copies and decoding into the stream, and its parameters into the block.
    fn fill(
        &mut self,
        device: &DevicePlan,
        page: &mut DevicePage,
        work: &mut Work,
        count: &mut usize,
    ) -> Result<()> {
        let sample_bytes = self.plan.shape.sample_bytes();
        let Cell { buffer, offset } = &work.job.cell;
        let out = buffer.address() + *offset as u64;
        match work.payload {
            Payload::Nothing => Ok(()),
            Payload::Zeros => gpu::fill(&self.stream, buffer, *offset..offset + sample_bytes, 0),
            Payload::Finished => page.finished.copy(&self.stream, 0..sample_bytes, buffer, *offset),
            Payload::Decoding(window) => {
                let pitch = window.pitch_bytes();
                let SamplePlan { stored, orientation, .. } = page.sample;
                let address = page.pixels.device().address();
                let leaf =
                    RoiParams::new(address, pitch as u32, window.decoded, stored, orientation);
                self.describe(device, page, out, bytemuck::bytes_of(&leaf), count)
            }
            Payload::Pixels(bytes, window) => {
                let Pixels::Staged(staged) = &mut page.pixels else { return Ok(()) };
                staged.upload(&self.stream, 0..bytes)?;
                let address = staged.device().address();
                let pitch = 3 * window.width;
                let size = Size::new(window.right(), window.bottom());
                let bytes = RoiParams::new(address, pitch, window, size, Orientation::UPRIGHT);
                let floats = FloatsParams::new(address, pitch, window);
                let leaf = match device.leaf {
                    Leaf::Roi => bytemuck::bytes_of(&bytes),
                    Leaf::Floats => bytemuck::bytes_of(&floats),
                };
                self.describe(device, page, out, leaf, count)
            }
        }
    }

    /// Writes a sample's parameters and tables into the block.
    fn describe(
        &mut self,
        device: &DevicePlan,
        page: &mut DevicePage,
        out: u64,
        leaf: &[u8],
        count: &mut usize,
    ) -> Result<()> {
        let block = &mut self.blocks[0];
        let block_address = block.device().address();
        let bytes = block.bytes()?;
        let sample_bytes = device.kernel.sample_bytes;
        let tables =
            (device.group * sample_bytes).next_multiple_of(8) + *count * device.table_bytes;
        let first = self.plan.cpu_steps();
        let table = bytemuck::cast_slice(device_tables(&page.sample, first));
        bytes[tables..tables + table.len()].copy_from_slice(table);
        let steps = self.plan.steps.iter().zip(&mut page.sample.steps).skip(first);
        for (step, sample) in steps {
            let address = block_address + (tables + 4 * sample.table.start) as u64;
            step.operator.set_table(&mut sample.params, address);
        }
        let params = page.sample.steps[first..].iter().map(|step| &step.params);
        write_sample(&mut bytes[*count * sample_bytes..][..sample_bytes], out, leaf, params);
        *count += 1;
        Ok(())
    }
}
