//! nvJPEG's C interface. The library is opened at run time, so nothing links CUDA.
//!
//! `bindings.rs` contains the declarations of nvJPEG 13.3's public header as bindgen writes them,
//! without comments. [`NvJpegLib`] contains one `Result` per function, because an older library
//! lacks some functions. Check a function's `Result` before the call, because calling a missing
//! function panics.
//!
//! To regenerate: `NVJPEG_INCLUDE=<directory of nvjpeg.h> cargo build -p feedwater-nvjpeg-sys
//! --features bindgen`.

#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]
#![allow(missing_docs, clippy::all)]

mod bindings;

pub use bindings::*;
