//! Detection of races: who accessed each byte last, and what happened before what.

mod clocks;
mod shadow;

pub(crate) use clocks::{BarrierClock, Clocks};
pub(crate) use shadow::{Conflict, Shadow, Stamp};
