//! How much of the device is in use, as its driver tells.

use serde::{Deserialize, Serialize};

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

/// Several readings together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceReadings {
    count: u64,
    failed: u64,
    gpu: Mean,
    jpeg: Mean,
    decoder: Mean,
    received: Mean,
    sent: Mean,
    memory_used: Option<u64>,
    memory_total: Option<u64>,
}

/// What [`DeviceReadings`] say: means, but for memory.
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

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Mean {
    sum: f64,
    count: u64,
}

impl DeviceReadings {
    /// Another reading.
    pub fn add(&mut self, reading: &DeviceReading) {
        self.count += 1;
        self.gpu.add(reading.gpu);
        self.jpeg.add(reading.jpeg);
        self.decoder.add(reading.decoder);
        self.received.add(reading.received);
        self.sent.add(reading.sent);
        self.memory_used = self.memory_used.max(reading.memory_used);
        self.memory_total = self.memory_total.max(reading.memory_total);
    }

    /// A reading failed.
    pub fn add_failure(&mut self) {
        self.failed += 1;
    }

    /// Those after `earlier`. The most memory stays that of all time.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            count: self.count - earlier.count,
            failed: self.failed - earlier.failed,
            gpu: self.gpu.since(earlier.gpu),
            jpeg: self.jpeg.since(earlier.jpeg),
            decoder: self.decoder.since(earlier.decoder),
            received: self.received.since(earlier.received),
            sent: self.sent.since(earlier.sent),
            memory_used: self.memory_used,
            memory_total: self.memory_total,
        }
    }

    /// A summary; `None` without a reading.
    pub fn profile(&self) -> Option<DeviceProfile> {
        (self.count + self.failed > 0).then(|| DeviceProfile {
            readings: self.count,
            failed: self.failed,
            gpu: self.gpu.value(),
            jpeg: self.jpeg.value(),
            decoder: self.decoder.value(),
            memory_used: self.memory_used,
            memory_total: self.memory_total,
            received: self.received.value(),
            sent: self.sent.value(),
        })
    }
}

impl Mean {
    fn add(&mut self, value: Option<f64>) {
        if let Some(value) = value {
            self.sum += value;
            self.count += 1;
        }
    }

    fn since(self, earlier: Self) -> Self {
        Self { sum: self.sum - earlier.sum, count: self.count - earlier.count }
    }

    fn value(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_of_what_was_told() {
        let mut readings = DeviceReadings::default();
        assert_eq!(readings.profile(), None);
        let reading = |gpu, memory_used| DeviceReading {
            gpu: Some(gpu),
            memory_used: Some(memory_used),
            ..DeviceReading::default()
        };
        readings.add(&reading(0.5, 9));
        let before = readings.clone();
        readings.add(&reading(1.0, 5));
        readings.add(&DeviceReading { sent: Some(7.0), ..DeviceReading::default() });
        readings.add_failure();
        let all = readings.profile().unwrap();
        assert_eq!((all.readings, all.failed, all.gpu), (3, 1, Some(0.75)));
        assert_eq!((all.sent, all.received, all.memory_used), (Some(7.0), None, Some(9)));
        assert_eq!(readings.since(&before).profile().unwrap().gpu, Some(1.0));
    }
}
