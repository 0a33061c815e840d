//! Device measurements: times by the device clock, and utilization from the driver.

use serde::{Deserialize, Serialize};

use super::Latency;

/// Device time of a stage. Times are seconds of a stream between two events, by the device clock. They include interruptions by
/// other streams and waits for the host to submit the next part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceTime {
    /// Measured spans: launches, decoder calls, copies, or waits.
    pub spans: u64,
    /// Samples in the measured spans.
    pub items: u64,
    /// Seconds in the measured spans.
    pub seconds: f64,
    /// Samples in all spans, measured or not.
    pub all_items: u64,
    /// Spans not measured because earlier measurements were pending.
    pub dropped: u64,
    /// Duration of a span.
    pub latency: Latency,
}

impl DeviceTime {
    /// Device seconds per sample; 0 without measurements.
    pub fn per_item(&self) -> f64 {
        if self.items > 0 { self.seconds / self.items as f64 } else { 0.0 }
    }

    /// Device seconds of all spans, extrapolated to those that were not measured.
    pub fn all_seconds(&self) -> f64 {
        self.per_item() * self.all_items as f64
    }
}

/// Driver counters of a device at one moment, for all processes. A value is `None` where the device or driver does not report it.
/// Shares cover the last sampling period of the driver (for the whole device a sixth of a second to a second).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceReading {
    /// Share of the time in which any kernel ran. 1 means never idle, not fully used.
    pub gpu: Option<f64>,
    /// Share of the time in which the JPEG engines worked.
    pub jpeg: Option<f64>,
    /// Share of the time in which the video decoder worked.
    pub decoder: Option<f64>,
    /// Bytes of device memory in use.
    pub memory_used: Option<u64>,
    /// Bytes of device memory.
    pub memory_total: Option<u64>,
    /// Bytes per second received over PCIe, counted for 20 ms.
    pub received: Option<f64>,
    /// Bytes per second sent over PCIe, counted for 20 ms.
    pub sent: Option<f64>,
}

/// Means of several device readings; for memory the maximum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceProfile {
    /// Number of readings.
    pub readings: u64,
    /// Number of failed readings.
    pub failed: u64,
    /// See [`DeviceReading::gpu`].
    pub gpu: Option<f64>,
    /// See [`DeviceReading::jpeg`].
    pub jpeg: Option<f64>,
    /// See [`DeviceReading::decoder`].
    pub decoder: Option<f64>,
    /// Most bytes of device memory in use by all processes, over all readings since the measurement began.
    pub memory_used: Option<u64>,
    /// Bytes of device memory.
    pub memory_total: Option<u64>,
    /// Bytes per second received over PCIe.
    pub received: Option<f64>,
    /// Bytes per second sent over PCIe.
    pub sent: Option<f64>,
}
