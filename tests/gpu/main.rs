//! The GPU path on a simulated machine: driver, nvJPEG, loader, exports, failures. Needs no GPU.
//!
//! The simulated streams run queued work as late, or in as random an order, as CUDA's rules allow.
//! A missing wait therefore shows as a wrong batch.

mod choose;
mod device_code;
mod device_time;
mod driver;
mod engines;
mod failures;
mod handoff;
mod loader;
mod nvjpeg;
mod tuning;
mod views;

use feedwater_tests::{common, simulated};
