//! Batches in host memory: every worker reads, decodes and transforms a sample directly into its
//! cell.

use std::sync::Arc;

use crate::error::Result;
use crate::loader::controls::Gate;
use crate::loader::sample::cache::Caches;
use crate::loader::sample::fields::FieldReader;
use crate::loader::sample::large::LargeImages;
use crate::loader::sample::pipeline::SamplePipeline;
use crate::loader::sample::policy::produce;
use crate::loader::slot::column::{HostCell, HostColumns};
use crate::loader::slot::feed::{Done, Feed, Job};
use crate::loader::slot::pair::PairJob;
use crate::loader::slot::{BatchInfo, BatchSlot};
use crate::measure::{Stage, ThreadMeter};
use crate::plan::{ColumnRole, MaskColumn, Plan};
use crate::ring::Slot;
use crate::source::Source;
use crate::transform::blend_pair::{blend, blend_masks};

/// Memory of a batch on the host.
pub struct HostSlot {
    columns: HostColumns,
    info: BatchInfo,
}

impl HostSlot {
    /// Allocates a slot for the largest batch of the plan.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory) if the allocation fails.
    pub fn new(plan: &Plan) -> Result<Self> {
        let samples = plan.shape.batch;
        let columns = HostColumns::new(&plan.columns, samples)?;
        Ok(Self { columns, info: BatchInfo::with_room(samples, plan.stage.is_some())? })
    }

    /// Creates a slot of a finished batch, which is not filled again.
    pub fn filled(info: &BatchInfo, columns: HostColumns) -> Self {
        Self { columns, info: info.clone() }
    }

    /// The columns.
    pub fn columns(&self) -> &HostColumns {
        &self.columns
    }

    /// The columns, for writing.
    pub fn columns_mut(&mut self) -> &mut HostColumns {
        &mut self.columns
    }
}

impl Slot for HostSlot {
    fn begin_fill(&mut self) -> Result<()> {
        Ok(())
    }

    fn end_fill(&mut self) -> Result<()> {
        let moves = self.info.drop_failed();
        self.columns.join(&moves, self.info.records.len())
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

    fn host_columns(&mut self) -> &mut HostColumns {
        &mut self.columns
    }

    fn take_cell(&mut self, place: usize) -> HostCell {
        self.columns.take(place)
    }

    fn return_cell(&mut self, place: usize, cell: HostCell) {
        self.columns.put_back(place, cell);
    }
}

/// Worker thread that fills cells until there are no more jobs.
pub(super) struct Worker {
    source: Arc<dyn Source>,
    plan: Arc<Plan>,
    meter: Arc<ThreadMeter>,
    pipeline: SamplePipeline,
    fields: FieldReader,
    /// Numbers of the columns of the images and of the soft targets, if there are any.
    images: usize,
    targets: Option<usize>,
    /// Columns of masks: [`Plan::masks`].
    masks: Vec<MaskColumn>,
}

impl Worker {
    pub fn new(
        source: Arc<dyn Source>,
        plan: Arc<Plan>,
        meter: Arc<ThreadMeter>,
        caches: Arc<Caches>,
        large: Arc<LargeImages>,
    ) -> Self {
        let fields = FieldReader::new(&plan, caches.clone(), meter.clone());
        let pipeline =
            SamplePipeline::new(source.clone(), plan.clone(), meter.clone(), caches, large);
        let column = |role| plan.column(role).map(|column| column.slot);
        let (images, targets) = (column(ColumnRole::Image), column(ColumnRole::Target));
        let masks = plan.masks();
        Self { source, meter, pipeline, fields, images: images.unwrap_or(0), targets, masks, plan }
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
        if let Some(targets) = self.targets {
            for (cell, row) in cells.iter_mut().flatten().zip(rows) {
                row.write(bytemuck::cast_slice_mut(cell.part(targets)));
            }
        }
        if let [Some(first), Some(second)] = cells {
            for mask in &self.masks {
                let masks = [first.part(mask.slot), second.part(mask.slot)];
                blend_masks(&mask.format, blends, masks.map(|part| &mut part[..]));
            }
            let images = [first.part(self.images), second.part(self.images)];
            blend(self.plan.shape, blends, images.map(|part| &mut part[..]));
        }
    }

    fn fill(&mut self, mut job: Job<HostCell>) -> Done<HostCell> {
        let wanted = job.key(&self.plan);
        let mut errors = Vec::new();
        let Self { plan, source, pipeline, fields, images, .. } = self;
        let of_source = (&**source, fields);
        let result =
            produce(plan, of_source, &mut job.cell, wanted, &mut errors, |key, cell, fields| {
                Ok(pipeline.make(key, (fields, cell), None)?)
            });
        if result.as_ref().is_ok_and(|record| !record.outcome.has_image()) {
            job.cell.part(*images).fill(0);
        }
        let result = result.map(|record| job.placed(record));
        let Job { batch, place, cell, .. } = job;
        Done { batch, place, cell, result, errors }
    }
}
