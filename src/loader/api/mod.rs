//! Public API of the loader.

pub mod builder;
pub mod epoch;
mod held;
mod look;
mod origin;
mod process;
pub mod profile;
mod reports;
pub mod resolve;
mod start;
pub mod state;
mod tuning;

use std::sync::{Arc, Mutex, MutexGuard};

use crate::error::{Error, Result, escaped};
use crate::footprint::Footprint;
use crate::gpu::Device;
use crate::loader::batch::Batch;
use crate::loader::controls::Controls;
use crate::loader::engine::Engine;
use crate::loader::engine::stop_handle::StopHandle;
use crate::loader::engine::tuning::Tuning;
use crate::loader::order::Order;
use crate::loader::sample::cache::Caches;
use crate::loader::sample::prefetcher::Prefetcher;
use crate::loader::stats::Counters;
use crate::loader::watching::watch::DeviceMonitor;
use crate::measure::Meters;
use crate::plan::Plan;
use crate::source::{Fingerprint, NO_LABEL_COLUMN, Source};
use crate::storage::Storage;
use crate::tune::Choice;

use builder::LoaderBuilder;
use held::Held;
use state::LoaderState;

/// Loads batches that are ready for the model, epoch after epoch.
///
/// Each of the following points has a test in `tests/loader/` or `tests/process/`:
///
/// * Building a loader makes the plan, checks it, allocates all memory and starts the threads. The
///   threads begin to fill batches at once.
/// * `for batch in &mut loader` is one epoch. The next `for` is the next epoch. When an epoch ends,
///   the batches of the next one are already being filled, unless the number of `epochs` is
///   reached.
/// * [`epoch`](Self::epoch) returns the iterator over the batches of an epoch, for loops that also
///   call [`stats`](Self::stats) or [`state`](Self::state). [`into_batches`](Self::into_batches)
///   owns the loader and returns the batches of all epochs, on any thread.
/// * Batches are delivered in the order of the epoch, for any number of threads.
/// * Leaving a loop early ends its epoch: prefetched batches are discarded, and the next `for`
///   begins the next epoch.
/// * If a sample fails and the policy is `stop`, the batches before it are delivered first, then
///   the error. Every later call returns the same error. All other errors end the loader in the
///   same way.
/// * [`state`](Self::state) returns the position of the consumer, at any time. Another loader can
///   resume from this position. If a loop was left early, the state is the position where that loop
///   ended, until the next loop begins.
/// * Dropping a batch returns its slot. At most `prefetch + 1` batches can be held
///   ([`Plan::slots`]). If the user holds all of them, `next` waits until another thread drops one.
///   After three seconds, a line on standard error and in [`warnings`](Self::warnings) reports the
///   number of held batches. With [`add_batches`](LoaderBuilder::add_batches), memory for more
///   batches is allocated instead, within the limits.
/// * [`peek_within`](Self::peek_within) returns a copy of the next batch without changing the
///   position.
/// * Leaking a batch removes one slot from the ring; the loader continues with the others.
/// * If the consumer panics, its batch is dropped, and the loader ends as if the loader were
///   dropped.
/// * A panic in an operator ends the loader with an error that reports the panic.
/// * The consumer may be any thread. Batches may be sent to other threads and may outlive the
///   loader.
/// * Only one loop can run over a loader at a time: a second loop does not compile.
/// * Dropping the loader, at any time, stops and joins all threads and frees all memory except that
///   of batches which are still held.
/// * `fork` copies no threads. In a child process, the parent's loader returns [`Error::Forked`]
///   instead of batches, and its counts are zero. Dropping the loader or its batches in the child
///   does nothing and frees no memory. Build loaders after `fork`.
pub struct Loader {
    /// Process id of the process that built the loader.
    process: u32,
    source: Arc<dyn Source>,
    /// Fingerprint of the source, if the source combines other sources.
    combined: Option<Fingerprint>,
    /// Checksum of the sample names, if the source does not combine other sources.
    names: Option<u32>,
    /// Distinct storage handles through which the source reads.
    storages: Arc<[Storage]>,
    plan: Arc<Plan>,
    device: String,
    /// Warnings found while the loader was built.
    warnings: Vec<String>,
    order: Order,
    counters: Arc<Counters>,
    meters: Arc<Meters>,
    caches: Arc<Caches>,
    controls: Arc<Controls>,
    /// Prefetches samples, if the source is remote.
    prefetcher: Option<Arc<Prefetcher>>,
    /// GPU on which batches are produced, if any.
    gpu: Option<Arc<Device>>,
    /// Device monitor if one was requested, or the error that prevented its start.
    watch: Option<Result<DeviceMonitor>>,
    /// Fixed configuration, used if nothing is tuned.
    fixed: Choice,
    /// Declared before `engine`, so it is dropped first, because tuning changes the engine.
    tuning: Option<Tuning>,
    engine: Arc<Engine>,
    state: Mutex<Progress>,
    /// State that is used if the consumer holds every batch.
    held: Held,
    /// Batch that was peeked at and not yet taken.
    peeked: Mutex<Option<Batch>>,
    /// Lock that a consumer holds while it takes a batch or begins an epoch, if several consumers
    /// share the loader.
    turn: Mutex<()>,
}

struct Progress {
    next_epoch: u32,
    end_epoch: Option<u32>,
    /// Epoch that was begun last, and number of its batches that were delivered.
    at: (u32, u64),
    /// Error that ended the loader.
    ended: Option<Error>,
}

impl Loader {
    /// Returns a builder for a loader of this source and chain; see [`LoaderBuilder`] for the
    /// settings.
    pub fn builder(source: impl Source + 'static, chain: crate::op::Chain) -> LoaderBuilder {
        LoaderBuilder::new(Arc::new(source), chain)
    }

    /// Plan of this loader: where each step runs, and how much memory it needs.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Predicted memory of the loader: one row for each kind of buffer.
    pub fn footprint(&self) -> &Footprint {
        &self.plan.footprint
    }

    /// Device on which batches are produced, with the reason, as one line of text.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The source.
    pub fn source(&self) -> &dyn Source {
        &*self.source
    }

    /// Names of the classes in the order of their numbers. Empty if the source has no names.
    /// [`LoaderBuilder::classes_of`] gives another loader the same numbers.
    /// [`ClassTable::new`](crate::source::ClassTable::new) creates a table from saved names.
    pub fn classes(&self) -> &[String] {
        self.source.classes()
    }

    /// Number of batches in an epoch of this shard.
    pub fn batches_per_epoch(&self) -> u64 {
        self.order.whole().batches()
    }

    /// Number of batches of the running epoch, or of the next epoch if none is running. Less than
    /// [`batches_per_epoch`](Self::batches_per_epoch) in an epoch that was resumed in the middle. 0
    /// after the last epoch.
    pub fn batches_of_this_epoch(&self) -> u64 {
        let state = self.lock();
        let (epoch, taken) = state.at;
        let batches = self.order.extent(epoch).batches();
        let epoch = if taken > 0 && taken >= batches { epoch.saturating_add(1) } else { epoch };
        match state.end_epoch {
            Some(end) if epoch >= end => 0,
            _ => self.order.extent(epoch).batches(),
        }
    }

    /// Number of samples in all batches of an epoch of this shard, including the padding of the
    /// last batch.
    pub fn places_per_epoch(&self) -> u64 {
        self.order.whole().places()
    }

    /// Warnings for users, each with a remedy: problems with the libraries in use or requested,
    /// likely mistakes in the source ([`Notes::warnings`](crate::source::Notes::warnings)), a
    /// source that is slow in the requested order, a consumer that waits while it holds all
    /// batches, a shard that only a launcher's variables define, errors of the disk cache for files
    /// behind URLs, and the number of failed samples.
    pub fn warnings(&self) -> Vec<String> {
        self.notices().into_iter().chain(self.failures()).collect()
    }

    /// [`warnings`](Self::warnings) without [`failures`](Self::failures). The text of a warning
    /// does not change between calls.
    #[doc(hidden)]
    pub fn notices(&self) -> Vec<String> {
        let loader = &self.plan.settings.loader;
        let anywhere = loader.shuffle && loader.shuffle_window.is_none();
        let slow = anywhere.then(|| self.source.slow_shuffled());
        let mut warnings = self.source.warnings();
        if !self.plan.settings.columns.is_empty() {
            // The columns may hold the targets, so a missing label is no mistake.
            warnings.retain(|warning| !warning.contains(NO_LABEL_COLUMN));
        }
        warnings.extend(self.warnings.iter().cloned());
        warnings.extend(self.held.warning());
        if self.check_process().is_err() {
            return warnings;
        }
        let dropped = self.plan.dropped_routes.iter();
        warnings.extend(
            dropped.map(|(route, why)| format!("the route {} is not used: {why}", route.name())),
        );
        warnings.extend(self.plan.shard_of_launcher());
        warnings.extend(self.engine.warnings());
        warnings.extend(self.counters.clipping());
        warnings.extend(slow.flatten());
        warnings.extend(self.plan.repeated_pairs());
        if let Some(Err(error)) = &self.watch {
            warnings.push(format!("the utilization of the device is not measured: {error}"));
        }
        warnings.extend(self.storages.iter().flat_map(Storage::warnings));
        // Warnings contain names of classes and files, which must be escaped.
        warnings.iter().map(|it| escaped(it).into_owned()).collect()
    }

    /// Warning about failed samples, with their number so far. `None` if no sample failed. The same
    /// warning is the last of the [`warnings`](Self::warnings).
    pub fn failures(&self) -> Option<String> {
        self.check_process().ok()?;
        self.counters.failures(self.plan.settings.loader.on_error)
    }

    /// Position of this loader, from which [`LoaderBuilder::resume`] continues. The size of the
    /// state does not depend on the data set.
    ///
    /// Delivered batches count as consumed; prefetched batches do not. In data-parallel training,
    /// all shards have the same state after the same number of batches. At the end of an epoch
    /// whose last batches are not full on every shard, save the state of rank 0.
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
            repeats: (settings.repeats > 1).then_some(settings.repeats),
            files: self.order.files(),
            classes: state::classes_checksum(self.source.classes()),
            combined: self.combined,
            source: self.names,
        }
    }

    /// Whether an epoch has begun and some but not all of its batches were taken.
    pub fn is_in_an_epoch(&self) -> bool {
        let (epoch, taken) = self.lock().at;
        (1..self.order.extent(epoch).batches()).contains(&taken)
    }

    /// Handle that ends this loader from another thread.
    pub fn stop_handle(&self) -> StopHandle {
        self.engine.stop_handle()
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
