//! What is measured of a loop whose samples are fetched ahead.

use crate::measure::{Counts, Histogram};

use super::{MAX_RELATIVE_ERROR, NEGLIGIBLE_WAIT_SHARE};

/// Batches of a measurement.
const BATCHES: u64 = 5;
/// Batches of a measurement where nothing presses.
const CALM_BATCHES: u64 = 4 * BATCHES;
/// Seconds that a measurement has at least.
const SECONDS: f64 = 0.05;
/// Samples that a measurement has at least.
const SAMPLES: u64 = 32;
/// Where late samples cost so much, a long measurement is not waited for.
const PRESSING: f64 = 0.1;
/// Another rate by so much is another loop, where rates do not vary by more.
const MIN_SPEED_CHANGE: f64 = 1.0 / 7.0;

/// A measurement that is under way.
#[derive(Debug)]
pub struct Seen {
    /// When it began, and when the last batch was taken.
    began: f64,
    last: f64,
    batches: u64,
    samples: u64,
    /// The longest time between two batches, and the sum of the squares of these times.
    longest: f64,
    squares: f64,
    /// Seconds in which the consumer, and workers, waited.
    consumer_waited: f64,
    worker_waited: f64,
    requests: Histogram,
}

/// What was measured.
pub struct Measured {
    /// Samples a second.
    pub rate: f64,
    /// Its standard error, by it.
    pub error: f64,
    /// The share of their time that late samples cost workers and consumer both.
    pub lost: f64,
}

/// The loop as it was when a window was taken although late samples cost something.
#[derive(Debug)]
pub struct Watch {
    rate: f64,
    error: f64,
    pub measurements: u32,
    /// Measurements, one after another, with another rate.
    others: u32,
}

impl Seen {
    /// Begins at this time.
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

    /// A worker has a sample.
    pub fn read(&mut self, request: Option<f64>, waited: f64) {
        self.worker_waited += waited;
        if let Some(seconds) = request {
            self.requests.add((seconds * 1e9) as u64);
        }
    }

    /// The consumer has a batch.
    pub fn batch(&mut self, samples: u64, now: f64, waited: f64) {
        let passed = now - self.last;
        self.last = now;
        self.batches += 1;
        self.samples += samples;
        self.longest = self.longest.max(passed);
        self.squares += passed * passed;
        self.consumer_waited += waited;
    }

    /// How long requests took.
    pub fn requests(&self) -> Counts {
        self.requests.counts()
    }

    /// What was measured, where that is enough: more is where the window is to stay (`settled`), and where it is known that
    /// late samples cost something then.
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

    /// Whether the consumer did something else for most of the time.
    pub fn is_of_a_pause(&self) -> bool {
        2.0 * self.longest > self.last - self.began
    }
}

impl Watch {
    pub fn new(measured: &Measured) -> Self {
        let Measured { rate, error, .. } = *measured;
        Self { rate, error, measurements: 0, others: 0 }
    }

    /// Whether the loop is another one.
    pub fn is_over(&mut self, measured: &Measured) -> bool {
        self.measurements += 1;
        let chance = 4.0 * self.error.hypot(measured.error);
        let other =
            (measured.rate / self.rate.max(1e-9) - 1.0).abs() > MIN_SPEED_CHANGE.max(chance);
        self.others = if other { self.others + 1 } else { 0 };
        self.others >= 2
    }
}
