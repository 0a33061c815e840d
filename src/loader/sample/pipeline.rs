//! One sample from its key to its tensor on the CPU, within a worker's memory budget: shared by workers for the host and
//! for a device.

use std::sync::Arc;
use std::time::Instant;

use super::cache::Caches;
use super::large::{LargeImages, Room};
use super::policy::record;
use super::reader::{Content, Filled, Found, Reader};
use super::record::{Outcome, SampleRecord};
use crate::annotation::Objects;
use crate::decode::{Decoders, JpegBy, JpegDecoder, RowIndexTask, is_indexable};
use crate::error::{DataError, Tolerated};
use crate::geometry::{Orientation, Size};
use crate::header::Header;
use crate::image::HostImage;
use crate::measure::{Seen, Stage, ThreadMeter};
use crate::plan::{Plan, Route, SampleMemory, SamplePlan};
use crate::random::SampleKey;
use crate::source::{HostPage, Source};
use crate::transform::{HostTransform, PlannedImage};

/// Makes samples on the CPU. Its buffers are reused from sample to sample as far as the plan's share allows.
pub(in crate::loader) struct SamplePipeline {
    source: Arc<dyn Source>,
    plan: Arc<Plan>,
    meter: Arc<ThreadMeter>,
    page: HostPage,
    reader: Reader,
    caches: Arc<Caches>,
    pub sample: SamplePlan,
    decoder: Decoders,
    transform: HostTransform,
    room: Room,
    /// Memory that the current sample may need.
    need: SampleMemory,
    epoch: u32,
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
        let decoder = Decoders::new().strict(settings.strict).jpeg(settings.jpeg);
        let reader = Reader::new(source.clone(), plan.clone(), meter.clone(), caches.clone());
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
            room,
            need: SampleMemory::default(),
            epoch: 0,
        }
    }

    /// Reads, decodes and transforms one sample: its whole tensor.
    pub fn finish(&mut self, key: SampleKey, out: &mut [u8]) -> Result<SampleRecord, DataError> {
        let mut page = std::mem::take(&mut self.page);
        let made = self.read_and_finish(key, &mut page, out);
        self.end(&mut page);
        self.page = page;
        made
    }

    fn read_and_finish(
        &mut self,
        key: SampleKey,
        page: &mut HostPage,
        out: &mut [u8],
    ) -> Result<SampleRecord, DataError> {
        let (header, content) = self.read(key, page)?;
        let bytes = content.bytes(page);
        let file = page.host_bytes();
        let made = self
            .admit(&header, file)
            .and_then(|()| self.plan(key, &header, bytes.len() as u64))
            .and_then(|()| self.admit(&header, file))
            .and_then(|()| self.finish_planned(key, &header, bytes, out));
        self.give_back(content);
        made
    }

    /// Reads a sample, into the page unless it is cached decoded, and returns its header. [`end`](Self::end) must
    /// follow.
    pub fn read(
        &mut self,
        key: SampleKey,
        page: &mut impl Filled,
    ) -> Result<(Header, Content), DataError> {
        let most = self.room.most_file_bytes(self.plan.settings.limits.max_file_bytes);
        if self.room.is_crowded() {
            self.release();
            let tables = self.sample.table_bytes();
            let file = page.host_bytes();
            self.room.released(SampleMemory { file, tables, ..SampleMemory::default() });
        }
        let share = self.room.file_bytes();
        let Self { reader, room, decoder, transform, sample, .. } = self;
        let larger = || {
            decoder.release();
            transform.release();
            sample.actions.release();
            room.take_all()?;
            Ok(most)
        };
        let (header, found) = reader.find(key, page, share, larger)?;
        let kept = match found {
            Found::Kept(bytes) => {
                self.need =
                    self.plan.sample_memory(&header, 0, Default::default(), &mut self.sample);
                return Ok((header, Content::Kept(bytes)));
            }
            Found::File { kept } => kept,
        };
        let bytes = page.bytes();
        let len = bytes.len() as u64;
        let file = page.host_bytes();
        let decode = self.decoder.memory(&header, bytes, len);
        // Page-locked memory is not part of the worker's budget.
        self.need = self.plan.sample_memory(&header, len.min(file), decode, &mut self.sample);
        let (mut whole, must) = self.reader.decodes_whole(key, &header);
        if whole {
            match self.admit(&header, file) {
                Ok(()) => {}
                Err(error) if must => return Err(error),
                // It can be made without the cache.
                Err(_) => whole = false,
            }
        }
        if !whole {
            self.need.whole = [0; 2];
        }
        self.reader.keep(key, header, page, (kept, whole), &mut self.decoder)
    }

    /// Reserves memory for the last read sample, before anything else that others may wait for while they hold memory.
    /// `file` is the number of bytes that the page holds.
    pub fn admit(&mut self, header: &Header, file: u64) -> Result<(), DataError> {
        let Self { room, need, decoder, transform, reader, sample, .. } = self;
        let tables = sample.table_bytes();
        let kept = SampleMemory { file, tables, ..SampleMemory::default() };
        room.admit(header.size, need, &kept, || {
            decoder.release();
            transform.release();
            reader.release();
        })
    }

    /// Reserves memory for the sample's file and tables only, if the device may decode it.
    pub fn admit_tables(&mut self, header: &Header, file: u64) -> Result<(), DataError> {
        let SampleMemory { file: own, tables, .. } = self.need;
        let all = self.need;
        self.need = SampleMemory { file: own, tables, ..SampleMemory::default() };
        let admitted = self.admit(header, file);
        self.need = all;
        admitted
    }

    /// Returns the memory that the current sample took beyond the worker's share, and frees all buffers.
    pub fn end(&mut self, page: &mut impl Filled) {
        if !self.room.is_beyond() {
            return;
        }
        page.release();
        self.release();
        self.sample.actions.release();
        self.room.give_back();
    }

    /// Frees all buffers except those of the file and the tables.
    fn release(&mut self) {
        self.decoder.release();
        self.transform.release();
        self.reader.release();
    }

    /// Whether the current sample fits the worker's share when decoded on the CPU.
    pub fn fits_share(&self) -> bool {
        !self.room.is_beyond() && self.need.total() <= self.plan.room.share.total()
    }

    /// Takes back the content that [`read`](Self::read) returned, to reuse its memory.
    pub fn give_back(&mut self, content: Content) {
        self.reader.give_back(content);
    }

    /// Puts the boxes of the sample's objects where operators read them.
    fn put_boxes(&mut self, index: u64, header: &Header) {
        let boxes = &mut self.sample.actions.boxes;
        boxes.clear();
        if self.plan.reads_boxes() {
            let turned = self.plan.settings.decode.orientation;
            let turn = if turned { header.orientation } else { Orientation::UPRIGHT };
            let upright = (turn.upright_size(header.size), turn);
            let objects = self.source.objects(index);
            boxes.extend(Objects::upright_boxes(
                &objects,
                self.source.canvas(index).frame,
                upright,
            ));
        }
    }

    /// Plans the sample with this header; `bytes` is its encoded size.
    pub fn plan(&mut self, key: SampleKey, header: &Header, bytes: u64) -> Result<(), DataError> {
        self.epoch = key.epoch;
        let begin = self.meter.begin(Stage::Header);
        let turned = self.plan.settings.decode.orientation;
        self.source.canvas(key.index).check(header.size, header.orientation, turned)?;
        let fixed = self.plan.fixed_entries();
        let entries = (self.need.tables / size_of::<i32>() as u64) as usize;
        self.sample.actions.reserve(entries.saturating_sub(fixed), fixed);
        self.put_boxes(key.index, header);
        self.plan.sample(key, header, &mut self.sample)?;
        self.need = self.need.with_drawn(&self.plan.drawn_memory(&self.sample));
        let Size { width, height } = header.size;
        let window_pixels = self.sample.stored_window.size().pixels();
        self.meter.saw(Seen { width, height, bytes }, window_pixels);
        let took = self.meter.since(begin) + self.reader.parsed;
        // Recorded as if the header had been parsed just before.
        let began = begin.checked_sub(self.reader.parsed).unwrap_or(begin);
        self.meter.add_from(Stage::Header, began, took, 0);
        if let Some(clock) = &mut self.reader.clock {
            self.meter.clocked(&[(Stage::Header, took)], clock);
        }
        Ok(())
    }

    /// Decodes and transforms the last planned sample: its whole tensor.
    pub fn finish_planned(
        &mut self,
        key: SampleKey,
        header: &Header,
        bytes: &[u8],
        out: &mut [u8],
    ) -> Result<SampleRecord, DataError> {
        let begin = self.meter.begin(Stage::Decode);
        self.transform.set_timed(self.meter.is_timed());
        let result = self
            .decode(header, bytes, |transform, image, decoder| transform.run(image, decoder, out));
        self.count(begin, bytes);
        result?;
        let record = record(&*self.source, key.index, &self.sample, Outcome::Decoded(Route::Cpu));
        Ok(SampleRecord { tolerated: self.tolerated(), jpeg: self.jpeg_by(), ..record })
    }

    /// The damage that was accepted in the last decoded sample, also if it was decoded for a cache.
    pub fn tolerated(&self) -> Option<Tolerated> {
        self.reader.tolerated.or(self.decoder.tolerated())
    }

    /// What decoded the last sample, if it was a JPEG, also if it was decoded for a cache.
    pub fn jpeg_by(&self) -> Option<JpegBy> {
        self.reader.jpeg_by.or(self.decoder.jpeg_by())
    }

    /// Decodes the last planned sample and runs the first `steps` operators.
    pub fn prefix(
        &mut self,
        header: &Header,
        bytes: &[u8],
        steps: usize,
    ) -> Result<&HostImage, DataError> {
        let begin = self.meter.begin(Stage::Decode);
        let result = self.decode(header, bytes, |transform, image, decoder| {
            transform.run_prefix(image, decoder, steps)
        });
        self.count(begin, bytes);
        result?;
        Ok(self.transform.image())
    }

    /// Runs the transform on the last planned sample, with its row index if there is one, and makes one if there is none.
    fn decode(
        &mut self,
        header: &Header,
        bytes: &[u8],
        mut run: impl FnMut(
            &mut HostTransform,
            PlannedImage<'_>,
            &mut Decoders,
        ) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let Self { plan, sample, decoder, transform, epoch, .. } = self;
        let image = PlannedImage { bytes, header, plan, sample };
        let ours = plan.settings.decode.jpeg != JpegDecoder::Libjpeg;
        let indexes = self.caches.row_indexes.as_ref();
        let indexes = indexes.filter(|_| ours && is_indexable(header));
        let Some(indexes) = indexes else { return run(transform, image, decoder) };
        decoder.set_row_index(indexes.task(bytes, *epoch));
        let result = run(transform, image, decoder);
        if indexes.learn(decoder, bytes) {
            // It may have given wrong rows before it was rejected.
            decoder.set_row_index(RowIndexTask::None);
            return run(transform, image, decoder);
        }
        result
    }

    /// Records decoding and transform of `bytes`, from `begin` to now.
    fn count(&mut self, begin: Instant, bytes: &[u8]) {
        let both = self.meter.since(begin);
        // Only some rows are timed, and their time is extrapolated. If a timed row was preempted, the estimate could
        // exceed the total.
        let transform = self.transform.busy().min(both);
        let decode = both - transform;
        self.meter.add_from(Stage::Decode, begin, decode, bytes.len() as u64);
        self.meter.add_from(Stage::Transform, begin + decode, transform, 0);
        if let Some(clock) = &mut self.reader.clock {
            self.meter.clocked(&[(Stage::Decode, decode), (Stage::Transform, transform)], clock);
        }
    }
}
