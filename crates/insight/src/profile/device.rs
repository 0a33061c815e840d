//! Measurements of a device: times from the device clock, and utilization from the driver.

use serde::{Deserialize, Serialize};

use super::Latency;

/// Device time of a stage, by the device clock. A span is the time between two events of a stream,
/// in seconds. Spans include interruptions by other streams, and waits for the host to submit more
/// work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceTime {
    /// Number of measured spans: launches, decoder calls, copies, or waits.
    pub spans: u64,
    /// Number of samples in the measured spans.
    pub items: u64,
    /// Seconds of all measured spans together.
    pub seconds: f64,
    /// Number of samples in all spans, whether measured or not.
    pub all_items: u64,
    /// Number of spans that were not measured because earlier measurements were still pending.
    pub dropped: u64,
    /// Duration of a span.
    pub latency: Latency,
}

impl DeviceTime {
    /// Device seconds per sample; 0 without measurements.
    pub fn per_item(&self) -> f64 {
        if self.items > 0 { self.seconds / self.items as f64 } else { 0.0 }
    }

    /// Device seconds of all spans. For spans that were not measured, the mean of the measured ones
    /// is used.
    pub fn all_seconds(&self) -> f64 {
        self.per_item() * self.all_items as f64
    }
}

/// Counters of a device that the driver reports at one moment, for all processes. A value
/// is `None` if the device or the driver does not report it. Shares cover the driver's last
/// sampling period (for `gpu` a sixth of a second to a second).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceReading {
    /// Share of the time in which at least one kernel ran. 1 means that the device was never idle,
    /// not that all of it was used.
    pub gpu: Option<f64>,
    /// Share of the time in which the JPEG engines worked.
    pub jpeg: Option<f64>,
    /// Share of the time in which the video decoder worked. Images do not use it.
    pub decoder: Option<f64>,
    /// Bytes of device memory in use.
    pub memory_used: Option<u64>,
    /// Total bytes of device memory.
    pub memory_total: Option<u64>,
    /// Bytes per second that the device received over PCIe, measured over 20 ms.
    pub received: Option<f64>,
    /// Bytes per second that the device sent over PCIe, measured over 20 ms.
    pub sent: Option<f64>,
}

/// Several device readings, summarized: the maximum for memory, and the mean for all other values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceProfile {
    /// Number of readings that were taken.
    pub readings: u64,
    /// Number of readings that failed.
    pub failed: u64,
    /// See [`DeviceReading::gpu`].
    pub gpu: Option<f64>,
    /// See [`DeviceReading::jpeg`].
    pub jpeg: Option<f64>,
    /// See [`DeviceReading::decoder`].
    pub decoder: Option<f64>,
    /// Most bytes of device memory that all processes used together in one reading since the
    /// measurement began.
    pub memory_used: Option<u64>,
    /// Total bytes of device memory.
    pub memory_total: Option<u64>,
    /// Bytes per second that the device received over PCIe.
    pub received: Option<f64>,
    /// Bytes per second that the device sent over PCIe.
    pub sent: Option<f64>,
}
