//! Tests of the program `feedwater`.

mod bench_ops;
mod commands;
mod explain;
mod explain_figures;
mod explain_ranks;
mod metrics;
mod pack;
mod probe;
mod ranks;
mod reference;
mod remote;
mod simulate;
mod terminal;
mod threads;

use std::path::PathBuf;

use feedwater_tests::common::{self, words};
use feedwater_tests::servers;

/// Root of the repository, which contains the golden files.
fn repository() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
