//! Discrete-event simulation of the pipeline, used to explain runs, to predict changes and to tune settings.
//!
//! The simulation follows every sample. Each rule below has a test in `tests/model/`:
//! * Workers take samples in epoch order. If no slot is free, the worker that takes the first
//!   sample of a batch waits, and all later workers wait too. The loader has the same rule
//!   (`loader/slot/feed.rs`).
//! * With pages, a worker takes a page before its sample, as on a device. The page is held until the last stage of the sample
//!   ends, including detached stages.
//! * A sample passes the stages in order. A stage on the CPU occupies a core, and a stage on a resource one of its servers. When
//!   all are busy, samples queue first come, first served. A `wait` stage occupies nothing.
//! * Other programs slow down work on a core by the factor that was measured for one thread. The
//!   factor is larger if the process has more running threads than cores are left ([`Contention`]).
//! * When the first detached stage begins, the worker continues with its next sample.
//! * Samples finish in any order. Once all samples of a batch are finished, the batch takes another `per_batch` seconds. It is
//!   ready when all batches before it are.
//! * The consumer takes batches in order and works for one step. It frees the slot at the end of the step, or at its start if it
//!   does not hold slots.
//! * The slowness of a straggler multiplies its time on a core and in `wait` stages.
//! * The same model and seed give the same forecast, bit for bit, on every machine: random numbers come from 32-bit integers, and times are only added, multiplied and compared.
//! * The time of a stage depends only on the seed, the sample and the stage. Two compared forecasts therefore differ by the
//!   change and not by chance.
//!
//! Not modelled: correlation between the stage times of one sample, ends of epochs, groups of the JPEG engines, and processors
//! that slow each other down through caches and memory.

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

/// Slots of a ring with so many batches ahead of the consumer: one more, for the batch that the consumer has.
pub fn slots<N: Add<Output = N> + From<u8>>(prefetch: N) -> N {
    prefetch + N::from(1)
}

/// Model of a pipeline. Times are in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Samples per batch.
    pub batch: u32,
    /// Number of batches in the ring: ready batches, batches that are being filled, and the
    /// consumer's batch. See [`slots`].
    pub slots: u32,
    /// Slowness of each worker: 1 is as measured, and a straggler of 4 takes four times as long.
    pub workers: Vec<f64>,
    /// Start time of each worker in seconds; empty if all start at 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starts: Vec<f64>,
    /// Processors for the stages on the CPU.
    pub cores: u32,
    /// Processor time that others leave to this process; `None` if they take nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contention: Option<Contention>,
    /// Resources that stages may need instead of a core.
    #[serde(default)]
    pub resources: Vec<Resource>,
    /// Stages of every sample, in order; detached ones come last.
    pub stages: Vec<Stage>,
    /// Largest number of samples in flight, from a worker's start to the end of the detached
    /// stages: the pages of a device. With `None`, only the slots limit this number.
    #[serde(default)]
    pub pages: Option<u32>,
    /// Seconds to publish a finished batch and launch its kernel. The worker that finished last spends them, without a core. With
    /// detached stages no worker is occupied, but the page is held.
    #[serde(default)]
    pub per_batch: f64,
    /// Consumer of the batches.
    pub consumer: Consumer,
}

/// Processor time that other programs, a quota and the hypervisor leave to this process.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contention {
    /// Relative speed of a thread on a core that it shares with other programs, above 0 and at most 1, when there are no more
    /// threads than cores.
    pub speed: f64,
    /// Cores that all threads of this process have together, above 0 and at most the number of cores.
    pub available: f64,
}

/// Limited resource of stages: channels of a disk, JPEG engines, or a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resource {
    /// Name in reports.
    pub name: String,
    /// Samples served at the same time.
    pub servers: u32,
}

/// Stage that every sample passes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// Name in reports.
    pub name: String,
    /// What the stage occupies.
    pub on: On,
    /// Service time, without waiting for what the stage occupies.
    pub service: Service,
    /// Whether the worker continues with its next sample without waiting for this stage.
    #[serde(default)]
    pub detached: bool,
}

/// What a stage occupies while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum On {
    /// A core.
    Cpu,
    /// Nothing: latency of a disk or a network.
    Wait,
    /// A server of the resource with this index.
    Resource(usize),
}

/// Training loop or other consumer of the batches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Consumer {
    /// Time from getting a batch to asking for the next.
    pub step: Service,
    /// Whether the slot is freed at the end of the step, rather than at its beginning.
    #[serde(default = "yes")]
    pub holds: bool,
    /// Part of a step that occupies a core, 0 to 1. It comes first. Waiting for a core makes the step longer and does not count
    /// as waiting for data.
    #[serde(default)]
    pub host_share: f64,
}

fn yes() -> bool {
    true
}

impl Contention {
    /// Slowdown of work on a core while `running` cores are occupied by this process.
    pub(crate) fn slowdown(&self, running: u32) -> f64 {
        (1.0 / self.speed).max(f64::from(running) / self.available)
    }
}

impl Model {
    /// Batches that may be prefetched before the consumer asks: `slots` - 1.
    pub fn prefetch(&self) -> u32 {
        self.slots.saturating_sub(1)
    }
}
