//! Code that test programs share.

#![allow(missing_docs, reason = "only tests and benches use it")]

pub mod jpeg_kernels;
pub mod servers;
pub mod simulated;

pub use feedwater_tests_common as common;
