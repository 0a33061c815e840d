//! Allocation of device resources at the start of a loader. Later, only slots beyond the plan are
//! allocated.

use std::sync::Arc;

use super::decoder::{Decoders, GroupDecoders, Opened, Opening};
use super::page_masks::PageMasks;
use super::router::CpuThreads;
use super::{
    Clocks, ColumnCopies, DevicePage, DeviceSlot, MaskLauncher, Mixer, ObjectPool, Router, routes,
};
use crate::error::{Error, Result};
use crate::footprint::{Footprint, Memory as Sort};
use crate::gpu::{
    Device, DeviceBuffer, DevicePool, Kernel, PinnedPool, Staged, Stopwatch, Stream, TensorSlot,
    Upload,
};
use crate::loader::balance::RouteQueue;
use crate::op::batch::{MaskPairParams, PairParams, mix_kernel_text, mix_masks_kernel_text};
use crate::op::mask::{MaskSample, mask_kernel_text};
use crate::plan::{
    ColumnPlan, ColumnRole, DevicePlan, DeviceSplit, LAUNCH_BLOCKS, MaskPlan, Plan, rows,
};
use crate::transform::ChainKernels;

/// Buffers, decoders, streams and kernels of a loader on a device.
pub(in crate::loader) struct Taken {
    pub memory: DeviceMemory,
    pub stream: Arc<Stream>,
    pub kernels: Kernels,
    /// Intermediate images between kernels or passes.
    pub scratch: Option<DeviceBuffer>,
    pub slots: Vec<DeviceSlot>,
    pub pages: Vec<DevicePage>,
    pub blocks: Vec<Staged>,
    /// Runs the kernel `mask`, if the plan has masks.
    pub masks: Option<MaskLauncher>,
    /// Runs the kernel `mix` (batch operators and soft targets), if the plan has a batch stage.
    pub mixer: Option<Mixer>,
    pub uploads: Arc<ObjectPool<Upload>>,
    pub router: Arc<Router>,
    pub decoders: Arc<Decoders>,
    /// Group decoder of each route that decodes several images per call.
    pub groups: GroupDecoders,
    pub spare: SpareSlots,
}

/// Loaded kernels of a plan.
pub(in crate::loader) struct Kernels {
    /// Kernels of each of the plan's splits.
    pub splits: Vec<ChainKernels>,
    /// Kernels of each view on the device.
    pub views: Vec<ChainKernels>,
}

/// Creates slots beyond the plan, for a ring whose slots are all in use.
pub(in crate::loader) struct SpareSlots {
    device: Arc<Device>,
    producer: Arc<Stream>,
    consumer: Arc<Stream>,
    waits: Arc<Stopwatch>,
}

impl SpareSlots {
    /// Creates a slot with its own memory.
    pub fn slot(&self, plan: &Plan) -> Result<DeviceSlot> {
        let mut footprint = Footprint::default();
        ColumnPlan::add_rows(&plan.columns, &mut footprint, (plan.shape.batch, 1), |_| {
            "a batch beyond the plan".into()
        });
        let device = DevicePool::take(&self.device, &footprint)?;
        let pinned = PinnedPool::take(&self.device, &footprint)?;
        slot(plan, (&device, &pinned), (&self.producer, &self.consumer), &self.waits)
    }
}

/// Creates a slot in memory of the pools.
fn slot(
    plan: &Plan,
    (pool, pinned): (&DevicePool, &PinnedPool),
    (producer, consumer): (&Arc<Stream>, &Arc<Stream>),
    waits: &Arc<Stopwatch>,
) -> Result<DeviceSlot> {
    let buffer = |row, bytes| pool.buffer(row, bytes);
    let column = |column: &ColumnPlan| buffer(column.row(), column.buffer_bytes(plan.shape.batch));
    let images = plan
        .column(ColumnRole::Image)
        .ok_or_else(|| Error::Internal { problem: "a plan without a column of images".into() })?;
    let tensor = TensorSlot::new(column(images)?, producer.clone(), consumer.clone())?;
    let copies = match ColumnPlan::copies_bytes(&plan.columns, plan.shape.batch) {
        0 => None,
        bytes => {
            let upload = Upload::new(pinned.buffer(rows::COLUMN_COPIES, bytes)?)?;
            let buffer = buffer(rows::COLUMN_COPIES, bytes)?;
            Some(Box::new(ColumnCopies::new(&plan.columns, plan.shape.batch, upload, buffer)))
        }
    };
    DeviceSlot::new(plan, tensor, column, copies, waits.clone())
}

/// The loader's memory pools, kept for their statistics.
pub(in crate::loader) struct DeviceMemory {
    pub device: DevicePool,
    pub pinned: PinnedPool,
    /// Device memory that the driver, the context, the kernels and nvJPEG allocated outside of the
    /// pools.
    pub driver_bytes: u64,
}

impl Taken {
    /// Allocates all memory of the plan and no other memory.
    pub fn new(
        plan: &Plan,
        device: &Arc<Device>,
        consumer: Option<Arc<Stream>>,
        clocks: &Clocks,
    ) -> Result<Self> {
        let Some(on_device) = &plan.device else {
            return Err(Error::Internal { problem: "a plan without a device".into() });
        };
        let (free_before, _) = device.memory_bytes()?;
        let pools = Pools {
            device: DevicePool::take(device, &plan.footprint)?,
            pinned: PinnedPool::take(device, &plan.footprint)?,
        };
        debug_assert_eq!(pools.device.capacity_bytes(), plan.footprint.total_bytes(Sort::Device));
        debug_assert_eq!(pools.pinned.capacity_bytes(), plan.footprint.total_bytes(Sort::Pinned));
        let stream = Arc::new(Stream::new(device)?);
        let consumer = match consumer {
            Some(stream) => stream,
            None => Arc::new(Stream::new(device)?),
        };
        let load = |split: &DeviceSplit| {
            let kernels = ChainKernels::load(device, &split.chain)?;
            kernels.warm_up(&stream)?;
            Ok(kernels)
        };
        let views = on_device.views.iter().map(|view| &view.split);
        let kernels = Kernels {
            splits: on_device.splits.iter().map(load).collect::<Result<_>>()?,
            views: views.map(load).collect::<Result<_>>()?,
        };
        let waits = clocks.waits(plan.slots())?;
        let spare = SpareSlots {
            device: device.clone(),
            producer: stream.clone(),
            consumer: consumer.clone(),
            waits: waits.clone(),
        };
        let streams = (&stream, &consumer);
        let slots =
            (0..plan.slots()).map(|_| slot(plan, (&pools.device, &pools.pinned), streams, &waits));
        let slots = slots.collect::<Result<_>>()?;
        let pages = (0..on_device.pages).map(|_| pools.page(plan, on_device, &stream));
        let pages = pages.collect::<Result<_>>()?;
        let blocks = (0..LAUNCH_BLOCKS)
            .map(|_| pools.staged(rows::LAUNCHES, on_device.launch_bytes()))
            .collect::<Result<_>>()?;
        let (each, images) = on_device.scratch();
        let scratch = match each * images {
            0 => None,
            bytes => Some(pools.device.buffer(rows::SCRATCH, bytes)?),
        };
        let mixer = || pools.mixer((plan, on_device), device, &stream, clocks);
        let mixer = plan.stage.is_some().then(mixer);
        let masks = || pools.masks(on_device, device, &stream, clocks);
        let masks = (!on_device.masks.is_empty()).then(masks);
        let uploads = (0..on_device.uploads)
            .map(|_| Upload::new(pools.pinned.buffer(rows::UPLOADS, on_device.upload_bytes)?))
            .collect::<Result<Vec<_>>>()?;
        let cpu_threads = cpu_threads(plan, on_device);
        let (decoders, groups) = pools.decoders(device, on_device, cpu_threads)?;
        let queues: Vec<RouteQueue> = decoders.0.iter().map(|it| it.queue()).collect();
        let router = Router::new(device, &queues, cpu_threads, plan.workers.most)?;
        let (free_after, _) = device.memory_bytes()?;
        let Pools { device, pinned } = pools;
        let taken = free_before.saturating_sub(free_after);
        let driver_bytes = taken.saturating_sub(device.capacity_bytes());
        let memory = DeviceMemory { device, pinned, driver_bytes };
        let uploads = Arc::new(ObjectPool::new(uploads));
        let (router, decoders) = (Arc::new(router), Arc::new(decoders));
        Ok(Self {
            memory,
            stream,
            kernels,
            scratch,
            slots,
            pages,
            blocks,
            masks: masks.transpose()?,
            mixer: mixer.transpose()?,
            uploads,
            router,
            decoders,
            groups,
            spare,
        })
    }
}

/// The two memory pools.
struct Pools {
    device: DevicePool,
    pinned: PinnedPool,
}

impl Pools {
    fn staged(&self, row: &str, bytes: usize) -> Result<Staged> {
        Staged::new(self.pinned.buffer(row, bytes)?, self.device.buffer(row, bytes)?)
    }

    fn page(&self, plan: &Plan, on_device: &DevicePlan, stream: &Stream) -> Result<DevicePage> {
        let encoded = match on_device.encoded_bytes {
            0 => None,
            bytes => Some(self.pinned.buffer(rows::ENCODED, bytes)?),
        };
        let pixels = self.device.buffer(rows::PIXELS, on_device.pixels_bytes)?;
        let views: Vec<_> = on_device.views.iter().map(|view| view.number).collect();
        let masks = match MaskPlan::page_bytes(&on_device.masks) {
            0 => None,
            bytes => Some(PageMasks::new(self.staged(rows::MASKS, bytes)?, on_device)?),
        };
        DevicePage::new(encoded, pixels, plan.view_plans(&views), masks, stream)
    }

    /// Compiles the kernel `mask` and allocates its parameters.
    fn masks(
        &self,
        on_device: &DevicePlan,
        device: &Arc<Device>,
        stream: &Stream,
        clocks: &Clocks,
    ) -> Result<MaskLauncher> {
        let text = mask_kernel_text();
        let kernel = Kernel::load(device, &text, "mask", size_of::<MaskSample>())?;
        kernel.warm_up(stream)?;
        let bytes = MaskPlan::launch_bytes(&on_device.masks, on_device.group);
        let blocks = (0..LAUNCH_BLOCKS).map(|_| self.staged(rows::MASK_LAUNCHES, bytes));
        MaskLauncher::new(on_device, kernel, blocks.collect::<Result<_>>()?, clocks.mask()?)
    }

    /// Compiles the kernel `mix` (batch operators and soft targets) and allocates its parameters.
    fn mixer(
        &self,
        (plan, on_device): (&Plan, &DevicePlan),
        device: &Arc<Device>,
        stream: &Stream,
        clocks: &Clocks,
    ) -> Result<Mixer> {
        let text = mix_kernel_text(plan.shape);
        let kernel = Kernel::load(device, &text, "mix", size_of::<PairParams>())?;
        kernel.warm_up(stream)?;
        let mix_masks = match on_device.masks.is_empty() {
            true => None,
            false => {
                let text = mix_masks_kernel_text();
                let bytes = size_of::<MaskPairParams>();
                let kernel = Kernel::load(device, &text, "mix_masks", bytes)?;
                kernel.warm_up(stream)?;
                Some(kernel)
            }
        };
        let kernels = (kernel, mix_masks);
        let blocks = (0..LAUNCH_BLOCKS).map(|_| self.staged(rows::PAIRS, on_device.pairs_bytes()));
        Mixer::new(plan, kernels, blocks.collect::<Result<_>>()?, clocks.mix()?)
    }

    /// Opens the decoders of the plan's routes, and the group decoders of routes that batch.
    fn decoders(
        &self,
        device: &Arc<Device>,
        on_device: &DevicePlan,
        cpu_threads: CpuThreads,
    ) -> Result<(Decoders, GroupDecoders)> {
        let (mut decoders, mut groups) = (Vec::new(), Vec::new());
        for route in &on_device.routes {
            let (device_pool, pinned_pool) = (&self.device, &self.pinned);
            let Opened { decoder, group } = routes::open(&Opening {
                device,
                device_pool,
                pinned_pool,
                on_device,
                route,
                cpu_threads,
            })?;
            decoders.push(decoder);
            groups.extend(group.map(|group| (route.route, group)));
        }
        Ok((Decoders(decoders), groups))
    }
}

/// Maximum number of workers that decode on the CPU at the same time. While the GPU also decodes,
/// one of several workers is reserved for reading, unless the settings set the number.
fn cpu_threads(plan: &Plan, on_device: &DevicePlan) -> CpuThreads {
    let workers = plan.workers.most;
    let gpu = on_device.has_any(|route| !route.uses_worker_cpu());
    let spared = if gpu { workers.saturating_sub(1).max(1) } else { workers };
    let most = |unsaid| plan.settings.decode.max_cpu_threads.map_or(unsaid, |it| it.min(workers));
    CpuThreads { beside: most(spared), alone: most(workers) }
}
