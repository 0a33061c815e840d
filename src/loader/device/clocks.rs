//! Timing of work on the device.

use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Result;
use crate::gpu::{Device, Stopwatch};
use crate::measure::{Meters, Stage};
use crate::plan::Route;

/// All stopwatches of a loader, which time spans of work on the device. Each thread has its own
/// stopwatch for each kind of work. The times of all stopwatches of one kind are summed.
pub(in crate::loader) struct Clocks {
    device: Arc<Device>,
    meters: Arc<Meters>,
    all: Mutex<Vec<Arc<Stopwatch>>>,
}

/// Maximum number of unfinished spans (timed pieces of device work) per thread and kind of work.
/// While a worker has more unfinished work, it times no further spans. This changes only the number
/// of measurements.
const SPANS: usize = 4;

/// Maximum number of unfinished spans (timed waits) of the consumer, per slot of the ring. The
/// number is sufficient for a consumer that is several batches ahead of its stream. With a smaller
/// number, the waits of a busy stream would not be timed. These waits are short, so the waiting
/// time that is extrapolated from the other waits would be too long.
const SPANS_PER_SLOT: usize = 4;

impl Clocks {
    pub fn new(device: Arc<Device>, meters: Arc<Meters>) -> Self {
        Self { device, meters, all: Mutex::default() }
    }

    /// Stopwatches of a worker's stream, one for each route that the worker drives. They time
    /// decoding, or copies on the route `cpu`.
    pub fn worker(
        &self,
        routes: impl Iterator<Item = Route>,
    ) -> Result<Vec<(Route, Arc<Stopwatch>)>> {
        let watch = |route: Route| match route.on_device() {
            true => Ok((route, self.decode(route)?)),
            false => Ok((route, self.upload()?)),
        };
        routes.filter(|route| !route.batches()).map(watch).collect()
    }

    /// A stopwatch for decoding by a route.
    pub fn decode(&self, route: Route) -> Result<Arc<Stopwatch>> {
        let meter = self.meters.device(Stage::DeviceDecode, route.name());
        self.keep(Stopwatch::new(&self.device, SPANS, meter)?)
    }

    /// A stopwatch for copies to the device.
    pub fn upload(&self) -> Result<Arc<Stopwatch>> {
        let meter = self.meters.device(Stage::Upload, "copy");
        self.keep(Stopwatch::new(&self.device, SPANS, meter)?)
    }

    /// A stopwatch for the kernel.
    pub fn kernel(&self) -> Result<Arc<Stopwatch>> {
        let meter = self.meters.device(Stage::Kernel, "kernel");
        self.keep(Stopwatch::new(&self.device, SPANS, meter)?)
    }

    /// A stopwatch for the kernel `mask`, which moves masks.
    pub fn mask(&self) -> Result<Arc<Stopwatch>> {
        let meter = self.meters.device(Stage::Kernel, "mask");
        self.keep(Stopwatch::new(&self.device, SPANS, meter)?)
    }

    /// A stopwatch for the kernel `mix`, which runs batch operators and writes soft targets.
    pub fn mix(&self) -> Result<Arc<Stopwatch>> {
        let meter = self.meters.device(Stage::Kernel, "mix");
        self.keep(Stopwatch::new(&self.device, SPANS, meter)?)
    }

    /// A stopwatch for the consumer's waits, for a ring of `slots` slots.
    pub fn waits(&self, slots: usize) -> Result<Arc<Stopwatch>> {
        let meter = self.meters.device_waits();
        self.keep(Stopwatch::new(&self.device, SPANS_PER_SLOT * slots, meter)?)
    }

    /// Collects finished spans without waiting. Device errors are reported by the threads that use
    /// the device.
    pub fn harvest(&self) {
        for watch in self.all.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = watch.harvest();
        }
    }

    fn keep(&self, watch: Stopwatch) -> Result<Arc<Stopwatch>> {
        let watch = Arc::new(watch);
        self.all.lock().unwrap_or_else(PoisonError::into_inner).push(watch.clone());
        Ok(watch)
    }
}
