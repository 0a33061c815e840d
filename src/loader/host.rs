//! Batches in host memory: every worker reads, decodes and transforms a sample directly into its
//! cell.

use std::sync::Arc;

use bytes::BytesMut;

use crate::error::{Error, Result, reserve};
use crate::loader::controls::Gate;
use crate::loader::sample::cache::Caches;
use crate::loader::sample::large::LargeImages;
use crate::loader::sample::pipeline::SamplePipeline;
use crate::loader::sample::policy::produce;
use crate::loader::slot::feed::{Done, Feed, Job};
use crate::loader::slot::pair::PairJob;
use crate::loader::slot::{BatchInfo, BatchSlot, no_slot};
use crate::measure::{Stage, ThreadMeter};
use crate::plan::Plan;
use crate::ring::Slot;
use crate::source::Source;
use crate::transform::blend_pair::blend;

/// Memory of a batch on the host: the tensor and the soft targets. While the batch is filled, both
/// are split into one part per sample, so many threads can write at the same time.
pub struct HostSlot {
    pixels: Split,
    targets: Split,
    info: BatchInfo,
}

/// Memory of one sample of a batch.
#[derive(Default)]
pub struct HostCell {
    pixels: BytesMut,
    /// Memory of the sample's soft target. Empty without soft targets.
    target: BytesMut,
}

/// One allocation that is split into parts and joined again, without a copy and without `unsafe`.
struct Split {
    whole: BytesMut,
    /// One entry per part: the part while it is split off and not in a cell. The vector is empty if
    /// a part has 0 bytes.
    parts: Vec<Option<BytesMut>>,
    part_bytes: usize,
}

impl HostSlot {
    /// Allocates `samples` cells of `sample_bytes` each, and `target_bytes` for each sample's soft
    /// target.
    ///
    /// # Errors
    /// [`Error::Memory`] if the allocation fails.
    pub fn new(samples: usize, sample_bytes: usize, target_bytes: usize) -> Result<Self> {
        let pixels = Split::new(samples, sample_bytes)?;
        let targets = Split::new(samples, target_bytes)?;
        Ok(Self { pixels, targets, info: BatchInfo::with_room(samples, target_bytes > 0)? })
    }

    /// Creates a copy of a batch from its tensor and its soft targets, both as bytes.
    pub fn copy_of(info: &BatchInfo, tensor: &[u8], targets: &[u8]) -> Result<Self> {
        let [mut pixels, mut kept] = [Split::new(1, tensor.len())?, Split::new(1, targets.len())?];
        pixels.whole.copy_from_slice(tensor);
        kept.whole.copy_from_slice(targets);
        Ok(Self { pixels, targets: kept, info: info.clone() })
    }

    /// The whole tensor; empty while it is being filled.
    pub fn tensor(&self) -> &[u8] {
        &self.pixels.whole
    }

    /// The whole tensor for writing; empty while it is being filled.
    pub fn tensor_mut(&mut self) -> &mut [u8] {
        &mut self.pixels.whole
    }

    /// All soft targets; empty while they are being filled.
    pub fn targets(&self) -> &[u8] {
        &self.targets.whole
    }

    /// All soft targets for writing; empty while they are being filled.
    pub fn targets_mut(&mut self) -> &mut [u8] {
        &mut self.targets.whole
    }
}

impl Split {
    /// Allocates the parts, aligned as DLPack requires. Touches every page of memory, so the system
    /// provides it now and not while the loader runs.
    fn new(parts: usize, part_bytes: usize) -> Result<Self> {
        const ALIGN: usize = 256;
        let bytes = parts.saturating_mul(part_bytes);
        let refused = |_| no_slot(bytes as u64);
        let mut whole = BytesMut::new();
        if bytes > 0 {
            whole = reserve::buffer(bytes.saturating_add(ALIGN)).map_err(refused)?;
            let offset = whole.as_ptr().align_offset(ALIGN).min(ALIGN);
            whole.resize(bytes + offset, 1);
            drop(whole.split_to(offset));
        }
        let mut none = Vec::new();
        if bytes > 0 {
            reserve::reserve(&mut none, parts).map_err(refused)?;
            none.resize_with(parts, || None);
        }
        Ok(Self { whole, parts: none, part_bytes })
    }

    fn split(&mut self) {
        for part in &mut self.parts {
            // The parts of a slot that was abandoned while it was filled are already split off.
            if part.is_none() {
                *part = Some(self.whole.split_to(self.part_bytes));
            }
        }
    }

    fn take(&mut self, part: usize) -> BytesMut {
        self.parts.get_mut(part).and_then(Option::take).unwrap_or_default()
    }

    fn put_back(&mut self, part: usize, bytes: BytesMut) {
        if let Some(part) = self.parts.get_mut(part) {
            *part = Some(bytes);
        }
    }

    /// Copies one part over another. The parts must be joined.
    fn copy(&mut self, from: usize, to: usize) {
        let start = from * self.part_bytes;
        self.whole.copy_within(start..start + self.part_bytes, to * self.part_bytes);
    }

    fn join(&mut self) -> Result<()> {
        for part in &mut self.parts {
            let part = part.take().ok_or_else(|| Error::Internal {
                problem: "a cell of a finished batch is missing".into(),
            })?;
            // The parts are neighbours in one allocation, so `unsplit` joins them in constant time.
            if self.whole.is_empty() {
                self.whole = part;
            } else {
                self.whole.unsplit(part);
            }
        }
        Ok(())
    }
}

impl Slot for HostSlot {
    fn begin_fill(&mut self) -> Result<()> {
        self.pixels.split();
        self.targets.split();
        Ok(())
    }

    fn end_fill(&mut self) -> Result<()> {
        self.pixels.join()?;
        self.targets.join()?;
        for (to, from) in self.info.drop_failed() {
            self.pixels.copy(from, to);
            self.targets.copy(from, to);
        }
        Ok(())
    }

    fn begin_use(&mut self) -> Result<()> {
        Ok(())
    }

    fn end_use(&mut self) -> Result<()> {
        Ok(())
    }
}

impl BatchSlot for HostSlot {
    type Cell = HostCell;
    const BEGIN_BEFORE_CELLS: bool = true;

    fn info(&self) -> &BatchInfo {
        &self.info
    }

    fn info_mut(&mut self) -> &mut BatchInfo {
        &mut self.info
    }

    fn take_cell(&mut self, place: usize) -> HostCell {
        HostCell { pixels: self.pixels.take(place), target: self.targets.take(place) }
    }

    fn return_cell(&mut self, place: usize, HostCell { pixels, target }: HostCell) {
        self.pixels.put_back(place, pixels);
        self.targets.put_back(place, target);
    }
}

/// Worker thread that fills cells until there are no more jobs.
pub(super) struct Worker {
    source: Arc<dyn Source>,
    plan: Arc<Plan>,
    meter: Arc<ThreadMeter>,
    pipeline: SamplePipeline,
}

impl Worker {
    pub fn new(
        source: Arc<dyn Source>,
        plan: Arc<Plan>,
        meter: Arc<ThreadMeter>,
        caches: Arc<Caches>,
        large: Arc<LargeImages>,
    ) -> Self {
        let pipeline =
            SamplePipeline::new(source.clone(), plan.clone(), meter.clone(), caches, large);
        Self { source, plan, meter, pipeline }
    }

    /// Fills cells until there are no more jobs. Before each cell, the thread waits until worker
    /// `number` is active.
    pub fn run(mut self, feed: &Feed<HostSlot>, gate: &Gate, number: usize) {
        let meter = self.meter.clone();
        let _clocked = meter.on_this_thread();
        while gate.pass(number) {
            let Some(job) = feed.take() else { break };
            self.meter.waited_for_room(Stage::HandOver, job.waited);
            self.meter.batch(job.batch);
            let begin = self.meter.sample_begins();
            let done = self.fill(job);
            self.meter.sample_ends(begin);
            let made = self.meter.begin(Stage::HandOver);
            let pair = feed.complete(done);
            self.meter.add(Stage::HandOver, made, 0);
            if let Some(mut pair) = pair {
                let begin = self.meter.begin(Stage::Transform);
                self.mix(&mut pair);
                self.meter.add(Stage::Transform, begin, 0);
                feed.complete_pair(pair);
            }
        }
        gate.close();
    }

    /// Runs the batch operators on a pair of samples, and writes their soft targets.
    fn mix(&self, pair: &mut PairJob<HostCell>) {
        let PairJob { cells, rows, blends, .. } = pair;
        for (cell, row) in cells.iter_mut().flatten().zip(rows) {
            row.write(bytemuck::cast_slice_mut(&mut cell.target));
        }
        if let [Some(first), Some(second)] = cells {
            blend(self.plan.shape, blends, [&mut first.pixels, &mut second.pixels]);
        }
    }

    fn fill(&mut self, mut job: Job<HostCell>) -> Done<HostCell> {
        let wanted = job.key(&self.plan);
        let mut errors = Vec::new();
        let (plan, source) = (self.plan.clone(), self.source.clone());
        let pixels = &mut job.cell.pixels;
        let result = produce(&plan, &*source, wanted, &mut errors, |key| {
            Ok(self.pipeline.make(key, pixels)?)
        });
        if result.as_ref().is_ok_and(|record| !record.outcome.has_image()) {
            job.cell.pixels.fill(0);
        }
        let result = result.map(|record| job.placed(record));
        let Job { batch, place, cell, .. } = job;
        Done { batch, place, cell, result, errors }
    }
}
