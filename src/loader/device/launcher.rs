//! Thread that launches the kernels, which turn pixels into tensors.

use std::ops::Range;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use super::block::Block;
use super::held::Held;
use super::parts::Parts;
use super::start::Kernels;
use super::{Cell, DevicePage, DeviceSlot, MaskLauncher, Mixer, Payload, Pixels, Work};
use crate::error::{Error, Result};
use crate::gpu::{self, DeviceBuffer, LaunchGoal, Staged, Stopwatch, Stream};
use crate::loader::slot::feed::{Done, Feed, Job};
use crate::measure::Stage;
use crate::op::kernel_text::{FloatsParams, Leaf};
use crate::op::program::{Addresses, Extent};
use crate::plan::{ColumnRole, DevicePlan, LaunchBlock};
use crate::ring::{Consumer, Using};

/// Enqueues the kernels, and other work that fills batches, in the producer's stream.
///
/// While the consumer waits for a batch, launches aim at low latency. Otherwise they aim at a low
/// load of the device, because the model needs the device.
///
/// A page is launched after the host has observed that its pixels are ready. Nothing in the stream
/// waits for a decoder, and images of a slow route do not delay images of other routes.
pub(in crate::loader) struct Launcher {
    parts: Parts,
    stream: Arc<Stream>,
    kernels: Kernels,
    /// Intermediate images between kernels or passes, two for each sample of a launch. All launches
    /// share this buffer, because they run one after another in one stream.
    scratch: Option<DeviceBuffer>,
    blocks: Vec<Block>,
    /// Layout of each block.
    layout: LaunchBlock,
    /// Sizes of the launches that are being prepared: of the main chain, then of each view on the
    /// device.
    extents: Vec<Extent>,
    /// Device columns that a finished sample fills, with its places in the upload buffer: images,
    /// then each view on the device.
    columns: Vec<(usize, Range<usize>)>,
    /// Runs the kernel `mask`, if the plan has masks.
    masks: Option<MaskLauncher>,
    /// Runs the kernel `mix` (batch operators and soft targets), if the plan has a batch stage.
    mixer: Option<Mixer>,
    /// Stream in which the blocks (parameters and tables of launches) are uploaded. In `stream`, an
    /// upload would run only after earlier work, which waits for images and slots. Before the host
    /// writes a block again, it waits for the block's previous upload. So the host would have to
    /// wait for those images and slots too.
    tables: Stream,
    launches: Arc<Stopwatch>,
    copies: Arc<Stopwatch>,
}

impl Launcher {
    pub fn new(
        parts: Parts,
        stream: Arc<Stream>,
        kernels: Kernels,
        scratch: Option<DeviceBuffer>,
        blocks: Vec<Staged>,
        (masks, mixer): (Option<MaskLauncher>, Option<Mixer>),
    ) -> Result<Self> {
        let (launches, copies) = (parts.clocks.kernel()?, parts.clocks.upload()?);
        let tables = Stream::new(stream.device())?;
        let blocks = Block::all(blocks)?;
        let extents = vec![Extent::default(); 1 + kernels.views.len()];
        let plan = &parts.plan;
        let device = plan
            .device
            .as_ref()
            .ok_or_else(|| Error::Internal { problem: "a launcher without a device".into() })?;
        let views = device.views.iter().map(|view| ColumnRole::View(view.number));
        let columns = std::iter::once(ColumnRole::Image).chain(views);
        let columns = columns.filter_map(|role| plan.column(role)).map(|column| column.slot);
        let columns = columns.zip(plan.finished_parts()).collect();
        let layout = device.launch_block();
        Ok(Self {
            parts,
            stream,
            kernels,
            scratch,
            blocks,
            layout,
            extents,
            columns,
            masks,
            mixer,
            tables,
            launches,
            copies,
        })
    }

    /// Launches until all threads that publish pages have ended. The stream is empty afterwards,
    /// even after an error, so no memory that the device uses is freed.
    pub fn run(mut self, feed: &Feed<DeviceSlot>, pages: &Consumer<DevicePage>) -> Result<()> {
        self.stream.device().adopt_thread();
        let launched = self.launch_all(feed, pages);
        let emptied = self.stream.synchronize();
        launched.and(emptied)
    }

    fn launch_all(&mut self, feed: &Feed<DeviceSlot>, pages: &Consumer<DevicePage>) -> Result<()> {
        let (plan, meter) = (self.parts.plan.clone(), self.parts.meter.clone());
        let _clocked = meter.on_this_thread();
        let Some(device) = &plan.device else { return Ok(()) };
        let mut held = Held::new(device.pages);
        let mut ready = Vec::with_capacity(device.group);
        let mut waiting = Instant::now();
        loop {
            let deadline = held.pause().map(|pause| Instant::now() + pause);
            match pages.next_until(deadline, Duration::MAX, |_| ()) {
                Poll::Ready(Some(page)) => held.push(page?),
                Poll::Ready(None) => match held.first() {
                    // All workers have ended and will publish no more pages. So wait until the
                    // first of the held pages is decoded.
                    Some(page) => page.decoded.synchronize()?,
                    None => return Ok(()),
                },
                Poll::Pending => {}
            }
            while let Some(page) = pages.try_next() {
                held.push(page?);
            }
            held.take_ready(device.group, &mut ready, |page| page.decoded.query())?;
            if ready.is_empty() {
                continue;
            }
            self.parts.meter.waited_for_input(Stage::Kernel, waiting.elapsed());
            let begin = self.parts.meter.begin(Stage::Kernel);
            // The pages of a group rarely have different splits, so one launch usually suffices.
            ready.sort_by_key(|page| cut_of(device, page));
            for pages in ready.chunk_by_mut(|a, b| cut_of(device, a) == cut_of(device, b)) {
                self.launch(device, feed, pages)?;
            }
            self.parts.meter.add(Stage::Kernel, begin, 0);
            ready.clear();
            waiting = Instant::now();
        }
    }

    fn launch(
        &mut self,
        device: &DevicePlan,
        feed: &Feed<DeviceSlot>,
        pages: &mut [Using<DevicePage>],
    ) -> Result<()> {
        // Use the block that was used longest ago, because its upload has most likely ended.
        self.blocks.rotate_left(1);
        self.extents.iter_mut().for_each(Extent::clear);
        self.masks.iter_mut().for_each(MaskLauncher::begin);
        let mut count = 0;
        let cut = pages.first().map_or(0, |page| cut_of(device, page));
        for page in pages.iter_mut() {
            let Some(mut work) = page.work.take() else { continue };
            if !feed.begin(work.job.batch) {
                return Ok(());
            }
            count += usize::from(self.fill((device, cut), page, &mut work, count)?);
            if let (Some(launcher), Some(masks)) = (&mut self.masks, &mut page.masks) {
                launcher.push(masks, &work.job.cell, &self.tables)?;
            }
            page.work = Some(work);
        }
        let goal = if feed.consumer_waits() { LaunchGoal::Latency } else { LaunchGoal::Throughput };
        if count > 0 {
            let Block { staged, read } = &mut self.blocks[0];
            self.tables.wait(read)?;
            staged.upload(&self.tables, 0..self.layout.bytes(count))?;
            self.stream.wait(staged.uploaded())?;
            let (stream, samples) = (&self.stream, count as u32);
            let mut lap = self.launches.lap()?;
            lap.start(stream)?;
            let views = self.kernels.views.iter().zip(&device.views);
            let views = views.map(|(kernels, view)| (kernels, view.outputs as u32));
            let chains = std::iter::once((&self.kernels.splits[cut], 1)).chain(views);
            for (chain, (kernels, outputs)) in chains.enumerate() {
                let block = (staged.device(), self.layout.kernels(chain));
                let extent = &self.extents[chain];
                kernels.launch(goal, stream, block, samples * outputs, extent)?;
            }
            lap.stop(stream, count as u64)?;
            read.record(stream)?;
        }
        if let Some(masks) = &mut self.masks {
            masks.run(goal, &self.stream, &self.tables)?;
        }
        for page in pages {
            if let Some(masks) = &page.masks {
                masks.read.record(&self.stream)?;
            }
            let Some(Work { job, payload, result, errors }) = page.work.take() else { continue };
            if let Payload::Pixels(_) = payload {
                page.read.record(&self.stream)?;
            }
            let Job { batch, place, cell, .. } = job;
            let pair = feed.complete(Done { batch, place, cell, result, errors });
            if let (Some(pair), Some(mixer)) = (pair, &mut self.mixer) {
                mixer.push(pair);
            }
        }
        match &mut self.mixer {
            Some(mixer) => mixer.run(goal, &self.stream, &self.tables, feed),
            None => Ok(()),
        }
    }

    /// Prepares the content of a page for its cell. If the page holds pixels, writes their
    /// parameters into the block, at the place of sample number `count`, and returns true, because
    /// a launch must follow. Otherwise enqueues the content itself, such as zeros or a finished
    /// sample, and returns false.
    fn fill(
        &mut self,
        (device, cut): (&DevicePlan, usize),
        page: &mut DevicePage,
        work: &mut Work,
        count: usize,
    ) -> Result<bool> {
        let cell = &work.job.cell;
        match std::mem::replace(&mut work.payload, Payload::Nothing) {
            Payload::Nothing => Ok(false),
            Payload::Zeros => {
                for (buffer, part) in self.columns.iter().map(|(column, _)| cell.part(*column)) {
                    gpu::fill(&self.stream, buffer, part, 0)?;
                }
                Ok(false)
            }
            Payload::Finished(mut upload) => {
                let mut lap = self.copies.lap()?;
                lap.start(&self.stream)?;
                for (column, finished) in &self.columns {
                    let (buffer, part) = cell.part(*column);
                    upload.copy(&self.stream, finished.clone(), buffer, part.start)?;
                }
                lap.stop(&self.stream, 1)?;
                self.parts.uploads.put_back(upload);
                Ok(false)
            }
            Payload::Pixels(pixels) => {
                work.payload = Payload::Pixels(pixels);
                self.describe((device, cut), page, (&work.job.cell, pixels), count)?;
                Ok(true)
            }
        }
    }

    /// Writes the parameters and tables of a sample, and of the outputs of its views on the device,
    /// into the block.
    fn describe(
        &mut self,
        (device, cut): (&DevicePlan, usize),
        page: &DevicePage,
        (cell, pixels): (&Cell, Pixels),
        count: usize,
    ) -> Result<()> {
        let address = page.pixels.address();
        let bytes_leaf = pixels.leaf(address);
        let floats_leaf = FloatsParams::new(address, 3 * pixels.window.width, pixels.window);
        let split = &device.splits[cut];
        let leaf = match split.chain.leaf {
            Leaf::Roi => bytemuck::bytes_of(&bytes_leaf),
            Leaf::Floats => bytemuck::bytes_of(&floats_leaf),
        };
        let Self { blocks, layout, extents, columns, scratch, .. } = self;
        let scratch = scratch.as_ref().map_or(0, DeviceBuffer::address);
        let staged = &mut blocks[0].staged;
        let start = staged.device().address();
        let bytes = staged.bytes()?;
        let main = (split, std::slice::from_ref(&page.sample), device.scratch_bytes);
        let mut outputs = &page.outputs[..];
        let views = device.views.iter().map(|view| {
            let (of_view, rest) = outputs.split_at(view.outputs);
            outputs = rest;
            (&view.split, of_view, view.scratch_bytes)
        });
        let mut tables = layout.tables_of(count);
        for (chain, (split, samples, scratch_bytes)) in
            std::iter::once(main).chain(views).enumerate()
        {
            let (buffer, part) = cell.part(columns[chain].0);
            let each = part.len() / samples.len().max(1);
            for (output, planned) in samples.iter().enumerate() {
                let image = 2 * (count * samples.len() + output);
                let at = Addresses {
                    out: buffer.address() + (part.start + output * each) as u64,
                    scratch: [image, image + 1]
                        .map(|image| scratch + (image * scratch_bytes) as u64),
                    tables: start + tables as u64,
                    passes: start + layout.passes_of(chain, count, output) as u64,
                };
                let entries = bytemuck::cast_slice(split.tables(planned));
                bytes[tables..tables + entries.len()].copy_from_slice(entries);
                tables += split.table_bytes(planned);
                let parts = layout.parts(bytes, (chain, &split.chain), (count, output))?;
                split.chain.write(&split.sample(planned, leaf), &at, parts, &mut extents[chain]);
            }
        }
        Ok(())
    }
}

/// Index of the split at which a page's sample moves to the device; 0 if the page needs no kernel.
fn cut_of(device: &DevicePlan, page: &DevicePage) -> usize {
    let first = match &page.work {
        Some(Work { payload: Payload::Pixels(pixels), .. }) => pixels.first,
        _ => return 0,
    };
    device.splits.iter().position(|cut| cut.first == first).unwrap_or(0)
}
