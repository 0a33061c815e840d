//! Tests every source: samples, errors, and combinations.

mod annotation;
mod bad_shards;
mod beton;
mod classes;
mod coco;
mod coco_forms;
mod combine;
mod displaced;
mod index;
mod largest;
mod list;
mod lmdb;
mod npy;
mod parquet;
mod raw;
mod recordio;
mod slivers;
mod source;
mod tfrecord;
mod webdataset;

use std::fs;
use std::path::Path;

use feedwater::error::Reason;
use feedwater::source::Source;
use feedwater::source::custom::HostPage;
use feedwater_tests::common;
use tempfile::TempDir;

/// Returns a file that `tests/golden/records.py` wrote.
fn golden_record(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/records");
    fs::read(folder.join(name)).unwrap()
}

/// Creates a temporary folder with these files.
fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        fs::write(root.path().join(name), bytes).unwrap();
    }
    root
}

/// Reads a sample.
fn read(source: &dyn Source, index: u64) -> Result<Vec<u8>, Reason> {
    let mut page = HostPage::default();
    source.read(index, &mut page, 1 << 30).map_err(|fault| fault.reason)?;
    Ok(page.bytes().to_vec())
}
