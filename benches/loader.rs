//! The loader on the CPU, all cores: an epoch of photographs through the training and the evaluation chain.
//!
//! `cargo bench --bench loader`. Throughput is images per second; building the loader is not measured.

mod common;

use std::time::{Duration, Instant};

use criterion::{
    BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main,
};
use feedwater::loader::{DeviceChoice, Loader};
use feedwater::op::{self, Chain};
use feedwater::source::Directory;

criterion_group!(benches, loader);
criterion_main!(benches);

const IMAGES: u64 = 512;

fn loader(criterion: &mut Criterion) {
    let dir = common::set(IMAGES, common::SIZES[0]);
    let mut group = criterion.benchmark_group("loader");
    group.throughput(Throughput::Elements(IMAGES)).sampling_mode(SamplingMode::Flat);
    group.sample_size(10).measurement_time(Duration::from_secs(10));
    for (name, chain) in [("train", common::training()), ("eval", evaluation())] {
        for prescale in [false, true] {
            for prefetch in [1, 2, 4] {
                if name == "eval" && prefetch != 2 {
                    continue;
                }
                let name = format!(
                    "decode=cpu/batch=64/prefetch={prefetch}/chain={name}/prescale={prescale}/size=500x375"
                );
                group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
                    bencher
                        .iter_custom(|epochs| epochs_of(&dir, &chain, prefetch, prescale, epochs));
                });
            }
        }
    }
    group.finish();
}

/// Time of this number of epochs.
fn epochs_of(
    dir: &std::path::Path,
    chain: &Chain,
    prefetch: usize,
    prescale: bool,
    epochs: u64,
) -> Duration {
    let source = Directory::open(dir).expect("the set exists");
    let mut loader = Loader::builder(source, chain.clone())
        .device(DeviceChoice::Cpu)
        .batch(64)
        .prefetch(prefetch)
        .shuffle(true)
        .prescale(prescale)
        .epochs(Some(epochs as u32))
        .build()
        .expect("the settings are valid");
    let begin = Instant::now();
    for _ in 0..epochs {
        for batch in &mut loader {
            batch.expect("the images are intact");
        }
    }
    begin.elapsed()
}

/// Resizes the shorter side to 256, crops the middle 224x224, and normalizes for ImageNet.
fn evaluation() -> Chain {
    Chain::new()
        .then(op::Resize::shorter(256))
        .then(op::CenterCrop::to(224, 224))
        .then(op::Normalize::IMAGENET)
}
