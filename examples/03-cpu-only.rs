//! An epoch without a GPU: everything is placed on the CPU by hand, damaged files are skipped and counted, and the time per stage
//! is printed.
//!
//! `cargo run --release --example 03-cpu-only -- DIRECTORY`

use feedwater::loader::{DeviceChoice, Loader};
use feedwater::op::{self, Chain, Placement};
use feedwater::plan::{Last, OnError};
use feedwater::source::Directory;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).ok_or("name a directory with one folder per class")?;

    // `cpu` places each step on the CPU; `then` would use `auto`.
    let chain = Chain::new()
        .then_on(Placement::Cpu, op::Resize::shorter(256))
        .then_on(Placement::Cpu, op::CenterCrop::to(224, 224))
        .then_on(Placement::Cpu, op::Normalize::IMAGENET);
    let mut loader = Loader::builder(Directory::open(directory)?, chain)
        .device(DeviceChoice::Cpu)
        .decode(Placement::Cpu)
        .batch(32)
        .last(Last::Partial)
        .on_error(OnError::Skip)
        .epochs(Some(1))
        .build()?;
    println!("{}", loader.plan());

    for batch in &mut loader {
        let batch = batch?;
        for fault in batch.faults() {
            println!("{fault}");
        }
        // The tensor without a copy; dropping `batch` returns the slot to the loader.
        let _: Option<&[u8]> = batch.host();
    }

    let stats = loader.stats();
    println!("{} images, {:.0} a second", stats.images, stats.images as f64 / stats.seconds);
    println!("seconds of all threads: {:.2?}", stats.stages);
    println!("outcomes: {:?}", stats.outcomes);
    println!("faults: {:?}", stats.faults);
    Ok(())
}
