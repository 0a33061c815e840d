//! Jobs of the batch stage, which runs batch operators on pairs of samples and writes soft targets.

use std::sync::Arc;

use super::{BatchInfo, BatchSlot};
use crate::geometry::Size;
use crate::loader::order::Extent;
use crate::loader::sample::record::{Pair, PairOutcome, SampleRecord};
use crate::op::Blends;
use crate::op::batch::{TargetRow, plain_row, target_rows};
use crate::plan::{BatchStage, Plan};
use crate::random::SampleKey;

/// Job of the batch stage: a pair whose samples are finished, with the blends and the soft targets
/// to apply.
#[must_use = "the batch is published when the pair is returned by `Feed::complete_pair`"]
pub(in crate::loader) struct PairJob<C> {
    /// Sequence number of the batch over all epochs.
    pub batch: u64,
    /// Place of the first sample.
    pub place: usize,
    /// Memory of the two samples. The last pair of an epoch may have only one sample.
    pub cells: [Option<C>; 2],
    /// Soft targets of the samples.
    pub rows: [TargetRow; 2],
    pub blends: Blends,
}

/// Creates the jobs of the batch stage (batch operators and soft targets).
pub(in crate::loader) struct Pairs {
    plan: Arc<Plan>,
}

impl Pairs {
    /// Returns `None` if the plan has neither batch operators nor soft targets.
    pub fn new(plan: &Arc<Plan>) -> Option<Self> {
        plan.stage.is_some().then(|| Self { plan: plan.clone() })
    }

    /// Records that the sample at `place` is finished. If its pair is now finished, returns the job
    /// for the pair.
    pub fn finish<S: BatchSlot>(
        &self,
        batch: u64,
        slot: &mut S,
        place: usize,
        extent: &Extent,
    ) -> Option<PairJob<S::Cell>> {
        let stage = self.plan.stage.as_ref()?;
        let first = place & !1;
        let labels = [first, first + 1].map(|place| slot.host_columns().label(place));
        let info = slot.info_mut();
        let members = (info.records.len() - first).min(2);
        let finished = &mut info.finished[place / 2];
        *finished += 1;
        if *finished < members as u8 {
            return None;
        }
        let (rows, outcome, blends) = self.draw(stage, info, (first, labels), extent);
        info.pairs[place / 2] = Pair { outcome, blends };
        let second = (members == 2).then(|| slot.take_cell(first + 1));
        let cells = [Some(slot.take_cell(first)), second];
        Some(PairJob { batch, place: first, cells, rows, blends })
    }

    /// Draws soft targets, outcome and blends of the pair whose first sample is at `first`.
    fn draw(
        &self,
        stage: &BatchStage,
        info: &BatchInfo,
        (first, labels): (usize, [Option<i64>; 2]),
        extent: &Extent,
    ) -> ([TargetRow; 2], PairOutcome, Blends) {
        let classes = labels.map(|label| label.and_then(|label| stage.class(label)));
        let mixable = |place: usize| info.records.get(place).is_some_and(is_mixable);
        if !(mixable(first) && mixable(first + 1)) {
            let rows = classes.map(|class| plain_row(class, stage.coding));
            return (rows, PairOutcome::Alone, Blends::NONE);
        }
        let index = extent.position(info.number, first);
        let key = SampleKey { seed: self.plan.settings.loader.seed, epoch: info.epoch, index };
        let size = Size::new(self.plan.shape.width, self.plan.shape.height);
        let blends = Blends::draw(&stage.operators, size, key);
        let outcome = if blends.is_empty() { PairOutcome::Unmixed } else { PairOutcome::Mixed };
        (target_rows(classes, stage.coding, &blends), outcome, blends)
    }
}

/// Whether a sample may be mixed with another one.
fn is_mixable(record: &SampleRecord) -> bool {
    !record.padding && record.outcome.has_image()
}
