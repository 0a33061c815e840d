//! Metrics of a loader, and the utilization of its device.

pub mod metrics;
pub mod watch;
