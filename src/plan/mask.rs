//! Masks that the kernel `mask` makes on the device, and their memory in a page.

use crate::footprint::{Footprint, Memory, counted};
use crate::geometry::Size;
use crate::op::mask::{MaskFormat, MaskParams, MaskSample};
use crate::op::{Actions, Bounds, Kind, OriginMap};

use super::column::aligned;
use super::windows::Stage;
use super::{ColumnPlan, ColumnSettings, Plan};

/// Name of the footprint's rows for masks on their way to the device, and for the steps with which
/// a kernel moves them.
pub const MASKS: &str = "masks";

/// Name of the footprint's rows for the parameters of a launch of the kernel `mask`.
pub const MASK_LAUNCHES: &str = "mask parameters";

/// Column of masks on the device, and its part of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MaskPlan {
    /// Number of the column among the columns on the device.
    pub slot: usize,
    /// Number of masks per sample: one for each output of a view.
    pub outputs: usize,
    /// Format of a mask.
    pub format: MaskFormat,
    /// Offset of the column's part in the memory for masks of a page, in bytes.
    pub offset: usize,
    /// Size of this part in bytes. It holds the parameters for the kernel, and either the stored
    /// numbers and the steps of each output, or masks that were moved on the CPU, because they need
    /// more.
    pub bytes: usize,
}

impl MaskPlan {
    /// Columns of masks on the device. A page holds images of `page_pixels` pixels, whose sides are
    /// at most 25 % longer than those of `image`.
    pub(super) fn all(plan: &Plan, image: Size, page_pixels: usize) -> Vec<Self> {
        let more = |len: u32| len.saturating_add(len / 4);
        let image = Size::new(more(image.width), more(image.height));
        let mut masks: Vec<Self> = Vec::new();
        let columns = plan.mask_columns().filter(|it| it.0.memory == Memory::Device);
        for (column, settings, view) in columns {
            let (outputs, chain) = match view.map(|view| &plan.views[view]) {
                Some(view) => (view.outputs() as usize, &view.plan),
                None => (1, plan),
            };
            let format = chain.mask_format(column, settings);
            let values = page_pixels * format.stored_bytes();
            let steps = chain.most_mask_steps(image).min(MOST_STEPS_PER_PIXEL * page_pixels as u64);
            let stored = values + outputs * (steps as usize).next_multiple_of(8) + 8;
            let moved = outputs * format.moved_bytes();
            let bytes = outputs * size_of::<MaskParams>() + stored.max(moved);
            let offset = masks.last().map_or(0, |last| last.offset + last.bytes);
            let slot = column.slot;
            masks.push(Self { slot, outputs, format, offset, bytes: aligned(bytes) });
        }
        masks
    }

    /// Memory for these masks in a page, in bytes.
    pub fn page_bytes(masks: &[Self]) -> usize {
        masks.last().map_or(0, |last| last.offset + last.bytes)
    }

    /// Adds the rows of these masks to a footprint, for `pages` pages, and for launches of `group`
    /// samples whose parameters are in `blocks` blocks.
    pub(super) fn add_rows(
        masks: &[Self],
        to: &mut Footprint,
        (pages, group, blocks): (usize, usize, usize),
    ) {
        let note = format!("{}, and how they move", counted(masks.len(), "stored mask"));
        let samples = counted(group, "sample");
        for memory in [Memory::Pinned, Memory::Device].into_iter().filter(|_| !masks.is_empty()) {
            let page = aligned(Self::page_bytes(masks)) as u64;
            to.add(memory, MASKS, page, pages as u64, note.clone());
            let launch = Self::launch_bytes(masks, group) as u64;
            to.add(memory, MASK_LAUNCHES, launch, blocks as u64, samples.clone());
        }
    }

    /// Size of one parameter block of the kernel `mask` for these masks of `group` samples, in
    /// bytes.
    pub fn launch_bytes(masks: &[Self], group: usize) -> usize {
        let each: usize = masks.iter().map(|mask| mask.outputs).sum();
        aligned(group * each * size_of::<MaskSample>())
    }
}

/// Maximum memory for the positions of a sample's actions, in bytes per pixel of a page. The
/// bound of a random operator may be far above what it draws.
const MOST_STEPS_PER_PIXEL: u64 = 16;

impl Plan {
    /// Format of a column of masks that follow the images of this plan.
    pub(super) fn mask_format(&self, column: &ColumnPlan, settings: &ColumnSettings) -> MaskFormat {
        let size = Size::new(self.shape.width, self.shape.height);
        let classes = settings.one_hot.map(|classes| (classes, self.shape.layout));
        MaskFormat { size, element: column.element, classes }
    }

    /// Bounds on the actions that move a mask of the size of its image: columns and rows of the
    /// largest output together, and number of actions whose columns and rows depend on each other.
    pub(super) fn mask_bounds(&self, image: Size, stages: &[Stage]) -> (u64, u64) {
        let images = stages.iter().map(|stage| stage.largest).chain([image]);
        let lines = images.map(|it| u64::from(it.width) + u64::from(it.height)).max();
        let is_other = |kind: &Kind| matches!(kind, Kind::Warp | Kind::Image(_));
        let others = self.steps.iter().map(|step| &step.kinds);
        let others = others.filter(|kinds| kinds.list().iter().any(is_other));
        (lines.unwrap_or(0), others.map(|kinds| kinds.most() as u64).sum())
    }

    /// Maximum memory of the steps with which the kernel follows one output, in bytes.
    fn most_mask_steps(&self, image: Size) -> u64 {
        let (mut actions, mut stages) = (Actions::default(), Vec::new());
        Stage::put_bounding(&self.steps, image, &mut actions, &mut stages);
        let (lines, others) = self.mask_bounds(image, &stages);
        let displaced = self.steps.iter().enumerate().map(|(number, step)| {
            let warps = step.kinds.list().iter().any(|kind| matches!(kind, Kind::Warp));
            let stage = stages.iter().find(|stage| stage.operator == number);
            let (true, Some(stage)) = (warps, stage) else { return 0 };
            let (Size { width, height }, pixels) = (stage.largest, stage.largest.pixels());
            let bounds = Bounds { pixels, side: width.max(height).max(1), wanted: None };
            // The operator counts four entries per displaced pixel.
            step.operator.coefficients(bounds) as u64 / 4
        });
        let displaced = displaced.fold(0, u64::saturating_add);
        OriginMap::most_kernel_bytes(lines, others, displaced)
    }
}
