//! The device: times by its own clock, and its utilization as its driver tells it.

use serde::{Deserialize, Serialize};

use super::Latency;

/// What the device did in a stage. Times are seconds of a stream, from one mark to the next, by the device's clock: what another
/// stream takes of the device at the same time, and where the device waited for the host to hand the next part over, are
/// within.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceTime {
    /// Spans that were measured: launches, calls of a decoder, copies, or waits.
    pub spans: u64,
    /// Samples in them.
    pub items: u64,
    /// Seconds in them.
    pub seconds: f64,
    /// Samples in all spans, measured or not.
    pub all_items: u64,
    /// Spans that were given up, since the measurements before were not over.
    pub dropped: u64,
    /// How long a span took.
    pub latency: Latency,
}

impl DeviceTime {
    /// Seconds of the device for a sample; 0 where nothing was measured.
    pub fn per_item(&self) -> f64 {
        if self.items > 0 { self.seconds / self.items as f64 } else { 0.0 }
    }

    /// Seconds of all spans, those that were not measured taken to be like the others.
    pub fn all_seconds(&self) -> f64 {
        self.per_item() * self.all_items as f64
    }
}

/// What the driver tells of a device at one moment. A part is `None` where the device, or its driver, does not tell it.
/// Shares are of a time that ends now and is the driver's to choose (for the whole device a sixth of a second to a second).
/// All processes on the device are within.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceReading {
    /// The share of the time in which any kernel ran: 1 says that the device was never idle, and not that it was full.
    pub gpu: Option<f64>,
    /// The share of the time in which the JPEG engines worked.
    pub jpeg: Option<f64>,
    /// The same of the video decoder.
    pub decoder: Option<f64>,
    /// Bytes of device memory in use.
    pub memory_used: Option<u64>,
    /// Bytes of device memory.
    pub memory_total: Option<u64>,
    /// Bytes in a second that came over PCIe, counted for 20 ms.
    pub received: Option<f64>,
    /// Bytes in a second that went over PCIe, counted for 20 ms.
    pub sent: Option<f64>,
}

/// Several readings together: means, but for memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceProfile {
    /// Readings.
    pub readings: u64,
    /// Readings that failed.
    pub failed: u64,
    /// See [`DeviceReading::gpu`].
    pub gpu: Option<f64>,
    /// See [`DeviceReading::jpeg`].
    pub jpeg: Option<f64>,
    /// See [`DeviceReading::decoder`].
    pub decoder: Option<f64>,
    /// The most bytes of device memory in use by all processes that a reading has seen since the measuring began.
    pub memory_used: Option<u64>,
    /// Bytes of device memory.
    pub memory_total: Option<u64>,
    /// Bytes in a second that came over PCIe.
    pub received: Option<f64>,
    /// Bytes in a second that went over PCIe.
    pub sent: Option<f64>,
}
