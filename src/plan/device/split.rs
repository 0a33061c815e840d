//! Chains on the device: the main chain, from the operator at which its samples move to the device,
//! and the chains of views.

use crate::geometry::{Roi, Size};
use crate::image::PixelType;
use crate::op::device_chain::{DeviceChain, Sample};
use crate::op::kernel_text::Leaf;
use crate::op::{Action, Actions, Bounds};
use crate::plan::windows::Stage;
use crate::plan::{Plan, SamplePlan};

use super::{HEAD_ROOM, MOST_PAGE_PIXELS, TABLE_ALIGN_BYTES, aligned};

/// Split of the chain: the operators before it run on the CPU, then samples are uploaded to the
/// GPU, and kernels run the rest of the chain.
#[derive(Clone, Debug)]
pub struct DeviceSplit {
    /// Index of the first operator on the GPU.
    pub first: usize,
    /// Kernels that run the operators from `first` on.
    pub chain: DeviceChain,
}

/// View that kernels make from the pixels of a page.
#[derive(Clone, Debug)]
pub struct DeviceView {
    /// Number of the view in [`Plan::views`].
    pub number: usize,
    /// Number of outputs per sample.
    pub outputs: usize,
    /// The whole chain of the view.
    pub split: DeviceSplit,
    /// Device bytes for each of an output's two intermediate images. 0 if no kernel needs them.
    pub scratch_bytes: usize,
}

impl DeviceView {
    /// The views of a plan that are on the device, for images up to 25 % larger than `image`.
    pub(super) fn all(plan: &Plan, image: Size) -> Vec<Self> {
        let views = plan.device_views().map(|(number, view)| {
            let split = DeviceSplit::new(&view.plan, 0);
            let scratch_bytes = most_scratch(&view.plan, std::slice::from_ref(&split), image);
            let outputs = view.outputs() as usize;
            Self { number, outputs, split, scratch_bytes: aligned(scratch_bytes) }
        });
        views.collect()
    }
}

impl DeviceSplit {
    pub(super) fn new(plan: &Plan, first: usize) -> Self {
        let before = first.checked_sub(1).map_or(PixelType::U8, |last| plan.steps[last].pixels);
        let leaf = Leaf::of(before);
        let kinds: Vec<_> = plan.steps[first..].iter().map(|step| &step.kinds).collect();
        Self { first, chain: DeviceChain::new(leaf, &kinds, plan.shape) }
    }

    /// Part of a planned sample that the kernels of this split process. `leaf` holds the parameters
    /// of the kernel's input ([`Leaf`]).
    pub fn sample<'a>(&self, planned: &'a SamplePlan, leaf: &'a [u8]) -> Sample<'a> {
        let actions = &planned.actions;
        let first = actions.end(self.first);
        let input = match first.checked_sub(1) {
            Some(last) => (actions.list[last].output, actions.list[last].whole),
            None => (planned.window, planned.upright),
        };
        Sample { actions, first, input, leaf }
    }

    /// Checks that the kernels execute a planned sample, with `scratch_bytes` bytes of scratch
    /// memory for each of its two intermediate images. The error is the reason for processing the
    /// sample on the CPU.
    pub(super) fn takes(
        &self,
        planned: &SamplePlan,
        scratch_bytes: usize,
    ) -> Result<(), &'static str> {
        let sample = self.sample(planned, &[]);
        self.chain.takes(&sample)?;
        if self.chain.scratch_bytes(&sample) > scratch_bytes as u64 {
            return Err("its images between passes do not fit into the scratch memory");
        }
        Ok(())
    }

    /// Tables of a planned sample for the kernels.
    pub fn tables<'a>(&self, planned: &'a SamplePlan) -> &'a [i32] {
        planned.actions.tables_from(self.first)
    }

    /// Size of these tables in a block of launch parameters, in bytes.
    pub fn table_bytes(&self, planned: &SamplePlan) -> usize {
        size_of_val(self.tables(planned)).next_multiple_of(TABLE_ALIGN_BYTES)
    }

    /// Size of a window that the kernel reads, in bytes.
    pub fn window_bytes(&self, window: Roi) -> usize {
        match self.chain.leaf {
            Leaf::Roi => window.pitched_bytes(),
            Leaf::Floats => 12 * window.size().pixels() as usize,
        }
    }

    /// Maximum size in bytes of a window with `pixels` pixels and at most `rows` rows.
    pub(super) fn pixels_bytes(&self, pixels: usize, rows: u64) -> usize {
        match self.chain.leaf {
            // Each row is padded by up to 15 pixels.
            Leaf::Roi => 3 * (pixels + 15 * rows as usize),
            Leaf::Floats => 12 * pixels,
        }
    }
}

impl Plan {
    /// Memory of the plan of one output that waits in a page for its launch, without its tables,
    /// in bytes. Lists grow by doubling.
    pub(in crate::plan) fn output_plan_bytes(&self) -> u64 {
        let actions = self.steps.iter().map(|step| step.kinds.list().len().max(1)).sum::<usize>();
        (size_of::<SamplePlan>() + 2 * actions * (size_of::<Action>() + size_of::<Stage>())) as u64
    }
}

/// Maximum size of an intermediate image in scratch memory, in bytes, for images up to 25 % larger
/// than `image`. `splits` are splits of the plan's chain.
pub(super) fn most_scratch(plan: &Plan, splits: &[DeviceSplit], image: Size) -> usize {
    let more = |len: u32| (u64::from(len) * HEAD_ROOM.0 / HEAD_ROOM.1) as u32;
    let images =
        [Size::new(more(image.width), image.height), Size::new(image.width, more(image.height))];
    let (mut actions, mut stages) = (Actions::default(), Vec::new());
    let mut most = 0;
    for image in images {
        Stage::put_bounding(&plan.steps, image, &mut actions, &mut stages);
        for DeviceSplit { first, chain } in splits {
            let first = first + chain.fused_operators();
            let begin = stages.iter().take_while(|it| it.operator < first).count();
            if chain.program.is_some() {
                most = most.max(Stage::scratch(&stages[begin..], chain.fused.is_some()));
            }
        }
    }
    most.min(MOST_PAGE_PIXELS) as usize
}

/// Size of all tables of a sample, in bytes, for the operators from index `first` and a window of
/// `pixels` pixels.
pub(super) fn table_bytes(plan: &Plan, first: usize, pixels: u64) -> usize {
    // Images with a longer side may need larger tables. They are then processed on the CPU.
    const LONGEST_SIDE: u32 = 1 << 14;
    let bounds = |wanted| Bounds { pixels, side: LONGEST_SIDE, wanted };
    let mut wanted: Option<Size> = Some(Size::new(plan.shape.width, plan.shape.height));
    let mut entries = 0usize;
    for step in plan.steps[first..].iter().rev() {
        let len = step.table_len(bounds(wanted));
        entries = entries.saturating_add(len);
        // A crop reads only as much of its input as its output size. A resampling operator may read
        // the whole input.
        wanted = match (len, step.operator.fixed_output(None)) {
            (0, None) => wanted,
            (0, Some(size)) => Some(size),
            _ => None,
        };
    }
    (4 * entries.min(1 << 26)).next_multiple_of(TABLE_ALIGN_BYTES)
}
