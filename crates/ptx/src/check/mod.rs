//! Detection of races. The check records the last accesses to each byte, and which accesses
//! happened before which.

mod clocks;
mod shadow;

pub(crate) use clocks::{BarrierClock, Clocks};
pub(crate) use shadow::{Conflict, Shadow, Stamp};
