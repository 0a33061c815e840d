//! Prints the plan and the memory of a loader, and its first batch. The images are in a directory
//! with one folder per class.
//!
//! `cargo run --release --example 01-first-batch -- DIRECTORY`

use feedwater::loader::Loader;
use feedwater::op::{self, Chain};
use feedwater::source::Directory;
use feedwater::{DType, Layout};

fn main() -> Result<(), feedwater::MainError> {
    let directory = std::env::args().nth(1).ok_or("name a directory with one folder per class")?;
    let source = Directory::open(directory)?;
    let classes = feedwater::source::Source::classes(&source).to_vec();

    let chain = Chain::new()
        .then(op::RandomResizedCrop::to(224, 224))
        .then(op::Flip { horizontal: 0.5, ..Default::default() })
        .then(op::Normalize::IMAGENET);
    let mut loader = Loader::builder(source, chain)
        .batch_size(8)
        .prefetch(2)
        .shuffle(true)
        .output(DType::F32, Layout::Nchw)
        .build()?;
    println!("{}\n{}", loader.device(), loader.plan());

    let Some(batch) = loader.epoch().next() else { return Ok(()) };
    let batch = batch?;
    println!("batch {}: {}", batch.number(), batch.shape());
    for sample in batch.samples() {
        let class = sample.label.and_then(|label| classes.get(usize::try_from(label).ok()?));
        println!(
            "{:<40} {:<12} {:>9} crop {} mirrored {}",
            loader.source().location(sample.index),
            class.map_or("-", String::as_str),
            sample.size.to_string(),
            sample.trace.roi,
            sample.trace.flipped_horizontally
        );
    }

    // Copies the batch from host or device; on the CPU, `batch.host()` returns it without a copy.
    let bytes = batch.to_host()?;
    let values: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
    let mean = values.iter().map(|&value| f64::from(value)).sum::<f64>() / values.len() as f64;
    println!("mean {mean:.3}");
    Ok(())
}
