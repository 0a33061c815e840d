//! Tests of the program `feedwater`.

mod bench_ops;
mod commands;
#[path = "../../../../tests/common/mod.rs"]
mod common;
mod explain;
mod explain_figures;
mod explain_ranks;
mod metrics;
mod pack;
mod probe;
mod ranks;
mod reference;
mod remote;
#[path = "../../../../tests/servers/mod.rs"]
mod servers;
mod simulate;
mod terminal;
mod threads;

use common::words;
use std::path::PathBuf;

/// Root of the repository, which contains the golden files.
fn repository() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
