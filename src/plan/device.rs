//! What a plan adds where something runs on the device: the kernel, and the sizes of the buffers that go round.

use crate::footprint::{Footprint, Memory};
use crate::geometry::Size;
use crate::image::PixelType;
use crate::op::Bounds;
use crate::op::kernel_text::{KernelText, Leaf, kernel_text};

use super::{Facts, Place, Plan};

/// The device's part of a plan.
#[derive(Clone, Debug)]
pub struct DevicePlan {
    /// The kernel that runs all operators that are on the device.
    pub kernel: KernelText,
    /// What is at the bottom of the kernel's chain.
    pub leaf: Leaf,
    /// Most samples of one launch.
    pub group: usize,
    /// Samples that are between the workers and the launch.
    pub pages: usize,
    /// Room for the decoded window of a sample. What needs more is made on the CPU, to the same bits.
    pub pixels_bytes: usize,
    /// Room for the coefficient tables of a sample. What needs more is made on the CPU, to the same bits.
    pub table_bytes: usize,
    /// nvJPEG's buffers for a sample, on the device. What needs more is made on the CPU.
    pub nvjpeg_device_bytes: usize,
    /// nvJPEG's buffers for a sample, in page-locked memory.
    pub nvjpeg_pinned_bytes: usize,
}

/// Names of the footprint's rows on the device and in page-locked memory.
pub mod rows {
    /// The batches.
    pub const OUTPUT_SLOTS: &str = "output slots";
    /// Windows of decoded pixels.
    pub const PIXELS: &str = "decoded pixels";
    /// Parameters and coefficient tables of a launch.
    pub const LAUNCHES: &str = "launch parameters";
    /// Samples that were made on the CPU, on their way to the device.
    pub const FINISHED: &str = "finished samples";
    /// nvJPEG's own buffers.
    pub const NVJPEG: &str = "nvjpeg";
}

/// Samples of one launch: enough to fill a large GPU (8 x 196 blocks for 224 x 224), few enough that the memory
/// between decoder and kernel stays small.
const GROUP: usize = 8;

/// Blocks of launch parameters: the host writes one while the other is being copied.
pub const LAUNCH_BLOCKS: usize = 2;

/// Device allocations are rounded up to this.
const ALIGN_BYTES: usize = 256;

/// Pixels that a page has room for at least.
const LEAST_PAGE_PIXELS: u64 = 1 << 18;

/// Bytes that nvJPEG keeps per pixel, and besides: 16-bit coefficients of three components without subsampling,
/// planes, and padding to whole blocks. A guess that no device has confirmed yet.
const NVJPEG_DEVICE: (usize, usize) = (12, 4 << 20);
const NVJPEG_PINNED: (usize, usize) = (8, 2 << 20);

impl DevicePlan {
    /// The device's part of `plan`, whose places are decided.
    pub(super) fn new(plan: &Plan, facts: &Facts) -> Self {
        let cpu = plan.cpu_steps();
        let before = cpu.checked_sub(1).map_or(PixelType::U8, |last| plan.steps[last].pixels);
        let leaf = Leaf::of(before);
        let operators: Vec<_> = plan.steps[cpu..].iter().map(|step| &*step.operator).collect();
        let kernel = kernel_text(leaf, &operators, plan.shape.dtype, plan.shape.layout);
        // Twice the largest picture that was looked at: whole sets are seldom looked at.
        let page_pixels = (2 * facts.picture.pixels()).max(LEAST_PAGE_PIXELS);
        let page_pixels = page_pixels.min(plan.settings.limits.max_pixels) as usize;
        let pixel_bytes = if before == PixelType::U8 { 3 } else { 12 };
        Self {
            kernel,
            leaf,
            group: GROUP,
            pages: plan.settings.loader.workers + GROUP,
            pixels_bytes: (pixel_bytes * page_pixels).next_multiple_of(ALIGN_BYTES),
            table_bytes: table_bytes(plan, cpu, page_pixels as u64),
            nvjpeg_device_bytes: nvjpeg_bytes(NVJPEG_DEVICE, page_pixels),
            nvjpeg_pinned_bytes: nvjpeg_bytes(NVJPEG_PINNED, page_pixels),
        }
    }

    /// Bytes of one block of launch parameters.
    pub fn launch_bytes(&self) -> usize {
        let samples = self.group * self.kernel.sample_bytes;
        (samples.next_multiple_of(8) + self.group * self.table_bytes).next_multiple_of(ALIGN_BYTES)
    }

    /// Adds the rows of page-locked and device memory.
    pub(super) fn add_rows(&self, plan: &Plan, footprint: &mut Footprint) {
        let (pages, blocks, slots) = (self.pages, LAUNCH_BLOCKS, plan.slots());
        let mut add = |memory, row, each: usize, count: usize, note: &str| {
            let each = each.next_multiple_of(ALIGN_BYTES) as u64;
            footprint.add(memory, row, each, count as u64, note);
        };
        let launch = format!("{} samples x ({} B + tables)", self.group, self.kernel.sample_bytes);
        let slot = format!("{}, {} ahead + 2", plan.shape, plan.settings.loader.prefetch);
        let on_gpu = plan.decode == Place::Gpu;

        let finished = "made on the CPU to the same bits";
        add(Memory::Pinned, rows::FINISHED, plan.shape.sample_bytes(), pages, finished);
        add(Memory::Pinned, rows::LAUNCHES, self.launch_bytes(), blocks, &launch);
        if on_gpu {
            add(Memory::Pinned, rows::NVJPEG, self.nvjpeg_pinned_bytes, pages, "its own buffers");
        } else {
            add(Memory::Pinned, rows::PIXELS, self.pixels_bytes, pages, "decoded on the CPU");
        }
        add(Memory::Device, rows::OUTPUT_SLOTS, plan.shape.bytes(), slots, &slot);
        let windows = "windows between decoder and kernel";
        add(Memory::Device, rows::PIXELS, self.pixels_bytes, pages, windows);
        add(Memory::Device, rows::LAUNCHES, self.launch_bytes(), blocks, &launch);
        if on_gpu {
            add(Memory::Device, rows::NVJPEG, self.nvjpeg_device_bytes, pages, "its own buffers");
        }
    }
}

fn nvjpeg_bytes((per_pixel, besides): (usize, usize), pixels: usize) -> usize {
    (per_pixel * pixels + besides).next_multiple_of(ALIGN_BYTES)
}

/// Bytes of all tables of a sample that comes from a window of `pixels` pixels, for the operators from number
/// `first` on.
fn table_bytes(plan: &Plan, first: usize, pixels: u64) -> usize {
    // The longest side of any picture but the oddest; those are made on the CPU.
    const LONGEST_SIDE: u32 = 1 << 14;
    let bounds = |wanted| Bounds { pixels, side: LONGEST_SIDE, wanted };
    let mut wanted: Option<Size> = Some(Size::new(plan.shape.width, plan.shape.height));
    let mut entries = 0usize;
    for step in plan.steps[first..].iter().rev() {
        let len = step.operator.table_len(bounds(wanted));
        entries = entries.saturating_add(len);
        // A crop wants its own size of what comes before it; what resamples may want all of it.
        wanted = match (len, step.operator.fixed_output(None)) {
            (0, None) => wanted,
            (0, Some(size)) => Some(size),
            _ => None,
        };
    }
    (4 * entries.min(1 << 26)).next_multiple_of(8)
}
