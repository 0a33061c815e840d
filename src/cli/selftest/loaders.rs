//! Loaders on the CPU: the same batches however they are made, every sample once, rings that come to an end,
//! memory as planned.

use std::sync::OnceLock;

use feedwater::footprint::{Memory as Place, bytes};
use feedwater::loader::{DeviceChoice, Loader, LoaderBuilder};
use feedwater::op::{Chain, Flip, Normalize, RandomResizedCrop};
use feedwater::plan::Last;
use feedwater::source::Memory;
use feedwater::synth;

use super::{Check, Found, epoch, words};
use crate::cli::report::status_bytes;

const SAMPLES: u64 = 50;
const BATCH: usize = 8;

/// Encoded pictures with their labels.
type Samples = Vec<(Vec<u8>, i64)>;

/// All checks; the footprint's first, since what the others leave behind would hide what a loader takes.
pub fn checks() -> Vec<Check> {
    vec![
        Check::new("loader/footprint", footprint()),
        Check::new("loader/determinism", determinism()),
        Check::new("loader/every-sample-once", every_sample_once()),
        Check::new("loader/ring", ring()),
    ]
}

/// The training chain, to 48x40.
pub fn training() -> Chain {
    Chain::new()
        .then(RandomResizedCrop::to(48, 40))
        .then(Flip { horizontal: 0.5, ..Flip::default() })
        .then(Normalize::IMAGENET)
}

/// A loader of pictures in memory on the CPU; the label is the index.
pub fn builder() -> Result<LoaderBuilder, String> {
    let source = Memory::new(samples()?).map_err(words)?;
    Ok(Loader::builder(source, training())
        .batch(BATCH)
        .shuffle(true)
        .seed(3)
        .last(Last::Partial)
        .device(DeviceChoice::Cpu))
}

/// The pictures, made once; the label is the index.
pub fn samples() -> Result<Samples, String> {
    static MADE: OnceLock<Result<Samples, String>> = OnceLock::new();
    let make = |index| {
        let (width, height) = (80 + 7 * (index as u32 % 9), 64 + 5 * (index as u32 % 7));
        let rgb = synth::picture(2, index, width, height);
        let jpeg = synth::encode(&rgb, width, height, 90, index % 5 == 0).map_err(words)?;
        Ok((jpeg, index as i64))
    };
    MADE.get_or_init(|| (0..SAMPLES).map(make).collect()).clone()
}

fn determinism() -> Found {
    let first = epoch(builder()?.workers(1).prefetch(1))?;
    for (workers, prefetch, batch) in [(2, 2, BATCH), (4, 3, BATCH), (3, 1, 5)] {
        let other = epoch(builder()?.workers(workers).prefetch(prefetch).batch(batch))?;
        if other != first {
            let words = format!("{workers} workers, prefetch {prefetch}, batch {batch}");
            return Err(format!("{words} gives other bytes than one worker"));
        }
    }
    Ok("workers, prefetch and batch size change no byte".into())
}

fn every_sample_once() -> Found {
    let mut seen = Vec::new();
    for rank in 0..3 {
        let (records, _) = epoch(builder()?.shard(rank, 3))?;
        seen.extend(records.iter().map(|record| record.index));
    }
    seen.sort_unstable();
    match seen == (0..SAMPLES).collect::<Vec<_>>() {
        true => Ok(format!("3 shards see each of {SAMPLES} samples once")),
        false => Err(format!("3 shards see {seen:?}")),
    }
}

fn ring() -> Found {
    shut_down(builder)
}

/// Epochs left early, batches held as long as can be, and an end in the middle.
pub fn shut_down(builder: impl Fn() -> Result<LoaderBuilder, String>) -> Found {
    const ROUNDS: usize = 20;
    for round in 0..ROUNDS {
        let prefetch = 1 + round % 3;
        let loader = builder()?.workers(1 + round % 4).prefetch(prefetch);
        let loader = loader.build().map_err(words)?;
        for taken in [round % 5, 1 + round % 3] {
            let mut held = Vec::new();
            for batch in loader.into_iter().take(taken) {
                let batch = batch.map_err(words)?;
                held.push(batch);
                if held.len() > prefetch {
                    held.remove(0);
                }
            }
        }
    }
    Ok(format!("{ROUNDS} loaders, left early and dropped while filling, came to an end"))
}

/// Resident memory that a loader adds, against its plan.
fn footprint() -> Found {
    const SLACK: u64 = 32 << 20;
    let Some(before) = status_bytes("VmRSS") else {
        return Ok("resident memory cannot be read here; not compared".into());
    };
    let loader = builder()?.build().map_err(words)?;
    for _ in 0..3 {
        for batch in &loader {
            batch.map_err(words)?;
        }
    }
    let taken = status_bytes("VmRSS").unwrap_or(before).saturating_sub(before);
    let predicted = loader.footprint().total_bytes(Place::Host);
    let words = format!("{} predicted, {} more resident", bytes(predicted), bytes(taken));
    if taken <= predicted + SLACK { Ok(words) } else { Err(words) }
}
