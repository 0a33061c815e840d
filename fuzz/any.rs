//! libFuzzer on the targets of `targets.rs`. With cargo-fuzz 0.13, from the top of the repository:
//!
//! ```text
//! mkdir -p target/fuzz/lmdb
//! FEEDWATER_FUZZ_TARGET=lmdb cargo fuzz run -s none any target/fuzz/lmdb \
//!     fuzz/corpus/lmdb tests/golden/lmdb -- -max_total_time=300 -max_len=65536 -timeout=20 -malloc_limit_mb=80
//! ```
//!
//! `-s none` needs no nightly compiler; with one and without it, the C of libjpeg-turbo is still not instrumented. What is
//! found belongs into `fuzz/corpus/TARGET/`, whose files every test run tries.

#![no_main]

use std::env;
use std::sync::LazyLock;

mod targets;

use targets::{TARGETS, Target};

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = env::var("FEEDWATER_FUZZ_TARGET").unwrap_or_default();
    TARGETS.iter().find(|target| target.0 == name).unwrap_or_else(|| {
        let names: Vec<_> = TARGETS.iter().map(|target| target.0).collect();
        panic!("FEEDWATER_FUZZ_TARGET is {name:?}, must be one of {}", names.join(", "))
    })
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    (TARGET.2)(bytes);
});
