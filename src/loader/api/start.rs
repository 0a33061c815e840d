//! Starting a loader: checks, memory and threads.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use super::builder::LoaderBuilder;
use super::held::Held;
use super::resolve::Resolved;
use super::state::LoaderState;
use super::{Loader, Progress};
use crate::error::{Error, Result};
use crate::gpu::nvtx::Nvtx;
use crate::loader::controls::Controls;
use crate::loader::engine::tuning::{self, Tuning};
use crate::loader::engine::{Engine, Parts};
use crate::loader::order::Order;
use crate::loader::sample::cache::Caches;
use crate::loader::sample::large::LargeImages;
use crate::loader::sample::prefetcher::Prefetcher;
use crate::loader::stats::Counters;
use crate::loader::watching::watch::DeviceMonitor;
use crate::measure::{Meters, Stage};
use crate::plan::{LastBatch, Shuffle};
use crate::source::{Source, names_checksum};
use crate::storage::Storage;

impl Loader {
    pub(super) fn start(builder: LoaderBuilder) -> Result<Self> {
        let Resolved { plan, line, device } = builder.resolve()?;
        plan.check_memory()?;
        let plan = Arc::new(plan);
        let file_ends = match plan.shuffle {
            Shuffle::Windows(_) => builder.source.file_ends(),
            Shuffle::Source | Shuffle::Whole => Vec::new(),
        };
        let samples = builder.source.len();
        let combined = builder.source.fingerprint();
        let names = combined.is_none().then(|| names_checksum(&*builder.source));
        let mut order = Order::new(samples, &plan.settings.loader, &plan.shard, &file_ends)?;
        let positions = builder.positions.clone().unwrap_or(0..samples);
        if positions.is_empty() || positions.end > samples {
            let Range { start, end } = positions;
            let problem = format!("are {start} to {end}, but must lie within 0 to {samples}");
            return Err(Error::config("positions", problem));
        }
        let used = positions.end - positions.start;
        order = order.within(positions);
        if let Some(state) = &builder.resumed {
            state.check(samples, order.files(), combined.as_ref(), builder.source.classes())?;
            order = order.begin_at(state.epoch, state.position);
        }
        let loader = &plan.settings.loader;
        let world = plan.shard.world;
        // Every shard fails with this error, so no rank waits for the others.
        if loader.last_batch == LastBatch::Partial && used < world {
            let problem = format!(
                "is partial, but there are only {used} samples, so some of {world} shards would \
                 be empty; use fewer shards, or set loader.last_batch to pad"
            );
            return Err(Error::config("loader.last_batch", problem));
        }
        if order.whole().batches() == 0 {
            return Err(Error::config(
                "loader.batch_size",
                format!(
                    "is {}, but this shard has {} samples and the last batch is dropped, so there are no batches; \
                     lower batch_size, or set loader.last_batch to partial or pad",
                    loader.batch_size,
                    order.whole().own()
                ),
            ));
        }
        if plan.settings.cache.presize.is_some() && builder.source.canvas(0).size.is_some() {
            let problem = "does not work with annotations, whose coordinates refer to the original images; remove it";
            return Err(Error::config("cache.presize", problem));
        }
        let mut watching = builder.watching;
        let mut warnings: Vec<String> =
            builder.resumed.iter().filter_map(|state| state.warning(names)).collect();
        warnings.extend(builder.resumed.as_ref().and_then(|state| rest_warning(&order, state)));
        if builder.nvtx {
            match Nvtx::open() {
                Ok(nvtx) => watching.marker = Some(nvtx),
                Err(error) => warnings.push(format!("no NVTX ranges: {error}")),
            }
        }
        if let Some(warning) = builder.runtime.cache_warning().filter(|_| plan.uses_gpu()) {
            let known =
                storages_of(&*builder.source).iter().any(|it| it.warnings().contains(&warning));
            warnings.extend((!known).then_some(warning));
        }
        let meters = Arc::new(Meters::watched(plan.slots(), watching));
        meters.thread("feedwater-list").add_time(Stage::List, builder.opened_in, 0);
        let counters = Arc::new(Counters::new(meters.clone(), &plan.settings.columns));
        let caches = Arc::new(Caches::open(
            &plan.settings.cache,
            plan.row_index_bytes,
            plan.device.as_ref().and_then(|device| device.files),
            &*builder.source,
            plan.reads_fields,
        ));
        let end_epoch = builder.epochs.map(|epochs| builder.start_epoch.saturating_add(epochs));
        let space = tuning::space(&plan);
        let first = space.first();
        let prefetcher = plan.ahead.map(|(most, limit)| {
            let window = (most, plan.settings.loader.tune);
            let source = builder.source.clone();
            Arc::new(Prefetcher::new(
                source,
                order.clone(),
                end_epoch,
                window,
                (limit, plan.reads_fields),
                caches.clone(),
            ))
        });
        let controls = Arc::new(Controls::new(first.workers, first.offload));
        let parts = Parts {
            source: match &prefetcher {
                Some(prefetcher) => prefetcher.clone(),
                None => builder.source.clone(),
            },
            prefetcher: prefetcher.clone(),
            plan: plan.clone(),
            meters: meters.clone(),
            caches: caches.clone(),
            controls: controls.clone(),
            large: Arc::new(LargeImages::of(&plan.room)),
            order: order.clone(),
            start_epoch: builder.start_epoch,
            epochs: builder.epochs,
        };
        let gpu = device.filter(|_| plan.uses_gpu());
        let engine = match (&gpu, plan.uses_gpu()) {
            (Some(device), true) => Engine::on_device(&parts, device, builder.consumer)?,
            (None, true) => {
                let reason = "the plan needs a GPU, and this machine has none";
                return Err(Error::unavailable("a gpu", reason));
            }
            (_, false) => Engine::on_host(&parts)?,
        };
        engine.apply()(first);
        let start = || Tuning::start(space.clone(), meters.clone(), engine.apply());
        let tuning = space.is_free().then(start);
        let tuning = tuning.transpose()?;
        let watch = gpu.as_ref().zip(builder.watch_device);
        let watch =
            watch.map(|(device, period)| DeviceMonitor::new(device, period, meters.clone()));
        let at = (builder.start_epoch, 0);
        let state = Progress { next_epoch: builder.start_epoch, end_epoch, at, ended: None };
        Ok(Self {
            process: std::process::id(),
            combined,
            names,
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
            prefetcher,
            gpu,
            watch,
            fixed: first,
            tuning,
            engine: Arc::new(engine),
            state: Mutex::new(state),
            held: Held::new(builder.add_batches),
            peeked: Mutex::new(None),
            turn: Mutex::new(()),
        })
    }
}

/// Warning if the rest of a resumed epoch fills no batch, although an epoch leaves out fewer
/// samples than this rest has. The first loop is then empty.
fn rest_warning(order: &Order, state: &LoaderState) -> Option<String> {
    let rest = order.extent(state.epoch);
    (rest.batches() == 0 && rest.own() > order.whole().left_over()).then(|| {
        format!(
            "the {} samples that are left of epoch {} on this shard do not fill a batch, so the \
             next loop is empty; resume with the batch size with which the state was saved, or \
             set loader.last_batch to partial",
            rest.own(),
            state.epoch
        )
    })
}

/// Distinct storage handles of a source. Parts of a mixture may share one handle.
fn storages_of(source: &dyn Source) -> Arc<[Storage]> {
    let mut distinct: Vec<Storage> = Vec::new();
    for storage in source.storages() {
        if !distinct.iter().any(|it| it.is_same(&storage)) {
            distinct.push(storage);
        }
    }
    distinct.into()
}
