//! Runs libFuzzer on a target of `targets.rs`. With cargo-fuzz 0.13, from the root of the
//! repository:
//!
//! ```text
//! mkdir -p target/fuzz/lmdb
//! FEEDWATER_FUZZ_TARGET=lmdb cargo fuzz run -s none any target/fuzz/lmdb \
//!     fuzz/corpus/lmdb tests/golden/lmdb -- -max_total_time=300 -max_len=65536 -timeout=20 -malloc_limit_mb=80
//! ```
//!
//! `-s none` works without a nightly compiler. The C code of libjpeg-turbo is not instrumented with
//! either compiler. Add files that cause failures to `fuzz/corpus/TARGET/`: every test run tries
//! the files there.

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
