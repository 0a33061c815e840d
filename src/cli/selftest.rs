//! `selftest`: this build on this machine, check by check.

use std::collections::BTreeMap;

use clap::Args;
use feedwater::footprint::{Memory as Place, bytes};
use feedwater::geometry::{Roi, Size};
use feedwater::gpu;
use feedwater::image::{HostImage, Image, PixelType};
use feedwater::loader::{DeviceChoice, Loader, LoaderBuilder};
use feedwater::op::{AnyOperator, Chain, Flip, Normalize, RandomResizedCrop, Wanted};
use feedwater::plan::Last;
use feedwater::random::{SampleKey, SampleRng};
use feedwater::source::Memory;
use feedwater::synth;
use serde::Serialize;
use serde_json::json;

use super::report::status_bytes;
use super::{Failure, print, print_json};

/// Checks this build on this machine: fast paths against references, CPU against GPU, rings, memory
#[derive(Args)]
#[command(after_help = "Example:\n  feedwater selftest --json")]
pub struct Options {
    /// Fail where there is no GPU
    #[arg(long)]
    require_gpu: bool,
    /// Print the result as one line of JSON
    #[arg(long)]
    json: bool,
}

/// One named check.
#[derive(Serialize)]
struct Check {
    name: String,
    result: Outcome,
    detail: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Pass,
    Fail,
    Skip,
}

/// What a check found: in words, whether it is well or not.
type Found = Result<String, String>;

impl Check {
    fn new(name: impl Into<String>, found: Found) -> Self {
        let (result, detail) = match found {
            Ok(detail) => (Outcome::Pass, detail),
            Err(detail) => (Outcome::Fail, detail),
        };
        Self { name: name.into(), result, detail }
    }

    fn skip(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { name: name.into(), result: Outcome::Skip, detail: detail.into() }
    }
}

pub fn main(options: &Options) -> Result<(), Failure> {
    // First: what other checks leave behind would hide what a loader takes.
    let mut checks = vec![Check::new("loader/footprint", footprint())];
    checks.extend(operators());
    checks.push(Check::new("loader/determinism", determinism()));
    checks.push(Check::new("loader/every-sample-once", every_sample_once()));
    checks.push(Check::new("loader/ring", ring()));
    checks.push(device(options.require_gpu));

    let count = |result| checks.iter().filter(|check| check.result == result).count();
    let (passed, failed, skipped) =
        (count(Outcome::Pass), count(Outcome::Fail), count(Outcome::Skip));
    if options.json {
        print_json(&json!({
            "passed": passed,
            "failed": failed,
            "skipped": skipped,
            "checks": checks,
        }))?;
    } else {
        for check in &checks {
            let result = match check.result {
                Outcome::Pass => "pass",
                Outcome::Fail => "FAIL",
                Outcome::Skip => "skip",
            };
            print(format!("{result}  {:<32}{}", check.name, check.detail))?;
        }
        print(format!("{passed} passed, {failed} failed, {skipped} skipped"))?;
    }
    match failed {
        0 => Ok(()),
        _ => Err(Failure::Failed(format!("{failed} of {} checks failed", checks.len()))),
    }
}

/// Every operator's fast path against its reference, by name.
fn operators() -> Vec<Check> {
    let mut found: BTreeMap<&str, Found> = BTreeMap::new();
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for operator in feedwater::op::examples() {
        let name = operator.name();
        for (sample, size) in SIZES.into_iter().enumerate() {
            for pixels in [PixelType::U8, PixelType::F32] {
                let Ok(out) = operator.pixels(pixels) else { continue };
                *counts.entry(name).or_default() += 1;
                if let Err(problem) = parity(&*operator, sample as u64, size, pixels, out) {
                    found.insert(name, Err(problem));
                }
            }
        }
    }
    counts
        .into_iter()
        .map(|(name, count)| {
            let well = Ok(format!("fast path equals the reference, bit for bit, in {count} cases"));
            Check::new(format!("operator/{name}"), found.remove(name).unwrap_or(well))
        })
        .collect()
}

/// Odd, thin and ordinary.
const SIZES: [Size; 5] =
    [Size::new(61, 47), Size::new(1, 1), Size::new(3, 200), Size::new(333, 2), Size::new(128, 96)];

fn parity(
    operator: &dyn AnyOperator,
    index: u64,
    size: Size,
    pixels: PixelType,
    out: PixelType,
) -> Result<(), String> {
    let mut rng = SampleRng::new(SampleKey { seed: 1, epoch: 0, index }, 0);
    let (output, mut params) = operator.prepare(size, &mut rng);
    let mut table = Vec::new();
    let wanted = Wanted { input: size, reduction: 1, output: output.window() };
    let window = operator.demand(&mut params, wanted, &mut table);
    let src = input(index, size, window, pixels);
    let mut reference = HostImage::new(out, output.window());
    let mut fast = reference.clone();
    operator.reference(&params, &table, &src, &mut reference);
    operator.apply(&params, &table, &src, &mut fast);
    match same(&reference, &fast) {
        true => Ok(()),
        false => Err(format!("{operator:?} on {size}: the fast path differs from the reference")),
    }
}

/// A window of a picture.
fn input(index: u64, size: Size, window: Roi, pixels: PixelType) -> HostImage {
    let rgb = synth::picture(1, index, size.width, size.height);
    let whole = Image::from_data(size.window(), rgb);
    let data: Vec<u8> = (window.y..window.bottom())
        .flat_map(|y| (window.x..window.right()).map(move |x| (x, y)))
        .flat_map(|(x, y)| whole.pixel(x, y))
        .collect();
    match pixels {
        PixelType::U8 => HostImage::U8(Image::from_data(window, data)),
        PixelType::F32 => {
            let data = data.into_iter().map(|byte| f32::from(byte) / 255.0 - 0.5).collect();
            HostImage::F32(Image::from_data(window, data))
        }
    }
}

/// Bit for bit: floats too.
fn same(a: &HostImage, b: &HostImage) -> bool {
    match (a, b) {
        (HostImage::U8(a), HostImage::U8(b)) => a == b,
        (HostImage::F32(a), HostImage::F32(b)) => {
            a.window() == b.window()
                && a.data().iter().zip(b.data()).all(|(a, b)| a.to_bits() == b.to_bits())
        }
        _ => false,
    }
}

const SAMPLES: u64 = 50;
const BATCH: usize = 8;

/// A loader of pictures in memory on the CPU; the label is the index.
fn builder() -> Result<LoaderBuilder, String> {
    let samples = (0..SAMPLES)
        .map(|index| {
            let (width, height) = (80 + 7 * (index as u32 % 9), 64 + 5 * (index as u32 % 7));
            let rgb = synth::picture(2, index, width, height);
            let jpeg = synth::encode(&rgb, width, height, 90, index % 5 == 0);
            jpeg.map(|jpeg| (jpeg, index as i64))
        })
        .collect::<feedwater::Result<Vec<_>>>();
    let chain = Chain::new()
        .then(RandomResizedCrop::to(48, 40))
        .then(Flip { horizontal: 0.5, ..Flip::default() })
        .then(Normalize::IMAGENET);
    let source = samples.and_then(Memory::new).map_err(|error| error.to_string())?;
    Ok(Loader::builder(source, chain)
        .batch(BATCH)
        .shuffle(true)
        .seed(3)
        .last(Last::Partial)
        .device(DeviceChoice::Cpu))
}

/// The labels and the tensors of an epoch.
fn epoch(builder: LoaderBuilder) -> Result<(Vec<i64>, Vec<u8>), String> {
    let loader = builder.epochs(Some(1)).build().map_err(|error| error.to_string())?;
    let (mut labels, mut data) = (Vec::new(), Vec::new());
    for batch in &loader {
        let batch = batch.map_err(|error| error.to_string())?;
        labels.extend_from_slice(batch.labels());
        data.extend(batch.to_host().map_err(|error| error.to_string())?);
    }
    Ok((labels, data))
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
        seen.extend(epoch(builder()?.shard(rank, 3))?.0);
    }
    seen.sort_unstable();
    match seen == (0..SAMPLES as i64).collect::<Vec<_>>() {
        true => Ok(format!("3 shards see each of {SAMPLES} samples once")),
        false => Err(format!("3 shards see {seen:?}")),
    }
}

/// Epochs left early, batches held as long as can be, and an end in the middle.
fn ring() -> Found {
    const ROUNDS: usize = 20;
    for round in 0..ROUNDS {
        let loader = builder()?.workers(1 + round % 4).prefetch(1 + round % 3);
        let loader = loader.build().map_err(|error| error.to_string())?;
        for taken in [round % 5, 1 + round % 3] {
            let mut held = Vec::new();
            for batch in loader.into_iter().take(taken) {
                let batch = batch.map_err(|error| error.to_string())?;
                held.push(batch);
                if held.len() > 2 {
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
    let loader = builder()?.build().map_err(|error| error.to_string())?;
    for _ in 0..3 {
        for batch in &loader {
            batch.map_err(|error| error.to_string())?;
        }
    }
    let taken = status_bytes("VmRSS").unwrap_or(before).saturating_sub(before);
    let predicted = loader.footprint().total_bytes(Place::Host);
    let words = format!("{} predicted, {} more resident", bytes(predicted), bytes(taken));
    if taken <= predicted + SLACK { Ok(words) } else { Err(words) }
}

/// The GPU, where there is one.
fn device(required: bool) -> Check {
    let name = "gpu/device";
    let probe = gpu::probe();
    match probe.devices.iter().find_map(|device| device.as_ref().ok()) {
        Some(device) => Check::new(name, Ok(device.name.clone())),
        None => {
            let mut why = probe.devices.into_iter().filter_map(Result::err);
            let why = why.next().or(probe.driver.err()).unwrap_or_else(|| "no device".into());
            match required {
                true => Check::new(name, Err(why)),
                false => Check::skip(name, why),
            }
        }
    }
}
