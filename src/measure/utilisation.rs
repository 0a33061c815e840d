//! Utilization of the device, as reported by its driver.

use super::{DeviceProfile, DeviceReading};

/// Sums and maxima of the readings of the device's utilization.
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

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Mean {
    sum: f64,
    count: u64,
}

impl DeviceReadings {
    /// Adds a reading.
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

    /// Counts a failed reading.
    pub fn add_failure(&mut self) {
        self.failed += 1;
    }

    /// Readings since `earlier`. The peak memory still covers all readings, because a maximum
    /// cannot be subtracted.
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

    /// Summary of the readings; `None` if there are none.
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
    fn means_cover_only_reported_values() {
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
