//! GPU part of a plan: kernels and buffers.
//!
//! A page holds the buffers of one sample between reading and launch. There are enough pages for
//! all users at once: the workers (one page each while they read and decode), the JPEG engines (two
//! groups that are being decoded and one that is being gathered), and the launch (one group). See
//! [`Counts`].
//!
//! Buffers fit the largest scanned image plus 25 %. An image that needs a larger buffer is decoded
//! on the CPU to the same bits, and counted.

use crate::footprint::{Footprint, Memory, counted};
use crate::op::batch::{MaskPairParams, PairParams};

use super::column::aligned;
use super::mask::MaskPlan;
use super::route::nvjpeg::{DEVICE_SLACK_BYTES, PINNED_SLACK_BYTES};
use super::route::{DecoderMemory, DecoderSizes, MeasuredMemory, description_bytes};
use super::{Counts, DeviceFacts, DeviceFilesPlan, Facts, Place, Plan, Route, SamplePlan};

mod launch_block;
mod split;

pub use launch_block::LaunchBlock;
pub use split::{DeviceSplit, DeviceView};

use split::{most_scratch, table_bytes};

/// GPU part of a plan.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DevicePlan {
    /// Possible splits of the chain. The planned one is the first. Never empty.
    pub splits: Vec<DeviceSplit>,
    /// Views that kernels make from the same pixels as the main chain. If there are any, the whole
    /// main chain is on the device, so pages hold decoded windows.
    pub views: Vec<DeviceView>,
    /// Maximum number of pages per kernel launch. A launch for the main chain has a sample per
    /// page, and a launch for a view has its outputs of all pages.
    pub group: usize,
    /// Largest number of images per call of all routes that decode several images per call. 0
    /// without such a route.
    pub hardware_group: usize,
    /// Number of pages. A page holds a sample between a worker's read and the launch.
    pub pages: usize,
    /// Page-locked bytes per page for an encoded file. 0 if nothing is decoded on the GPU. Larger
    /// files are read into pageable memory and decoded on the CPU.
    pub encoded_bytes: usize,
    /// Device bytes per page for a decoded window. Samples that need more are processed on the CPU.
    pub pixels_bytes: usize,
    /// Bytes for the coefficient tables of a sample and of the outputs of its views. Samples that
    /// need more are processed on the CPU.
    pub table_bytes: usize,
    /// Pixels of the largest image that fits nvJPEG's buffers. The whole image counts, even if its
    /// window is small.
    pub image_pixels: usize,
    /// Device bytes for each of a sample's two intermediate images, which hold pixels between
    /// kernels or passes of a kernel. 0 if no kernel needs them. Samples that need more are
    /// processed on the CPU.
    pub scratch_bytes: usize,
    /// Number of page-locked buffers for samples processed on the CPU.
    pub uploads: usize,
    /// Size of one upload buffer, in bytes. It holds a finished sample with its views on the
    /// device. If the route `cpu` is used, it also holds the pixels of any window, which may be
    /// larger.
    pub upload_bytes: usize,
    /// Routes in use, with nvJPEG's buffers for each, in the order of [`Route::ALL`]. Never empty.
    pub routes: Vec<RoutePlan>,
    /// Cache of files in device memory (`cache.device`).
    pub files: Option<DeviceFilesPlan>,
    /// Columns of masks that a kernel makes.
    pub masks: Vec<MaskPlan>,
    /// Measured memory of routes. The memory of other routes is estimated.
    measured: Vec<MeasuredMemory>,
}

/// Route with its decode states and buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RoutePlan {
    /// The route.
    pub route: Route,
    /// Number of decode states: concurrent calls of the decoder. For the route `cpu`, number of
    /// workers that may decode at the same time.
    pub decoders: usize,
    /// Maximum number of images per call.
    pub group: usize,
    /// nvJPEG's device buffers per decode state, in bytes. An image that needs more is decoded on
    /// the CPU.
    pub device_bytes: usize,
    /// nvJPEG's page-locked buffers per decode state, in bytes.
    pub pinned_bytes: usize,
    /// Sizes of the two buffers that a decode state allocates at the start. They are part of
    /// `device_bytes` and `pinned_bytes`. The rest is for memory that nvJPEG allocates itself.
    pub buffers: DecoderMemory,
    /// Whether `device_bytes` and `pinned_bytes` were measured. If not, they are estimated.
    pub is_measured: bool,
}

/// Names of the footprint's rows for device and page-locked memory.
pub mod rows {
    use crate::plan::Route;

    pub use crate::plan::column::{COLUMN_COPIES, OUTPUT_SLOTS};
    pub use crate::plan::mask::{MASK_LAUNCHES, MASKS};
    /// Files that stay in device memory, and what the host keeps of them.
    pub const FILES: &str = "device cache";
    /// Descriptions of images for the kernels of feedwater's own decoder.
    pub const DESCRIPTIONS: &str = "image descriptions";
    /// Decoded windows.
    pub const PIXELS: &str = "decoded pixels";
    /// Encoded files.
    pub const ENCODED: &str = "encoded pages";
    /// Row for samples processed on the CPU, until they are uploaded to the GPU.
    pub const UPLOADS: &str = "uploads";
    /// Row for the parameters and coefficient tables of a launch.
    pub const LAUNCHES: &str = "launch parameters";
    /// Row for intermediate images between kernels or passes of a kernel.
    pub const SCRATCH: &str = "kernel scratch";
    /// Row for the parameters of a launch of the kernels `mix` (batch operators and soft targets)
    /// and `mix_masks`.
    pub const PAIRS: &str = "pair parameters";

    /// Row for the buffers of a route's decoder. The route `cpu` has none.
    pub const fn decoder(route: Route) -> &'static str {
        route.row()
    }
}

/// Number of blocks of launch parameters. The host writes one while the other is being copied.
pub const LAUNCH_BLOCKS: usize = 2;

/// Number of pages per image in a call of the JPEG engines: the images of two calls are being
/// decoded while those of a third call are gathered.
const PAGES_PER_GROUPED: usize = 3;

/// Device memory for the images of a route's calls, in bytes. It sets the default number of images
/// per call.
const DEFAULT_CALL_BYTES: usize = 64 << 20;

/// Minimum of the default images per call: one for each of the seven JPEG engines of a large GPU.
const LEAST_DEFAULT_GROUP: usize = 7;

/// Maximum of the default images per call. A larger call delays the first batch, and its speed has
/// not been measured.
const MOST_DEFAULT_GROUP: usize = 32;

/// Size of a page relative to the largest scanned image, as numerator and denominator.
const HEAD_ROOM: (u64, u64) = (5, 4);

/// Minimum number of pixels that a page holds.
const LEAST_PAGE_PIXELS: u64 = 1 << 16;

/// Maximum pixels of a page: too large for any GPU, but small enough that no product overflows.
const MOST_PAGE_PIXELS: u64 = 1 << 40;

/// Alignment of the tables of a sample or output in a launch, in bytes.
const TABLE_ALIGN_BYTES: usize = 8;

/// Bytes that a page holds for an encoded file, per pixel of the page. Even JPEGs of full quality
/// rarely exceed this value.
const ENCODED_BYTES_PER_PIXEL: usize = 2;

impl DevicePlan {
    /// Creates the GPU part of a plan with resolved placements. Its counts are 0 until `set`.
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
        let views = DeviceView::all(plan, facts.image);
        let view_tables = views.iter().map(|view| {
            let tables = table_bytes(&plan.views[view.number].plan, 0, page_pixels as u64);
            tables.saturating_mul(view.outputs)
        });
        let tables = table_bytes(plan, planned.first, page_pixels as u64);
        let mut device = Self {
            pixels_bytes: aligned(planned.pixels_bytes(page_pixels, page_rows)),
            table_bytes: view_tables.fold(tables, usize::saturating_add),
            scratch_bytes: 0,
            splits: vec![planned],
            views,
            group: 0,
            hardware_group: 0,
            pages: 0,
            encoded_bytes: aligned(encoded_bytes.min(ENCODED_BYTES_PER_PIXEL * page_pixels)),
            image_pixels: page_pixels,
            uploads: 0,
            upload_bytes: aligned(plan.finished_bytes()),
            routes: Vec::new(),
            files: None,
            masks: MaskPlan::all(plan, facts.image, page_pixels),
            measured: match &facts.device {
                DeviceFacts::Gpu { measured, .. } => measured.clone(),
                DeviceFacts::None(_) => Vec::new(),
            },
        };
        let steps = plan.steps.len();
        let others = plan.offloads.iter().rev().filter(|it| it.operators > 0 && !it.decode);
        let others = others.map(|it| it.first(steps)).filter(|&first| first > plan.cpu_steps());
        device.splits.extend(others.map(|first| DeviceSplit::new(plan, first)));
        device.scratch_bytes = aligned(most_scratch(plan, &device.splits, facts.image));
        if routes.contains(&Route::Cpu) {
            device.upload_bytes = device.upload_bytes.max(device.pixels_bytes);
        }
        device.routes = routes.into_iter().map(|route| device.route(route, 0, 0)).collect();
        device
    }

    /// Limits the tables of a sample. Samples with more than `most` bytes of tables for all whole
    /// chains are processed on the CPU, so a launch never needs more.
    pub(super) fn limit_tables(&mut self, most: u64) {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let outputs: usize = self.views.iter().map(|view| view.outputs).sum();
        // The tables of each output begin at a multiple of the alignment.
        let padding = outputs * TABLE_ALIGN_BYTES;
        let tables = self.table_bytes.min(most).saturating_add(padding);
        self.table_bytes = tables.next_multiple_of(TABLE_ALIGN_BYTES);
    }

    /// Checks that the kernels execute a sample that moves to the device at `split`, and the
    /// outputs of its views on the device. The error is the reason for processing it on the CPU.
    pub fn takes<'a>(
        &self,
        split: &DeviceSplit,
        sample: &SamplePlan,
        outputs: impl Iterator<Item = &'a SamplePlan> + Clone,
    ) -> Result<(), &'static str> {
        let views = self.views.iter().flat_map(|view| std::iter::repeat_n(view, view.outputs));
        let tables = |planned: &SamplePlan, split: &DeviceSplit| split.table_bytes(planned);
        let of_views = views.clone().zip(outputs.clone());
        let of_views: usize = of_views.map(|(view, output)| tables(output, &view.split)).sum();
        if tables(sample, split) + of_views > self.table_bytes {
            return Err("its tables do not fit into a page");
        }
        split.takes(sample, self.scratch_bytes)?;
        views
            .zip(outputs)
            .try_for_each(|(view, output)| view.split.takes(output, view.scratch_bytes))
    }

    /// Size of each intermediate image in scratch memory in bytes, and their number. All launches
    /// share this memory, so the launch that needs the most counts.
    pub fn scratch(&self) -> (usize, usize) {
        let views =
            self.views.iter().map(|view| (view.scratch_bytes, 2 * self.group * view.outputs));
        let main = (self.scratch_bytes, 2 * self.group);
        views.fold(main, |most, it| if it.0 * it.1 > most.0 * most.1 { it } else { most })
    }

    /// Sets the numbers of buffers and decode states from `counts`.
    pub(super) fn set(&mut self, plan: &Plan, counts: &Counts) {
        let on_cpu = on_cpu(plan);
        self.group = counts.group;
        self.hardware_group = counts.hardware_group;
        self.pages = counts.reading + counts.group + PAGES_PER_GROUPED * counts.hardware_group;
        // Without the route `cpu`, only images that the other routes reject are decoded on the CPU,
        // so one buffer is enough for decoding. Another buffer holds the sample that is being
        // uploaded.
        let making = if self.has(Route::Cpu) { on_cpu.min(counts.reading) } else { 1 };
        self.uploads = making + 1;
        let routes = self.routes.iter().map(|it| {
            let route = it.route;
            let decoders = match (route.on_device(), route.batches()) {
                (false, _) => on_cpu,
                // One state decodes a group while the other is prepared for the next call.
                (true, true) => counts.hardware_group.min(2),
                (true, false) if route.uses_worker_cpu() => counts.decoders.min(on_cpu),
                (true, false) => counts.decoders,
            };
            let group = match (route.batches(), plan.settings.decode.hardware_group) {
                (false, _) => 1,
                (true, Some(_)) => counts.hardware_group,
                (true, None) => counts.hardware_group.min(self.default_group(route, plan)),
            };
            self.route(route, decoders, group)
        });
        self.routes = routes.collect();
    }

    /// Largest default number of images per call of the routes. 0 if none has several per call.
    pub(super) fn default_hardware_group(&self, plan: &Plan) -> usize {
        let batching = self.routes.iter().map(|it| it.route).filter(|it| it.batches());
        batching.map(|route| self.default_group(route, plan)).max().unwrap_or(0)
    }

    /// Default number of images per call of a route.
    ///
    /// With more images per call, the engines idle less between two calls. On an A100, torchvision
    /// decodes 7,834 images/s with 1000 images per call (pytorch/vision PR 8496). This default has
    /// not been measured yet; measure with `feedwater bench --hardware-group`. Each image of a call
    /// needs three pages, and memory in two decode states. A call has at most half as many images
    /// as all slots together, because two calls fill the slots at the same time.
    fn default_group(&self, route: Route, plan: &Plan) -> usize {
        let [one, two] = [1, 2].map(|group| self.decoder_memory(route, group).device_bytes);
        let image = PAGES_PER_GROUPED * self.pixels_bytes + 2 * (two - one);
        let in_memory = DEFAULT_CALL_BYTES / image.max(1);
        let in_slots = plan.shape.batch * plan.slots() / 2;
        let group = in_memory.min(in_slots).clamp(LEAST_DEFAULT_GROUP, MOST_DEFAULT_GROUP);
        match self.measured.iter().find(|it| it.route == route) {
            None => group,
            // Calls with more images than were measured are not used. The engines decode `lanes`
            // images at the same time. If a call had a number of images that is not a multiple of
            // `lanes`, some engines would be idle at its end.
            Some(MeasuredMemory { group: measured, lanes, .. }) => match group.min(*measured) {
                group if group > *lanes => group - group % lanes,
                group => group,
            },
        }
    }

    /// Planned split.
    pub fn planned(&self) -> &DeviceSplit {
        &self.splits[0]
    }

    /// Split before operator `first`. `None` if the plan does not allow it.
    pub fn cut(&self, first: usize) -> Option<&DeviceSplit> {
        self.splits.iter().find(|cut| cut.first == first)
    }

    /// Size of the parameters of one sample and of the outputs of its views in a launch, without
    /// tables, in bytes.
    pub fn sample_bytes(&self) -> usize {
        self.launch_block().sample_bytes()
    }

    /// Size of one block of launch parameters, in bytes.
    pub fn launch_bytes(&self) -> usize {
        aligned(self.launch_block().bytes(self.group))
    }

    /// Layout of a block of launch parameters.
    pub fn launch_block(&self) -> LaunchBlock {
        LaunchBlock::new(self)
    }

    /// Whether the plan uses `route`.
    pub fn has(&self, route: Route) -> bool {
        self.routes.iter().any(|it| it.route == route)
    }

    /// Whether the plan uses a route with this property.
    pub fn has_any(&self, property: impl Fn(Route) -> bool) -> bool {
        self.routes.iter().any(|it| property(it.route))
    }

    /// Number of gatherer threads: one for each route that decodes several images per call.
    pub fn gatherers(&self) -> usize {
        self.routes.iter().filter(|it| it.route.batches()).count()
    }

    /// Size of one parameter block of the kernel `mix` (batch operators and soft targets), in
    /// bytes. A launch completes at most one pair per sample. The parameters of pairs of masks
    /// follow those of the pairs.
    pub fn pairs_bytes(&self) -> usize {
        let masks = self.group * self.masks.len() * size_of::<MaskPairParams>();
        self.mask_pairs() + aligned(masks)
    }

    /// Offset of the parameters of pairs of masks in a parameter block of the kernel `mix`.
    pub fn mask_pairs(&self) -> usize {
        aligned(self.group * size_of::<PairParams>())
    }

    /// Adds the rows of page-locked and device memory to the footprint.
    pub(super) fn add_rows(&self, plan: &Plan, footprint: &mut Footprint) {
        MaskPlan::add_rows(&self.masks, footprint, (self.pages, self.group, LAUNCH_BLOCKS));
        let mut add = |memory, row, each: usize, count: usize, note: &str| {
            if each > 0 && count > 0 {
                footprint.add(memory, row, aligned(each) as u64, count as u64, note);
            }
        };
        let launch =
            format!("{} x ({} B + tables)", counted(self.group, "sample"), self.sample_bytes());
        let launch_bytes = self.launch_bytes();
        let states = |route: &RoutePlan| {
            let known = match (route.route.is_own(), route.is_measured) {
                (true, _) => "",
                (_, true) => ", measured",
                _ => ", estimated",
            };
            match route.route.batches() {
                true => format!("{} in a call{known}", counted(route.group, "image")),
                false => format!("decode states{known}"),
            }
        };

        add(
            Memory::Pinned,
            rows::ENCODED,
            self.encoded_bytes,
            self.pages,
            "files as they were read",
        );
        add(
            Memory::Pinned,
            rows::UPLOADS,
            self.upload_bytes,
            self.uploads,
            "samples processed on the cpu",
        );
        add(Memory::Pinned, rows::LAUNCHES, launch_bytes, LAUNCH_BLOCKS, &launch);
        if plan.stage.is_some() {
            let pairs = format!("{} pairs", self.group);
            for memory in [Memory::Pinned, Memory::Device] {
                add(memory, rows::PAIRS, self.pairs_bytes(), LAUNCH_BLOCKS, &pairs);
            }
        }
        for it in &self.routes {
            add(Memory::Pinned, it.route.row(), it.pinned_bytes, it.decoders, &states(it));
        }
        if self.has(Route::Feedwater) {
            let each = description_bytes(self.image_pixels, self.encoded_bytes);
            let note = "images on the route feedwater";
            add(Memory::Host, rows::DESCRIPTIONS, each, self.pages, note);
        }
        if let Some(files) = &self.files {
            let note = "maximum: files that stay in device memory";
            add(Memory::Device, rows::FILES, files.device_bytes, 1, note);
        }
        let windows = "windows between decoder and kernel";
        add(Memory::Device, rows::PIXELS, self.pixels_bytes, self.pages, windows);
        add(Memory::Device, rows::LAUNCHES, launch_bytes, LAUNCH_BLOCKS, &launch);
        let note = "two images between passes for each sample of a launch";
        let (each, images) = self.scratch();
        add(Memory::Device, rows::SCRATCH, each, images, note);
        for it in &self.routes {
            add(Memory::Device, it.route.row(), it.device_bytes, it.decoders, &states(it));
        }
    }

    /// Plan of a route with `decoders` decode states for calls with at most `group` images.
    fn route(&self, route: Route, decoders: usize, group: usize) -> RoutePlan {
        let memory = self.decoder_memory(route, group);
        let [device_bytes, pinned_bytes] = [memory.device_bytes, memory.pinned_bytes].map(aligned);
        let measured = self.measured.iter().find(|it| it.route == route);
        // Without a measurement, half of the estimated slack is kept for nvJPEG's own handles and
        // states. Otherwise the first byte that nvJPEG allocates would exceed the plan.
        let estimated = || DecoderMemory {
            device_bytes: device_bytes.saturating_sub(DEVICE_SLACK_BYTES / 2),
            pinned_bytes: pinned_bytes.saturating_sub(PINNED_SLACK_BYTES / 2),
        };
        let buffers = match route.is_own() {
            true => DecoderMemory { device_bytes, pinned_bytes },
            false => measured.map_or_else(estimated, |it| it.buffers),
        };
        let is_measured = measured.is_some();
        RoutePlan { route, decoders, group, device_bytes, pinned_bytes, buffers, is_measured }
    }

    /// Memory of one decode state of a route, for `group` images per call.
    fn decoder_memory(&self, route: Route, group: usize) -> DecoderMemory {
        let (pixels, encoded_bytes) = (self.image_pixels, self.encoded_bytes);
        let estimate = || route.memory(&DecoderSizes { pixels, encoded_bytes, group });
        let measured = self.measured.iter().find(|it| it.route == route);
        measured.map_or_else(estimate, |it| it.of(group))
    }
}

/// Number of workers that may decode on the CPU at the same time.
pub(super) fn on_cpu(plan: &Plan) -> usize {
    let workers = plan.workers.most;
    plan.settings.decode.max_cpu_threads.map_or(workers, |most| most.min(workers))
}
