//! Measurements of a loader, for reports.

use std::io::{self, ErrorKind, Write};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::footprint::{Available, Memory};
use crate::gpu::nvml::Nvml;
use crate::measure::{Data, DeviceReading, MemoryProfile, Profile, RouteCounts, Setup, Snapshot};
use crate::plan::Route;
use feedwater_insight::explain::{Options, Report, explain};

use super::Loader;

/// Guard of a named part of the consumer's step (the consumer's work on one batch). The part ends
/// when the guard is dropped.
#[must_use = "the span ends when this is dropped"]
pub struct ConsumerSpan<'a> {
    loader: &'a Loader,
    name: &'a str,
    begin: Instant,
}

impl Drop for ConsumerSpan<'_> {
    fn drop(&mut self) {
        self.loader.add_span(self.name, self.begin.elapsed());
    }
}

impl Loader {
    /// Snapshot of all measurements since the loader was built.
    pub fn measured(&self) -> Snapshot {
        if self.check_process().is_err() {
            return Snapshot::default();
        }
        self.engine.harvest();
        let routes = self.engine.routes().into_iter().map(|lane| RouteCounts {
            route: lane.route.name(),
            images: lane.images,
            busy: lane.busy * lane.place_seconds,
            places: lane.place_seconds,
        });
        Snapshot { routes: routes.collect(), ..self.meters.snapshot() }
    }

    /// Measurements since the loader was built, with the settings and the data.
    pub fn profile(&self) -> Profile {
        self.profile_since(&Snapshot::default())
    }

    /// Measurements since an earlier snapshot from [`measured`](Self::measured), for example to
    /// leave out the start of a run. Counts, times and shares cover this interval. The following
    /// values cover the time since the loader was built:
    ///
    /// * [`Profile::memory`], the peak memory,
    /// * the maximum of each [`Latency`](crate::measure::Latency),
    /// * the images in [`Data::images`], which are examples of the data.
    pub fn profile_since(&self, earlier: &Snapshot) -> Profile {
        let measured = self.measured().since(earlier);
        let memory = self.engine.memory(&self.plan.footprint);
        Profile {
            memory: MemoryProfile {
                pinned_peak: memory.pinned_bytes_peak,
                device_peak: memory.device_bytes_peak,
                device_of_driver: memory.device_bytes_of_driver,
            },
            ..measured.profile(self.setup(), self.data())
        }
    }

    /// Reads the current utilization of the device from NVML. The values include all processes. The
    /// call blocks this thread for about 40 ms, because NVML measures PCIe traffic for 20 ms in
    /// each direction. [`watch_device`](crate::loader::LoaderBuilder::watch_device) reads
    /// periodically on a separate thread.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without NVML or if batches are produced on the CPU. [`Error::Device`]
    /// if the driver fails.
    pub fn device_utilisation(&self) -> Result<DeviceReading> {
        let Some(device) = &self.gpu else {
            return Err(Error::unavailable("a device to watch", "batches are produced on the CPU"));
        };
        Nvml::open(device.runtime())?.monitor(device)?.read()
    }

    /// Writes the latest spans of every thread, the consumer and the ring as a trace in Chrome's
    /// JSON format, for ui.perfetto.dev and chrome://tracing. Fails if tracing is off
    /// ([`LoaderBuilder::trace`](crate::loader::LoaderBuilder::trace)) or if writing to `out`
    /// fails.
    pub fn trace_json(&self, mut out: impl Write) -> io::Result<()> {
        if self.meters.spans() == 0 {
            let problem = "tracing is off; turn it on with LoaderBuilder::trace";
            return Err(io::Error::new(ErrorKind::Unsupported, problem));
        }
        self.check_process().map_err(io::Error::other)?;
        let shard = self.plan.shard;
        self.meters.write_trace(shard.rank, shard.world, &mut out)
    }

    /// Marks the beginning of the consumer's step. Call this method if the consumer does other work
    /// between two batches. Without these calls, a step is the time from receiving a batch to
    /// asking for the next one.
    pub fn step_begin(&self) {
        self.add_step(true);
    }

    /// Marks the end of the consumer's step.
    pub fn step_end(&self) {
        self.add_step(false);
    }

    /// Begins a named part of the consumer's step that is not the model itself, such as `logging`,
    /// `metrics` or `checkpoint`. The part ends when the returned guard is dropped. Reports show
    /// the part's share of the step. At most 32 names are distinguished.
    ///
    /// If the host waits for other ranks, for example in an all-reduce, name that part of the step
    /// [`sync`](crate::explain::SYNC), or end the step before it ([`step_end`](Self::step_end)).
    /// Otherwise all ranks that wait for a slow rank seem to have steps as long as those of the
    /// slow rank, and reports of several ranks cannot identify it.
    pub fn span<'a>(&'a self, name: &'a str) -> ConsumerSpan<'a> {
        ConsumerSpan { loader: self, name, begin: Instant::now() }
    }

    /// Records a named part of the consumer's step that has already ended, see
    /// [`span`](Self::span).
    pub fn add_span(&self, name: &str, took: Duration) {
        if self.check_process().is_ok() {
            self.meters.consumer_span(name, took);
        }
    }

    fn add_step(&self, begins: bool) {
        if self.check_process().is_ok() {
            self.meters.consumer_step(begins);
        }
    }

    /// Explains what limits the loop so far, which settings to change, and the predicted gains.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if fewer than two batches were delivered.
    pub fn report(&self) -> Result<Report> {
        self.check_process()?;
        Ok(explain(&self.profile(), &Options::default())?)
    }

    fn setup(&self) -> Setup {
        let (plan, settings) = (&self.plan, &self.plan.settings);
        let device = plan.device.as_ref().filter(|_| plan.uses_gpu());
        let bytes = |memory| plan.footprint.total_bytes(memory);
        let choice = self.choice();
        let on_device = choice.offload.operators as u32;
        let in_views: usize = plan.views.iter().map(|view| view.plan.steps.len()).sum();
        let largest = plan.largest_output();
        Setup {
            device: self.device.clone(),
            rank: plan.shard.rank,
            world: plan.shard.world,
            batch: plan.shape.batch as u32,
            workers: choice.workers as u32,
            prefetch: choice.prefetch as u32,
            cores: std::thread::available_parallelism().map_or(1, usize::from) as u32,
            pages: device.map(|device| device.pages as u32),
            decodes_on_device: choice.offload.decode,
            operators_on_host: (plan.steps.len() + in_views) as u32 - on_device,
            operators_on_device: on_device,
            remote: self.source.is_remote(),
            read_ahead: self.prefetcher.as_ref().map_or(0, |it| it.window() as u32),
            connections: settings.storage.connections as u32,
            prescale: settings.decode.prescale,
            decodes_floats: settings.decode.pixels.is_floats(),
            cache_encoded: settings.cache.encoded,
            cache_decoded: settings.cache.decoded,
            cache_device: device.and_then(|it| it.files).map(|it| it.device_bytes as u64),
            decodes_with_kernels: choice.offload.decode
                && device.is_some_and(|device| device.has(Route::Feedwater)),
            cache_row_index: Some(plan.row_index_bytes).filter(|&bytes| bytes > 0),
            row_index: plan.row_index.map(|it| (it.speedup, it.bytes)),
            presize: settings.cache.presize,
            width: largest.width,
            height: largest.height,
            memory_available: Available::of_process().map_or(0, |it| it.bytes),
            host_bytes: bytes(Memory::Host).saturating_add(bytes(Memory::Pinned)),
            device_bytes: bytes(Memory::Device),
            batch_bytes: plan.output_bytes() as u64,
        }
    }

    fn data(&self) -> Data {
        Data {
            source: self.source.describe(),
            samples: self.source.len(),
            epoch_samples: self.places_per_epoch(),
            ..Data::default()
        }
    }
}
