//! From a pipeline file to a plan: settings, the plan's decisions, memory limits, and error
//! messages.

mod budget;
#[path = "../common/mod.rs"]
mod common;
mod config;
mod decisions;
