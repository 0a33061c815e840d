//! Checks of loaders on the CPU: batches must not depend on the configuration, and every sample
//! must occur once.

use std::sync::OnceLock;

use feedwater::loader::{DeviceChoice, Loader, LoaderBuilder};
use feedwater::op::{Chain, Flip, Normalize, RandomResizedCrop};
use feedwater::plan::LastBatch;
use feedwater::source::Memory;
use feedwater_tools::synth;

use super::{Check, Found, epoch, message};

const SAMPLES: u64 = 50;
const BATCH: usize = 8;

/// Encoded images with their labels.
type Samples = Vec<(Vec<u8>, i64)>;

/// Returns all checks of loaders on the CPU.
pub fn checks() -> Vec<Check> {
    vec![
        Check::new("loader/determinism", determinism()),
        Check::new("loader/every-sample-once", every_sample_once()),
    ]
}

/// Returns the usual training chain, with an output of 48x40 pixels.
pub fn training() -> Chain {
    Chain::new()
        .then(RandomResizedCrop::to(48, 40))
        .then(Flip { horizontal: 0.5, ..Flip::default() })
        .then(Normalize::IMAGENET)
}

/// Creates a loader on the CPU. Its images are in memory, and their labels are their indices.
pub fn builder() -> Result<LoaderBuilder, String> {
    let source = Memory::new(samples()?).map_err(message)?;
    Ok(Loader::builder(source, training())
        .batch_size(BATCH)
        .shuffle(true)
        .seed(3)
        .last_batch(LastBatch::Partial)
        // Read the whole set, even if environment variables of a launcher set a rank.
        .shard(0, 1)
        .device(DeviceChoice::Cpu))
}

/// Returns encoded images with their indices as labels. They are encoded only once.
pub fn samples() -> Result<Samples, String> {
    static MADE: OnceLock<Result<Samples, String>> = OnceLock::new();
    let make = |index| {
        let (width, height) = (80 + 7 * (index as u32 % 9), 64 + 5 * (index as u32 % 7));
        let rgb = synth::image(2, index, width, height);
        let jpeg = synth::encode(&rgb, width, height, 90, index % 5 == 0).map_err(message)?;
        Ok((jpeg, index as i64))
    };
    MADE.get_or_init(|| (0..SAMPLES).map(make).collect()).clone()
}

fn determinism() -> Found {
    let first = epoch(builder()?.num_workers(1).prefetch(1))?;
    for (workers, prefetch, batch) in [(2, 2, BATCH), (4, 3, BATCH), (3, 1, 5)] {
        let other = epoch(builder()?.num_workers(workers).prefetch(prefetch).batch_size(batch))?;
        if other.data != first.data || other.records != first.records {
            let message = format!("{workers} workers, prefetch {prefetch}, batch {batch}");
            return Err(format!(
                "{message}: the bytes differ from those of 1 worker with prefetch 1"
            ));
        }
    }
    Ok("the bytes do not depend on workers, prefetch or batch size".into())
}

fn every_sample_once() -> Found {
    let mut seen = Vec::new();
    for rank in 0..3 {
        let records = epoch(builder()?.shard(rank, 3))?.records;
        seen.extend(records.iter().map(|record| record.index));
    }
    seen.sort_unstable();
    match seen == (0..SAMPLES).collect::<Vec<_>>() {
        true => Ok(format!("3 shards together read each of {SAMPLES} samples once")),
        false => Err(format!("3 shards see {seen:?}")),
    }
}
