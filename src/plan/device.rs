//! What a plan adds where something runs on the device: the kernel, and the buffers that go round.
//!
//! Between reading and launch a sample lies in a page. A page is in one of these hands, and there are as many pages
//! as all of them can hold: the workers (a page each, while they read and decode), the hardware engines (two groups that
//! are being decoded, a group that is being gathered), and the launch (a group). See [`Counts`].
//!
//! Sizes are those of the largest image among a few that were looked at, and a quarter more. An image that
//! needs more of anything is made on the CPU to the same bits, and counted.

use std::fmt;

use crate::footprint::{Footprint, Memory};
use crate::geometry::{Roi, Size};
use crate::image::PixelType;
use crate::op::Bounds;
use crate::op::kernel_text::{KernelText, Leaf, kernel_text};

use super::route::DecoderSizes;
use super::route::nvjpeg::{DEVICE_SLACK_BYTES, PINNED_SLACK_BYTES};
use super::{Counts, Facts, Place, Plan, Route};

/// The device's part of a plan.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DevicePlan {
    /// Where samples may go over to the device, as it is planned first; never empty.
    pub splits: Vec<DeviceSplit>,
    /// Most samples of one launch of the kernel.
    pub group: usize,
    /// Most images of one call of the hardware engines; 0 without that route.
    pub hardware_group: usize,
    /// Samples between a worker's read and the launch.
    pub pages: usize,
    /// Room for an encoded file in a page, page-locked; 0 where nothing is decoded on the GPU. Larger files are read
    /// into ordinary memory and decoded on the CPU.
    pub encoded_bytes: usize,
    /// Room for the decoded window of a page's sample, on the device. What needs more is made on the CPU.
    pub pixels_bytes: usize,
    /// Room for the coefficient tables of a sample. What needs more is made on the CPU.
    pub table_bytes: usize,
    /// Pixels of the largest image that nvJPEG's buffers have room for, whatever its window.
    pub image_pixels: usize,
    /// Page-locked buffers for what the CPU made.
    pub uploads: usize,
    /// Bytes of one: the pixels of a window where `cpu` is among the routes, and a finished sample in any case.
    pub upload_bytes: usize,
    /// The routes in use, with nvJPEG's buffers for each, in the order of [`Route::ALL`]; never empty.
    pub routes: Vec<RoutePlan>,
}

/// Where samples go over from the CPU to the device, with the kernel for the rest of the chain.
#[derive(Clone, Debug)]
pub struct DeviceSplit {
    /// Number of the first operator that is on the device.
    pub first: usize,
    /// What is at the bottom of the kernel's chain.
    pub leaf: Leaf,
    /// The kernel that runs the operators from there on.
    pub kernel: KernelText,
}

/// A route with what is kept for it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RoutePlan {
    /// The route.
    pub route: Route,
    /// Decode states: calls of nvJPEG that may be under way at one time. On the route `cpu`: workers that decode at
    /// one time.
    pub decoders: usize,
    /// nvJPEG's buffers on the device, of each decode state. An image that needs more is made on the CPU.
    pub device_bytes: usize,
    /// nvJPEG's buffers in page-locked memory, of each decode state.
    pub pinned_bytes: usize,
}

/// Names of the footprint's rows on the device and in page-locked memory.
pub mod rows {
    use crate::plan::Route;

    /// The batches.
    pub const OUTPUT_SLOTS: &str = "output slots";
    /// Windows of decoded pixels.
    pub const PIXELS: &str = "decoded pixels";
    /// Encoded files.
    pub const ENCODED: &str = "encoded pages";
    /// What the CPU made, on its way to the device.
    pub const UPLOADS: &str = "uploads";
    /// Parameters and coefficient tables of a launch.
    pub const LAUNCHES: &str = "launch parameters";

    /// The decoder's own buffers for a route; the route `cpu` has none.
    pub const fn nvjpeg(route: Route) -> &'static str {
        route.row()
    }
}

/// Blocks of launch parameters: the host writes one while the other is being copied.
pub const LAUNCH_BLOCKS: usize = 2;

/// Pool allocations are rounded up to this.
const ALIGN_BYTES: usize = 256;

/// Room in a page against the largest image that was looked at, as a quotient: whole sets are seldom looked at.
const HEAD_ROOM: (u64, u64) = (5, 4);

/// Pixels that a page has room for at least.
const LEAST_PAGE_PIXELS: u64 = 1 << 16;

/// Most pixels of a page: more than any device has memory for, and few enough that no product of them overflows.
const MOST_PAGE_PIXELS: u64 = 1 << 40;

/// Encoded bytes for a pixel of a page: what a JPEG of full quality without subsampling seldom has.
const ENCODED_BYTES_PER_PIXEL: usize = 2;

impl DevicePlan {
    /// The device's part of `plan`, whose places are decided; nothing is counted yet.
    pub(super) fn new(plan: &Plan, facts: &Facts, routes: Vec<Route>) -> Self {
        let planned = DeviceSplit::new(plan, plan.cpu_steps());
        let limits = &plan.settings.limits;
        let page_pixels = (facts.image.pixels().saturating_mul(HEAD_ROOM.0) / HEAD_ROOM.1)
            .max(LEAST_PAGE_PIXELS)
            .min(limits.max_pixels)
            .min(MOST_PAGE_PIXELS) as usize;
        let side = u64::from(facts.image.width.max(facts.image.height));
        let page_rows = (side * HEAD_ROOM.0 / HEAD_ROOM.1).max(LEAST_PAGE_PIXELS.isqrt());
        let encoded_bytes = match plan.decode {
            Place::Gpu => facts.largest_bytes.min(limits.max_file_bytes) as usize,
            Place::Cpu => 0,
        };
        let mut device = Self {
            pixels_bytes: aligned(planned.pixels_bytes(page_pixels, page_rows)),
            table_bytes: table_bytes(plan, planned.first, page_pixels as u64),
            splits: vec![planned],
            group: 0,
            hardware_group: 0,
            pages: 0,
            encoded_bytes: aligned(encoded_bytes.min(ENCODED_BYTES_PER_PIXEL * page_pixels)),
            image_pixels: page_pixels,
            uploads: 0,
            upload_bytes: aligned(plan.shape.sample_bytes()),
            routes: Vec::new(),
        };
        let steps = plan.steps.len();
        let others = plan.offloads.iter().rev().filter(|it| it.operators > 0 && !it.decode);
        let others = others.map(|it| it.first(steps)).filter(|&first| first > plan.cpu_steps());
        device.splits.extend(others.map(|first| DeviceSplit::new(plan, first)));
        if routes.contains(&Route::Cpu) {
            device.upload_bytes = device.upload_bytes.max(device.pixels_bytes);
        }
        device.routes = routes.into_iter().map(|route| device.route(route, 0)).collect();
        device
    }

    /// As many of everything as `counts` says.
    pub(super) fn set(&mut self, plan: &Plan, counts: &Counts) {
        let on_cpu = on_cpu(plan);
        self.group = counts.group;
        self.hardware_group = counts.hardware_group;
        self.pages = counts.reading + counts.group + 3 * counts.hardware_group;
        // Without the route, only what the others refuse is made on the CPU. One more is on its way to the device.
        let making = if self.has(Route::Cpu) { on_cpu.min(counts.reading) } else { 1 };
        self.uploads = making + 1;
        let routes = self.routes.iter().map(|it| {
            let route = it.route;
            let decoders = match (route.on_device(), route.batches()) {
                (false, _) => on_cpu,
                // One group is decoded while the call for the next one is made.
                (true, true) => counts.hardware_group.min(2),
                (true, false) if route.uses_worker_cpu() => counts.decoders.min(on_cpu),
                (true, false) => counts.decoders,
            };
            self.route(route, decoders)
        });
        self.routes = routes.collect();
    }

    /// Where samples go over to the device as it is planned.
    pub fn planned(&self) -> &DeviceSplit {
        &self.splits[0]
    }

    /// Where samples go over before this operator, if they may there.
    pub fn cut(&self, first: usize) -> Option<&DeviceSplit> {
        self.splits.iter().find(|cut| cut.first == first)
    }

    /// Bytes of one sample's parameters, of the kernel that has most.
    pub fn sample_bytes(&self) -> usize {
        self.splits.iter().map(|cut| cut.kernel.sample_bytes).max().unwrap_or(0)
    }

    /// Whether images may take a route.
    pub fn has(&self, route: Route) -> bool {
        self.routes.iter().any(|it| it.route == route)
    }

    /// Whether images may take a route of which this is true.
    pub fn has_any(&self, property: impl Fn(Route) -> bool) -> bool {
        self.routes.iter().any(|it| property(it.route))
    }

    /// Threads that gather images, one for each route that batches.
    pub fn gatherers(&self) -> usize {
        self.routes.iter().filter(|it| it.route.batches()).count()
    }

    /// Bytes of one block of launch parameters.
    pub fn launch_bytes(&self) -> usize {
        aligned(self.tables_of(self.group))
    }

    /// Where the tables of a launch's sample number `sample` begin in a block of launch parameters, in bytes: behind the
    /// parameters of all samples and the tables of those before it.
    pub fn tables_of(&self, sample: usize) -> usize {
        (self.group * self.sample_bytes()).next_multiple_of(8) + sample * self.table_bytes
    }

    /// Adds the rows of page-locked and device memory.
    pub(super) fn add_rows(&self, plan: &Plan, footprint: &mut Footprint) {
        let mut add = |memory, row, each: usize, count: usize, note: &str| {
            if each > 0 && count > 0 {
                footprint.add(memory, row, aligned(each) as u64, count as u64, note);
            }
        };
        let launch = format!("{} samples x ({} B + tables)", self.group, self.sample_bytes());
        let (slots, slot) = (plan.slots(), plan.slots_note());
        let states = |route: &RoutePlan| match route.route.batches() {
            true => format!("{} images in a call, estimated", self.hardware_group),
            false => "decode states, estimated".to_string(),
        };

        add(
            Memory::Pinned,
            rows::ENCODED,
            self.encoded_bytes,
            self.pages,
            "files as they were read",
        );
        add(Memory::Pinned, rows::UPLOADS, self.upload_bytes, self.uploads, "what the CPU made");
        add(Memory::Pinned, rows::LAUNCHES, self.launch_bytes(), LAUNCH_BLOCKS, &launch);
        for it in &self.routes {
            add(Memory::Pinned, it.route.row(), it.pinned_bytes, it.decoders, &states(it));
        }
        add(Memory::Device, rows::OUTPUT_SLOTS, plan.shape.bytes(), slots, &slot);
        let windows = "windows between decoder and kernel";
        add(Memory::Device, rows::PIXELS, self.pixels_bytes, self.pages, windows);
        add(Memory::Device, rows::LAUNCHES, self.launch_bytes(), LAUNCH_BLOCKS, &launch);
        for it in &self.routes {
            add(Memory::Device, it.route.row(), it.device_bytes, it.decoders, &states(it));
        }
    }

    /// A route with so many decode states.
    fn route(&self, route: Route, decoders: usize) -> RoutePlan {
        let memory = route.memory(&DecoderSizes {
            pixels: self.image_pixels,
            encoded_bytes: self.encoded_bytes,
            group: self.hardware_group,
        });
        let device_bytes = aligned(memory.device_bytes);
        RoutePlan { route, decoders, device_bytes, pinned_bytes: aligned(memory.pinned_bytes) }
    }
}

impl DeviceSplit {
    fn new(plan: &Plan, first: usize) -> Self {
        let before = first.checked_sub(1).map_or(PixelType::U8, |last| plan.steps[last].pixels);
        let leaf = Leaf::of(before);
        let operators: Vec<_> = plan.steps[first..].iter().map(|step| &*step.operator).collect();
        let kernel = kernel_text(leaf, &operators, plan.shape.dtype, plan.shape.layout);
        Self { first, leaf, kernel }
    }

    /// Bytes of a window that the kernel reads.
    pub fn window_bytes(&self, window: Roi) -> usize {
        match self.leaf {
            Leaf::Roi => window.pitched_bytes(),
            Leaf::Floats => 12 * window.size().pixels() as usize,
        }
    }

    /// Bytes of any window of so many pixels and at most so many rows.
    fn pixels_bytes(&self, pixels: usize, rows: u64) -> usize {
        match self.leaf {
            // Up to 15 pixels are put behind each row.
            Leaf::Roi => 3 * (pixels + 15 * rows as usize),
            Leaf::Floats => 12 * pixels,
        }
    }
}

impl RoutePlan {
    /// Bytes on the device and in page-locked memory that the buffers of each of nvJPEG's decode states begin with. Half of the slack is
    /// left in the row, for what nvJPEG takes for handles and states: were all of it in buffers, the first byte of that
    /// would be one too many.
    pub fn buffers(&self) -> (usize, usize) {
        let device = self.device_bytes.saturating_sub(DEVICE_SLACK_BYTES / 2);
        (device, self.pinned_bytes.saturating_sub(PINNED_SLACK_BYTES / 2))
    }
}

impl fmt::Display for RoutePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.route.name())?;
        if self.decoders > 1 {
            write!(f, " x{}", self.decoders)?;
        }
        Ok(())
    }
}

/// Workers that may decode on the CPU at one time.
pub(super) fn on_cpu(plan: &Plan) -> usize {
    let workers = plan.workers.most;
    plan.settings.decode.max_cpu_threads.map_or(workers, |most| most.min(workers))
}

const fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGN_BYTES)
}

/// Bytes of all tables of a sample that comes from a window of `pixels` pixels, for the operators from number
/// `first` on.
fn table_bytes(plan: &Plan, first: usize, pixels: u64) -> usize {
    // The longest side of any image but the oddest; those are made on the CPU.
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
