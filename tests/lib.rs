//! Code that test programs share.

#![allow(missing_docs, reason = "only tests and benches use it")]

pub mod common;
pub mod servers;
pub mod simulated;
