//! Threads and rings of a loader, on the host or on a device.

pub mod stop_handle;
pub mod tuning;

use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::footprint::{Footprint, Memory};
use crate::gpu::{Device, Stream, Upload};
use crate::loader::balance::RouteReport;
use crate::loader::batch::BatchMemory;
use crate::loader::controls::Controls;
use crate::loader::device;
use crate::loader::device::{
    Clocks, Decoders, DeviceMemory, DeviceSlot, Gatherer, Launcher, ObjectPool, PageWorker, Router,
    SpareSlots, Taken,
};
use crate::loader::host::{HostSlot, Worker};
use crate::loader::order::Order;
use crate::loader::sample::cache::Caches;
use crate::loader::sample::large::LargeImages;
use crate::loader::sample::prefetcher::Prefetcher;
use crate::loader::slot::BatchSlot;
use crate::loader::slot::feed::Feed;
use crate::loader::slot::pair::Pairs;
use crate::loader::stats::MemoryStats;
use crate::measure::Meters;
use crate::plan::Plan;
use crate::ring::{Consumer, ring};
use crate::source::Source;
use crate::threads::refused;
use stop_handle::StopHandle;
use tuning::Apply;

/// Time that the consumer may wait while it holds every batch, before a warning.
const PATIENCE: Duration = Duration::from_secs(3);
/// Time that the consumer may wait while it holds every batch, before a slot is added. It is not 0,
/// because another thread may be about to return a slot.
const PATIENCE_TO_ADD: Duration = Duration::from_millis(200);

/// Data that the threads of a loader share.
pub(super) struct Parts {
    pub source: Arc<dyn Source>,
    /// Prefetcher of the same source, if its samples are prefetched.
    pub prefetcher: Option<Arc<Prefetcher>>,
    pub plan: Arc<Plan>,
    pub meters: Arc<Meters>,
    pub caches: Arc<Caches>,
    pub controls: Arc<Controls>,
    pub large: Arc<LargeImages>,
    pub order: Order,
    pub start_epoch: u32,
    pub epochs: Option<u32>,
}

/// Running loader on the host or on a device. Dropping it stops and joins all threads.
pub(super) enum Engine {
    Host(Running<HostSlot>),
    Device(Running<DeviceSlot>, OnDevice),
}

/// Device resources of a loader, without its ring of batches.
pub(super) struct OnDevice {
    memory: DeviceMemory,
    router: Arc<Router>,
    decoders: Arc<Decoders>,
    clocks: Arc<Clocks>,
    spare: SpareSlots,
}

/// One ring of batches with the threads that fill it.
pub(super) struct Running<S: BatchSlot> {
    feed: Arc<Feed<S>>,
    consumer: Consumer<S>,
    controls: Arc<Controls>,
    large: Arc<LargeImages>,
    /// Number of slots of the ring.
    slots: usize,
    threads: Vec<JoinHandle<()>>,
}

impl Engine {
    /// Allocates host memory and starts the workers.
    pub fn on_host(parts: &Parts) -> Result<Self> {
        let slots = (0..parts.plan.slots()).map(|_| HostSlot::new(&parts.plan));
        let slots = slots.collect::<Result<_>>()?;
        let mut running = Running::new(parts, slots);
        for number in 0..parts.plan.workers.most {
            let Parts { source, plan, meters, caches, .. } = parts;
            let (source, plan) = (source.clone(), plan.clone());
            let name = format!("feedwater-{number}");
            let large = parts.large.clone();
            let worker = Worker::new(source, plan, meters.thread(&name), caches.clone(), large);
            let controls = parts.controls.clone();
            running.spawn(name, move |feed| {
                worker.run(feed, &controls.gate, number);
                Ok(())
            })?;
        }
        Ok(Engine::Host(running))
    }

    /// Allocates all device memory, compiles the kernels and starts the threads.
    pub fn on_device(
        parts: &Parts,
        device: &Arc<Device>,
        consumer: Option<Arc<Stream>>,
    ) -> Result<Self> {
        let clocks = Arc::new(Clocks::new(device.clone(), parts.meters.clone()));
        let Taken {
            memory,
            stream,
            kernels,
            scratch,
            slots,
            pages,
            blocks,
            masks,
            mixer,
            uploads,
            router,
            decoders,
            groups,
            spare,
        } = Taken::new(&parts.plan, device, consumer, &clocks)?;
        let mut running = Running::new(parts, slots);
        let (producer, pages) = ring(pages);
        let Parts { source, plan, meters, caches, .. } = parts;
        let parts_of = |name: &str| device::Parts {
            source: source.clone(),
            plan: plan.clone(),
            meter: meters.thread(name),
            caches: caches.clone(),
            controls: parts.controls.clone(),
            large: parts.large.clone(),
            router: router.clone(),
            decoders: decoders.clone(),
            uploads: uploads.clone(),
            clocks: clocks.clone(),
        };

        let mut gatherers = Vec::new();
        for (route, decoder) in groups {
            let (sender, waiting) = mpsc::channel();
            gatherers.push((route, sender));
            let stream = Stream::new(device)?;
            let name = "feedwater-jpeg";
            let gatherer = Gatherer::new(parts_of(name), stream, (route, decoder))?;
            let producer = producer.clone();
            running.spawn(name.into(), move |_| gatherer.run(&waiting, producer))?;
        }
        for number in 0..parts.plan.workers.most {
            let stream = Stream::new(device)?;
            let name = format!("feedwater-{number}");
            let worker = PageWorker::new(parts_of(&name), stream, gatherers.clone())?;
            let producer = producer.clone();
            running.spawn(name, move |feed| worker.run(feed, &producer, number))?;
        }
        drop((producer, gatherers));
        let name = "feedwater-launch";
        let launcher =
            Launcher::new(parts_of(name), stream, kernels, scratch, blocks, (masks, mixer))?;
        let uploads = Closing(uploads);
        running.spawn(name.into(), move |feed| {
            let launched = launcher.run(feed, &pages);
            if let Err(error) = &launched {
                // Report the error before closing the uploads. Otherwise threads that wait for
                // uploads would report another error first.
                feed.fail(error.clone());
            }
            drop(uploads);
            launched
        })?;
        Ok(Engine::Device(running, OnDevice { memory, router, decoders, clocks, spare }))
    }

    /// Waits for the next batch until `deadline`. If all slots have been in use for some time,
    /// calls `held` with the number of batches in use. The time is 3 s, or less if slots may be
    /// added.
    pub fn next_until(
        &self,
        deadline: Option<Instant>,
        adds_slots: bool,
        held: impl FnOnce(usize),
    ) -> Poll<Option<Result<BatchMemory>>> {
        match self {
            Engine::Host(running) => {
                let patience = running.patience(adds_slots);
                let next = running.consumer.next_until(deadline, patience, held);
                next.map(|next| next.map(|slot| slot.map(BatchMemory::Host)))
            }
            Engine::Device(running, ..) => {
                let patience = running.patience(adds_slots);
                let next = running.consumer.next_until(deadline, patience, held);
                next.map(|next| next.map(|slot| slot.map(BatchMemory::Device)))
            }
        }
    }

    /// Adds a slot to the ring, whose slots are all in use. Returns the number of this slot among
    /// the added ones, or 0 if a slot that tuning had withheld is used instead.
    ///
    /// # Errors
    /// [`Error::Memory`] and [`Error::Budget`] if a limit or the available memory is too small.
    pub fn add_slot(&self, plan: &Plan) -> Result<usize> {
        match self {
            Engine::Host(running) => running.add(plan, || HostSlot::new(plan)),
            Engine::Device(running, on_device) => running.add(plan, || on_device.spare.slot(plan)),
        }
    }

    /// Ends the loader with an error.
    pub fn fail(&self, error: Error) {
        match self {
            Engine::Host(running) => running.feed.fail(error),
            Engine::Device(running, ..) => running.feed.fail(error),
        }
    }

    /// Number of batches that are ready.
    pub fn ready(&self) -> usize {
        match self {
            Engine::Host(running) => running.consumer.ready(),
            Engine::Device(running, ..) => running.consumer.ready(),
        }
    }

    /// Skips the rest of all epochs before epoch `epoch`.
    pub fn want_epoch(&self, epoch: u32) {
        match self {
            Engine::Host(running) => running.feed.want_epoch(epoch),
            Engine::Device(running, ..) => running.feed.want_epoch(epoch),
        }
    }

    /// Returns a function that applies a choice to this engine.
    pub fn apply(&self) -> Apply {
        match self {
            Engine::Host(running) => running.apply(),
            Engine::Device(running, ..) => running.apply(),
        }
    }

    /// Stops handing out jobs.
    pub fn stop(&self) {
        match self {
            Engine::Host(running) => running.feed.stop(),
            Engine::Device(running, ..) => running.feed.stop(),
        }
    }

    /// Returns a handle that ends the loader with an error, from any thread. The handle does not
    /// keep the engine alive.
    pub fn stop_handle(&self) -> StopHandle {
        match self {
            Engine::Host(running) => running.stop_handle(),
            Engine::Device(running, ..) => running.stop_handle(),
        }
    }

    /// Known problems of the libraries in use, and a warning if samples needed memory that was not
    /// planned.
    pub fn warnings(&self) -> Vec<String> {
        let (mut warnings, large) = match self {
            Engine::Host(running) => (Vec::new(), &running.large),
            Engine::Device(running, on_device) => (on_device.decoders.warnings(), &running.large),
        };
        warnings.extend(large.warning());
        warnings
    }

    /// Statistics of each decode route.
    pub fn routes(&self) -> Vec<RouteReport> {
        match self {
            Engine::Host(_) => Vec::new(),
            Engine::Device(_, on_device) => on_device.router.report(),
        }
    }

    /// Collects the timings of finished device work.
    pub fn harvest(&self) {
        if let Engine::Device(_, on_device) = self {
            on_device.clocks.harvest();
        }
    }

    /// Memory in bytes, predicted and measured.
    pub fn memory(&self, footprint: &Footprint) -> MemoryStats {
        let predicted = |memory| footprint.total_bytes(memory);
        let stats = MemoryStats {
            host_bytes_predicted: predicted(Memory::Host),
            pinned_bytes_predicted: predicted(Memory::Pinned),
            device_bytes_predicted: predicted(Memory::Device),
            ..MemoryStats::default()
        };
        match self {
            Engine::Host(_) => stats,
            Engine::Device(_, OnDevice { memory, decoders, .. }) => MemoryStats {
                pinned_bytes_peak: memory.pinned.peak_bytes(),
                device_bytes_peak: memory.device.peak_bytes(),
                device_bytes_of_driver: memory.driver_bytes,
                bytes_withheld: memory.pinned.withheld_bytes() + memory.device.withheld_bytes(),
                nvjpeg_waits: decoders.memory_waits(),
                ..stats
            },
        }
    }
}

impl<S: BatchSlot + 'static> Running<S> {
    fn new(parts: &Parts, slots: Vec<S>) -> Self {
        let (all, controls) = (slots.len(), parts.controls.clone());
        let large = parts.large.clone();
        let (producer, consumer) = ring(slots);
        let (order, prefetcher) = (parts.order.clone(), parts.prefetcher.clone());
        let epochs = (parts.start_epoch, parts.epochs);
        let (pairs, meters) = (Pairs::new(&parts.plan), parts.meters.clone());
        let pairs = (pairs, parts.plan.settings.loader.ignore_label);
        let feed = Feed::new(order, epochs, producer, pairs, prefetcher, meters);
        Self { feed: Arc::new(feed), consumer, controls, large, slots: all, threads: Vec::new() }
    }

    /// Time that the consumer may wait while all slots are in use. It is 0 if a slot was added and
    /// no slot was returned since then, because the consumer evidently keeps all slots.
    fn patience(&self, adds_slots: bool) -> Duration {
        match (adds_slots, self.consumer.any_returned()) {
            (false, _) => PATIENCE,
            (true, true) => PATIENCE_TO_ADD,
            (true, false) => Duration::ZERO,
        }
    }

    fn add(&self, plan: &Plan, slot: impl FnOnce() -> Result<S>) -> Result<usize> {
        if self.consumer.lend_withheld() {
            return Ok(0);
        }
        let added = self.consumer.added() + 1;
        plan.check_slot(added)?;
        self.consumer.add(slot()?);
        Ok(added)
    }

    fn apply(&self) -> Apply {
        let (feed, controls, slots) = (self.feed.clone(), self.controls.clone(), self.slots);
        Box::new(move |choice| {
            controls.gate.set(choice.workers);
            controls.set_offload(choice.offload);
            feed.withhold(slots.saturating_sub(choice.slots()));
        })
    }

    fn stop_handle(&self) -> StopHandle {
        let feed = Arc::downgrade(&self.feed);
        StopHandle(Arc::new(move || {
            if let Some(feed) = feed.upgrade() {
                feed.fail(Error::Stopped);
            }
        }))
    }

    /// Starts a thread. If the thread returns an error or panics, the loader ends with an error
    /// instead of hanging.
    fn spawn(
        &mut self,
        name: String,
        run: impl FnOnce(&Feed<S>) -> Result<()> + Send + 'static,
    ) -> Result<()>
    where
        S::Cell: 'static,
    {
        let feed = self.feed.clone();
        let guarded = move || {
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&feed)));
            match caught {
                Ok(Ok(())) => {}
                Ok(Err(error)) => feed.fail(error),
                Err(panic) => {
                    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
                    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
                    let problem = format!("a loader thread panicked: {}", text.unwrap_or_default());
                    feed.fail(Error::Internal { problem });
                }
            }
        };
        let way_out = "lower loader.num_workers";
        let thread = std::thread::Builder::new().name(name.clone()).spawn(guarded);
        let thread = thread.map_err(|error| refused(&name, &error, way_out))?;
        self.threads.push(thread);
        Ok(())
    }
}

impl<S: BatchSlot> Drop for Running<S> {
    fn drop(&mut self) {
        self.feed.stop();
        self.consumer.close();
        self.controls.gate.close();
        self.large.close();
        for thread in self.threads.drain(..) {
            // The panic of a worker was caught and reported.
            let _ = thread.join();
        }
    }
}

/// Closes the pool when it is dropped, even by a panic, so no thread waits for upload buffers that
/// the launcher holds.
struct Closing(Arc<ObjectPool<Upload>>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}
