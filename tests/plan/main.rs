//! From a pipeline file to a plan: settings, the plan's decisions, memory limits, and error
//! messages.

mod budget;
mod config;
mod decisions;

use feedwater_tests::common;
