//! Time of device work, by the device's own clock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::DeviceTime;
use super::histogram::{Counts, Histogram};

/// Meter of spans in CUDA streams. A span is a kernel launch, the decoding of an image or a group
/// of images, a copy, or a wait. All spans are counted; only some are timed.
#[derive(Debug, Default)]
pub struct DeviceMeter {
    all_items: AtomicU64,
    items: AtomicU64,
    busy: AtomicU64,
    dropped: AtomicU64,
    latency: OnceLock<Histogram>,
}

/// Counts of a [`DeviceMeter`] at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Number of samples in all spans.
    pub all_items: u64,
    /// Number of samples in the timed spans.
    pub items: u64,
    /// Device time of the timed spans, in nanoseconds.
    pub busy: u64,
    /// Number of spans that could not be timed, because earlier measurements were still running.
    pub dropped: u64,
    /// Histogram of the durations of the timed spans.
    pub latency: Counts,
}

/// Statistics of one decode route at one moment, from the balancer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouteCounts {
    /// Name of the route.
    pub route: &'static str,
    /// Finished images.
    pub images: u64,
    /// Time that the route's places (images that it can decode at once) were occupied, in seconds,
    /// summed over all places.
    pub busy: f64,
    /// Observed time in seconds, multiplied by the number of the route's places. This is the
    /// maximum of `busy`.
    pub places: f64,
}

impl RouteCounts {
    /// Returns the counts since `earlier`.
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
    /// Adds `items` samples of a span of device work to the counts, whether the span is timed or
    /// not.
    pub fn seen(&self, items: u64) {
        self.all_items.fetch_add(items, Relaxed);
    }

    /// Records the duration of a span of device work on `items` samples.
    pub fn add(&self, items: u64, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.items.fetch_add(items, Relaxed);
        self.busy.fetch_add(took, Relaxed);
        self.latency.get_or_init(Histogram::default).add(took);
    }

    /// Counts a span that could not be timed.
    pub fn drop_one(&self) {
        self.dropped.fetch_add(1, Relaxed);
    }

    /// Returns the counts of all spans until now.
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
    /// Returns the counts since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            all_items: self.all_items - earlier.all_items,
            items: self.items - earlier.items,
            busy: self.busy - earlier.busy,
            dropped: self.dropped - earlier.dropped,
            latency: self.latency.since(&earlier.latency),
        }
    }

    /// Adds the counts of another meter.
    pub fn add(&mut self, other: &Self) {
        self.all_items += other.all_items;
        self.items += other.items;
        self.busy += other.busy;
        self.dropped += other.dropped;
        self.latency.add(&other.latency);
    }

    /// Summary of the counts; `None` if there were no spans.
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
    fn untimed_spans_are_extrapolated_from_timed_ones() {
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
