//! Tests batch operators, which mix pairs of samples and the soft targets of the pairs.

mod draws;
mod errors;
mod formulas;
mod order;
mod settings;
mod twins;

use crate::common::{jpegs, training};
use feedwater::loader::{DeviceChoice, Loader, LoaderBuilder, Pair};
use feedwater::op::{Chain, CutMix, Mixup, MixupOrCutMix};
use feedwater::source::Memory;

const SAMPLES: u64 = 61;

/// Returns a loader of [`SAMPLES`] samples. The label of each sample is its index.
fn builder(chain: Chain) -> LoaderBuilder {
    let source = Memory::new(jpegs(SAMPLES)).unwrap();
    settled(Loader::builder(source, chain))
}

fn settled(builder: LoaderBuilder) -> LoaderBuilder {
    let builder =
        builder.device(DeviceChoice::Cpu).num_workers(2).batch_size(4).shuffle(true).seed(7);
    builder.configure(|it| {
        it.targets.classes = Some(SAMPLES as u32);
        it.targets.smoothing = 0.1;
    })
}

/// Returns chains whose batch operators mix all pairs or some of them.
fn mixing() -> [Chain; 3] {
    let some = MixupOrCutMix { probability: 0.7, ..Default::default() };
    let both = training().then_batch(CutMix::alpha(1.0)).then_batch(Mixup::alpha(0.4));
    [training().then_batch(Mixup::alpha(0.8)), training().then_batch(some), both]
}

/// A delivered sample.
#[derive(Clone, Debug, PartialEq)]
struct Made {
    index: u64,
    pixels: Vec<u8>,
    target: Vec<f32>,
    pair: Pair,
}

/// Consumes at most `batches` batches and returns their samples, without the padding of the last
/// batch.
fn run(loader: &mut Loader, batches: usize) -> Vec<Made> {
    let mut all = Vec::new();
    for batch in loader.into_iter().take(batches) {
        let batch = batch.unwrap();
        let pixels = batch.host().unwrap().chunks(batch.shape().sample_bytes());
        let targets = batch.soft_targets().unwrap().chunks(batch.classes());
        for (place, (pixels, target)) in pixels.zip(targets).enumerate() {
            let record = batch.samples()[place];
            if !record.padding {
                let pair = batch.pairs()[place / 2];
                let (pixels, target) = (pixels.to_vec(), target.to_vec());
                all.push(Made { index: record.index, pixels, target, pair });
            }
        }
    }
    all
}

/// Returns the samples of an epoch.
fn epoch(builder: LoaderBuilder) -> Vec<Made> {
    run(&mut builder.build().unwrap(), usize::MAX)
}
