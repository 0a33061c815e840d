#![doc = include_str!("../README.md")]

pub mod annotation;
pub mod config;
pub mod decode;
pub mod error;
pub mod file;
pub mod footprint;
pub mod geometry;
pub mod gpu;
pub mod handoff;
pub mod header;
pub mod image;
pub mod loader;
pub mod measure;
pub mod op;
pub mod output;
pub mod plan;
pub mod random;
pub mod ring;
pub mod source;
pub mod storage;
pub mod tensor;
pub mod transform;
pub mod tune;

pub use error::{Error, Result};
pub use feedwater_insight::{explain, model};
