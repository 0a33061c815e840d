//! One case of `bench`, measured in its own process.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use feedwater::Error;
use feedwater::internals::config::Pipeline;
use feedwater::loader::{Batch, Loader, Stats};
use feedwater::plan::Route;
use serde::{Deserialize, Serialize};

use super::super::report::{cpu_seconds, status_bytes};
use super::super::requests::shown;
use super::super::{CommandError, in_terms_of_options, on};
use super::Options;

/// Result of a case. Rates, times and counts cover only the measured epochs. Memory covers the
/// whole process.
#[derive(Default, Serialize, Deserialize)]
pub struct Measured {
    /// Device on which the case ran, and why it was chosen.
    pub device: String,
    /// Number of samples per batch.
    pub batch: usize,
    /// Worker threads.
    pub workers: usize,
    /// Largest planned number of images in one call of the JPEG engines. 0 if the engines are not
    /// used.
    pub images_per_hardware_call: usize,
    /// Number of measured epochs.
    pub epochs: u32,
    /// Number of samples delivered, without padding.
    pub images: u64,
    /// Wall time of the measured epochs, in seconds.
    pub seconds: f64,
    /// `images / seconds`.
    pub images_per_second: f64,
    /// CPU time of this process per 1000 images, in seconds. It includes all threads, and the
    /// driver's work in these threads. `None` if the system does not report it.
    pub cpu_seconds_per_1000_images: Option<f64>,
    /// CPU time of this process per image, in microseconds.
    pub host_microseconds_per_image: Option<f64>,
    /// Seconds from the start of building the loader until the first batch was ready.
    pub first_batch_seconds: f64,
    /// Share of the wall time in which the consumer waited for batches.
    pub consumer_waited: f64,
    /// Largest number of remote samples to prefetch, as chosen at the end of the run, and the
    /// reason for this number. `null` if nothing is prefetched.
    pub read_ahead: Option<(usize, String)>,
    /// Number of samples by outcome.
    pub outcomes: BTreeMap<String, u64>,
    /// Number of samples that were processed only on the CPU although the plan uses the device, by
    /// reason.
    pub cpu_fallback: BTreeMap<String, u64>,
    pub device_bytes_predicted: u64,
    pub device_bytes_peak: u64,
    /// Device memory that the driver and its libraries use, in bytes. The plan does not include it.
    pub device_bytes_of_driver: u64,
    pub pinned_bytes_predicted: u64,
    pub pinned_bytes_peak: u64,
    /// Host memory of the plan in bytes, including pinned memory.
    pub host_bytes_predicted: u64,
    /// Peak resident host memory of the process, in bytes.
    pub peak_rss_bytes: u64,
}

/// Measuring time in seconds if `--epochs` is not given. An epoch that is running when this time
/// ends is finished.
const SECONDS: f64 = 3.0;

/// Runs the file's pipeline on one route, or on all allowed routes. One warm-up epoch is followed
/// by the measured epochs.
pub fn measure(
    file: &Path,
    route: Option<Route>,
    options: &Options,
) -> Result<Measured, CommandError> {
    let mut pipeline = Pipeline::from_file(file)?;
    if let Some(route) = route {
        pipeline.settings.decode.routes = vec![route];
        // A single route is measured with a fixed configuration, so autotuning is off.
        pipeline.settings.loader.tune = false;
    }
    if let Some(workers) = options.workers {
        pipeline.settings.loader.num_workers = workers;
    }
    if let Some(batch) = options.batch {
        pipeline.settings.loader.batch_size = batch as usize;
    }
    if let [group] = options.hardware_group[..] {
        pipeline.settings.decode.hardware_group = Some(group as usize);
    }

    let start = Instant::now();
    let given: Vec<_> = [
        options.workers.map(|_| ("loader.num_workers", "--workers")),
        options.batch.map(|_| ("loader.batch_size", "--batch")),
    ]
    .into_iter()
    .flatten()
    .collect();
    let builder = pipeline.builder_with(&shown(pipeline.storage()?))?;
    let built = on(builder, options.device).build();
    let mut loader = built.map_err(|error| in_terms_of_options(error, &given))?;
    let mut first_batch = None;
    epoch(&mut loader, |batch| {
        if first_batch.is_none() {
            ready(batch)?;
            first_batch = Some(start.elapsed().as_secs_f64());
        }
        Ok(())
    })?;
    let first_batch_seconds = first_batch.unwrap_or_default();

    let (before, cpu_before, begin) = (loader.stats(), cpu_seconds(), Instant::now());
    let mut epochs = 0;
    while options.epochs.map_or(begin.elapsed().as_secs_f64() < SECONDS, |all| epochs < all) {
        epoch(&mut loader, |_| Ok(()))?;
        epochs += 1;
    }
    let seconds = begin.elapsed().as_secs_f64();
    let cpu = cpu_seconds().zip(cpu_before).map(|(after, before)| after - before);
    let stats = since(loader.stats(), &before);

    let images = stats.images as f64;
    let plan = loader.plan();
    let memory = stats.memory;
    Ok(Measured {
        device: loader.device().to_string(),
        batch: plan.shape.batch,
        workers: plan.workers.most,
        images_per_hardware_call: plan.device.as_ref().map_or(0, |it| it.hardware_group),
        epochs,
        images: stats.images,
        seconds,
        images_per_second: images / seconds,
        cpu_seconds_per_1000_images: cpu.map(|cpu| 1e3 * cpu / images),
        host_microseconds_per_image: cpu.map(|cpu| 1e6 * cpu / images),
        first_batch_seconds,
        consumer_waited: stats.stages.consumer_waiting / seconds,
        read_ahead: loader.read_ahead().map(|ahead| {
            let why = ahead.decisions.last().map(ToString::to_string);
            let all = || "all that fit".to_string();
            (ahead.window, why.unwrap_or_else(all))
        }),
        outcomes: owned(&stats.outcomes),
        cpu_fallback: owned(&stats.cpu_fallback),
        device_bytes_predicted: memory.device_bytes_predicted,
        device_bytes_peak: memory.device_bytes_peak,
        device_bytes_of_driver: memory.device_bytes_of_driver,
        pinned_bytes_predicted: memory.pinned_bytes_predicted,
        pinned_bytes_peak: memory.pinned_bytes_peak,
        host_bytes_predicted: memory.host_bytes_predicted + memory.pinned_bytes_predicted,
        peak_rss_bytes: status_bytes("VmHWM").unwrap_or(0),
    })
}

/// Runs an epoch and passes each batch to `each`. Then waits until the device has finished the last
/// batch.
fn epoch(
    loader: &mut Loader,
    mut each: impl FnMut(&Batch) -> Result<(), Error>,
) -> Result<(), CommandError> {
    let mut left = loader.batches_per_epoch();
    for batch in loader {
        let batch = batch?;
        each(&batch)?;
        left -= 1;
        if left == 0 {
            ready(&batch)?;
        }
    }
    Ok(())
}

/// Waits until the device has finished this batch. All earlier batches are then finished too.
fn ready(batch: &Batch) -> Result<(), Error> {
    batch.stream().map_or(Ok(()), |stream| stream.synchronize())
}

/// Subtracts an earlier reading of the statistics from a later one. The counts and times of the
/// result cover the period between the two readings. The memory in the result is that of the later
/// reading.
fn since(after: Stats, before: &Stats) -> Stats {
    let mut done = after;
    done.images -= before.images;
    done.stages.consumer_waiting -= before.stages.consumer_waiting;
    for (counts, before) in
        [(&mut done.outcomes, &before.outcomes), (&mut done.cpu_fallback, &before.cpu_fallback)]
    {
        for (name, count) in counts {
            *count -= before.get(name).copied().unwrap_or(0);
        }
    }
    done
}

fn owned(counts: &BTreeMap<&'static str, u64>) -> BTreeMap<String, u64> {
    counts.iter().map(|(&name, &count)| (name.to_string(), count)).collect()
}
