//! Processing of one sample on the CPU, from its key to its tensor, within a worker's memory
//! budget. Used by workers for the host and for a device.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cache::Caches;
use super::fields::{Cell, FieldReader};
use super::large::{LargeImages, Room, Take};
use super::reader::{Content, Filled, Reader, Sample};
use super::record::{Outcome, SampleRecord};
use crate::decode::Decoders;
use crate::error::DataError;
use crate::geometry::Size;
use crate::header::Header;
use crate::image::HostImage;
use crate::measure::{CpuClock, Seen, Stage, ThreadMeter};
use crate::plan::{ColumnRole, Plan, Route, SampleMemory, SamplePlan};
use crate::random::SampleKey;
use crate::source::{HostPage, Source};
use crate::transform::{HostTransform, Masks, PlannedImage};

pub(in crate::loader) use steps::{Admitted, Planned, Read, Reserve};

use views::{ImageOf, SampleViews};

mod steps;
mod views;

/// Processes samples on the CPU, one after another. Its buffers are reused for later samples,
/// within the worker's share of memory.
pub(in crate::loader) struct SamplePipeline {
    source: Arc<dyn Source>,
    plan: Arc<Plan>,
    meter: Arc<ThreadMeter>,
    page: HostPage,
    reader: Reader,
    caches: Arc<Caches>,
    /// Plan of the current sample.
    sample: SamplePlan,
    decoder: Decoders,
    transform: HostTransform,
    masks: Masks,
    views: SampleViews,
    room: Room,
    /// Memory that the current sample may need.
    need: SampleMemory,
    /// Pageable memory that the page with the current sample's file holds, in bytes.
    file: u64,
    /// Whether the next sample may be a file in device memory.
    from_device: bool,
    /// Whether tables of the current sample were allocated for the drawn actions, and not for the
    /// bounds on them.
    is_drawn: bool,
    epoch: u32,
    /// CPU clock of the current sample, if it is measured.
    clock: Option<CpuClock>,
}

impl SamplePipeline {
    pub fn new(
        source: Arc<dyn Source>,
        plan: Arc<Plan>,
        meter: Arc<ThreadMeter>,
        caches: Arc<Caches>,
        large: Arc<LargeImages>,
    ) -> Self {
        let room = Room::new(plan.room, large);
        let transform = HostTransform::new(&plan);
        let settings = &plan.settings.decode;
        let decoder = Decoders::new()
            .strict(settings.strict)
            .jpeg(settings.jpeg)
            .background(settings.background);
        let reader = Reader::new(source.clone(), plan.clone(), meter.clone(), caches.clone());
        let views = SampleViews::new(&plan);
        Self {
            source,
            plan,
            meter,
            page: HostPage::default(),
            reader,
            caches,
            sample: SamplePlan::default(),
            decoder,
            transform,
            masks: Masks::default(),
            views,
            room,
            need: SampleMemory::default(),
            file: 0,
            from_device: false,
            is_drawn: false,
            epoch: 0,
            clock: None,
        }
    }

    /// Reads, decodes and transforms one sample. Writes its image to `out` and then its views on
    /// the device, or its image to `cell` without `out`. Writes its other views to `cell`. Applies
    /// its geometry to the masks, points and boxes in `cell`.
    pub fn make(
        &mut self,
        key: SampleKey,
        (fields, cell): (&mut FieldReader, &mut impl Cell),
        out: Option<&mut [u8]>,
    ) -> Result<SampleRecord, DataError> {
        let mut page = std::mem::take(&mut self.page);
        let made = self.with_sample(key, &mut page, |this, _, read| {
            let planned = this.plan(read, Reserve::All)?;
            let admitted = this.admit(&planned)?;
            this.follow(&planned, fields, cell)?;
            this.make_views(&admitted, cell)?;
            let record = match out {
                Some(out) => this.finish(admitted, out)?,
                None => {
                    let column = this.plan.column(ColumnRole::Image).map_or(0, |it| it.slot);
                    this.finish(admitted, cell.part(column))?
                }
            };
            this.make_field_views(&planned, record.size, fields, cell)?;
            Ok(record)
        });
        self.page = page;
        made
    }

    /// Sets whether the next samples may be files in device memory. By default they are not.
    pub fn set_from_device(&mut self, from_device: bool) {
        self.from_device = from_device;
    }

    /// Number of a planned sample in the caches.
    pub fn original(&self, planned: &Planned<'_>) -> u64 {
        self.source.original(planned.0.key.index)
    }

    /// Reads a sample and passes it to `make`. The sample is read into the page, unless the decoded
    /// cache holds it, or device memory if that is [allowed](Self::set_from_device). Then frees the
    /// memory beyond the worker's share.
    pub fn with_sample<P: Filled, T, E: From<DataError>>(
        &mut self,
        key: SampleKey,
        page: &mut P,
        make: impl FnOnce(&mut Self, &P, Read<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let made = match self.read(key, page) {
            Ok(sample) => {
                let bytes = sample.content.bytes(page);
                let made = make(self, page, Read { key, sample: &sample, bytes });
                self.reader.give_back(sample.content);
                made
            }
            Err(error) => Err(error.into()),
        };
        if self.room.is_beyond() {
            page.release();
            self.release();
            self.release_tables();
            self.room.give_back();
        } else if self.is_drawn || self.table_bytes() > self.room.table_bytes() {
            // The tables of this sample may be larger than the bounds for the next one. They would
            // take the memory of its other buffers, and on a GPU no page would have room for them.
            self.release_tables();
        }
        self.is_drawn = false;
        made
    }

    fn read(&mut self, key: SampleKey, page: &mut impl Filled) -> Result<Sample, DataError> {
        self.decoder.forget_clipped();
        let most = self.room.most_file_bytes(self.plan.settings.limits.max_file_bytes);
        if self.room.is_crowded() {
            self.release();
            self.release_tables();
            let file = page.host_bytes();
            self.room.released(SampleMemory { file, ..SampleMemory::default() });
        }
        let share = self.room.file_bytes();
        self.clock = self.meter.clock();
        let Self { reader, room, decoder, transform, masks, views, sample, clock, .. } = self;
        let larger = || {
            decoder.release();
            masks.release();
            transform.release();
            sample.actions.release();
            views.release_tables();
            views.release();
            room.take_all()?;
            Ok(most)
        };
        let mut found = reader.find((key, self.from_device), page, share, clock, larger)?;
        self.file = page.host_bytes();
        if let Content::Kept(_) | Content::OnDevice(_) = found.content {
            let header = &found.header;
            self.need = self.plan.sample_memory(header, 0, Default::default(), &mut self.sample);
            return Ok(found);
        }
        let (header, bytes) = (&found.header, page.bytes());
        let len = bytes.len() as u64;
        let decode = self.decoder.memory(header, bytes, len);
        // Bytes in page-locked memory do not count, because that memory is not part of the worker's
        // budget.
        self.need = self.plan.sample_memory(header, len.min(self.file), decode, &mut self.sample);
        let (mut whole, must) = self.reader.decodes_whole(key, header);
        if whole {
            match self.reserve(self.need, Take::Needed, header) {
                Ok(()) => {}
                Err(_) if must => {
                    self.reserve(self.need.before_draw(), Take::WholePool, header)?;
                }
                // If the memory for the whole image is not available, only the window is decoded,
                // and the image is not added to the cache.
                Err(_) => whole = false,
            }
        }
        if !whole {
            self.need.whole = [0; 2];
        }
        let Self { reader, decoder, clock, .. } = self;
        reader.keep(key, &mut found, page, whole, decoder, clock)?;
        Ok(found)
    }

    /// Plans a sample. Reserves memory first, because planning allocates the operators' tables.
    pub fn plan<'a>(&mut self, read: Read<'a>, reserve: Reserve) -> Result<Planned<'a>, DataError> {
        let Read { key, sample: Sample { header, .. }, .. } = read;
        self.epoch = key.epoch;
        let begin = self.meter.begin(Stage::Header);
        let turned = self.plan.settings.decode.orientation;
        let canvas = self.source.canvas(key.index);
        canvas.check(header.size, header.orientation, turned)?;
        self.put_boxes(key.index, header, canvas);
        let bound = self.bound_of_sample();
        let waited = self.plan_chains(ImageOf::Sample, (key, header), bound, reserve)?;
        let parsed = read.sample.parsed;
        let took = self.meter.since(begin).saturating_sub(waited) + parsed;
        let Size { width, height } = header.size;
        let window_pixels = self.decoded().stored_window.size().pixels();
        let planned = Planned(read);
        self.meter.saw(Seen { width, height, bytes: planned.len() as u64 }, window_pixels);
        // The header was parsed earlier. The time is recorded as if the header had been parsed
        // directly before planning.
        let began = begin.checked_sub(parsed).unwrap_or(begin);
        self.meter.add_from(Stage::Header, began, took, 0);
        if let Some(clock) = &mut self.clock {
            self.meter.clocked(&[(Stage::Header, took)], clock);
        }
        Ok(planned)
    }

    /// Applies the geometry of a planned sample to its masks, points and boxes in `cell`.
    pub fn follow(
        &mut self,
        planned: &Planned<'_>,
        fields: &mut FieldReader,
        cell: &mut impl Cell,
    ) -> Result<(), DataError> {
        if !fields.follows() {
            return Ok(());
        }
        let begin = self.meter.begin(Stage::Transform);
        let Self { plan, sample, masks, views, .. } = self;
        let of = |view: Option<usize>| match view {
            Some(view) => (&plan.views[view].plan, views.outputs(plan, view)),
            None => (&**plan, std::slice::from_ref(sample)),
        };
        fields.follow(masks, planned.header(), of, cell)?;
        self.meter.add(Stage::Transform, begin, 0);
        Ok(())
    }

    /// Reserves all memory for a planned sample. Must be called before waiting for anything that
    /// other threads may hold while they wait for memory. Does nothing if the memory is already
    /// reserved.
    pub fn admit<'a>(&mut self, planned: &'a Planned<'_>) -> Result<Admitted<'a>, DataError> {
        self.reserve(self.need, Take::Needed, planned.header())?;
        Ok(Admitted(planned))
    }

    /// Reserves memory for the current sample.
    fn reserve(
        &mut self,
        need: SampleMemory,
        take: Take,
        header: &Header,
    ) -> Result<(), DataError> {
        let kept = self.kept();
        let Self { room, decoder, transform, masks, views, reader, .. } = self;
        room.admit((header.size, take), &need, &kept, || {
            decoder.release();
            transform.release();
            masks.release();
            views.release();
            reader.release();
        })
    }

    /// Memory of the buffers that are not freed while a sample waits for memory.
    fn kept(&self) -> SampleMemory {
        let (tables, views) = (self.sample.table_bytes(), self.views.kept());
        SampleMemory { file: self.file, tables, views, ..SampleMemory::default() }
    }

    /// Frees all buffers except those of the file and the tables.
    fn release(&mut self) {
        self.decoder.release();
        self.transform.release();
        self.masks.release();
        self.views.release();
        self.reader.release();
    }

    /// Frees the tables.
    fn release_tables(&mut self) {
        self.sample.actions.release();
        self.views.release_tables();
    }

    /// Memory of the tables, in bytes.
    fn table_bytes(&self) -> u64 {
        self.sample.table_bytes() + self.views.kept()[0]
    }

    /// Whether a planned sample fits the worker's share when decoded on the CPU.
    pub fn fits_share(&self, _: &Planned<'_>) -> bool {
        !self.room.is_beyond() && self.room.covers(&self.need)
    }

    /// Runs the main chain and the views on the device, and writes their tensors to their places in
    /// `out` ([`Plan::finished_parts`]). Decodes the image, unless it is decoded already for views.
    pub fn finish(
        &mut self,
        Admitted(planned): Admitted<'_>,
        out: &mut [u8],
    ) -> Result<SampleRecord, DataError> {
        if self.plan.has_device_views() {
            self.make_device_views(planned, out)?;
        }
        let out = &mut out[..self.plan.shape.sample_bytes()];
        if self.plan.reads_image || !self.plan.has_images() {
            if self.plan.has_images() {
                self.run_shared(planned, out)?;
            }
            return Ok(self.record(planned, Route::Cpu));
        }
        self.transform.set_shape(self.plan.shape);
        let begin = self.meter.begin(Stage::Decode);
        self.transform.set_timed(self.meter.is_timed());
        let result =
            self.decode(planned, |transform, image, decoder| transform.run(image, decoder, out));
        self.count(begin, planned.bytes());
        result?;
        Ok(self.record(planned, Route::Cpu))
    }

    /// Decodes a sample and runs the first `steps` operators. If there are views on the device,
    /// `steps` must be 0, and the result is the window that all chains need.
    pub fn prefix(
        &mut self,
        Admitted(planned): Admitted<'_>,
        steps: usize,
    ) -> Result<&HostImage, DataError> {
        if self.plan.has_device_views() {
            return self.shared_image(planned);
        }
        let begin = self.meter.begin(Stage::Decode);
        let result = self.decode(planned, |transform, image, decoder| {
            transform.run_prefix(image, decoder, steps)
        });
        self.count(begin, planned.bytes());
        result?;
        Ok(self.transform.image())
    }

    /// Record of a sample that was decoded on `route`.
    pub fn record(&self, planned: &Planned<'_>, route: Route) -> SampleRecord {
        let Read { key, sample, .. } = &planned.0;
        let on_cpu = !route.on_device();
        let tolerated = sample.tolerated.or(self.decoder.tolerated()).filter(|_| on_cpu);
        let jpeg = sample.jpeg_by.or(self.decoder.jpeg_by()).filter(|_| on_cpu);
        SampleRecord {
            index: key.index,
            label: sample.label,
            size: self.sample.upright,
            orientation: self.sample.orientation,
            reduction: self.sample.reduction,
            trace: self.sample.trace,
            outcome: Outcome::Decoded(route),
            cpu_fallback: None,
            tolerated,
            clipped: on_cpu && self.decoder.has_clipped(),
            jpeg,
            repeat: 0,
            replaces: None,
            padding: false,
            truncated: 0,
            defaulted: 0,
        }
    }

    /// Plan of the current sample.
    /// The caches, and the epoch of the last planned sample.
    pub fn caches(&self) -> (&Arc<Caches>, u32) {
        (&self.caches, self.epoch)
    }

    pub fn sample_plan(&self) -> &SamplePlan {
        &self.sample
    }

    /// Window that is decoded for the chains on the device. If there are views of the sample's
    /// image, it is the window that all chains share, unless the main chain is apart on the device.
    pub fn decoded(&self) -> &SamplePlan {
        let apart = self.plan.uses_gpu() && !self.plan.has_device_views();
        self.views.shared().filter(|_| !apart).unwrap_or(&self.sample)
    }

    /// Plans of the outputs of the views on the device, in order.
    pub fn device_outputs(&self) -> impl Iterator<Item = &SamplePlan> + Clone {
        self.views.device_outputs(&self.plan)
    }

    /// Exchanges the plans of the current sample and of the outputs of its views on the device with
    /// old plans, whose memory is reused.
    pub fn swap_plans(&mut self, sample: &mut SamplePlan, outputs: &mut [SamplePlan]) {
        std::mem::swap(&mut self.sample, sample);
        let views = self.views.device_outputs_mut(&self.plan);
        views.zip(outputs).for_each(|(output, other)| std::mem::swap(output, other));
    }

    /// Decodes and transforms a sample.
    fn decode(
        &mut self,
        planned: &Planned<'_>,
        mut run: impl FnMut(
            &mut HostTransform,
            PlannedImage<'_>,
            &mut Decoders,
        ) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let (header, bytes) = (planned.header(), planned.bytes());
        let Self { plan, sample, decoder, transform, caches, epoch, .. } = self;
        let image = PlannedImage { bytes, header, plan, sample };
        caches.decode_indexed((bytes, header), (plan, *epoch), decoder, |decoder| {
            run(transform, image, decoder)
        })
    }

    /// Records the time of decoding and of transforming `bytes`, from `begin` to now.
    fn count(&mut self, begin: Instant, bytes: &[u8]) {
        let both = self.meter.since(begin);
        // `busy` extrapolates from the rows that were timed. If the thread was preempted in a timed
        // row, the result could exceed the whole time.
        let transform = self.transform.busy().min(both);
        self.add(begin, (both - transform, transform), bytes);
    }

    /// Records the time of decoding and then of transforming `bytes`.
    fn add(&mut self, begin: Instant, (decode, transform): (Duration, Duration), bytes: &[u8]) {
        self.meter.add_from(Stage::Decode, begin, decode, bytes.len() as u64);
        self.meter.add_from(Stage::Transform, begin + decode, transform, 0);
        if let Some(clock) = &mut self.clock {
            self.meter.clocked(&[(Stage::Decode, decode), (Stage::Transform, transform)], clock);
        }
    }
}
