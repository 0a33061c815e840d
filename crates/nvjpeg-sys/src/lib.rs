//! Declarations of nvJPEG's C interface: the functions that feedwater calls, and their types.
//!
//! bindgen writes `bindings.rs` from the public header of nvJPEG 13.3. A program that calls these
//! declarations directly must link nvJPEG. feedwater does not link it: it opens the library at run
//! time and looks up each function (`src/gpu/nvjpeg/calls.rs`).
//!
//! To regenerate: `NVJPEG_INCLUDE=<directory of nvjpeg.h> cargo build -p feedwater-nvjpeg-sys
//! --features bindgen`. To declare another function, add its name to `FUNCTIONS` in `build.rs`
//! first.

#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]
#![allow(missing_docs, clippy::all)]

mod bindings;

pub use bindings::*;
