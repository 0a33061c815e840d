//! The loader on the CPU with all cores: an epoch of photographs through the training and the
//! evaluation chain.
//!
//! Run it with `cargo bench --bench loader`. Throughput is in images per second. Building the
//! loader is not measured. `FEEDWATER_PHOTOS` adds the user's own sets (docs/benchmarks.md).

mod common;

use std::time::{Duration, Instant};

use common::photos::PhotoSet;
use criterion::{
    BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main,
};
use feedwater::loader::{DeviceChoice, Loader};
use feedwater::op::Chain;
use feedwater::plan::LastBatch;

criterion_group!(benches, loader);
criterion_main!(benches);

const IMAGES: u64 = 512;

fn loader(criterion: &mut Criterion) {
    let uniform = PhotoSet::uniform(IMAGES, common::SIZES[0]);
    let sets =
        [PhotoSet::like_imagenet(IMAGES), uniform].into_iter().chain(common::photos::own_photos());
    for (number, set) in sets.enumerate() {
        println!("{}", set.composition());
        of_set(criterion, &set, &format!("loader-{number}.tsv"));
    }
}

fn of_set(criterion: &mut Criterion, set: &PhotoSet, list: &str) {
    let mut group = criterion.benchmark_group("loader");
    let images = Throughput::Elements(set.files.len() as u64);
    group.throughput(images).sampling_mode(SamplingMode::Flat);
    group.sample_size(10).measurement_time(Duration::from_secs(10));
    for (name, chain) in [("train", common::training()), ("eval", common::evaluation())] {
        for prescale in [false, true] {
            for prefetch in [1, 2, 4] {
                if name == "eval" && prefetch != 2 {
                    continue;
                }
                let name = format!(
                    "decode=cpu/batch=64/prefetch={prefetch}/chain={name}/prescale={prescale}/set={}",
                    set.name
                );
                group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
                    bencher.iter_custom(|epochs| {
                        epochs_of(set, list, &chain, prefetch, prescale, epochs)
                    });
                });
            }
        }
    }
    group.finish();
}

/// Returns the time of `epochs` epochs.
fn epochs_of(
    set: &PhotoSet,
    list: &str,
    chain: &Chain,
    prefetch: usize,
    prescale: bool,
    epochs: u64,
) -> Duration {
    let mut loader = Loader::builder(set.source(list), chain.clone())
        .device(DeviceChoice::Cpu)
        .batch_size(64)
        .last_batch(LastBatch::Partial)
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
