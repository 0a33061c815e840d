//! Reports on an input pipeline: what limits it, and what a change of settings would gain.
//!
//! This crate holds data and arithmetic only. It measures nothing and starts no threads of its own except to time the
//! consumer alone. The crate `feedwater` measures a run and makes a [`profile::Profile`] of it.
//!
//! * [`profile`]: what was measured in a run, as plain data.
//! * [`model`]: a discrete-event simulation of the pipeline, with a twin in JavaScript that gives equal results.
//! * [`explain`]: fits the model to a profile, and writes the report as text, JSON and HTML.

pub mod explain;
pub mod model;
pub mod profile;
pub mod text;

mod error;

pub use error::{Error, Result};
