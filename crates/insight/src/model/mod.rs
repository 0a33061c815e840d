//! Discrete-event simulation of the pipeline. It explains runs, predicts changes and tunes
//! settings.
//!
//! The simulation follows every sample. Each rule below has a test in `tests/model/`:
//! * Workers take samples in the order of the epoch. If no slot is free, the worker that takes the
//!   first sample of a batch waits, and all workers after it wait too. Real loaders have the same
//!   rule (`loader/slot/feed.rs`).
//! * If the model has pages, a worker takes a page before its sample, as in a loader for a device.
//!   A sample keeps its page until the end of its last stage, which may be a detached stage.
//! * A sample passes through the stages in order. A stage on the CPU occupies a core, and a stage
//!   on a resource occupies one of its servers. If all are busy, samples queue in the order of
//!   their arrival. A `wait` stage occupies nothing.
//! * Other programs slow down work on a core by a factor that was measured for one thread. The
//!   factor is larger while more threads of the process run than cores are available
//!   ([`Contention`]).
//! * A detached stage runs without the worker: when a sample's first detached stage begins, the
//!   worker continues with its next sample.
//! * Samples finish in any order. After the last sample of a batch, the batch takes another
//!   `per_batch` seconds. The batch becomes ready as soon as it and all batches before it are
//!   complete.
//! * The consumer takes batches in order and works on each for one step. It frees the slot of a
//!   batch at the end of the step. A consumer that does not hold slots frees it at the beginning.
//! * The slowness of a straggler multiplies the straggler's time on a core and in `wait` stages.
//! * The same model and seed give the same forecast, bit for bit, on every machine. For that,
//!   random numbers are computed from 32-bit integers, and times are only added, multiplied and
//!   compared.
//! * The time of a stage depends only on the seed, the sample and the stage. So a changed model
//!   gets the same random times, and two forecasts differ only because of the change.
//!
//! Not modelled: correlation between the stage times of one sample, ends of epochs, groups of
//! images that the JPEG engines decode together, and processors that slow each other down through
//! caches and memory.

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

/// Number of slots of a ring that prefetches this number of batches. One more slot holds the batch
/// that the consumer uses.
pub fn slots<N: Add<Output = N> + From<u8>>(prefetch: N) -> N {
    prefetch + N::from(1)
}

/// Model of a pipeline. All times are in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Samples per batch.
    pub batch: u32,
    /// Number of slots in the ring. Each slot holds a ready batch, a batch that is being filled, or
    /// the consumer's batch. See [`slots`].
    pub slots: u32,
    /// Slowness of each worker. 1 is the measured speed, and a worker with 4 takes four times as
    /// long.
    pub workers: Vec<f64>,
    /// Start time of each worker in seconds. Empty if all workers start at 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starts: Vec<f64>,
    /// Number of processors for the stages on the CPU.
    pub cores: u32,
    /// Processor time that other programs leave to this process. `None` if they take almost
    /// nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contention: Option<Contention>,
    /// Resources that stages can occupy instead of a core.
    #[serde(default)]
    pub resources: Vec<Resource>,
    /// Stages of every sample, in order. Detached stages come last.
    pub stages: Vec<Stage>,
    /// Largest number of samples in flight, which is the number of pages of a device. A sample is
    /// in flight from the moment a worker takes it to the end of its last stage. With `None`, only
    /// the slots limit this number.
    #[serde(default)]
    pub pages: Option<u32>,
    /// Seconds to publish a finished batch and to launch its kernel. The worker that finished the
    /// batch's last sample is occupied during this time, but uses no core. If the model has
    /// detached stages, the worker is free, but the sample keeps its page.
    #[serde(default)]
    pub per_batch: f64,
    /// Consumer of the batches.
    pub consumer: Consumer,
}

/// Processor time that other programs, a quota and the hypervisor leave to this process.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contention {
    /// Speed of a thread on a core that it shares with other programs, relative to a core of its
    /// own: above 0 and at most 1. Valid while the process has no more threads than cores.
    pub speed: f64,
    /// Number of cores that all threads of this process get together: above 0 and at most the
    /// number of cores.
    pub available: f64,
}

/// Resource that stages occupy and that serves a limited number of samples: a disk, JPEG engines,
/// or a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resource {
    /// Name of the resource in reports.
    pub name: String,
    /// Number of samples that the resource serves at the same time.
    pub servers: u32,
}

/// Stage through which every sample passes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// Name of the stage in reports.
    pub name: String,
    /// What the stage occupies while it runs: a core, nothing, or a resource.
    pub on: On,
    /// Time of the stage, without waiting for a core or a resource.
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
    /// Nothing. The stage only waits, for example for a disk or a network.
    Wait,
    /// One server of the resource with this index in the model.
    Resource(usize),
}

/// Training loop or other consumer of the batches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Consumer {
    /// Time from receiving a batch to asking for the next one.
    pub step: Service,
    /// Whether the consumer frees the slot of its batch at the end of the step. Otherwise it frees
    /// the slot at the beginning.
    #[serde(default = "yes")]
    pub holds: bool,
    /// Share of a step that occupies a core, from 0 to 1. This part comes first in the step. If it
    /// has to wait for a core, the step becomes longer. This wait does not count as waiting for
    /// data.
    #[serde(default)]
    pub host_share: f64,
}

fn yes() -> bool {
    true
}

impl Contention {
    /// Factor by which work on a core slows down while this process occupies `running` cores.
    pub(crate) fn slowdown(&self, running: u32) -> f64 {
        (1.0 / self.speed).max(f64::from(running) / self.available)
    }
}

impl Model {
    /// Number of batches that can be prefetched before the consumer asks for them: `slots` - 1.
    pub fn prefetch(&self) -> u32 {
        self.slots.saturating_sub(1)
    }
}
