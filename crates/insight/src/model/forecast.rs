//! Options and results of a simulation.

use serde::{Deserialize, Serialize};

/// Length of a simulation, and how many events to record.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Number of steps to simulate after the warm-up. At least one of this and `seconds` is required. With both, the earlier
    /// limit ends the simulation.
    pub batches: Option<u32>,
    /// Seconds to simulate after the warm-up.
    pub seconds: Option<f64>,
    /// Steps before measuring begins. With 0, measuring begins at time 0 with an empty ring.
    pub warm_up: u32,
    /// Seed of the random service times.
    pub seed: u32,
    /// Largest number of events to record. Later events are dropped.
    pub events: u32,
}

impl Default for Options {
    /// Default: 200 batches after a warm-up of 20.
    fn default() -> Self {
        Self { batches: Some(200), seconds: None, warm_up: 20, seed: 0, events: 0 }
    }
}

impl Options {
    /// Simulates this number of batches after a warm-up.
    pub fn batches(batches: u32, warm_up: u32) -> Self {
        Self { batches: Some(batches), warm_up, ..Self::default() }
    }

    /// Simulates this number of seconds, without a warm-up.
    pub fn seconds(seconds: f64) -> Self {
        Self { batches: None, seconds: Some(seconds), warm_up: 0, ..Self::default() }
    }

    /// Returns these options with another seed.
    pub fn seed(self, seed: u32) -> Self {
        Self { seed, ..self }
    }
}

/// Result of a simulation, without its warm-up. Shares are fractions of the time, 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// Simulated seconds after the warm-up.
    pub seconds: f64,
    /// Steps that ended in this time.
    pub batches: u32,
    /// Steps per second.
    pub batches_per_second: f64,
    /// Samples per second.
    pub samples_per_second: f64,
    /// Share of the time in which the consumer waits for a batch.
    pub consumer_waits: f64,
    /// Share of the consumer's requests that found a batch ready; 1 without requests.
    pub readiness: f64,
    /// Share of the time with 0, 1, 2, ... `slots` batches ready.
    pub ring: Vec<f64>,
    /// Use of each stage.
    pub stages: Vec<StageUse>,
    /// Share of each resource's servers that are busy.
    pub resources: Vec<f64>,
    /// Share of the cores that are busy, with stages or with the consumer.
    pub cores: f64,
    /// Use of each worker's time.
    pub workers: Vec<Shares>,
    /// Mean seconds from assigning a sample to a worker to the end of its last stage.
    pub latency: f64,
    /// Events from time 0 on, up to [`Options::events`].
    #[serde(default)]
    pub events: Vec<Event>,
}

/// Mean number of samples in a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageUse {
    /// Samples that are being served.
    pub serving: f64,
    /// Samples that wait for a core or a server.
    pub queued: f64,
}

/// Shares of a worker's time, which add up to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shares {
    /// Working, or waiting for a disk or a network.
    pub busy: f64,
    /// Waiting for a core or a resource.
    pub queued: f64,
    /// Waiting for a page.
    pub page: f64,
    /// Waiting for a free slot, because the ring is full (as in a loader that is fast enough) or
    /// because the worker has not started.
    pub slot: f64,
}

/// Event of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Seconds since the start.
    pub time: f64,
    /// Part of the pipeline that it concerns.
    pub who: Who,
    /// Kind of event.
    pub what: What,
    /// Batch, counted from 0; for a wait, the batch that is waited for.
    pub batch: u32,
}

/// Part of the pipeline that an event concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Who {
    /// A worker, counted from 0.
    Worker(u32),
    /// The ring.
    Ring,
    /// The consumer.
    Consumer,
}

/// Kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// A worker begins a sample, or the consumer a step.
    Begins,
    /// A worker releases a sample, or the consumer ends a step.
    Ends,
    /// A worker waits for a page or a slot, the consumer for a batch.
    Waits,
    /// A batch is ready.
    Ready,
}

impl Forecast {
    /// Mean shares of all workers' time.
    pub fn worker_shares(&self) -> Shares {
        let count = self.workers.len().max(1) as f64;
        let mean = |part: fn(&Shares) -> f64| self.workers.iter().map(part).sum::<f64>() / count;
        Shares {
            busy: mean(|it| it.busy),
            queued: mean(|it| it.queued),
            page: mean(|it| it.page),
            slot: mean(|it| it.slot),
        }
    }

    /// Mean number of ready batches.
    pub fn mean_ready(&self) -> f64 {
        self.ring.iter().enumerate().map(|(ready, share)| ready as f64 * share).sum()
    }
}
