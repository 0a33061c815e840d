//! Code that test programs share.

#![allow(missing_docs, reason = "only tests use it")]

pub mod common;
pub mod servers;
pub mod simulated;
