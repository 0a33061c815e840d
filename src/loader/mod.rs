//! The loader: its threads, its rings and the public API.
//!
//! Its modules, from the lowest floor up. A module imports only from lower floors (`tests/floors`
//! checks this):
//!
//! | floor | module | content |
//! |---|---|---|
//! | 0 | `order` | the sample at each position of an epoch |
//! | 0 | `balance` | the choice of the engine that decodes an image |
//! | 0 | `controls` | how many workers are active, and which part of the work runs on the device |
//! | 1 | `sample` | one sample: reading, caches, planning, decoding, the outcome |
//! | 2 | `slot` | one batch while it is filled, and the jobs that fill it |
//! | 3 | `stats` | counts of everything that was delivered |
//! | 3 | `host`, `device` | the threads that fill batches, in host memory and in device memory |
//! | 4 | `batch` | a batch that the consumer holds |
//! | 5 | `engine` | the ring, the threads and their tuning |
//! | 6 | `watching` | metrics, and the utilization of the device |
//! | 7 | `api` | `Loader`, its builder and its epochs |

pub(crate) mod api;
pub(crate) mod balance;
mod batch;
mod controls;
pub(crate) mod device;
mod engine;
mod host;
pub(crate) mod order;
pub(crate) mod sample;
mod slot;
mod stats;
mod watching;

pub use crate::plan::DeviceChoice;
pub use api::Loader;
pub use api::builder::LoaderBuilder;
pub use api::epoch::{Batches, Epoch, SharedEpoch};
pub use api::state::LoaderState;
pub use batch::{Batch, Column};
pub use engine::stop_handle::StopHandle;
pub use sample::cache::{CacheEpoch, CacheStats};
pub use sample::record::{Outcome, Pair, PairOutcome, SampleRecord};
pub use stats::{EpochStats, FieldStats, MemoryStats, StageSeconds, Stats};
