//! The loader: threads, rings and the public face.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use crate::error::{Error, Result};
use crate::footprint::Footprint;
use crate::gpu::Device;
use crate::gpu::nvtx::Nvtx;
use crate::measure::{Meters, Stage};
use crate::plan::{Last, Plan, Shuffle};
use crate::source::Source;
use crate::storage::Storage;
use crate::tune::Choice;

mod balance;
mod batch;
mod builder;
mod cache;
mod controls;
mod device;
mod endpoint;
mod engine;
mod epoch;
mod feed;
mod host;
mod large;
mod look;
mod metrics;
mod order;
mod origin;
mod pipeline;
mod policy;
mod prefetcher;
mod process;
mod profile;
mod reader;
mod record;
mod resolve;
mod slot;
mod state;
mod stats;
mod stopper;
mod tuning;
mod views;
mod watch;

pub use batch::Batch;
pub use builder::{DeviceChoice, LoaderBuilder};
pub use epoch::{Batches, Epoch};
pub use record::{Outcome, SampleRecord};
pub use state::LoaderState;
pub use stats::{CacheEpoch, CacheStats, EpochStats, MemoryStats, StageSeconds, Stats};
pub use stopper::Stopper;

#[doc(hidden)]
pub use balance::RouteReport;
#[doc(hidden)]
pub use device::offered;
#[doc(hidden)]
pub use large::{LargeImages, Room};
#[doc(hidden)]
pub use order::{EpochOrder, Extent, Order, Position};
#[doc(hidden)]
pub use prefetcher::PrefetcherReport;
#[doc(hidden)]
pub use profile::ConsumerSpan;

use cache::Caches;
use controls::Controls;
use engine::{Engine, Parts};
use metrics::Served;
use prefetcher::Prefetcher;
use resolve::Resolved;
use stats::Counters;
use tuning::Tuning;
use watch::Watch;

/// Gives batches that are ready for the model, epoch after epoch.
///
/// Its life, each sentence with a test in `tests/loader.rs` or `tests/resume.rs`:
///
/// * Building it plans, checks, takes all memory and starts the threads, which begin to fill batches at once.
/// * `for batch in &mut loader` is one epoch; the next `for` is the next epoch. When an epoch ends, the batches of the
///   next one are already being filled, unless `epochs` says that there is none.
/// * [`epoch`](Self::epoch) is the same for a loop that also asks for [`stats`](Self::stats), [`state`](Self::state) and the like.
///   [`into_batches`](Self::into_batches) owns the loader and gives the batches of all epochs, on any thread.
/// * Batches come in the order of the epoch, whatever the number of threads.
/// * A loop that is left early ends its epoch: what is ready is given up, and the next `for` begins the next epoch.
/// * When a sample cannot be used and the policy is `stop`, the batches before it come first, then its error, and
///   after that nothing but the same error. Every other error ends the loader in the same way.
/// * [`state`](Self::state) tells where the consumer is, at any time, and another loader goes on there. After a loop that was
///   left early the state is where it was left, until the next loop begins.
/// * A batch that is dropped gives its slot back. When all slots are with the user, `next` waits, since no batch can
///   be filled: `prefetch + 1` batches at most can be held ([`Plan::slots`]). It is no error, since any thread may drop one; after
///   three seconds a line on standard error and in [`warnings`](Self::warnings) says how many are held.
/// * A batch that is leaked shortens the ring by one slot; the loader goes on with the others.
/// * A panic of the consumer drops its batch, and the loader ends as it does when it is dropped.
/// * A panic in an operator ends the loader with an error that says so.
/// * The consumer may be any thread, batches may be sent to other threads, and they may outlive the loader.
/// * Two loops over one loader at the same time cannot be. With `&mut loader` and `epoch` the second does not compile. With
///   `&loader`, for a loader that is shared, it gets an error.
/// * Dropping the loader, at any time, stops and joins all threads and gives all memory back, except that of
///   batches which are still held.
/// * `fork` copies no threads. In a child process a loader of the parent gives [`Error::Forked`] instead of batches, and its
///   counts are zero. Dropping it or its batches there does nothing: their memory stays. Build loaders after `fork`.
pub struct Loader {
    /// The process that built it.
    process: u32,
    source: Arc<dyn Source>,
    /// The different handles through which the source reads.
    storages: Arc<[Storage]>,
    plan: Arc<Plan>,
    device: String,
    /// What is known since it was built.
    warnings: Vec<String>,
    order: Order,
    counters: Arc<Counters>,
    meters: Arc<Meters>,
    caches: Arc<Caches>,
    controls: Arc<Controls>,
    /// Asks for samples ahead of time, where they come over a network.
    ahead: Option<Arc<Prefetcher>>,
    /// What batches are made on, where that is a GPU.
    gpu: Option<Arc<Device>>,
    /// Looks at it, where that was asked for; or why nothing does.
    watch: Option<Result<Watch>>,
    /// What is chosen, where nothing is chosen while it runs.
    fixed: Choice,
    /// Before the engine, which it changes.
    tuning: Option<Tuning>,
    /// Before the engine, which its thread looks at.
    served: Served,
    engine: Arc<Engine>,
    state: Mutex<State>,
    iterating: AtomicBool,
    /// The warning that every batch is held, once there was one.
    held: OnceLock<String>,
}

struct State {
    next_epoch: u32,
    end_epoch: Option<u32>,
    /// The epoch that was begun last, and how many of its batches were handed out.
    at: (u32, u64),
    /// The error that ended the loader.
    ended: Option<Error>,
}

impl Loader {
    /// Starts to describe a loader of this source and chain; see [`LoaderBuilder`] for what can be set.
    pub fn builder(source: impl Source + 'static, chain: crate::op::Chain) -> LoaderBuilder {
        LoaderBuilder::new(Arc::new(source), chain)
    }

    fn start(builder: LoaderBuilder) -> Result<Self> {
        let Resolved { plan, line, device } = builder.resolve()?;
        plan.check_memory()?;
        let plan = Arc::new(plan);
        let file_ends = match plan.shuffle {
            Shuffle::Windows(_) => builder.source.file_ends(),
            Shuffle::Source | Shuffle::Whole => Vec::new(),
        };
        let samples = builder.source.len();
        let mut order = Order::new(samples, &plan.settings.loader, &plan.shard, &file_ends)?;
        if let Some(state) = &builder.resumed {
            state.check(samples, order.files())?;
            order = order.begin_at(state.epoch, state.position);
        }
        let loader = &plan.settings.loader;
        let world = plan.shard.world;
        // On every shard, so that none is left to wait for the others.
        if loader.last == Last::Partial && samples < world {
            let problem = format!(
                "is partial, and of {samples} samples some of {world} shards would have none; take fewer shards, \
                 or set loader.last to pad"
            );
            return Err(Error::config("loader.last", problem));
        }
        if order.whole().batches() == 0 {
            return Err(Error::config(
                "loader.batch",
                format!(
                    "is {}, but this shard has {} samples and the last batch is dropped: no batch would come; \
                     lower batch, or set loader.last to partial or pad",
                    loader.batch,
                    order.whole().own()
                ),
            ));
        }
        if plan.settings.cache.presize.is_some() && builder.source.canvas(0).size.is_some() {
            let problem = "the source has annotations, whose positions are of the images as they are; leave it out";
            return Err(Error::config("cache.presize", problem));
        }
        let mut watching = builder.watching;
        let mut warnings = Vec::new();
        if builder.nvtx {
            match Nvtx::open(&builder.runtime) {
                Ok(nvtx) => watching.marker = Some(nvtx),
                Err(error) => warnings.push(format!("no NVTX ranges: {error}")),
            }
        }
        let meters = Arc::new(Meters::watched(plan.slots(), watching));
        meters.thread("feedwater-list").add_time(Stage::List, builder.opened_in, 0);
        let counters = Arc::new(Counters::new(meters.clone()));
        let caches = Arc::new(Caches::new(&plan.settings.cache, builder.source.originals()));
        let end_epoch = builder.epochs.map(|epochs| builder.start_epoch.saturating_add(epochs));
        let space = tuning::space(&plan);
        let first = space.first();
        let ahead = plan.ahead.map(|(most, limit)| {
            let threads = (most, plan.workers.most, plan.settings.loader.tune);
            let source = builder.source.clone();
            Arc::new(Prefetcher::new(
                source,
                order.clone(),
                end_epoch,
                threads,
                limit,
                caches.clone(),
            ))
        });
        let controls = Arc::new(Controls::new(first.workers, first.offload));
        let parts = Parts {
            source: match &ahead {
                Some(ahead) => ahead.clone(),
                None => builder.source.clone(),
            },
            ahead: ahead.clone(),
            plan: plan.clone(),
            meters: meters.clone(),
            caches: caches.clone(),
            controls: controls.clone(),
            large: Arc::new(LargeImages::new(plan.room.large)),
            order: order.clone(),
            start_epoch: builder.start_epoch,
            epochs: builder.epochs,
        };
        let gpu = device.filter(|_| plan.uses_gpu());
        let engine = match (&gpu, plan.uses_gpu()) {
            (Some(device), true) => Engine::on_device(&parts, device, builder.consumer)?,
            (None, true) => {
                let reason = "the plan was made for one that this machine does not have";
                return Err(Error::unavailable("a gpu", reason));
            }
            (_, false) => Engine::on_host(&parts)?,
        };
        engine.apply()(first);
        let start = || Tuning::start(space.clone(), meters.clone(), engine.apply());
        let tuning = space.is_free().then(start);
        let tuning = tuning.transpose()?;
        let watch = gpu.as_ref().zip(builder.watch_device);
        let watch = watch.map(|(device, period)| Watch::new(device, period, meters.clone()));
        let at = (builder.start_epoch, 0);
        let state = State { next_epoch: builder.start_epoch, end_epoch, at, ended: None };
        Ok(Self {
            process: std::process::id(),
            storages: storages_of(&*builder.source),
            source: builder.source,
            plan,
            device: line,
            warnings,
            order,
            counters,
            meters,
            caches,
            controls,
            ahead,
            gpu,
            watch,
            fixed: first,
            tuning,
            served: Served::default(),
            engine: Arc::new(engine),
            state: Mutex::new(state),
            iterating: AtomicBool::new(false),
            held: OnceLock::new(),
        })
    }

    /// What is done, where, and with how much memory.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The memory that was taken, row by row.
    pub fn footprint(&self) -> &Footprint {
        &self.plan.footprint
    }

    /// Where batches are made, and why there: one line for people.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The source.
    pub fn source(&self) -> &dyn Source {
        &*self.source
    }

    /// Batches in an epoch of this shard.
    pub fn batches_per_epoch(&self) -> u64 {
        self.order.whole().batches()
    }

    /// Places in an epoch of this shard: samples, and what pads the last batch.
    pub fn places_per_epoch(&self) -> u64 {
        self.order.whole().places()
    }

    /// What is known to be wrong with the libraries that this loader uses, or was asked to, what looks like a mistake in the
    /// source ([`Notes::warnings`](crate::source::Notes::warnings)), what makes the source slow in the order that was asked for, that a consumer waits for a batch
    /// while all are held, and what went wrong so far while files behind URLs were kept on disk; with the way out, for people.
    pub fn warnings(&self) -> Vec<String> {
        let loader = &self.plan.settings.loader;
        let anywhere = loader.shuffle && loader.shuffle_window.is_none();
        let slow = anywhere.then(|| self.source.slow_shuffled());
        let mut warnings = self.source.warnings();
        warnings.extend(self.warnings.iter().cloned());
        warnings.extend(self.held.get().cloned());
        if self.check_process().is_err() {
            return warnings;
        }
        warnings.extend(self.engine.warnings());
        warnings.extend(slow.flatten());
        if let Some(Err(error)) = &self.watch {
            warnings.push(format!("the device is not watched: {error}"));
        }
        warnings.extend(self.storages.iter().flat_map(Storage::warnings));
        warnings
    }

    /// Where this loader is: what [`LoaderBuilder::resume`] goes on from. A few numbers, whatever the set.
    ///
    /// What was handed out counts as consumed; what is being prepared ahead does not. Every shard has the same state when
    /// each has had the same number of batches, as in data-parallel training; at the end of an epoch whose last batches are
    /// not full on every shard, that of rank 0 is the one to keep.
    pub fn state(&self) -> LoaderState {
        let settings = &self.plan.settings.loader;
        let (epoch, batches) = self.lock().at;
        let over = batches > 0 && batches == self.order.extent(epoch).batches();
        let (epoch, position) = match over {
            true => (epoch.saturating_add(1), 0),
            false => (epoch, self.order.consumed(epoch, batches)),
        };
        LoaderState {
            seed: settings.seed,
            shuffle: settings.shuffle,
            epoch,
            position,
            samples: self.source.len(),
            shuffle_window: settings.shuffle_window,
            files: self.order.files(),
        }
    }

    /// What ends this loader from another thread.
    pub fn stopper(&self) -> Stopper {
        self.engine.stopper()
    }

    /// What has been done so far.
    pub fn stats(&self) -> Stats {
        match self.check_process() {
            Ok(()) => Stats { left_out: self.source.left_out(), ..self.observed().stats() },
            Err(_) => Stats::default(),
        }
    }

    /// Warns that the consumer waits while it holds all batches.
    fn tell_held(&self, batches: usize) {
        let text = format!(
            "next() waits while {batches} batches are held, and there is room for no more; drop one, or set loader.prefetch to \
             at least {batches}"
        );
        if self.held.set(text.clone()).is_ok() {
            eprintln!("feedwater: {text}");
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The handles of a source, each once: parts of a mixture may share one.
fn storages_of(source: &dyn Source) -> Arc<[Storage]> {
    let mut distinct: Vec<Storage> = Vec::new();
    for storage in source.storages() {
        if !distinct.iter().any(|it| it.is_same(&storage)) {
            distinct.push(storage);
        }
    }
    distinct.into()
}
