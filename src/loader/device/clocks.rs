//! What the device's time goes into, thread by thread.

use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Result;
use crate::gpu::{Device, Stopwatch};
use crate::measure::{Meters, Stage};
use crate::plan::Route;

/// All stopwatches of a loader: each thread has its own for each sort of span, which all of a sort count in one place.
pub(in crate::loader) struct Clocks {
    device: Arc<Device>,
    meters: Arc<Meters>,
    all: Mutex<Vec<Arc<Stopwatch>>>,
}

/// Spans of one sort that a thread may have under way. A worker that is further ahead measures none, which changes no
/// figure but how many there are.
const SPANS: usize = 4;

/// Of the consumer for each slot of the ring: it gets that far ahead of its stream, and more. When it gives up measuring,
/// its stream is busy and waits for nothing, so the figure would be too large.
const SPANS_PER_SLOT: usize = 4;

impl Clocks {
    pub fn new(device: Arc<Device>, meters: Arc<Meters>) -> Self {
        Self { device, meters, all: Mutex::default() }
    }

    /// Of a worker's stream, for each of these routes that it drives: decoding, and of the route `cpu` copies.
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

    /// Of decoding by a route.
    pub fn decode(&self, route: Route) -> Result<Arc<Stopwatch>> {
        let meter = self.meters.device(Stage::DeviceDecode, route.name());
        self.keep(Stopwatch::new(&self.device, SPANS, meter)?)
    }

    /// Of copies to the device.
    pub fn upload(&self) -> Result<Arc<Stopwatch>> {
        let meter = self.meters.device(Stage::Upload, "copy");
        self.keep(Stopwatch::new(&self.device, SPANS, meter)?)
    }

    /// Of the kernel.
    pub fn kernel(&self) -> Result<Arc<Stopwatch>> {
        let meter = self.meters.device(Stage::Kernel, "kernel");
        self.keep(Stopwatch::new(&self.device, SPANS, meter)?)
    }

    /// Of the consumer's waits, for a ring of so many slots.
    pub fn waits(&self, slots: usize) -> Result<Arc<Stopwatch>> {
        let meter = self.meters.device_waits();
        self.keep(Stopwatch::new(&self.device, SPANS_PER_SLOT * slots, meter)?)
    }

    /// Counts what is over by now; does not wait. What goes wrong with the device is told by those who use it.
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
