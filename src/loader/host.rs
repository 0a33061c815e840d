//! Batches in host memory: every worker reads, decodes and transforms a sample directly into its cell.

use std::sync::Arc;

use bytes::BytesMut;

use crate::error::{Error, Result, reserve};
use crate::measure::{Stage, ThreadMeter};
use crate::plan::Plan;
use crate::random::SampleKey;
use crate::ring::Slot;
use crate::source::Source;

use super::cache::Caches;
use super::controls::Gate;
use super::feed::{Done, Feed, Job};
use super::large::LargeImages;
use super::pipeline::SamplePipeline;
use super::policy::produce;
use super::record::{Outcome, SampleRecord};
use super::slot::{BatchInfo, BatchSlot, no_slot};

/// A batch's memory on the host: one allocation. It is split into one cell per sample while it is filled, so that many
/// threads write at once, and joined again, without a copy and without `unsafe`.
pub struct HostSlot {
    whole: BytesMut,
    cells: Vec<Option<BytesMut>>,
    sample_bytes: usize,
    info: BatchInfo,
}

impl HostSlot {
    /// Allocates `samples` cells of `sample_bytes` each, aligned as DLPack requires, and touches every page, so that the
    /// system provides it now and not while the loader runs.
    ///
    /// # Errors
    /// [`Error::Memory`] if the allocation fails.
    pub fn new(samples: usize, sample_bytes: usize) -> Result<Self> {
        const ALIGN: usize = 256;
        let bytes = samples.saturating_mul(sample_bytes);
        let refused = |_| no_slot(bytes as u64);
        let mut whole = reserve::buffer(bytes.saturating_add(ALIGN)).map_err(refused)?;
        let offset = whole.as_ptr().align_offset(ALIGN).min(ALIGN);
        whole.resize(bytes + offset, 1);
        drop(whole.split_to(offset));
        let mut cells = Vec::new();
        reserve::reserve(&mut cells, samples).map_err(refused)?;
        cells.resize_with(samples, || None);
        Ok(Self { whole, cells, sample_bytes, info: BatchInfo::with_room(samples)? })
    }

    /// The whole tensor; empty while it is being filled.
    pub fn tensor(&self) -> &[u8] {
        &self.whole
    }

    /// The whole tensor for writing; empty while it is being filled.
    pub fn tensor_mut(&mut self) -> &mut [u8] {
        &mut self.whole
    }
}

impl Slot for HostSlot {
    fn begin_fill(&mut self) -> Result<()> {
        for cell in &mut self.cells {
            // A slot that was abandoned half filled still has its cells split off.
            if cell.is_none() {
                *cell = Some(self.whole.split_to(self.sample_bytes));
            }
        }
        Ok(())
    }

    fn end_fill(&mut self) -> Result<()> {
        for cell in &mut self.cells {
            let cell = cell.take().ok_or_else(|| Error::Internal {
                problem: "a cell of a finished batch is missing".into(),
            })?;
            // Neighbours in one allocation: `unsplit` joins them in constant time.
            if self.whole.is_empty() {
                self.whole = cell;
            } else {
                self.whole.unsplit(cell);
            }
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
    type Cell = BytesMut;
    const BEGIN_BEFORE_CELLS: bool = true;

    fn info(&self) -> &BatchInfo {
        &self.info
    }

    fn info_mut(&mut self) -> &mut BatchInfo {
        &mut self.info
    }

    fn take_cell(&mut self, place: usize) -> BytesMut {
        self.cells[place].take().unwrap_or_default()
    }

    fn return_cell(&mut self, place: usize, cell: BytesMut) {
        self.cells[place] = Some(cell);
    }
}

/// A worker that fills cells until there are no more jobs.
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

    /// Fills cells until there are no more jobs, whenever the gate lets worker `number` run.
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
            feed.complete(done);
            self.meter.add(Stage::HandOver, made, 0);
        }
        gate.close();
    }

    fn fill(&mut self, job: Job<BytesMut>) -> Done<BytesMut> {
        let Job { batch, place, epoch, index, padding, mut cell, .. } = job;
        let mut errors = Vec::new();
        let seed = self.plan.settings.loader.seed;
        let (plan, source) = (self.plan.clone(), self.source.clone());
        let wanted = SampleKey { seed, epoch, index };
        let result = produce(&plan, &*source, wanted, &mut errors, |key| {
            Ok(self.pipeline.finish(key, &mut cell)?)
        });
        if result.as_ref().is_ok_and(|record| record.outcome == Outcome::Substituted) {
            cell.fill(0);
        }
        let result = result.map(|record| SampleRecord { padding, ..record });
        Done { batch, place, cell, result, errors }
    }
}
