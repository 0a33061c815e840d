//! The report as a page. What a browser makes of it is tested in `tests/browser/`.

mod common;

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs, thread};

use feedwater::explain::{Differential, Options, Report, explain};
use feedwater::loader::{DeviceChoice, Loader};
use feedwater::measure::{Moment, Profile, SpanProfile, ThreadProfile};
use feedwater::op::{self, Chain};
use feedwater::source::Memory;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/explain/profile.json")
}

/// What a loader measured, with which the tests begin: `cargo test --test explain_html -- --ignored write_the_profile`.
#[test]
#[ignore = "writes tests/golden/explain/profile.json"]
fn write_the_profile() {
    let pictures = (0..48).map(|seed| (common::jpeg(seed, 400 + 9 * seed as u32, 300), 0));
    let chain = Chain::new()
        .then(op::RandomResizedCrop::to(224, 224))
        .then(op::Flip { horizontal: 0.5, ..Default::default() })
        .then(op::Normalize::IMAGENET);
    let loader = Loader::builder(Memory::new(pictures.collect()).unwrap(), chain)
        .device(DeviceChoice::Cpu)
        .batch(8)
        .workers(2)
        .prefetch(3)
        .shuffle(true)
        .build()
        .unwrap();
    for _ in 0..20 {
        for (number, batch) in (&loader).into_iter().enumerate() {
            let batch = batch.unwrap();
            thread::sleep(Duration::from_millis(9));
            if number == 0 {
                let _span = loader.span("logging");
                thread::sleep(Duration::from_millis(4));
            }
            drop(batch);
        }
    }
    let json = serde_json::to_string(&loader.profile()).unwrap();
    fs::write(golden(), json + "\n").unwrap();
}
