//! Checks with odd and damaged files. Every route must give the same records and errors as the CPU,
//! under every error policy.

use std::sync::Arc;

use feedwater::Error;
use feedwater::error::Reason;
use feedwater::internals::geometry::Size;
use feedwater::internals::tensor::{DType, Layout};
use feedwater::loader::{DeviceChoice, LoaderBuilder, Outcome, SampleRecord};
use feedwater::op::{Chain, Placement, Resize};
use feedwater::plan::{LastBatch, OnError, Route};
use feedwater::source::Memory;

use super::decode::BOUND;
use super::difference::{Bound, Difference};
use super::gpu::Gpu;
use super::images::{self, Damaged, Odd, SORTS};
use super::{Check, Epoch, Found, epoch, message};

/// Returns the checks of files on the CPU.
pub fn on_cpu() -> Vec<Check> {
    vec![
        Check::new("loader/files/odd", odd_on_cpu()),
        Check::new("loader/files/damaged", damaged_on_cpu()),
    ]
}

/// Yields the checks that compare every route with the CPU, and then the checks of every error
/// policy.
pub fn on_gpu(gpu: &Gpu) -> impl Iterator<Item = Vec<Check>> {
    let by_route = Route::ALL.into_iter().map(|route| of_route(gpu, route));
    by_route.chain(std::iter::once_with(|| policies(gpu)))
}

fn of_route(gpu: &Gpu, route: Route) -> Vec<Check> {
    let name = |what: &str| format!("gpu/files/route={}/{what}", route.name());
    if let Err(why) = gpu.offers(route) {
        return ["odd", "damaged"].map(|what| Check::skip(name(what), why.clone())).into();
    }
    let way = |builder| gpu.on_route(builder, route);
    let bound = if route.on_device() { BOUND } else { EXACT };
    vec![
        Check::new(name("odd"), odd_on_gpu(way, bound)),
        Check::new(name("damaged"), damaged_on_gpu(way, bound, OnError::Skip)),
    ]
}

fn policies(gpu: &Gpu) -> Vec<Check> {
    let balanced = |builder: LoaderBuilder| gpu.on(builder);
    let damaged = |policy| damaged_on_gpu(balanced, BOUND, policy);
    vec![
        Check::new("gpu/policy/skip", damaged(OnError::Skip)),
        Check::new("gpu/policy/substitute", damaged(OnError::Substitute)),
        Check::new("gpu/policy/stop", stop(balanced)),
    ]
}

const EXACT: Bound = Bound { most: 0, mean: 0.0 };

/// Checks that every odd file is decoded with its upright size, and that none is skipped.
fn odd_on_cpu() -> Found {
    let odd = images::odd()?;
    let seen = epoch(odd_builder(odd)?)?;
    complete(odd, &seen)?;
    // Files 0 and 1 store the same pixels. The EXIF orientation of file 1 mirrors them
    // horizontally.
    let bytes = seen.data.len() / odd.len();
    let [first, second] = [0, 1].map(|place| &seen.data[place * bytes..][..bytes]);
    let rows = first.chunks_exact(3 * TO as usize).zip(second.chunks_exact(3 * TO as usize));
    let mirrored = |(a, b): (&[u8], &[u8])| {
        let most = a.chunks_exact(3).zip(b.chunks_exact(3).rev());
        most.map(|(a, b)| Difference::between(a, b).most()).max().unwrap_or(0)
    };
    match rows.map(mirrored).max() {
        Some(0..=4) => Ok(format!("{} files were read", odd.len())),
        _ => Err("orientation 2 is not the mirror image of orientation 1".into()),
    }
}

/// Checks that every file was decoded, in order and with its expected size.
fn complete(odd: &[Odd], seen: &Epoch) -> Result<(), String> {
    if let Some(error) = seen.errors.first() {
        let name = odd.get(error.index as usize).map_or("?", |it| it.name);
        return Err(format!("{name}: {error}"));
    }
    let turned = |record: &&SampleRecord| record.size == Size::new(53, 75);
    match seen.records.iter().filter(turned).count() {
        4 if seen.records.len() == odd.len() => Ok(()),
        count => Err(format!(
            "the loader read {} of {} files; {count} of them were rotated by EXIF, but 4 should be",
            seen.records.len(),
            odd.len()
        )),
    }
}

fn odd_on_gpu(way: impl Fn(LoaderBuilder) -> LoaderBuilder, bound: Bound) -> Found {
    let odd = images::odd()?;
    let expected = epoch(odd_builder(odd)?)?;
    let actual = epoch(way(odd_builder(odd)?))?;
    complete(odd, &actual)?;
    same_records(&expected, &actual)?;
    let bytes = expected.data.len() / odd.len();
    let mut all = Difference::default();
    let pairs = expected.data.chunks_exact(bytes).zip(actual.data.chunks_exact(bytes));
    for ((a, b), file) in pairs.zip(odd) {
        let difference = Difference::between(a, b);
        if difference.most() > bound.most {
            difference.within(bound).map_err(|problem| format!("{}: {problem}", file.name))?;
        }
        all.add(difference);
    }
    let found = all.within(bound)?;
    let by_cpu =
        actual.records.iter().filter(|it| it.outcome == Outcome::Decoded(Route::Cpu)).count();
    Ok(format!("{found}; {} files, {by_cpu} of them decoded on the CPU", odd.len()))
}

/// Checks that every damaged file has the expected error, and that the good file before it is
/// decoded.
fn damaged_on_cpu() -> Found {
    let damaged = images::damaged()?;
    let seen = epoch(damaged_builder(damaged)?.on_error(OnError::Substitute))?;
    named(damaged, &seen)?;
    Ok(format!("each of {} damaged files gives the expected error", damaged.len()))
}

/// Checks that every damaged file has the expected error reason.
fn named(damaged: &[Damaged], seen: &Epoch) -> Result<(), String> {
    let mut found: Vec<Option<Reason>> = vec![None; 2 * damaged.len()];
    for error in &seen.errors {
        if let Some(found) = found.get_mut(error.index as usize) {
            *found = Some(error.reason);
        }
    }
    for (place, file) in damaged.iter().enumerate() {
        let reasons = [found[2 * place], found[2 * place + 1]];
        if reasons != [None, Some(file.reason)] {
            let name = file.name;
            let [good, bad] = reasons.map(|it| it.map_or("good", Reason::name));
            return Err(format!(
                "{name}: the result of the damaged file is {bad} instead of {}; the result of the \
                 good file before it is {good}",
                file.reason.name()
            ));
        }
    }
    Ok(())
}

fn damaged_on_gpu(
    way: impl Fn(LoaderBuilder) -> LoaderBuilder,
    bound: Bound,
    policy: OnError,
) -> Found {
    let damaged = images::damaged()?;
    let make = || Ok::<_, String>(damaged_builder(damaged)?.on_error(policy));
    let (expected, actual) = (epoch(make()?)?, epoch(way(make()?))?);
    same_records(&expected, &actual)?;
    if policy == OnError::Substitute {
        named(damaged, &actual)?;
    }
    let found = Difference::between(&expected.data, &actual.data).within(bound)?;
    Ok(format!(
        "{} damaged files have the same outcomes as on the CPU; in the good files, {found}",
        damaged.len()
    ))
}

/// Checks that a loader delivers the batches before a damaged file, and then ends with the error of
/// this file. Tests every damaged file.
fn stop(way: impl Fn(LoaderBuilder) -> LoaderBuilder) -> Found {
    let damaged = images::damaged()?;
    for file in damaged {
        let mut samples = good_files(4)?;
        samples.push(file.bytes.clone());
        let mut loader = way(builder(samples)?.batch_size(2)).build().map_err(message)?;
        let mut epoch = loader.epoch();
        let before = epoch.by_ref().take(2).all(|batch| batch.is_ok());
        match epoch.next() {
            Some(Err(Error::Sample(error)))
                if before && error.index == 4 && error.reason == file.reason => {}
            Some(Err(error)) => return Err(format!("{}: {error}", file.name)),
            _ => return Err(format!("{}: the damaged file does not stop the loader", file.name)),
        }
    }
    Ok(format!(
        "each of {} damaged files stops a loader with the error of that file",
        damaged.len()
    ))
}

/// Checks that two epochs have the same samples in the same order, and the same errors.
fn same_records(expected: &Epoch, actual: &Epoch) -> Result<(), String> {
    let of = |it: &SampleRecord| {
        let substituted = it.outcome == Outcome::Substituted;
        (it.index, it.label, it.size, it.trace, it.replaces, it.padding, substituted)
    };
    let pairs = expected.records.iter().zip(&actual.records);
    if let Some((a, b)) = pairs.into_iter().find(|(a, b)| of(a) != of(b)) {
        return Err(format!("{b:?} instead of {a:?}"));
    }
    if expected.records.len() != actual.records.len() {
        return Err(format!("{} samples", actual.records.len()));
    }
    // Sort the errors, because a batch reports its errors in any order.
    let sorted = |epoch: &Epoch| {
        let mut all: Vec<_> =
            epoch.errors.iter().map(|it| (it.index, it.reason, it.problem.clone())).collect();
        all.sort();
        all
    };
    let (a, b) = (sorted(expected), sorted(actual));
    match a == b {
        true => Ok(()),
        false => Err(format!("errors {b:?} instead of {a:?}")),
    }
}

/// Width and height of the output, in pixels.
const TO: u32 = 24;

fn builder(files: Vec<Vec<u8>>) -> Result<LoaderBuilder, String> {
    let samples = files.into_iter().map(|file| (file, 0)).collect();
    let source = Arc::new(Memory::new(samples).map_err(message)?);
    let chain = Chain::new().then(Resize::to(TO, TO));
    let builder = LoaderBuilder::new(source, chain)
        .batch_size(7)
        .num_workers(3)
        .last_batch(LastBatch::Partial);
    let builder = builder
        .output(DType::U8, Layout::Nhwc)
        .configure(|it| it.decode.placement = Placement::Cpu);
    Ok(builder.device(DeviceChoice::Cpu).shard(0, 1))
}

fn odd_builder(odd: &[Odd]) -> Result<LoaderBuilder, String> {
    Ok(builder(odd.iter().map(|file| file.bytes.clone()).collect())?.on_error(OnError::Substitute))
}

/// Creates a loader of the damaged files. A good file precedes each of them.
fn damaged_builder(damaged: &[Damaged]) -> Result<LoaderBuilder, String> {
    let good = good_files(damaged.len())?;
    let files = good.into_iter().zip(damaged).flat_map(|(good, bad)| [good, bad.bytes.clone()]);
    builder(files.collect())
}

fn good_files(count: usize) -> Result<Vec<Vec<u8>>, String> {
    let file = |index| images::jpeg(40 + index, Size::new(64, 50), SORTS[2]);
    (0..count as u64).map(file).collect()
}
