//! Builder of a loader.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::Loader;
use super::state::LoaderState;
use crate::decode::JpegDecoder;
use crate::error::{Error, Result};
use crate::gpu::{Runtime, Stream};
use crate::measure::Watching;
use crate::op::{Chain, Placement};
use crate::plan::{AutoCount, DeviceChoice, LastBatch, OnError, Plan, Route, Settings, ShardFrom};
use crate::source::{ClassTable, Classed, Source, Subset};
use crate::tensor::{DType, Layout};

/// Function that adds the position of a setting in its file to an error about the setting, given
/// the current settings.
pub(crate) type Locate = Arc<dyn Fn(Error, &Settings) -> Error + Send + Sync>;

/// Builder of a [`Loader`]. Most methods set the field of the same name in [`Settings`].
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
    /// The memory stays within `limits.host_memory` (for batches on a device
    /// `limits.device_memory`) and within the available memory. If it would exceed one of them, the
    /// loader ends with [`Error::Memory`]. The memory is not in the footprint.
    /// [`Stats::batches_added`](crate::loader::Stats::batches_added) counts these batches.
    pub fn add_batches(mut self, add: bool) -> Self {
        self.add_batches = add;
        self
    }

    /// Interval at which a thread reads the utilization of the device through NVML. `None`, the
    /// default, turns the readings off. They are in
    /// [`Profile::device`](crate::measure::Profile::device). If NVML is missing, a warning reports
    /// it.
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

    /// Samples per batch.
    pub fn batch_size(mut self, samples: usize) -> Self {
        self.settings.loader.batch_size = samples;
        self
    }

    /// Number of threads that read, and that decode and transform on the CPU.
    pub fn num_workers(mut self, threads: usize) -> Self {
        self.settings.loader.num_workers = AutoCount::Fixed(threads);
        self
    }

    /// Chooses the number of workers from measurements, within [`Plan::workers`].
    pub fn auto_workers(mut self) -> Self {
        self.settings.loader.num_workers = AutoCount::Auto;
        self
    }

    /// Number of prefetched batches, including the one that is being filled.
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.settings.loader.prefetch = AutoCount::Fixed(batches);
        self
    }

    /// Chooses the number of prefetched batches from measurements, within [`Plan::ahead_batches`].
    pub fn auto_prefetch(mut self) -> Self {
        self.settings.loader.prefetch = AutoCount::Auto;
        self
    }

    /// Whether `auto` settings and placements are tuned from measurements while the loader runs.
    pub fn tune(mut self, tune: bool) -> Self {
        self.settings.loader.tune = tune;
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

    /// Samples per shuffle window, for sources whose files hold many samples. Files are shuffled,
    /// then samples within windows. `None`, the default, shuffles the whole set.
    pub fn shuffle_window(mut self, samples: Option<u64>) -> Self {
        self.settings.loader.shuffle_window = samples;
        self
    }

    /// Repeated augmentation (Hoffer et al., "Augment your batch", CVPR 2020): number of
    /// consecutive occurrences of each sample in an epoch's order over all shards. Each occurrence
    /// has its own random numbers. 1, the default, to 256; more than 1 needs
    /// [`shuffle`](Self::shuffle). As with torchvision's `RASampler`, the length of an epoch does
    /// not change, so an epoch contains only `1 / repeats` of the samples.
    pub fn repeats(mut self, repeats: u32) -> Self {
        self.settings.loader.repeats = repeats;
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

    /// Where rank and world size come from. Default: the launcher whose variables are set; without one, the whole set.
    pub fn shard_from(mut self, from: ShardFrom) -> Self {
        self.settings.loader.shard = from;
        self.settings.loader.rank = None;
        self.settings.loader.world_size = None;
        self
    }

    /// Handling of samples that fail.
    pub fn on_error(mut self, policy: OnError) -> Self {
        self.settings.loader.on_error = policy;
        self
    }

    /// Label of samples that are replaced by zeros ([`OnError::Substitute`]). Default -100.
    pub fn ignore_label(mut self, label: i64) -> Self {
        self.settings.loader.ignore_label = label;
        self
    }

    /// Where images are decoded.
    pub fn decode(mut self, placement: Placement) -> Self {
        self.settings.decode.placement = placement;
        self
    }

    /// Allowed decode routes if decoding is on the GPU.
    pub fn routes(mut self, routes: impl Into<Vec<Route>>) -> Self {
        self.settings.decode.routes = routes.into();
        self
    }

    /// Maximum number of workers that decode on the CPU at the same time if anything runs on the
    /// GPU. `None`, the default, means all workers, or all but one while `nvjpeg-hardware` or
    /// `nvjpeg-gpu` decode, because one worker must read images for these routes.
    pub fn max_cpu_threads(mut self, threads: Option<usize>) -> Self {
        self.settings.decode.max_cpu_threads = threads;
        self
    }

    /// Maximum number of images per call of the JPEG engines. `None`, the default, computes it from
    /// the engines' memory: see
    /// [`DecodeSettings::hardware_group`](crate::plan::DecodeSettings::hardware_group).
    pub fn hardware_group(mut self, images: Option<usize>) -> Self {
        self.settings.decode.hardware_group = images;
        self
    }

    /// Whether the decoder may scale a JPEG down before it is resized.
    pub fn prescale(mut self, prescale: bool) -> Self {
        self.settings.decode.prescale = prescale;
        self
    }

    /// Whether images are rotated and mirrored according to their EXIF orientation.
    pub fn orientation(mut self, orientation: bool) -> Self {
        self.settings.decode.orientation = orientation;
        self
    }

    /// Decoder for JPEGs on the CPU. All decoders give the same pixels.
    pub fn jpeg_decoder(mut self, decoder: JpegDecoder) -> Self {
        self.settings.decode.jpeg = decoder;
        self
    }

    /// Whether a corrupt image is an error. If false, the loader accepts images that Pillow
    /// accepts, and counts them.
    /// [`Decoders::strict`] lists the differences from Pillow.
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

    /// Number of classes of the soft targets. `None`, the default, means no soft targets. See
    /// [`TargetSettings::classes`](crate::plan::TargetSettings::classes).
    pub fn classes(mut self, classes: Option<u32>) -> Self {
        self.settings.targets.classes = classes;
        self
    }

    /// Label smoothing of the soft targets, 0 to 1. Default 0.
    pub fn smoothing(mut self, smoothing: f64) -> Self {
        self.settings.targets.smoothing = smoothing;
        self
    }

    /// Maximum number of pixels of an image.
    pub fn max_pixels(mut self, pixels: u64) -> Self {
        self.settings.limits.max_pixels = pixels;
        self
    }

    /// Maximum width and height of an image, in pixels.
    pub fn max_side(mut self, pixels: u32) -> Self {
        self.settings.limits.max_side = pixels;
        self
    }

    /// Host memory for samples that need more than their worker's share, in bytes. All workers
    /// share it.
    pub fn large_image_memory(mut self, bytes: u64) -> Self {
        self.settings.limits.large_image_memory = bytes;
        self
    }

    /// Maximum host memory, including page-locked memory, in bytes. `None`, the default, means no
    /// limit.
    pub fn host_memory(mut self, bytes: Option<u64>) -> Self {
        self.settings.limits.host_memory = bytes;
        self
    }

    /// Maximum size of an encoded sample, in bytes.
    pub fn max_file_bytes(mut self, bytes: u64) -> Self {
        self.settings.limits.max_file_bytes = bytes;
        self
    }

    /// Maximum host memory for the cache of encoded files, in bytes. `None`, the default, means no
    /// cache.
    pub fn cache_encoded(mut self, bytes: Option<u64>) -> Self {
        self.settings.cache.encoded = bytes;
        self
    }

    /// Maximum host memory for the cache of whole decoded images, in bytes. `None`, the default,
    /// means no cache.
    pub fn cache_decoded(mut self, bytes: Option<u64>) -> Self {
        self.settings.cache.decoded = bytes;
        self
    }

    /// Maximum host memory for row indexes of JPEGs, in bytes; 0 for no indexes. With indexes,
    /// windows are decoded faster from the second epoch on. Default: see
    /// [`CacheSettings::row_index`](crate::plan::CacheSettings::row_index).
    pub fn cache_row_index(mut self, bytes: Option<u64>) -> Self {
        self.settings.cache.row_index = bytes;
        self
    }

    /// Shorter side, in pixels, to which larger images are resized before the chain runs, for the
    /// decoded cache. This changes pixels. `None`, the default, does not resize.
    pub fn presize(mut self, shorter: Option<u32>) -> Self {
        self.settings.cache.presize = shorter;
        self
    }

    /// Maximum device memory, without the memory of the driver, in bytes. `None`, the default,
    /// means no limit.
    pub fn device_memory(mut self, bytes: Option<u64>) -> Self {
        self.settings.limits.device_memory = bytes;
        self
    }

    /// Maximum page-locked host memory, in bytes. `None`, the default, means no limit.
    pub fn pinned_memory(mut self, bytes: Option<u64>) -> Self {
        self.settings.limits.pinned_memory = bytes;
        self
    }

    /// Maximum number of threads that the loader starts for samples: the workers, and on a device
    /// the launcher and the thread that feeds the JPEG engines. `None`, the default, means no
    /// limit.
    pub fn cpu_threads(mut self, threads: Option<usize>) -> Self {
        self.settings.limits.cpu_threads = threads;
        self
    }

    /// Whether to build the loader even if its plan needs more host memory than is available. Default false.
    pub fn overcommit(mut self, overcommit: bool) -> Self {
        self.settings.limits.overcommit = overcommit;
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
    /// returns. If each range begins where a batch of the whole epoch begins, the batches and the
    /// pairs of batch operators are the same too. Each rank gets its share of the range. A
    /// [`Loader::state`] can only be resumed with the same positions.
    pub fn positions(mut self, positions: Option<Range<u64>>) -> Self {
        self.positions = positions;
        self
    }

    /// Number of latest spans to store for each thread, the consumer and the ring, for
    /// [`Loader::trace_json`]. 0, the default, turns tracing off. The footprint lists the memory as
    /// `trace`.
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
    /// after the work in this stream. Choosing another GPU afterwards is an error. Default: the
    /// loader creates a stream.
    pub fn stream(mut self, stream: Arc<Stream>) -> Self {
        self.settings.device = DeviceChoice::Gpu(stream.device().ordinal());
        self.runtime = stream.device().runtime().clone();
        self.consumer = Some(stream);
        self
    }

    /// Resolves the plan without starting the loader. With a GPU, nvJPEG decodes trial images,
    /// whose memory is freed again. If the requested GPU does not exist on this machine, returns
    /// the plan for a machine that has one.
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
