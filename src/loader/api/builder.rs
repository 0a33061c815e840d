//! Builder of a loader.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::Loader;
use super::state::LoaderState;
use crate::error::{Error, Result};
use crate::gpu::{Runtime, Stream};
use crate::measure::Watching;
use crate::op::Chain;
use crate::plan::{AutoCount, DeviceChoice, LastBatch, OnError, Plan, Settings, ShardFrom};
use crate::source::{ClassTable, Classed, Source, Subset};
use crate::tensor::{DType, Layout};

/// Function that adds the position of a setting in its file to an error about the setting, given
/// the current settings.
pub(crate) type Locate = Arc<dyn Fn(Error, &Settings) -> Error + Send + Sync>;

/// Builder of a [`Loader`].
///
/// The settings that most loaders need have methods of their own. [`configure`](Self::configure)
/// changes all other settings. Some properties of a loader are not settings of a pipeline file and
/// can only be set by methods: `epochs`, `start_epoch`, `positions`, `resume`, `stream`, `runtime`,
/// `trace`, `nvtx`, `watch_device` and `add_batches`.
#[must_use = "methods return the changed builder, and `build` creates the loader"]
pub struct LoaderBuilder {
    pub(in crate::loader) source: Arc<dyn Source>,
    pub(in crate::loader) start_epoch: u32,
    pub(in crate::loader) resumed: Option<LoaderState>,
    pub(in crate::loader) epochs: Option<u32>,
    pub(in crate::loader) positions: Option<Range<u64>>,
    pub(in crate::loader) consumer: Option<Arc<Stream>>,
    pub(in crate::loader) opened_in: Duration,
    pub(in crate::loader) watching: Watching,
    pub(in crate::loader) nvtx: bool,
    pub(in crate::loader) watch_device: Option<Duration>,
    pub(in crate::loader) add_batches: bool,
    pub(in crate::loader) chain: Chain,
    pub(in crate::loader) settings: Settings,
    pub(in crate::loader) locate: Option<Locate>,
    pub(in crate::loader) runtime: Runtime,
}

impl LoaderBuilder {
    /// Creates a builder with default settings.
    pub fn new(source: Arc<dyn Source>, chain: Chain) -> Self {
        Self {
            source,
            chain,
            start_epoch: 0,
            resumed: None,
            epochs: None,
            positions: None,
            consumer: None,
            opened_in: Duration::ZERO,
            watching: Watching::default(),
            nvtx: false,
            watch_device: None,
            add_batches: false,
            settings: Settings::default(),
            locate: None,
            runtime: Runtime::default(),
        }
    }

    /// Returns the source, for example to measure it while no loader reads from it.
    pub fn source(&self) -> Arc<dyn Source> {
        self.source.clone()
    }

    /// Numbers the classes as in another loader, such as the loader of the training set
    /// ([`Classed`](crate::source::Classed)).
    ///
    /// # Errors
    ///
    /// [`Error::Config`](crate::Error::Config) if the other loader has no class names, or if this
    /// source has class names but shares none with the other loader.
    pub fn classes_of(mut self, other: &Loader) -> Result<Self> {
        let table = ClassTable::new(other.classes())?;
        self.source = Arc::new(Classed::new(self.source, &table)?);
        Ok(self)
    }

    /// Uses at most the first `samples` samples of the source and caches their files from the first
    /// epoch on. This separates the cost of reading from the cost of decoding and transforms.
    ///
    /// # Errors
    ///
    /// [`Error::Config`](crate::Error::Config) if the source has no samples.
    pub fn first_samples_cached(mut self, samples: u64) -> Result<Self> {
        let samples = samples.min(self.source.len());
        let largest = self.source.largest_bytes().unwrap_or_else(|| self.looks().largest_bytes());
        let bytes = samples.saturating_mul(largest + 64);
        self.source = Arc::new(Subset::take(self.source, samples)?);
        self.settings.cache.encoded = Some(bytes.max(1 << 20));
        Ok(self)
    }

    /// Sets the time that opening the source took, for reports.
    pub fn opened_in(mut self, took: Duration) -> Self {
        self.opened_in = took;
        self
    }

    /// Whether to allocate memory for more batches while the consumer holds all batches. If false,
    /// the loader waits until the consumer drops one. Meant for bindings to languages whose
    /// programs free memory late. Default false.
    ///
    /// The added memory stays within `limits.host_memory` (for batches on a device
    /// `limits.device_memory`) and within the memory that the machine has available. If it would
    /// exceed one of them, the loader ends with [`Error::Memory`]. The footprint does not contain
    /// the added memory. [`Stats::batches_added`](crate::loader::Stats::batches_added) counts the
    /// added batches.
    pub fn add_batches(mut self, add: bool) -> Self {
        self.add_batches = add;
        self
    }

    /// Interval at which a thread reads the utilization of the device through NVML. `None`, the
    /// default, turns this off. [`Profile::device`](crate::measure::Profile::device) contains the
    /// readings. If NVML is missing, a warning reports it.
    pub fn watch_device(mut self, period: Option<Duration>) -> Self {
        self.watch_device = period;
        self
    }

    /// Replaces all settings. If a [`stream`](Self::stream) is set, the device of the stream is
    /// kept.
    pub fn settings(mut self, settings: Settings) -> Self {
        let device = self.settings.device;
        self.settings = settings;
        if self.consumer.is_some() {
            self.settings.device = device;
        }
        self
    }

    /// Changes any of the [`Settings`]:
    ///
    /// ```
    /// # use feedwater::loader::LoaderBuilder;
    /// # fn f(builder: LoaderBuilder) -> LoaderBuilder {
    /// builder.configure(|settings| {
    ///     settings.limits.host_memory = Some(4 << 30);
    ///     settings.decode.strict = false;
    /// })
    /// # }
    /// ```
    ///
    /// The names of the fields are the keys of a pipeline file. Of several calls that change a
    /// setting, the last one counts, so call `configure` after [`settings`](Self::settings) and
    /// [`resume`](Self::resume). [`plan`](Self::plan) returns the settings. `settings.storage` has
    /// no effect on a source that is already open:
    /// [`StorageSettings`](crate::storage::StorageSettings) belong to the handle that opens it.
    pub fn configure(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// Samples per batch.
    pub fn batch_size(mut self, samples: usize) -> Self {
        self.settings.loader.batch_size = samples;
        self
    }

    /// Number of threads that read, and that decode and transform on the CPU.
    /// [`AutoCount::Auto`] chooses it from measurements, within [`Plan::workers`].
    pub fn num_workers(mut self, threads: impl Into<AutoCount>) -> Self {
        self.settings.loader.num_workers = threads.into();
        self
    }

    /// Number of prefetched batches, including the one that is being filled. [`AutoCount::Auto`]
    /// chooses it from measurements, within [`Plan::ahead_batches`].
    pub fn prefetch(mut self, batches: impl Into<AutoCount>) -> Self {
        self.settings.loader.prefetch = batches.into();
        self
    }

    /// Seed of all random numbers.
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.loader.seed = seed;
        self
    }

    /// Whether each epoch has its own random order.
    pub fn shuffle(mut self, shuffle: bool) -> Self {
        self.settings.loader.shuffle = shuffle;
        self
    }

    /// What to do with the samples that do not fill the last batch.
    pub fn last_batch(mut self, last: LastBatch) -> Self {
        self.settings.loader.last_batch = last;
        self
    }

    /// Loads shard `rank` of `world_size`, regardless of any launcher's variables.
    pub fn shard(mut self, rank: u64, world_size: u64) -> Self {
        self.settings.loader.shard = ShardFrom::Environment;
        self.settings.loader.rank = Some(rank);
        self.settings.loader.world_size = Some(world_size);
        self
    }

    /// Handling of samples that fail.
    pub fn on_error(mut self, policy: OnError) -> Self {
        self.settings.loader.on_error = policy;
        self
    }

    /// Element type and axis order of the batches.
    pub fn output(mut self, dtype: DType, layout: Layout) -> Self {
        self.settings.output.dtype = dtype;
        self.settings.output.layout = layout;
        self
    }

    /// Device that the loader uses.
    pub fn device(mut self, device: DeviceChoice) -> Self {
        self.settings.device = device;
        self
    }

    /// CUDA libraries to use, and folder for compiled kernels. Default: from the environment.
    pub fn runtime(mut self, runtime: &Runtime) -> Self {
        self.runtime = runtime.clone();
        self
    }

    /// First epoch. Default 0.
    pub fn start_epoch(mut self, epoch: u32) -> Self {
        self.start_epoch = epoch;
        self
    }

    /// Continues from the position of another loader of the same source, see [`Loader::state`].
    /// Seed, shuffle, shuffle window, repeats and the first epoch are taken from the state.
    /// Workers, batch, prefetch, device, rank and world size may differ.
    pub fn resume(mut self, state: LoaderState) -> Self {
        self.settings.loader.seed = state.seed;
        self.settings.loader.shuffle = state.shuffle;
        self.settings.loader.shuffle_window = state.shuffle_window;
        self.settings.loader.repeats = state.repeats.unwrap_or(1);
        self.start_epoch = state.epoch;
        self.resumed = Some(state);
        self
    }

    /// Number of epochs. `None`, the default, means no end.
    pub fn epochs(mut self, epochs: Option<u32>) -> Self {
        self.epochs = epochs;
        self
    }

    /// Range of positions in each epoch's order that the loader uses. `start` must be below `end`,
    /// and `end` at most the number of samples. `None`, the default, means the whole epoch.
    ///
    /// Samples and pixels at these positions are the same as in a loader of the whole epoch. So
    /// loaders of consecutive ranges, on any machines, together return the samples that one loader
    /// returns. If each range begins where a batch of the whole epoch begins, the batches are the
    /// same too, and batch operators pair the same samples. Each rank gets its share of the range.
    /// A [`Loader::state`] can only be resumed with the same positions.
    pub fn positions(mut self, positions: Option<Range<u64>>) -> Self {
        self.positions = positions;
        self
    }

    /// Number of latest spans (timed intervals of work) to store for each thread, for the consumer
    /// and for the ring. [`Loader::trace_json`] writes them. 0, the default, turns tracing off. The
    /// footprint lists the memory as `trace`.
    pub fn trace(mut self, spans_per_thread: usize) -> Self {
        self.watching.spans = spans_per_thread;
        self
    }

    /// Whether to put NVTX ranges around the stages of each thread, for NVIDIA's profilers. Default
    /// false. If no profiler is attached, [`Loader::warnings`] reports it. The range `decode` also
    /// covers the transform, because both alternate row by row.
    pub fn nvtx(mut self, nvtx: bool) -> Self {
        self.nvtx = nvtx;
        self
    }

    /// Stream in which batches are used. Also sets the device and its runtime. The stream is fixed
    /// for the life of the loader: when a batch is dropped on any thread, its slot becomes free
    /// once the work in this stream has ended. Choosing another GPU afterwards is an error.
    /// Default: the loader creates a stream.
    pub fn stream(mut self, stream: Arc<Stream>) -> Self {
        self.settings.device = DeviceChoice::Gpu(stream.device().ordinal());
        self.runtime = stream.device().runtime().clone();
        self.consumer = Some(stream);
        self
    }

    /// Resolves the plan without starting the loader. With a GPU, nvJPEG decodes trial images,
    /// whose memory is freed again. If the requested GPU does not exist on this machine, returns
    /// the plan for a machine that has such a GPU.
    pub fn plan(&self) -> Result<Plan> {
        self.plan_anyway().map_err(self.locator())
    }

    /// Plans, checks, allocates all memory and starts the threads.
    ///
    /// # Errors
    ///
    /// The errors of [`plan`](Self::plan). [`Error::Memory`] if the plan needs more host memory
    /// than is available ([`Plan::check_memory`]) or if an allocation fails. [`Error::Device`] or
    /// [`Error::Budget`] if a GPU allocation fails.
    ///
    /// [`Error::Memory`]: crate::Error::Memory
    /// [`Error::Device`]: crate::Error::Device
    /// [`Error::Budget`]: crate::Error::Budget
    pub fn build(self) -> Result<Loader> {
        let locate = self.locator();
        crate::storage::opening(|| Loader::start(self)).map_err(locate)
    }
}
