//! Batch operators and soft targets on the device.

use std::sync::Arc;

use super::block::Block;
use super::{Cell, DeviceSlot};
use crate::error::Result;
use crate::geometry::Size;
use crate::gpu::{Kernel, LaunchGoal, Staged, Stopwatch, Stream};
use crate::loader::slot::feed::Feed;
use crate::loader::slot::pair::PairJob;
use crate::op::batch::{MaskPairParams, PairParams};
use crate::plan::{ColumnRole, MaskColumn, Plan};

/// Runs the kernel `mix`, which applies batch operators and writes soft targets, and the kernel
/// `mix_masks`, which blends masks, on pairs whose samples are written by earlier work in the
/// producer's stream. After each launch of the fused kernel, one launch of this kernel
/// processes the pairs that the fused kernel completed, while their samples are in the L2 cache.
pub(in crate::loader) struct Mixer {
    size: Size,
    /// Number of the soft targets' column, and number of classes.
    targets: (usize, u32),
    masks: Vec<MaskColumn>,
    kernel: Kernel,
    /// The kernel `mix_masks`. `None` without masks.
    mix_masks: Option<Kernel>,
    /// Offset of the parameters of pairs of masks in a block.
    mask_pairs: usize,
    blocks: Vec<Block>,
    jobs: Vec<PairJob<Cell>>,
    launches: Arc<Stopwatch>,
}

impl Mixer {
    /// Creates a mixer. The size of each block is
    /// [`DevicePlan::pairs_bytes`](crate::plan::DevicePlan::pairs_bytes).
    pub fn new(
        plan: &Plan,
        (kernel, mix_masks): (Kernel, Option<Kernel>),
        blocks: Vec<Staged>,
        launches: Arc<Stopwatch>,
    ) -> Result<Self> {
        let blocks = Block::all(blocks)?;
        let group = plan.device.as_ref().map_or(0, |device| device.group);
        let mask_pairs = plan.device.as_ref().map_or(0, |device| device.mask_pairs());
        let classes = plan.stage.as_ref().map_or(0, |stage| stage.classes);
        let targets = plan.column(ColumnRole::Target).map_or(0, |column| column.slot);
        let targets = (targets, classes);
        let size = Size::new(plan.shape.width, plan.shape.height);
        Ok(Self {
            size,
            targets,
            masks: plan.masks(),
            kernel,
            mix_masks,
            mask_pairs,
            blocks,
            jobs: Vec::with_capacity(group),
            launches,
        })
    }

    /// Adds a pair to the next launch.
    pub fn push(&mut self, job: PairJob<Cell>) {
        self.jobs.push(job);
    }

    /// Launches the kernels for all added pairs, and returns them to the feed. `tables` is the
    /// stream for uploads.
    pub fn run(
        &mut self,
        goal: LaunchGoal,
        stream: &Stream,
        tables: &Stream,
        feed: &Feed<DeviceSlot>,
    ) -> Result<()> {
        if self.jobs.is_empty() {
            return Ok(());
        }
        // Use the block that was used longest ago, because its upload has most likely ended.
        self.blocks.rotate_left(1);
        let Block { staged, read } = &mut self.blocks[0];
        let bytes = self.jobs.len() * size_of::<PairParams>();
        let host = staged.bytes()?;
        let params: &mut [PairParams] = bytemuck::cast_slice_mut(&mut host[..bytes]);
        for (params, job) in params.iter_mut().zip(&self.jobs) {
            *params = params_of(job, self.targets);
        }
        let (mut masks, mut row_len) = (0, 0);
        for (job, mask) in
            self.jobs.iter().flat_map(|job| self.masks.iter().map(move |it| (job, it)))
        {
            let Some(params) = mask_params_of(job, mask) else { continue };
            let place = self.mask_pairs + masks * size_of::<MaskPairParams>();
            host[place..][..size_of::<MaskPairParams>()]
                .copy_from_slice(bytemuck::bytes_of(&params));
            masks += 1;
            row_len = row_len.max(MaskPairParams::row_len(&mask.format));
        }
        tables.wait(read)?;
        staged.upload(tables, 0..bytes)?;
        let mask_pairs = self.mask_pairs..self.mask_pairs + masks * size_of::<MaskPairParams>();
        staged.upload(tables, mask_pairs.clone())?;
        stream.wait(staged.uploaded())?;
        let count = self.jobs.len() as u32;
        let mut lap = self.launches.lap()?;
        lap.start(stream)?;
        self.kernel.launch_for(goal, stream, staged.device(), 0, count, self.size)?;
        if let Some(mix_masks) = &self.mix_masks {
            let (block, masks) = (staged.device(), masks as u32);
            let size = Size::new(row_len, self.size.height);
            mix_masks.launch_for(goal, stream, block, mask_pairs.start, masks, size)?;
        }
        // The launch of the fused kernel has already counted the samples, so this launch counts 0.
        lap.stop(stream, 0)?;
        read.record(stream)?;
        self.jobs.drain(..).for_each(|job| feed.complete_pair(job));
        Ok(())
    }
}

/// Parameters of the masks of a pair in a column. `None` if they do not change.
fn mask_params_of(job: &PairJob<Cell>, mask: &MaskColumn) -> Option<MaskPairParams> {
    let [Some(first), Some(second)] = &job.cells else { return None };
    let masks = [first, second].map(|cell| cell.address(mask.slot));
    (!job.blends.is_empty()).then(|| MaskPairParams::new(masks, &mask.format, &job.blends))
}

fn params_of(job: &PairJob<Cell>, (targets, classes): (usize, u32)) -> PairParams {
    let [first, second] = &job.cells;
    let of =
        |column| [first, second].map(|cell| cell.as_ref().map_or(0, |cell| cell.address(column)));
    PairParams::new(of(0), of(targets), job.rows, classes, &job.blends)
}
