//! Options and results of a simulation.

use serde::{Deserialize, Serialize};

/// Length of a simulation, and the number of events to record.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Number of steps to simulate after the warm-up. `batches` or `seconds` is required. With
    /// both, the simulation ends at the earlier limit.
    pub batches: Option<u32>,
    /// Seconds to simulate after the warm-up.
    pub seconds: Option<f64>,
    /// Number of steps before measuring begins. With 0, measuring begins at time 0 with an empty
    /// ring.
    pub warm_up: u32,
    /// Seed of the random service times.
    pub seed: u32,
    /// Largest number of events to record. Later events are dropped.
    pub events: u32,
}

impl Default for Options {
    /// Simulates 200 batches after a warm-up of 20.
    fn default() -> Self {
        Self { batches: Some(200), seconds: None, warm_up: 20, seed: 0, events: 0 }
    }
}

impl Options {
    /// Options to simulate this number of batches after a warm-up.
    pub fn batches(batches: u32, warm_up: u32) -> Self {
        Self { batches: Some(batches), warm_up, ..Self::default() }
    }

    /// Options to simulate this number of seconds without a warm-up.
    pub fn seconds(seconds: f64) -> Self {
        Self { batches: None, seconds: Some(seconds), warm_up: 0, ..Self::default() }
    }

    /// Returns these options with another seed.
    pub fn seed(self, seed: u32) -> Self {
        Self { seed, ..self }
    }
}

/// Result of a simulation. The warm-up is excluded. Shares are fractions of the time, from 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// Simulated seconds after the warm-up.
    pub seconds: f64,
    /// Number of steps that ended after the warm-up.
    pub batches: u32,
    /// Steps per second.
    pub batches_per_second: f64,
    /// Samples per second.
    pub samples_per_second: f64,
    /// Share of the time in which the consumer waits for a batch.
    pub consumer_waits: f64,
    /// Share of the consumer's requests for a batch that found one ready. 1 if there were no
    /// requests.
    pub readiness: f64,
    /// Shares of the time in which 0, 1, 2, ... `slots` batches were ready.
    pub ring: Vec<f64>,
    /// Use of each stage, in the order of the model.
    pub stages: Vec<StageUse>,
    /// Share of each resource's servers that are busy, as a mean over time.
    pub resources: Vec<f64>,
    /// Share of the cores that are busy with stages or with the consumer, as a mean over time.
    pub cores: f64,
    /// Shares of each worker's time.
    pub workers: Vec<Shares>,
    /// Mean seconds from the assignment of a sample to a worker until the end of its last stage.
    pub latency: f64,
    /// Recorded events from time 0 on, at most [`Options::events`].
    #[serde(default)]
    pub events: Vec<Event>,
}

/// Mean numbers of samples in a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageUse {
    /// Mean number of samples that the stage processes.
    pub serving: f64,
    /// Mean number of samples that wait for a core or for a server of a resource.
    pub queued: f64,
}

/// Shares of a worker's time, which add up to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shares {
    /// Share of the time in which the worker works, or waits for a disk or a network.
    pub busy: f64,
    /// Share of the time in which the worker waits for a core or a resource.
    pub queued: f64,
    /// Share of the time in which the worker waits for a page, the buffer of a sample on the
    /// device.
    pub page: f64,
    /// Share of the time in which the worker waits for a free slot, or has not started. A loader
    /// that is faster than its consumer waits for slots, because its ring is full.
    pub slot: f64,
}

/// Event of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Seconds since the start.
    pub time: f64,
    /// Part of the pipeline that the event concerns.
    pub who: Who,
    /// Kind of event.
    pub what: What,
    /// Number of the batch, from 0. For a wait, the batch for which the worker or the consumer
    /// waits.
    pub batch: u32,
}

/// Part of the pipeline that an event concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Who {
    /// The worker with this number, from 0.
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
    /// A worker begins a sample, or the consumer begins a step.
    Begins,
    /// A worker releases a sample, or the consumer ends a step.
    Ends,
    /// A worker begins to wait for a page or a slot, or the consumer for a batch.
    Waits,
    /// A batch becomes ready for the consumer.
    Ready,
}

impl Forecast {
    /// Shares of the time, averaged over all workers.
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

    /// Mean number of batches that are ready for the consumer.
    pub fn mean_ready(&self) -> f64 {
        self.ring.iter().enumerate().map(|(ready, share)| ready as f64 * share).sum()
    }
}
