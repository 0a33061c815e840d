//! Describes a loader.

use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::footprint::Available;
use crate::gpu::nvjpeg::{self, Backend};
use crate::gpu::{self, Device, Stream};
use crate::measure::Watching;
use crate::op::{Chain, Placement};
use crate::plan::{
    Count, DeviceFacts, Environment, Facts, Last, OnError, Plan, Route, Settings, ShardFrom,
};
use crate::source::{Source, Subset};
use crate::tensor::{DType, Layout};

use super::look::Looks;
use super::origin::Locate;
use super::{Loader, LoaderState};

/// Where a loader may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// On the first GPU where there is one, else on the CPU.
    #[default]
    Auto,
    /// On the CPU.
    Cpu,
    /// On the GPU of that number; an error where there is none.
    Gpu(usize),
}

/// A loader that is being described. Every method sets the field of the same name in [`Settings`].
pub struct LoaderBuilder {
    pub(super) source: Arc<dyn Source>,
    pub(super) start_epoch: u32,
    pub(super) resumed: Option<LoaderState>,
    pub(super) epochs: Option<u32>,
    pub(super) consumer: Option<Arc<Stream>>,
    pub(super) opened_in: Duration,
    pub(super) watching: Watching,
    pub(super) nvtx: bool,
    pub(super) watch_device: Option<Duration>,
    pub(super) chain: Chain,
    pub(super) settings: Settings,
    pub(super) locate: Option<Locate>,
    device: DeviceChoice,
}

impl LoaderBuilder {
    /// A loader of this source and chain with default settings.
    pub fn new(source: Arc<dyn Source>, chain: Chain) -> Self {
        Self {
            source,
            chain,
            start_epoch: 0,
            resumed: None,
            epochs: None,
            consumer: None,
            opened_in: Duration::ZERO,
            watching: Watching::default(),
            nvtx: false,
            watch_device: None,
            settings: Settings::default(),
            locate: None,
            device: DeviceChoice::Auto,
        }
    }

    /// The source: for measuring it while no loader reads.
    pub fn source(&self) -> Arc<dyn Source> {
        self.source.clone()
    }

    /// Only the first samples of the source, at most so many, kept as they were read from the first epoch on: for telling what
    /// reading costs from what preparing does.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] where there are none.
    pub fn first_samples_cached(mut self, samples: u64) -> Result<Self> {
        let samples = samples.min(self.source.len());
        let largest = self.source.largest_bytes().unwrap_or_else(|| self.looks().largest_bytes());
        let bytes = samples.saturating_mul(largest + 64);
        self.source = Arc::new(Subset::take(self.source, samples)?);
        self.settings.cache.encoded = Some(bytes.max(1 << 20));
        Ok(self)
    }

    /// What opening the source took, for reports.
    pub fn opened_in(mut self, took: Duration) -> Self {
        self.opened_in = took;
        self
    }

    /// How often a thread looks at how much of the device is in use, as NVML tells; `None`, the default, is never. What it
    /// sees is in [`Profile::device`](crate::measure::Profile::device). Without NVML a warning says why nothing does.
    pub fn watch_device(mut self, period: Option<Duration>) -> Self {
        self.watch_device = period;
        self
    }

    /// All settings at once.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Samples in a batch.
    pub fn batch(mut self, samples: usize) -> Self {
        self.settings.loader.batch = samples;
        self
    }

    /// Threads that read, and decode and transform what runs on the CPU.
    pub fn workers(mut self, threads: usize) -> Self {
        self.settings.loader.workers = Count::Fixed(threads);
        self
    }

    /// As many workers as what is measured asks for, within [`Plan::workers`].
    pub fn auto_workers(mut self) -> Self {
        self.settings.loader.workers = Count::Auto;
        self
    }

    /// Batches ahead of the consumer, the one that is being filled among them.
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.settings.loader.prefetch = Count::Fixed(batches);
        self
    }

    /// As many batches ahead as what is measured asks for, within [`Plan::ahead_batches`].
    pub fn auto_prefetch(mut self) -> Self {
        self.settings.loader.prefetch = Count::Auto;
        self
    }

    /// Whether what is `auto`, placements among it, is chosen anew from what is measured while the loader runs.
    pub fn tune(mut self, tune: bool) -> Self {
        self.settings.loader.tune = tune;
        self
    }

    /// Key of all randomness.
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.loader.seed = seed;
        self
    }

    /// Whether each epoch has its own order.
    pub fn shuffle(mut self, shuffle: bool) -> Self {
        self.settings.loader.shuffle = shuffle;
        self
    }

    /// For sources whose files hold many samples: samples in a window of the shuffle by files and windows; `None`, the
    /// default, shuffles the whole set.
    pub fn shuffle_window(mut self, samples: Option<u64>) -> Self {
        self.settings.loader.shuffle_window = samples;
        self
    }

    /// What happens to the samples that do not fill the last batch.
    pub fn last(mut self, last: Last) -> Self {
        self.settings.loader.last = last;
        self
    }

    /// Shard `rank` of `world`, whatever a launcher says.
    pub fn shard(mut self, rank: u64, world: u64) -> Self {
        self.settings.loader.shard = ShardFrom::Environment;
        self.settings.loader.rank = Some(rank);
        self.settings.loader.world = Some(world);
        self
    }

    /// Who tells rank and world. Default: the launcher whose variables are set, and the whole set where there is none.
    pub fn shard_from(mut self, from: ShardFrom) -> Self {
        self.settings.loader.shard = from;
        self.settings.loader.rank = None;
        self.settings.loader.world = None;
        self
    }

    /// What happens when a sample cannot be used.
    pub fn on_error(mut self, policy: OnError) -> Self {
        self.settings.loader.on_error = policy;
        self
    }

    /// Where images are decoded.
    pub fn decode(mut self, placement: Placement) -> Self {
        self.settings.decode.placement = placement;
        self
    }

    /// The routes that images may take where decoding is on the GPU.
    pub fn routes(mut self, routes: impl Into<Vec<Route>>) -> Self {
        self.settings.decode.routes = routes.into();
        self
    }

    /// Most workers that decode on the CPU at one time where anything runs on the GPU; `None`, the default, is all, or
    /// all but one while the routes `hardware` or `cuda` decode and are to be read for.
    pub fn max_cpu_threads(mut self, threads: Option<usize>) -> Self {
        self.settings.decode.max_cpu_threads = threads;
        self
    }

    /// Whether the decoder may reduce a JPEG before it is resized.
    pub fn prescale(mut self, prescale: bool) -> Self {
        self.settings.decode.prescale = prescale;
        self
    }

    /// Whether images are turned upright.
    pub fn orientation(mut self, orientation: bool) -> Self {
        self.settings.decode.orientation = orientation;
        self
    }

    /// Whether a damaged image is an error; else the loader takes what Pillow takes, and counts it. [`HostDecoder::strict`] says
    /// where it differs from Pillow.
    ///
    /// [`HostDecoder::strict`]: crate::decode::HostDecoder::strict
    pub fn strict(mut self, strict: bool) -> Self {
        self.settings.decode.strict = strict;
        self
    }

    /// Element type and axis order of the batches.
    pub fn output(mut self, dtype: DType, layout: Layout) -> Self {
        self.settings.output.dtype = dtype;
        self.settings.output.layout = layout;
        self
    }

    /// Most pixels of an image.
    pub fn max_pixels(mut self, pixels: u64) -> Self {
        self.settings.limits.max_pixels = pixels;
        self
    }

    /// Most columns, and most rows, of an image.
    pub fn max_side(mut self, pixels: u32) -> Self {
        self.settings.limits.max_side = pixels;
        self
    }

    /// Bytes of host memory for all samples together that need more than their worker's share.
    pub fn large_image_memory(mut self, bytes: u64) -> Self {
        self.settings.limits.large_image_memory = bytes;
        self
    }

    /// Most bytes of host memory, page-locked memory included; `None`, the default, is no limit.
    pub fn host_memory(mut self, bytes: Option<u64>) -> Self {
        self.settings.limits.host_memory = bytes;
        self
    }

    /// Most bytes of an encoded sample.
    pub fn max_file_bytes(mut self, bytes: u64) -> Self {
        self.settings.limits.max_file_bytes = bytes;
        self
    }

    /// Most bytes of host memory for files from epoch to epoch; `None`, the default, is no cache.
    pub fn cache_encoded(mut self, bytes: Option<u64>) -> Self {
        self.settings.cache.encoded = bytes;
        self
    }

    /// Most bytes of host memory for whole decoded images from epoch to epoch; `None`, the default, is no cache.
    pub fn cache_decoded(mut self, bytes: Option<u64>) -> Self {
        self.settings.cache.decoded = bytes;
        self
    }

    /// Resizes larger images to this shorter side before anything else, for the decoded cache; changes pixels. `None`, the
    /// default, leaves them as they are.
    pub fn presize(mut self, shorter: Option<u32>) -> Self {
        self.settings.cache.presize = shorter;
        self
    }

    /// Most bytes of device memory, the driver's own apart; `None`, the default, is no limit.
    pub fn device_memory(mut self, bytes: Option<u64>) -> Self {
        self.settings.limits.device_memory = bytes;
        self
    }

    /// Most bytes of page-locked host memory; `None`, the default, is no limit.
    pub fn pinned_memory(mut self, bytes: Option<u64>) -> Self {
        self.settings.limits.pinned_memory = bytes;
        self
    }

    /// Most threads that the loader starts for samples: the workers, and on a device the launcher and the thread that feeds
    /// the JPEG engines; `None`, the default, is no limit.
    pub fn cpu_threads(mut self, threads: Option<usize>) -> Self {
        self.settings.limits.cpu_threads = threads;
        self
    }

    /// Whether the loader is built although its plan needs more host memory than is available. Default false.
    pub fn overcommit(mut self, overcommit: bool) -> Self {
        self.settings.limits.overcommit = overcommit;
        self
    }

    /// Where the loader may run.
    pub fn device(mut self, device: DeviceChoice) -> Self {
        self.device = device;
        self
    }

    /// The epoch to begin with. Default 0.
    pub fn start_epoch(mut self, epoch: u32) -> Self {
        self.start_epoch = epoch;
        self
    }

    /// Goes on where another loader of the same source was, see [`Loader::state`]. The seed, the shuffling with its window,
    /// and the epoch to begin with become those of the state; workers, batch, prefetch, device, rank and world may be
    /// others than before.
    pub fn resume(mut self, state: LoaderState) -> Self {
        self.settings.loader.seed = state.seed;
        self.settings.loader.shuffle = state.shuffle;
        self.settings.loader.shuffle_window = state.shuffle_window;
        self.start_epoch = state.epoch;
        self.resumed = Some(state);
        self
    }

    /// How many epochs are prepared; `None`, the default, is without end.
    pub fn epochs(mut self, epochs: Option<u32>) -> Self {
        self.epochs = epochs;
        self
    }

    /// Keeps the latest spans of each thread, the consumer and the ring, so many of each, for
    /// [`Loader::trace_json`]; 0, the default, keeps none. The memory is the footprint's row `trace`.
    pub fn trace(mut self, spans_per_thread: usize) -> Self {
        self.watching.spans = spans_per_thread;
        self
    }

    /// Puts NVTX ranges around the stages of each thread, for NVIDIA's profilers; off by default. Where the library is
    /// missing, [`Loader::warnings`] says so. Rows are decoded and transformed by turns: the range `decode` is both.
    pub fn nvtx(mut self, nvtx: bool) -> Self {
        self.nvtx = nvtx;
        self
    }

    /// The stream on which batches are used, with its device: fixed for the life of the loader, so that a batch
    /// which is dropped anywhere knows behind which work its slot is free. Without it the loader makes one.
    pub fn consumer(mut self, stream: Arc<Stream>) -> Self {
        self.device = DeviceChoice::Gpu(stream.device().ordinal());
        self.consumer = Some(stream);
        self
    }

    /// Resolves the plan without starting anything. Where a GPU is asked for that this machine does not have, this
    /// is the plan for a machine that has one.
    pub fn plan(&self) -> Result<Plan> {
        let facts = match (self.device, self.find_device()) {
            (DeviceChoice::Gpu(_), Err(_)) => DeviceFacts::Gpu { nvjpeg: Ok(EVERY.into()) },
            (_, found) => found?.1,
        };
        self.make_plan(facts).map_err(self.locator())
    }

    /// Plans, checks, takes all memory and starts the threads.
    ///
    /// # Errors
    ///
    /// Those of [`plan`](Self::plan), [`Error::Memory`] where the plan needs more host memory than is available
    /// ([`Plan::check_memory`]) or an allocation fails, [`Error::Device`] and [`Error::Budget`] where a GPU refuses memory.
    pub fn build(self) -> Result<Loader> {
        let locate = self.locator();
        crate::storage::opening(|| Loader::start(self)).map_err(locate)
    }

    /// The plan, one line that says where it runs and why, and the device.
    pub(super) fn resolve(&self) -> Result<Resolved> {
        let (device, facts, line) = self.find_device()?;
        let plan = self.make_plan(facts)?;
        let line = match (&device, plan.uses_gpu()) {
            (Some(_), false) => format!("cpu (every operator is placed there; there is {line})"),
            _ => line,
        };
        Ok(Resolved { plan, line, device })
    }

    fn make_plan(&self, device: DeviceFacts) -> Result<Plan> {
        Plan::new(&self.chain, &self.settings, &self.facts(device))
    }

    fn facts(&self, device: DeviceFacts) -> Facts {
        let looks = self.looks();
        let largest = self.source.largest_bytes().unwrap_or_else(|| looks.largest_bytes());
        let Looks { picture, looked, all } = looks;
        Facts {
            largest_bytes: largest,
            picture,
            looked,
            looked_at_all: all,
            trace_spans: self.watching.spans as u64,
            source_bytes: self.source.memory_bytes(),
            samples: self.source.len(),
            files: self.files(),
            cores: available_parallelism().map_or(1, usize::from),
            environment: Environment::of_process(),
            available: Available::of_process(),
            remote: self.source.is_remote(),
            device,
        }
    }

    fn looks(&self) -> Looks {
        Looks::at(&*self.source, &self.settings.limits, self.settings.decode.strict)
    }

    /// Files that have samples, where the order depends on them.
    fn files(&self) -> u64 {
        if self.settings.loader.shuffle_window.is_none() {
            return 0;
        }
        let mut ends = self.source.file_ends();
        ends.dedup();
        ends.iter().filter(|&&end| end > 0).count() as u64
    }

    /// Looks for the device that was chosen. `auto` takes the CPU where anything is missing, and says what.
    fn find_device(&self) -> Result<(Option<Arc<Device>>, DeviceFacts, String)> {
        let none =
            |why: String, line: String| Ok((None, DeviceFacts::None(why), format!("cpu ({line})")));
        let found = match self.device {
            DeviceChoice::Cpu => return none("device is cpu".into(), "device is cpu".into()),
            DeviceChoice::Auto => open_device(0),
            DeviceChoice::Gpu(ordinal) => open_device(ordinal),
        };
        let device = match (found, self.device) {
            (Ok(device), _) => device,
            (Err(error), DeviceChoice::Auto) => {
                let line = match &error {
                    // Where it was looked for, and how to get it, is a long story.
                    Error::Unavailable { what, .. } => {
                        format!("{what} is not available, see feedwater doctor")
                    }
                    _ => error.to_string(),
                };
                return none(error.to_string(), line);
            }
            (Err(error), _) => return Err(error),
        };
        let nvjpeg = offered(&device).map_err(|error| error.to_string());
        let (major, minor) = device.capability();
        let line = format!("gpu {}: {} (sm_{major}{minor})", device.ordinal(), device.name());
        Ok((Some(device), DeviceFacts::Gpu { nvjpeg }, line))
    }
}

/// The routes of nvJPEG that a machine is taken to offer which is not there.
const EVERY: [Route; 3] = [Route::Hardware, Route::Cuda, Route::Host];

/// What a builder becomes before anything is started.
pub(super) struct Resolved {
    pub plan: Plan,
    pub line: String,
    pub device: Option<Arc<Device>>,
}

/// The routes that nvJPEG offers on a device.
fn offered(device: &Arc<Device>) -> Result<Vec<Route>> {
    let offered = nvjpeg::known_backends(device)?.into_iter().filter(|(_, found)| found.is_ok());
    let route = |backend| match backend {
        Backend::Hardware => Route::Hardware,
        Backend::Cuda => Route::Cuda,
        Backend::Host => Route::Host,
    };
    Ok(offered.map(|(backend, _)| route(backend)).collect())
}

/// Opens a device that kernels can be compiled for.
fn open_device(ordinal: usize) -> Result<Arc<Device>> {
    let device = Device::open(ordinal)?;
    gpu::compiler(&device)?;
    Ok(device)
}
