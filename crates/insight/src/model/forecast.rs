//! What is asked of a simulation, and what it answers.

use serde::{Deserialize, Serialize};

/// How long to simulate, and what of it to keep.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Ends when so many steps are over after the warm-up. At least one of this and `seconds` is needed; with
    /// both, what comes first ends it.
    pub batches: Option<u32>,
    /// Ends so long after the warm-up.
    pub seconds: Option<f64>,
    /// Steps before anything is counted; with 0 counting begins at time 0, with an empty ring.
    pub warm_up: u32,
    /// Chooses the times that vary.
    pub seed: u32,
    /// Keeps so many events at most, the first ones.
    pub events: u32,
}

impl Default for Options {
    /// 200 batches after 20.
    fn default() -> Self {
        Self { batches: Some(200), seconds: None, warm_up: 20, seed: 0, events: 0 }
    }
}

impl Options {
    /// So many batches after a warm-up.
    pub fn batches(batches: u32, warm_up: u32) -> Self {
        Self { batches: Some(batches), warm_up, ..Self::default() }
    }

    /// So many seconds from the very beginning.
    pub fn seconds(seconds: f64) -> Self {
        Self { batches: None, seconds: Some(seconds), warm_up: 0, ..Self::default() }
    }

    /// The same with another seed.
    pub fn seed(self, seed: u32) -> Self {
        Self { seed, ..self }
    }
}

/// What a simulation saw after its warm-up. Shares are of time and from 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// Time that was observed.
    pub seconds: f64,
    /// Steps that ended in it.
    pub batches: u32,
    /// Steps per second.
    pub batches_per_second: f64,
    /// Samples of these steps per second.
    pub samples_per_second: f64,
    /// Share of the time in which the consumer waited for a batch.
    pub consumer_waits: f64,
    /// Share of the consumer's arrivals that found a batch ready; 1 where there was none.
    pub readiness: f64,
    /// Share of the time with 0, 1, 2, ... `slots` batches ready.
    pub ring: Vec<f64>,
    /// One entry a stage.
    pub stages: Vec<StageUse>,
    /// Share of each resource's servers that were busy.
    pub resources: Vec<f64>,
    /// Share of the cores that were busy, with stages or with the consumer.
    pub cores: f64,
    /// One entry a worker.
    pub workers: Vec<Shares>,
    /// Mean seconds from the taking of a place to the end of its last stage.
    pub latency: f64,
    /// What happened from time 0 on, where events were asked for.
    #[serde(default)]
    pub events: Vec<Event>,
}

/// Samples in a stage at a time, on average.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageUse {
    /// Those that it works on.
    pub serving: f64,
    /// Those that wait for a core or a server.
    pub queued: f64,
}

/// What a worker's time went into: shares that add up to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shares {
    /// Working, or waiting for a disk or a network.
    pub busy: f64,
    /// Waiting for a core or a resource.
    pub queued: f64,
    /// Waiting for a page.
    pub page: f64,
    /// Waiting for a free slot: the ring is full, which is how it should be. Also the time before its start.
    pub slot: f64,
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Seconds from the beginning.
    pub time: f64,
    /// To whom.
    pub who: Who,
    /// What.
    pub what: What,
    /// With which batch, counted from 0; for who waits, the batch that is waited for.
    pub batch: u32,
}

/// Who does something.
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

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// A worker begins with a sample, the consumer with a step.
    Begins,
    /// A worker lets go of a sample, the consumer has done a step.
    Ends,
    /// A worker waits for a page or a slot, the consumer for a batch.
    Waits,
    /// A batch is ready.
    Ready,
}

impl Forecast {
    /// What all workers' time went into, on average.
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

    /// Batches that are ready at a time, on average.
    pub fn mean_ready(&self) -> f64 {
        self.ring.iter().enumerate().map(|(ready, share)| ready as f64 * share).sum()
    }
}
