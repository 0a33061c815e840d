//! The GPU path on a simulated machine: driver, nvJPEG, loader, exports, failures. Needs no GPU.
//!
//! Streams are queues that run as late or as randomly as the schedule allows. So a missing wait
//! shows as a wrong batch.

mod choose;
#[path = "../common/mod.rs"]
mod common;
mod device_code;
mod device_time;
mod driver;
mod engines;
mod failures;
mod handoff;
mod loader;
mod nvjpeg;
#[path = "../simulated/mod.rs"]
mod simulated;
mod tuning;
mod views;
