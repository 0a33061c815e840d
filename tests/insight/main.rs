//! Explanation and tuning: reports on measured runs, and the settings that the tuner chooses,
//! compared with the optimum.

#[path = "../common/mod.rs"]
mod common;
mod contention;
mod html;
mod prefetch;
mod tune;
