//! One model of the pipeline: what explains a run, what foresees the gain of a change, and what tunes by itself.
//!
//! It is a simulation of discrete events, sample by sample, rather than a rule of thumb. Behaviour, each sentence
//! with a test in `tests/model.rs` and `tests/model_twin.rs`:
//! * Workers take places in the order of the epoch. The first place of a batch waits for a free slot, and with it
//!   every worker that comes later. That is the loader's own rule (`loader/feed.rs`).
//! * Where there are pages a worker takes a page first and a place second, as on a device. The page is held until
//!   the last stage of the sample is over, those included that the worker does not wait for.
//! * A sample goes through the stages in order. A stage on the CPU needs a core, a stage on a resource one of its
//!   servers; who finds all of them busy queues, first come, first served. A stage that waits needs nothing.
//! * Beside other programs work on a core takes longer: as much as one thread alone was seen to be held up, or more where so
//!   many run that there is less than a core for each ([`Contention`]).
//! * When the first detached stage begins, the worker goes on to the next place.
//! * Places finish in any order. A batch costs `per_batch` more once all its places are finished, and is ready when
//!   all batches before it are.
//! * The consumer takes batches in order, works for a step, and gives the slot back at the end of the step; or, where
//!   it does not hold the slot, as soon as it has taken it.
//! * A straggler's own work, which is what it does on a core or waits for, takes longer by its slowness.
//! * The same model and seed give the same forecast, on every machine and in JavaScript (`model.js`), bit for bit:
//!   random numbers come from 32-bit integers, and times are only added, multiplied and compared.
//! * How long a stage takes for a sample depends on the seed, the sample and the stage alone. So two forecasts that
//!   are compared differ by the change and not by luck.
//!
//! What it leaves out: stages of one sample draw their times independently of each other, epochs do not end, the
//! engines' groups are not formed, and processors do not slow each other down through caches and memory.

use std::ops::Add;

mod capacity;
mod check;
mod forecast;
mod hardware;
mod run;
mod service;

use serde::{Deserialize, Serialize};

pub use capacity::Limit;
pub use forecast::{Event, Forecast, Options, Shares, StageUse, What, Who};
pub use hardware::Hardware;
pub use service::Service;

/// The same simulation for pages: `simulate(model, options)` and `capacity(model)`, plain JavaScript without imports,
/// to be put into a `script` element. Models and options are the JSON of [`Model`] and [`Options`].
pub const JAVASCRIPT: &str = include_str!("model.js");

/// Slots of a ring with so many batches ahead of the consumer: one more, for the batch that the consumer has.
pub fn slots<N: Add<Output = N> + From<u8>>(prefetch: N) -> N {
    prefetch + N::from(1)
}

/// A pipeline as the simulation sees it. Times are in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Samples per batch.
    pub batch: u32,
    /// Batches the ring can hold: the ready ones, the ones that are being filled and the consumer's. See [`slots`].
    pub slots: u32,
    /// One entry a worker: its slowness. 1 is as measured; a straggler of 4 takes four times as long.
    pub workers: Vec<f64>,
    /// When each worker begins; empty: all at 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starts: Vec<f64>,
    /// Processors for the stages on the CPU.
    pub cores: u32,
    /// What others take of them; without it: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contention: Option<Contention>,
    /// What a stage may need besides a core.
    #[serde(default)]
    pub resources: Vec<Resource>,
    /// What happens to every sample, in order; the detached ones come last.
    pub stages: Vec<Stage>,
    /// Samples that may be under way at once, from a worker's taking one up to the end of its detached stages:
    /// the pages of a device. Without it only the slots bound them.
    #[serde(default)]
    pub pages: Option<u32>,
    /// What a batch costs once its places are finished: publishing it, launching its kernel. The worker that finished
    /// last does it, and occupies no core; where stages are detached nobody does, but the page is held.
    #[serde(default)]
    pub per_batch: f64,
    /// Who uses the batches.
    pub consumer: Consumer,
}

/// What other programs, a quota and the hypervisor leave of the processors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contention {
    /// How fast a thread of ours is on a core where as few as may be run: above 0, up to 1. Who has a core takes turns on it with
    /// others.
    pub speed: f64,
    /// Cores' worth that all of our threads together have: above 0, up to the number of cores.
    pub available: f64,
}

/// Something that stages need and that there is only so much of: channels of a disk, JPEG engines, a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resource {
    /// Its name in reports.
    pub name: String,
    /// Samples that it serves at once.
    pub servers: u32,
}

/// A step on the way of every sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// Its name in reports.
    pub name: String,
    /// What it occupies.
    pub on: On,
    /// How long it takes, without waiting for what it occupies.
    pub service: Service,
    /// The worker does not wait for it.
    #[serde(default)]
    pub detached: bool,
}

/// What a stage occupies while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum On {
    /// A core.
    Cpu,
    /// Nothing: the latency of a disk or a network.
    Wait,
    /// A server of the resource of this index.
    Resource(usize),
}

/// The training loop, or whatever else takes batches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Consumer {
    /// From getting a batch to asking for the next.
    pub step: Service,
    /// The slot is given back at the end of the step, not at its beginning.
    #[serde(default = "yes")]
    pub holds: bool,
    /// The part of a step that occupies a core, 0 to 1; it comes first. Waiting for a core makes the step longer and
    /// is not waiting for data.
    #[serde(default)]
    pub host_share: f64,
}

fn yes() -> bool {
    true
}

impl Contention {
    /// How many times as long work on a core takes while so many cores are ours.
    pub(crate) fn slowdown(&self, running: u32) -> f64 {
        (1.0 / self.speed).max(f64::from(running) / self.available)
    }
}

impl Model {
    /// Batches that may be ahead of the consumer's: `slots` - 1.
    pub fn prefetch(&self) -> u32 {
        self.slots.saturating_sub(1)
    }
}
