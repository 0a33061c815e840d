//! Measurements of a training loop whose samples are prefetched.

use crate::measure::{Counts, Histogram};

use super::{MAX_RELATIVE_ERROR, NEGLIGIBLE_WAIT_SHARE};

/// Minimum number of batches per measurement.
const BATCHES: u64 = 5;
/// Number of batches of a longer measurement.
const CALM_BATCHES: u64 = 4 * BATCHES;
/// Minimum length of a measurement, in seconds.
const SECONDS: f64 = 0.05;
/// Minimum number of samples per measurement.
const SAMPLES: u64 = 32;
/// Share of the time lost to late samples that makes a decision urgent: a longer measurement then
/// ends early.
const PRESSING: f64 = 0.1;
/// Minimum relative change of the rate that counts as a change of the training loop. If rates vary
/// much, a larger change is required.
const MIN_SPEED_CHANGE: f64 = 1.0 / 7.0;

/// Running measurement.
#[derive(Debug)]
pub struct Seen {
    /// Time when the measurement began, and time when the last batch was received, in seconds.
    began: f64,
    last: f64,
    batches: u64,
    samples: u64,
    /// Longest time between two consecutive batches, and the sum of the squares of all times
    /// between batches.
    longest: f64,
    squares: f64,
    /// Total time that the consumer waited, and that the workers waited, in seconds.
    consumer_waited: f64,
    worker_waited: f64,
    requests: Histogram,
}

/// Result of a measurement.
pub struct Measured {
    /// Samples per second.
    pub rate: f64,
    /// Relative standard error of the rate.
    pub error: f64,
    /// Share of time lost to late samples: the smaller of the shares that workers and consumer
    /// waited.
    pub lost: f64,
}

/// Rate of the training loop when a prefetch depth was chosen while late samples had a cost. It is
/// stored to detect later changes.
#[derive(Debug)]
pub struct SettledWindow {
    rate: f64,
    error: f64,
    pub measurements: u32,
    /// Number of consecutive measurements with a different rate.
    others: u32,
}

impl Seen {
    /// Begins a measurement at `now`.
    pub fn new(now: f64) -> Self {
        let (batches, samples, requests) = (0, 0, Histogram::default());
        let (longest, squares, consumer_waited, worker_waited) = (0.0, 0.0, 0.0, 0.0);
        let (began, last) = (now, now);
        Self {
            began,
            last,
            batches,
            samples,
            longest,
            squares,
            consumer_waited,
            worker_waited,
            requests,
        }
    }

    /// Records that a worker has read a sample.
    pub fn read(&mut self, request: Option<f64>, waited: f64) {
        self.worker_waited += waited;
        if let Some(seconds) = request {
            self.requests.add((seconds * 1e9) as u64);
        }
    }

    /// Records that the consumer received a batch.
    pub fn batch(&mut self, samples: u64, now: f64, waited: f64) {
        let passed = now - self.last;
        self.last = now;
        self.batches += 1;
        self.samples += samples;
        self.longest = self.longest.max(passed);
        self.squares += passed * passed;
        self.consumer_waited += waited;
    }

    /// Durations of requests.
    pub fn requests(&self) -> Counts {
        self.requests.counts()
    }

    /// Result of the measurement, or `None` until there is enough data. If the prefetch depth is
    /// final (`settled`), more data is needed. Less data is enough if late samples cost much and
    /// this is new (`known` is false).
    pub fn measured(&self, workers: usize, settled: bool, known: bool) -> Option<Measured> {
        let seconds = self.last - self.began;
        if self.batches < BATCHES || seconds < SECONDS || self.samples < SAMPLES {
            return None;
        }
        let workers_lost = self.worker_waited / (workers.max(1) as f64 * seconds);
        let lost = workers_lost.min(self.consumer_waited / seconds).min(1.0);
        let batches = self.batches as f64;
        let variance = (self.squares * batches / seconds.powi(2) - 1.0).max(0.0);
        let error = (variance / batches).sqrt();
        let calm = settled && (known || lost < PRESSING);
        let vague = lost >= NEGLIGIBLE_WAIT_SHARE && error > MAX_RELATIVE_ERROR;
        if (calm || vague || self.is_of_a_pause()) && self.batches < CALM_BATCHES {
            return None;
        }
        Some(Measured { rate: self.samples as f64 / seconds, error, lost })
    }

    /// Whether the consumer paused for most of the measurement.
    pub fn is_of_a_pause(&self) -> bool {
        2.0 * self.longest > self.last - self.began
    }
}

impl SettledWindow {
    pub fn new(measured: &Measured) -> Self {
        let Measured { rate, error, .. } = *measured;
        Self { rate, error, measurements: 0, others: 0 }
    }

    /// Whether the training loop has changed: the rate differs in two consecutive measurements.
    pub fn is_over(&mut self, measured: &Measured) -> bool {
        self.measurements += 1;
        let chance = 4.0 * self.error.hypot(measured.error);
        let other =
            (measured.rate / self.rate.max(1e-9) - 1.0).abs() > MIN_SPEED_CHANGE.max(chance);
        self.others = if other { self.others + 1 } else { 0 };
        self.others >= 2
    }
}
