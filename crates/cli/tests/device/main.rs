//! Tests of the program and of its self-test on a simulated GPU.

mod acceptance;
mod bench;
mod bench_ops_gpu;
mod local_rank;
mod rehearsal;
mod selftest_decode;
mod selftest_gpu;

use std::path::PathBuf;

use feedwater_tests::common::{self, words};
use feedwater_tests::simulated;

/// Root of the repository, which contains the scripts.
fn repository() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
