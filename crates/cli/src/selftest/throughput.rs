//! A short throughput table: each route alone, and balanced. It measures for seconds only and is not a benchmark.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use feedwater::internals::tensor::{DType, Layout};
use feedwater::internals::threads::in_parts;
use feedwater::loader::{DeviceChoice, LoaderBuilder};
use feedwater::op::{Chain, Flip, Normalize, RandomResizedCrop};
use feedwater::plan::Route;
use feedwater::source::Memory;
use feedwater_tools::synth;
use serde::Serialize;

use super::gpu::Gpu;
use super::{Check, message};

/// Width and height of the images.
const SIZE: (u32, u32) = (500, 375);

/// Number of different images. They are repeated to give [`SAMPLES`].
const IMAGES: usize = 32;

/// Samples per epoch.
const SAMPLES: usize = 512;

/// Size of a batch, and duration of each measurement after two unmeasured batches.
#[derive(Clone, Copy)]
pub struct Extent {
    batch: usize,
    time: Duration,
}

impl Extent {
    /// Measurement on a GPU.
    pub const USUAL: Self = Self { batch: 64, time: Duration::from_millis(1500) };
    /// Short measurement for a simulated GPU.
    pub const BRIEF: Self = Self { batch: 8, time: Duration::from_millis(200) };
}

/// Throughput of one route.
#[derive(Serialize)]
pub struct Rate {
    /// Name of the route, `balanced`, or `cpu only` if no GPU is used.
    pub route: &'static str,
    pub images_per_second: f64,
    /// Images measured.
    pub images: u64,
    pub seconds: f64,
}

/// Measures every available route. A route that cannot be measured becomes a failed check.
pub fn measure(gpu: Option<&Gpu>, extent: Extent) -> (Vec<Rate>, Vec<Check>) {
    let source = match source() {
        Ok(source) => source,
        Err(problem) => return (Vec::new(), vec![Check::new("throughput", Err(problem))]),
    };
    let builder = || builder(&source, extent.batch);
    let mut cases = Vec::new();
    match gpu {
        None => cases.push(("cpu only", builder().device(DeviceChoice::Cpu))),
        Some(gpu) => {
            let offered = Route::ALL.into_iter().filter(|&route| gpu.offers(route).is_ok());
            cases.extend(offered.map(|route| (route.name(), gpu.on_route(builder(), route))));
            cases.push(("balanced", gpu.on(builder())));
        }
    }
    let (mut rates, mut failed) = (Vec::new(), Vec::new());
    for (route, builder) in cases {
        match rate(route, builder, extent.time) {
            Ok(rate) => rates.push(rate),
            Err(problem) => failed.push(Check::new(format!("throughput/{route}"), Err(problem))),
        }
    }
    (rates, failed)
}

fn rate(route: &'static str, builder: LoaderBuilder, time: Duration) -> Result<Rate, String> {
    let mut loader = builder.build().map_err(message)?;
    let (mut begin, mut batches, mut images) = (Instant::now(), 0, 0);
    loop {
        for batch in &mut loader {
            let batch = batch.map_err(message)?;
            // Timing starts and stops when the device has finished a batch; nothing synchronizes in between.
            let ready = || batch.ready().map_or(Ok(()), |event| event.synchronize());
            batches += 1;
            if batches <= 2 {
                ready().map_err(message)?;
                begin = Instant::now();
                continue;
            }
            images += batch.len() as u64;
            if begin.elapsed() > time {
                ready().map_err(message)?;
                let seconds = begin.elapsed().as_secs_f64();
                let images_per_second = images as f64 / seconds;
                return Ok(Rate { route, images_per_second, images, seconds });
            }
        }
    }
}

/// Creates a loader with the training chain: 224x224, half floats.
fn builder(source: &Arc<Memory>, batch: usize) -> LoaderBuilder {
    let chain = Chain::new()
        .then(RandomResizedCrop::to(224, 224))
        .then(Flip { horizontal: 0.5, ..Flip::default() })
        .then(Normalize::IMAGENET);
    let workers = thread::available_parallelism().map_or(1, usize::from).min(16);
    LoaderBuilder::new(source.clone(), chain)
        .batch_size(batch)
        .tune(false)
        .num_workers(workers)
        .shuffle(true)
        .shard(0, 1)
        .output(DType::F16, Layout::Nchw)
}

/// Returns the images, encoded on all cores.
fn source() -> Result<Arc<Memory>, String> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let make = |first: usize| {
        let mine = (first..IMAGES).step_by(threads).map(|index| {
            let rgb = synth::image(9, index as u64, SIZE.0, SIZE.1);
            synth::encode(&rgb, SIZE.0, SIZE.1, 92, false).map_err(message)
        });
        mine.collect::<Result<Vec<_>, _>>()
    };
    let made = in_parts(threads, make).into_iter();
    let made = made.map(|part| part.unwrap_or_else(|_| Err("making images panicked".into())));
    let files: Vec<_> = made.collect::<Result<Vec<_>, _>>()?.concat();
    let samples = files.iter().cycle().take(SAMPLES).map(|file| (file.clone(), 0)).collect();
    Memory::new(samples).map(Arc::new).map_err(message)
}
