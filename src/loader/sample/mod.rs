//! Processing of one sample, from reading it to its outcome.

pub mod cache;
pub mod fields;
pub mod large;
pub mod pipeline;
pub mod policy;
pub mod prefetcher;
pub mod reader;
pub mod record;
