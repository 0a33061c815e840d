//! The threads and rings behind a loader, on the host or on a device.

use std::sync::Arc;
use std::thread::JoinHandle;

use crate::error::{Error, Result};
use crate::footprint::{Footprint, Memory};
use crate::gpu::nvjpeg::{self, Jpeg, PageDecoder};
use crate::gpu::{Device, DevicePool, Kernel, PinnedPool, Staged, Stream, TensorSlot, Upload};
use crate::plan::{DevicePlan, LAUNCH_BLOCKS, Place, Plan, rows};
use crate::ring::{Consumer, ring};
use crate::source::Source;

use super::batch::{BatchMemory, BatchSlot};
use super::device::{DevicePage, DeviceSlot, Launcher, PageWorker, Pixels};
use super::feed::Feed;
use super::host::{HostSlot, Worker};
use super::order::Order;
use super::stats::{Counters, MemoryStats};

/// What every thread needs.
pub(super) struct Parts {
    pub source: Arc<dyn Source>,
    pub plan: Arc<Plan>,
    pub counters: Arc<Counters>,
    pub order: Order,
    pub start_epoch: u32,
    pub epochs: Option<u32>,
}

/// Dropping it stops and joins all threads.
pub(super) enum Engine {
    Host(Running<HostSlot>),
    Device(Running<DeviceSlot>, DeviceMemory),
}

/// One ring of batches with the threads that fill it.
pub(super) struct Running<S: BatchSlot> {
    feed: Arc<Feed<S>>,
    consumer: Consumer<S>,
    threads: Vec<JoinHandle<()>>,
}

/// The pools, for their figures.
pub(super) struct DeviceMemory {
    device: DevicePool,
    pinned: PinnedPool,
    driver_bytes: u64,
}

impl Engine {
    /// Takes host memory and starts the workers.
    pub fn on_host(parts: &Parts) -> Result<Self> {
        let (batch, sample_bytes) = (parts.plan.shape.batch, parts.plan.shape.sample_bytes());
        let slots = (0..parts.plan.slots()).map(|_| HostSlot::new(batch, sample_bytes)).collect();
        let mut running = Running::new(parts, slots);
        for number in 0..parts.plan.settings.loader.workers {
            let Parts { source, plan, counters, .. } = parts;
            let worker = Worker::new(source.clone(), plan.clone(), counters.clone());
            running.spawn(format!("feedwater-{number}"), move |feed| {
                worker.run(feed);
                Ok(())
            })?;
        }
        Ok(Engine::Host(running))
    }

    /// Takes all memory of the device, compiles the kernel and starts workers and launcher.
    pub fn on_device(
        parts: &Parts,
        device: &Arc<Device>,
        consumer: Option<Arc<Stream>>,
    ) -> Result<Self> {
        let Parts { source, plan, counters, .. } = parts;
        let Some(on_device) = &plan.device else {
            return Err(Error::Internal { problem: "a plan without a device".into() });
        };
        let (free_before, _) = device.memory_bytes()?;
        let device_pool = DevicePool::take(device, &plan.footprint)?;
        let pinned_pool = PinnedPool::take(device, &plan.footprint)?;
        let stream = Arc::new(Stream::new(device)?);
        let consumer = match consumer {
            Some(stream) => stream,
            None => Arc::new(Stream::new(device)?),
        };
        let pools = Pools { device: &device_pool, pinned: &pinned_pool };
        let kernel = &on_device.kernel;
        let kernel = Kernel::load(device, &kernel.source, kernel.entry(), kernel.sample_bytes)?;
        let jpeg = match plan.decode {
            Place::Gpu => Some(Jpeg::open(
                device,
                &nvjpeg::Memory {
                    device: device_pool.clone(),
                    pinned: pinned_pool.clone(),
                    row: rows::NVJPEG.into(),
                },
            )?),
            Place::Cpu => None,
        };
        let slots = (0..plan.slots())
            .map(|_| {
                let buffer = pools.device.buffer(rows::OUTPUT_SLOTS, plan.shape.bytes())?;
                let tensor = TensorSlot::new(buffer, stream.clone(), consumer.clone())?;
                Ok(DeviceSlot::new(tensor, plan.shape.sample_bytes()))
            })
            .collect::<Result<Vec<_>>>()?;
        let pages = (0..on_device.pages)
            .map(|_| pools.page(plan, on_device, jpeg.as_ref()))
            .collect::<Result<Vec<_>>>()?;
        let blocks = (0..LAUNCH_BLOCKS)
            .map(|_| pools.staged(rows::LAUNCHES, on_device.launch_bytes()))
            .collect::<Result<Vec<_>>>()?;
        let (free_after, _) = device.memory_bytes()?;
        let taken = free_before.saturating_sub(free_after);
        let driver_bytes = taken.saturating_sub(device_pool.capacity_bytes());

        let mut running = Running::new(parts, slots);
        let (producer, pages) = ring(pages);
        let (source, plan, counters) = (source.clone(), plan.clone(), counters.clone());
        for number in 0..plan.settings.loader.workers {
            let jpeg = jpeg.clone();
            let worker = PageWorker::new(source.clone(), plan.clone(), counters.clone(), jpeg);
            let producer = producer.clone();
            running
                .spawn(format!("feedwater-{number}"), move |feed| worker.run(feed, &producer))?;
        }
        drop(producer);
        let launcher = Launcher::new(source, plan, counters, stream, kernel, blocks);
        running.spawn("feedwater-launch".into(), move |feed| launcher.run(feed, &pages))?;
        let memory = DeviceMemory { device: device_pool, pinned: pinned_pool, driver_bytes };
        Ok(Engine::Device(running, memory))
    }

    /// The next batch; waits for it.
    pub fn next(&self) -> Option<Result<BatchMemory>> {
        Some(match self {
            Engine::Host(running) => running.consumer.next()?.map(BatchMemory::Host),
            Engine::Device(running, _) => running.consumer.next()?.map(BatchMemory::Device),
        })
    }

    /// Leaves out what is left of epochs before this one.
    pub fn want_epoch(&self, epoch: u32) {
        match self {
            Engine::Host(running) => running.feed.want_epoch(epoch),
            Engine::Device(running, _) => running.feed.want_epoch(epoch),
        }
    }

    /// Hands out nothing more.
    pub fn stop(&self) {
        match self {
            Engine::Host(running) => running.feed.stop(),
            Engine::Device(running, _) => running.feed.stop(),
        }
    }

    /// Bytes, predicted and measured.
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
            Engine::Device(_, memory) => MemoryStats {
                pinned_bytes_peak: memory.pinned.peak_bytes(),
                device_bytes_peak: memory.device.peak_bytes(),
                device_bytes_of_driver: memory.driver_bytes,
                ..stats
            },
        }
    }
}

impl<S: BatchSlot + 'static> Running<S> {
    fn new(parts: &Parts, slots: Vec<S>) -> Self {
        let (producer, consumer) = ring(slots);
        let feed = Feed::new(parts.order, parts.start_epoch, parts.epochs, producer);
        Self { feed: Arc::new(feed), consumer, threads: Vec::new() }
    }

    /// Starts a thread. An error or a panic in it ends the loader with an error instead of a hang.
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
        let thread = std::thread::Builder::new().name(name).spawn(guarded).map_err(|error| {
            Error::Internal { problem: format!("cannot start a thread: {error}") }
        })?;
        self.threads.push(thread);
        Ok(())
    }
}

impl<S: BatchSlot> Drop for Running<S> {
    fn drop(&mut self) {
        self.feed.stop();
        self.consumer.close();
        for thread in self.threads.drain(..) {
            // A worker's panic was caught and told; joining cannot tell more.
            let _ = thread.join();
        }
    }
}

/// The two pools.
struct Pools<'a> {
    device: &'a DevicePool,
    pinned: &'a PinnedPool,
}

impl Pools<'_> {
    fn staged(&self, row: &str, bytes: usize) -> Result<Staged> {
        Staged::new(self.pinned.buffer(row, bytes)?, self.device.buffer(row, bytes)?)
    }

    fn page(
        &self,
        plan: &Plan,
        on_device: &DevicePlan,
        jpeg: Option<&Arc<Jpeg>>,
    ) -> Result<DevicePage> {
        let bytes = on_device.pixels_bytes;
        let pixels = match jpeg {
            Some(_) => Pixels::Device(self.device.buffer(rows::PIXELS, bytes)?),
            None => Pixels::Staged(self.staged(rows::PIXELS, bytes)?),
        };
        let finished = self.pinned.buffer(rows::FINISHED, plan.shape.sample_bytes())?;
        let (device_bytes, pinned_bytes) =
            (on_device.nvjpeg_device_bytes, on_device.nvjpeg_pinned_bytes);
        let decoder =
            jpeg.map(|jpeg| PageDecoder::new(jpeg, device_bytes, pinned_bytes)).transpose()?;
        Ok(DevicePage::new(decoder, pixels, Upload::new(finished)?))
    }
}
