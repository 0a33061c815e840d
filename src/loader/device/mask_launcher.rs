//! Masks on the device.

use std::sync::Arc;

use super::Cell;
use super::block::Block;
use super::page_masks::PageMasks;
use crate::error::Result;
use crate::geometry::Size;
use crate::gpu::{Kernel, LaunchGoal, Staged, Stopwatch, Stream};
use crate::op::mask::{MaskParams, MaskSample};
use crate::plan::{DevicePlan, MaskPlan};

/// Runs the kernel `mask`, which writes the masks of samples into the columns of their batches. One
/// launch processes all masks of a group of pages, also those whose images need no kernel.
pub(in crate::loader) struct MaskLauncher {
    plans: Vec<MaskPlan>,
    kernel: Kernel,
    blocks: Vec<Block>,
    samples: Vec<MaskSample>,
    launches: Arc<Stopwatch>,
}

/// Maximum number of masks in one launch. CUDA limits the third dimension of a grid to 65535.
const MOST_PER_LAUNCH: usize = 1 << 15;

impl MaskLauncher {
    /// Creates a launcher. The size of each block is [`MaskPlan::launch_bytes`].
    pub fn new(
        device: &DevicePlan,
        kernel: Kernel,
        blocks: Vec<Staged>,
        launches: Arc<Stopwatch>,
    ) -> Result<Self> {
        let blocks = Block::all(blocks)?;
        let plans = device.masks.clone();
        let outputs: usize = plans.iter().map(|plan| plan.outputs).sum();
        let samples = Vec::with_capacity(device.group * outputs);
        Ok(Self { plans, kernel, blocks, samples, launches })
    }

    /// Begins a launch.
    pub fn begin(&mut self) {
        self.samples.clear();
    }

    /// Adds the masks of a page to the launch, and uploads them in the stream `tables`.
    pub fn push(&mut self, page: &mut PageMasks, cell: &Cell, tables: &Stream) -> Result<()> {
        tables.wait(&page.read)?;
        for (plan, &used) in self.plans.iter().zip(&page.used).filter(|it| *it.1 > 0) {
            page.staged.upload(tables, plan.offset..plan.offset + used)?;
            let each = plan.format.bytes();
            let (out, mask) = (cell.address(plan.slot), page.staged.device().address());
            for output in 0..plan.outputs {
                let params = plan.offset + output * size_of::<MaskParams>();
                let [out, mask] = [out + (output * each) as u64, mask + params as u64];
                self.samples.push(MaskSample { out, mask });
            }
        }
        Ok(())
    }

    /// Launches the kernel for all added masks. `tables` is the stream for uploads.
    pub fn run(&mut self, goal: LaunchGoal, stream: &Stream, tables: &Stream) -> Result<()> {
        if self.samples.is_empty() {
            return Ok(());
        }
        // Use the block that was used longest ago, because its upload has most likely ended.
        self.blocks.rotate_left(1);
        let Block { staged, read } = &mut self.blocks[0];
        let samples: &[u8] = bytemuck::cast_slice(&self.samples);
        staged.bytes()?[..samples.len()].copy_from_slice(samples);
        tables.wait(read)?;
        staged.upload(tables, 0..samples.len())?;
        // The masks were uploaded earlier in the same stream.
        stream.wait(staged.uploaded())?;
        let sides =
            |side: fn(&Size) -> u32| self.plans.iter().map(move |it| side(&it.format.size)).max();
        let size = Size::new(sides(|it| it.width).unwrap_or(0), sides(|it| it.height).unwrap_or(0));
        let mut lap = self.launches.lap()?;
        lap.start(stream)?;
        for (number, samples) in self.samples.chunks(MOST_PER_LAUNCH).enumerate() {
            let (offset, count) =
                (number * MOST_PER_LAUNCH * size_of::<MaskSample>(), samples.len());
            self.kernel.launch_for(goal, stream, staged.device(), offset, count as u32, size)?;
        }
        // The samples are counted when their images are launched.
        lap.stop(stream, 0)?;
        read.record(stream)
    }
}
