//! The builder of a loader.

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
use crate::plan::{Count, DeviceChoice, Last, OnError, Plan, Route, Settings, ShardFrom};
use crate::source::{ClassTable, Classed, Source, Subset};
use crate::tensor::{DType, Layout};

/// Adds to an error the position in the file of the key that it names, given the current settings.
pub(crate) type Locate = Arc<dyn Fn(Error, &Settings) -> Error + Send + Sync>;

/// Builder of a [`Loader`]. Every method sets the field of the same name in [`Settings`].
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

    /// The source, for measuring it while no loader reads.
    pub fn source(&self) -> Arc<dyn Source> {
        self.source.clone()
    }

    /// Gives the classes the numbers that they have in another loader, such as that of the training set
    /// ([`Classed`](crate::source::Classed)).
    ///
    /// # Errors
    ///
    /// [`Error::Config`](crate::Error::Config) if that loader has no names of classes, or if this source has names and none of them.
    pub fn classes_of(mut self, other: &Loader) -> Result<Self> {
        let table = ClassTable::new(other.classes())?;
        self.source = Arc::new(Classed::new(self.source, &table)?);
        Ok(self)
    }

    /// Uses at most the first `samples` samples of the source and caches their files from the first epoch on. Separates
    /// the cost of reading from the cost of decoding and transforms.
    ///
    /// # Errors
    ///
    /// [`Error::Config`](crate::Error::Config) if there are no samples.
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

    /// Whether to allocate memory for more batches while the consumer holds all of them, instead of waiting until it drops one: for
    /// bindings to languages whose programs let go of memory late. It stays within `limits.host_memory`, or `limits.device_memory` for
    /// batches on a device, and within the available memory; beyond that [`Error::Memory`] ends the loader. Such memory is not in the
    /// footprint, and counted by [`Stats::batches_added`](crate::loader::Stats::batches_added). Default false.
    pub fn add_batches(mut self, add: bool) -> Self {
        self.add_batches = add;
        self
    }

    /// Period at which a thread samples the utilization of the device through NVML; `None`, the default, is never.
    /// The readings are in [`Profile::device`](crate::measure::Profile::device). If NVML is missing, a warning says
    /// why there are none.
    pub fn watch_device(mut self, period: Option<Duration>) -> Self {
        self.watch_device = period;
        self
    }

    /// Replaces all settings, except for the device if a [`consumer`](Self::consumer) is set.
    pub fn settings(mut self, settings: Settings) -> Self {
        let device = self.settings.device;
        self.settings = settings;
        if self.consumer.is_some() {
            self.settings.device = device;
        }
        self
    }

    /// Samples per batch.
    pub fn batch(mut self, samples: usize) -> Self {
        self.settings.loader.batch = samples;
        self
    }

    /// Number of threads that read, and that decode and transform on the CPU.
    pub fn workers(mut self, threads: usize) -> Self {
        self.settings.loader.workers = Count::Fixed(threads);
        self
    }

    /// Chooses the number of workers from measurements, within [`Plan::workers`].
    pub fn auto_workers(mut self) -> Self {
        self.settings.loader.workers = Count::Auto;
        self
    }

    /// Number of prefetched batches, including the one that is being filled.
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.settings.loader.prefetch = Count::Fixed(batches);
        self
    }

    /// Chooses the number of prefetched batches from measurements, within [`Plan::ahead_batches`].
    pub fn auto_prefetch(mut self) -> Self {
        self.settings.loader.prefetch = Count::Auto;
        self
    }

    /// Whether settings that are `auto`, including placements, are tuned from measurements while the loader runs.
    pub fn tune(mut self, tune: bool) -> Self {
        self.settings.loader.tune = tune;
        self
    }

    /// Seed of all random numbers.
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.loader.seed = seed;
        self
    }

    /// Whether each epoch has its own order.
    pub fn shuffle(mut self, shuffle: bool) -> Self {
        self.settings.loader.shuffle = shuffle;
        self
    }

    /// Samples per shuffle window, for sources whose files hold many samples: files are shuffled, then samples within a
    /// window. `None`, the default, shuffles the whole set.
    pub fn shuffle_window(mut self, samples: Option<u64>) -> Self {
        self.settings.loader.shuffle_window = samples;
        self
    }

    /// Repeated augmentation (Hoffer et al., "Augment your batch", CVPR 2020): each sample occurs this many times in a row
    /// in an epoch's order over all shards, each time with random draws of its own. 1, the default, to 256; more than 1
    /// needs [`shuffle`](Self::shuffle). As with torchvision's `RASampler` an epoch keeps its length, so it has only one
    /// of `repeats` samples.
    pub fn repeats(mut self, repeats: u32) -> Self {
        self.settings.loader.repeats = repeats;
        self
    }

    /// What to do with the samples that do not fill the last batch.
    pub fn last(mut self, last: Last) -> Self {
        self.settings.loader.last = last;
        self
    }

    /// Loads shard `rank` of `world`, regardless of any launcher's variables.
    pub fn shard(mut self, rank: u64, world: u64) -> Self {
        self.settings.loader.shard = ShardFrom::Environment;
        self.settings.loader.rank = Some(rank);
        self.settings.loader.world = Some(world);
        self
    }

    /// Where rank and world size come from. Default: the launcher whose variables are set; without one, the whole set.
    pub fn shard_from(mut self, from: ShardFrom) -> Self {
        self.settings.loader.shard = from;
        self.settings.loader.rank = None;
        self.settings.loader.world = None;
        self
    }

    /// What to do if a sample fails.
    pub fn on_error(mut self, policy: OnError) -> Self {
        self.settings.loader.on_error = policy;
        self
    }

    /// Label of samples that zeros replace, with [`OnError::Substitute`]. Default -100.
    pub fn ignore_label(mut self, label: i64) -> Self {
        self.settings.loader.ignore_label = label;
        self
    }

    /// Where images are decoded.
    pub fn decode(mut self, placement: Placement) -> Self {
        self.settings.decode.placement = placement;
        self
    }

    /// The allowed decode routes if decoding is on the GPU.
    pub fn routes(mut self, routes: impl Into<Vec<Route>>) -> Self {
        self.settings.decode.routes = routes.into();
        self
    }

    /// Most workers that decode on the CPU at a time if anything runs on the GPU. `None`, the default, is all of
    /// them, or all but one while `nvjpeg-hardware` or `nvjpeg-gpu` decodes, whose files need a reader.
    pub fn max_cpu_threads(mut self, threads: Option<usize>) -> Self {
        self.settings.decode.max_cpu_threads = threads;
        self
    }

    /// Most images per call of the JPEG engines. `None`, the default, is computed from their memory: see
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

    /// Whether images are rotated and mirrored by their EXIF orientation.
    pub fn orientation(mut self, orientation: bool) -> Self {
        self.settings.decode.orientation = orientation;
        self
    }

    /// What decodes JPEGs on the CPU. Pixels are the same.
    pub fn jpeg_decoder(mut self, decoder: JpegDecoder) -> Self {
        self.settings.decode.jpeg = decoder;
        self
    }

    /// Whether a damaged image is an error. If not, the loader accepts what Pillow accepts, and counts it.
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

    /// Number of classes of the soft targets; `None`, the default, makes none. See
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

    /// Most pixels per image.
    pub fn max_pixels(mut self, pixels: u64) -> Self {
        self.settings.limits.max_pixels = pixels;
        self
    }

    /// Most columns and most rows per image.
    pub fn max_side(mut self, pixels: u32) -> Self {
        self.settings.limits.max_side = pixels;
        self
    }

    /// Bytes of host memory, for all workers together, for samples that need more than their worker's share.
    pub fn large_image_memory(mut self, bytes: u64) -> Self {
        self.settings.limits.large_image_memory = bytes;
        self
    }

    /// Most bytes of host memory, including page-locked memory; `None`, the default, is no limit.
    pub fn host_memory(mut self, bytes: Option<u64>) -> Self {
        self.settings.limits.host_memory = bytes;
        self
    }

    /// Most bytes per encoded sample.
    pub fn max_file_bytes(mut self, bytes: u64) -> Self {
        self.settings.limits.max_file_bytes = bytes;
        self
    }

    /// Most bytes of host memory for the cache of files; `None`, the default, is no cache.
    pub fn cache_encoded(mut self, bytes: Option<u64>) -> Self {
        self.settings.cache.encoded = bytes;
        self
    }

    /// Most bytes of host memory for the cache of whole decoded images; `None`, the default, is no cache.
    pub fn cache_decoded(mut self, bytes: Option<u64>) -> Self {
        self.settings.cache.decoded = bytes;
        self
    }

    /// Most bytes of host memory for row indexes of JPEGs, with which windows are decoded faster from the second epoch on; 0 is
    /// no indexes. `None`, the default, is what [`CacheSettings::row_index`](crate::plan::CacheSettings::row_index) describes.
    pub fn cache_row_index(mut self, bytes: Option<u64>) -> Self {
        self.settings.cache.row_index = bytes;
        self
    }

    /// Length of the shorter side, in pixels, to which larger images are resized before anything else, for the decoded
    /// cache. Changes pixels. `None`, the default, does not resize.
    pub fn presize(mut self, shorter: Option<u32>) -> Self {
        self.settings.cache.presize = shorter;
        self
    }

    /// Most bytes of device memory, not counting the driver's own; `None`, the default, is no limit.
    pub fn device_memory(mut self, bytes: Option<u64>) -> Self {
        self.settings.limits.device_memory = bytes;
        self
    }

    /// Most bytes of page-locked host memory; `None`, the default, is no limit.
    pub fn pinned_memory(mut self, bytes: Option<u64>) -> Self {
        self.settings.limits.pinned_memory = bytes;
        self
    }

    /// Most threads that the loader starts for samples: the workers, and on a device the launcher and the thread that
    /// feeds the JPEG engines. `None`, the default, is no limit.
    pub fn cpu_threads(mut self, threads: Option<usize>) -> Self {
        self.settings.limits.cpu_threads = threads;
        self
    }

    /// Whether to build the loader even if its plan needs more host memory than is available. Default false.
    pub fn overcommit(mut self, overcommit: bool) -> Self {
        self.settings.limits.overcommit = overcommit;
        self
    }

    /// Device on which the loader may run.
    pub fn device(mut self, device: DeviceChoice) -> Self {
        self.settings.device = device;
        self
    }

    /// The CUDA libraries to use, and the directory for compiled kernels. Default: from the environment.
    pub fn runtime(mut self, runtime: &Runtime) -> Self {
        self.runtime = runtime.clone();
        self
    }

    /// The first epoch. Default 0.
    pub fn start_epoch(mut self, epoch: u32) -> Self {
        self.start_epoch = epoch;
        self
    }

    /// Continues from the position of another loader of the same source, see [`Loader::state`]. The seed, the shuffle
    /// with its window, the repeats, and the first epoch come from the state. Workers, batch, prefetch, device, rank and world size
    /// may differ.
    pub fn resume(mut self, state: LoaderState) -> Self {
        self.settings.loader.seed = state.seed;
        self.settings.loader.shuffle = state.shuffle;
        self.settings.loader.shuffle_window = state.shuffle_window;
        self.settings.loader.repeats = state.repeats.unwrap_or(1);
        self.start_epoch = state.epoch;
        self.resumed = Some(state);
        self
    }

    /// Number of epochs; `None`, the default, is no end.
    pub fn epochs(mut self, epochs: Option<u32>) -> Self {
        self.epochs = epochs;
        self
    }

    /// Positions of each epoch's order to use: `start` below `end`, which is at most the number of samples. `None`, the
    /// default, is the whole epoch. Samples and their pixels are those that a loader of the whole epoch has there, so loaders
    /// of consecutive parts, on any machines, give together what one loader gives. With parts that begin where one of its
    /// batches begins, the batches and the pairs of batch operators are the same too. A rank gets its share of these
    /// positions. A [`Loader::state`] continues a loader of the same positions.
    pub fn positions(mut self, positions: Option<Range<u64>>) -> Self {
        self.positions = positions;
        self
    }

    /// Number of latest spans to store for each thread, the consumer and the ring, for [`Loader::trace_json`]; 0, the
    /// default, is no trace. The memory is the footprint's row `trace`.
    pub fn trace(mut self, spans_per_thread: usize) -> Self {
        self.watching.spans = spans_per_thread;
        self
    }

    /// Whether to put NVTX ranges around the stages of each thread, for NVIDIA's profilers; off by default. If no
    /// profiler is attached, [`Loader::warnings`] says so. Rows are decoded and transformed alternately: the range
    /// `decode` covers both.
    pub fn nvtx(mut self, nvtx: bool) -> Self {
        self.nvtx = nvtx;
        self
    }

    /// The stream on which batches are used; also sets the device and its runtime. It is fixed for the life of the
    /// loader, so that a batch dropped on any thread frees its slot after the work in this stream. Choosing another GPU
    /// afterwards is an error. Default: the loader creates one.
    pub fn consumer(mut self, stream: Arc<Stream>) -> Self {
        self.settings.device = DeviceChoice::Gpu(stream.device().ordinal());
        self.runtime = stream.device().runtime().clone();
        self.consumer = Some(stream);
        self
    }

    /// Resolves the plan without starting the loader. With a GPU, nvJPEG decodes trial images, whose memory is freed again. If a GPU is
    /// requested that this machine does not have, returns the plan for a machine that has one.
    pub fn plan(&self) -> Result<Plan> {
        self.plan_anyway().map_err(self.locator())
    }

    /// Plans, checks, allocates all memory and starts the threads.
    ///
    /// # Errors
    ///
    /// Those of [`plan`](Self::plan), [`Error::Memory`] if the plan needs more host memory than is available
    /// ([`Plan::check_memory`]) or an allocation fails, [`Error::Device`] and [`Error::Budget`] if a GPU allocation
    /// fails.
    ///
    /// [`Error::Memory`]: crate::Error::Memory
    /// [`Error::Device`]: crate::Error::Device
    /// [`Error::Budget`]: crate::Error::Budget
    pub fn build(self) -> Result<Loader> {
        let locate = self.locator();
        crate::storage::opening(|| Loader::start(self)).map_err(locate)
    }
}
