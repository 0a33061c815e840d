//! nvJPEG's C interface, opened at run time: nothing links CUDA.
//!
//! `bindings.rs` holds the declarations of nvJPEG 13.3's public header as bindgen writes them, without its
//! comments. [`NvJpegLib`] holds one `Result` per function, because an older library lacks some of them:
//! look at it before the call, for a call of a function that is missing panics.
//!
//! To regenerate: `NVJPEG_INCLUDE=<directory of nvjpeg.h> cargo build -p nvjpeg-sys --features bindgen`.

#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]
#![allow(missing_docs, clippy::all)]

mod bindings;

pub use bindings::*;
