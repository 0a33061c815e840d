//! What the device does, by its own clock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::DeviceTime;
use super::histogram::{Counts, Histogram};

/// Counts spans of streams: launches of a kernel, images or groups of them that are decoded, copies, waits. Not each is
/// measured; all are counted.
#[derive(Debug, Default)]
pub struct DeviceMeter {
    all_items: AtomicU64,
    items: AtomicU64,
    busy: AtomicU64,
    dropped: AtomicU64,
    latency: OnceLock<Histogram>,
}

/// The counts of a [`DeviceMeter`] at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Samples in all spans.
    pub all_items: u64,
    /// Samples in the spans that were measured.
    pub items: u64,
    /// Nanoseconds of the device in the spans that were measured.
    pub busy: u64,
    /// Spans that should have been measured and were not: the measurements before were not over yet.
    pub dropped: u64,
    /// How long each span took that was measured.
    pub latency: Counts,
}

/// The counts of one decode route at one moment, as far as its balancer has them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouteCounts {
    /// `hardware`, `cuda`, `host` or `cpu`.
    pub route: &'static str,
    /// Images that were finished.
    pub images: u64,
    /// Seconds in which its places were taken, all places together.
    pub busy: f64,
    /// Seconds in which there were places, all places together.
    pub places: f64,
}

impl RouteCounts {
    /// What was counted after `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            images: self.images - earlier.images,
            busy: (self.busy - earlier.busy).max(0.0),
            places: (self.places - earlier.places).max(0.0),
            ..self
        }
    }
}

impl DeviceMeter {
    /// A span of so many samples is on its way, measured or not.
    pub fn seen(&self, items: u64) {
        self.all_items.fetch_add(items, Relaxed);
    }

    /// A span of so many samples took this long.
    pub fn add(&self, items: u64, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.items.fetch_add(items, Relaxed);
        self.busy.fetch_add(took, Relaxed);
        self.latency.get_or_init(Histogram::default).add(took);
    }

    /// A span could not be measured.
    pub fn drop_one(&self) {
        self.dropped.fetch_add(1, Relaxed);
    }

    /// What was counted so far.
    pub fn counts(&self) -> DeviceCounts {
        DeviceCounts {
            all_items: self.all_items.load(Relaxed),
            items: self.items.load(Relaxed),
            busy: self.busy.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
            latency: self.latency.get().map(Histogram::counts).unwrap_or_default(),
        }
    }
}

impl DeviceCounts {
    /// What was counted after `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            all_items: self.all_items - earlier.all_items,
            items: self.items - earlier.items,
            busy: self.busy - earlier.busy,
            dropped: self.dropped - earlier.dropped,
            latency: self.latency.since(&earlier.latency),
        }
    }

    /// These and others together.
    pub fn add(&mut self, other: &Self) {
        self.all_items += other.all_items;
        self.items += other.items;
        self.busy += other.busy;
        self.dropped += other.dropped;
        self.latency.add(&other.latency);
    }

    /// A summary; `None` where nothing was met.
    pub fn time(&self) -> Option<DeviceTime> {
        let seconds = self.busy as f64 * 1e-9;
        (self.all_items > 0).then(|| DeviceTime {
            spans: self.latency.count(),
            items: self.items,
            seconds,
            all_items: self.all_items,
            dropped: self.dropped,
            latency: self.latency.latency(seconds),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_taken_to_be_like_the_rest() {
        let meter = DeviceMeter::default();
        assert_eq!(meter.counts().time(), None);
        meter.seen(4);
        assert_eq!(meter.counts().time().unwrap().all_seconds(), 0.0);
        meter.add(4, Duration::from_millis(8));
        let before = meter.counts();
        meter.seen(12);
        meter.add(2, Duration::from_millis(6));
        meter.drop_one();
        let time = meter.counts().since(&before).time().unwrap();
        assert_eq!((time.spans, time.items, time.all_items, time.dropped), (1, 2, 12, 1));
        assert!((time.per_item() - 0.003).abs() < 1e-12);
        assert!((time.all_seconds() - 0.036).abs() < 1e-12);
        let mut sum = before.clone();
        sum.add(&meter.counts().since(&before));
        assert_eq!(sum, meter.counts());
    }
}
