//! Finds the bottleneck of an input pipeline, and predicts the gain of other settings.
//!
//! This crate contains only data types and arithmetic. The crate `feedwater` measures runs, and
//! creates a [`profile::Profile`]. Only [`explain::ReadScaling::measure`] measures something
//! itself, and starts threads for it.
//!
//! * [`profile`]: measurements of a run, as plain data.
//! * [`model`]: a discrete-event simulation of the pipeline.
//! * [`explain`]: fits the model to a profile, and writes the report as text, JSON and HTML.

pub mod explain;
pub mod model;
pub mod profile;
pub mod text;

mod error;

pub use error::{Error, Result};
