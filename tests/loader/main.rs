//! The loader on the CPU: lifecycle, order, resuming, caches, tuning, and single images.

mod cache;
#[path = "../common/mod.rs"]
mod common;
mod lifecycle;
mod order;
mod preprocessor;
mod resume;
mod ring;
#[path = "../simulated/mod.rs"]
mod simulated;
mod tuning;
