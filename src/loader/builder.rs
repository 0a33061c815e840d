//! Describes a loader.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::gpu::{Runtime, Stream};
use crate::measure::Watching;
use crate::op::{Chain, Placement};
use crate::plan::{Count, DeviceFacts, Last, OnError, Plan, Route, Settings, ShardFrom};
use crate::source::{Source, Subset};
use crate::tensor::{DType, Layout};

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

/// Says where the file has the key that an error names, given the settings as they are now.
pub(crate) type Locate = Arc<dyn Fn(Error, &Settings) -> Error + Send + Sync>;

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
    pub(super) device: DeviceChoice,
    pub(super) runtime: Runtime,
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
            runtime: Runtime::default(),
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
    /// [`Error::Config`](crate::Error::Config) where there are none.
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

    /// Whether a damaged image is an error; else the loader takes what Pillow takes, and counts it. [`Decoders::strict`] says
    /// where it differs from Pillow.
    ///
    /// [`Decoders::strict`]: crate::decode::Decoders::strict
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

    /// Which CUDA libraries are used, and where compiled kernels are kept. Default: what the environment says.
    pub fn runtime(mut self, runtime: &Runtime) -> Self {
        self.runtime = runtime.clone();
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

    /// The stream on which batches are used, with its device and the device's runtime: fixed for the life of the loader, so that a batch
    /// which is dropped anywhere knows behind which work its slot is free. Without it the loader makes one.
    pub fn consumer(mut self, stream: Arc<Stream>) -> Self {
        self.device = DeviceChoice::Gpu(stream.device().ordinal());
        self.runtime = stream.device().runtime().clone();
        self.consumer = Some(stream);
        self
    }

    /// Resolves the plan without starting anything. Where a GPU is asked for that this machine does not have, this
    /// is the plan for a machine that has one.
    pub fn plan(&self) -> Result<Plan> {
        let facts = match (self.device, self.find_device()) {
            (DeviceChoice::Gpu(_), Err(_)) => {
                DeviceFacts::Gpu { nvjpeg: Ok(Route::all_on_device().collect()) }
            }
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
    ///
    /// [`Error::Memory`]: crate::Error::Memory
    /// [`Error::Device`]: crate::Error::Device
    /// [`Error::Budget`]: crate::Error::Budget
    pub fn build(self) -> Result<Loader> {
        let locate = self.locator();
        crate::storage::opening(|| Loader::start(self)).map_err(locate)
    }
}
