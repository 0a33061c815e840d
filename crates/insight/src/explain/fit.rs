//! Fits the model of a pipeline to a profile.

use crate::Result;
use crate::model::{Consumer, Forecast, Model, On, Options, Resource, Service, Stage};
use crate::profile::{Profile, Stage as Measured, StageProfile, ThreadProfile};

use super::ReadScaling;
use super::contention::contention;

/// Model that is fitted to a profile.
#[derive(Clone, Debug)]
pub struct Fit {
    /// The model.
    pub model: Model,
    /// Throughput and waits that the model predicts.
    pub forecast: Forecast,
    /// Predicted divided by measured throughput; 1 is exact.
    pub quality: f64,
}

/// Name of the modelled storage. It is a resource only if concurrent reads slow each other down.
pub const STORAGE: &str = "storage";
/// Name of the stage that models a worker's time between its other stages.
pub const OVERHEAD: &str = "overhead";
/// If a read waits for less than this time, in seconds, the wait is not modelled, and the read
/// counts as CPU work only.
const COPY: f64 = 30e-6;
/// A thread is a straggler only if its time per sample is at least this many times the usual time.
const STRAGGLER: f64 = 1.4;
/// A thread is a straggler only if its mean time exceeds the usual mean time by at least this many
/// standard errors. Random variation rarely causes such a difference.
const MIN_STANDARD_ERRORS: f64 = 4.0;
/// If the throughput of the model with estimated read contention is wrong by more than this share,
/// the estimate is dropped.
const DOUBTFUL: f64 = 0.12;
/// If less than this share of a stage's time remains without waits for a processor, the measured
/// distribution is not used, because it would mainly show the waits.
const STEADY: f64 = 0.8;
/// If a sample usually takes less than this time, in seconds, stragglers are not detected.
const LONG: f64 = 100e-6;
/// If a thread processed fewer samples than this, it does not count as a straggler.
const MIN_SAMPLES_PER_THREAD: u64 = 16;

/// Fits the model to a profile.
///
/// * A stage on the host occupies a core for its elapsed time without waits for a processor. If
///   these waits were not measured, there are two cases. If this process fills the machine's
///   processors, the stage occupies a core for its processor time. Otherwise the stage occupies a
///   core for its elapsed time.
/// * Other programs, a quota and the hypervisor take as much processor time in the model as in the
///   profile.
/// * The part of a read during which its thread is not on a processor is a wait. If reads slow each
///   other down, the wait occupies a storage that serves a limited number of reads at a time.
///   Otherwise the wait occupies nothing.
/// * A stage on the device occupies a resource of its own, for the device time that was measured.
/// * The time of workers between their stages is modelled as one more stage.
///
/// # Errors
///
/// Fails with [`crate::Error`] if the profile has no measurements.
pub fn fit(profile: &Profile, scaling: Option<&ReadScaling>) -> Result<Fit> {
    let found = Storage::of(profile, scaling);
    let fitted = fit_with(profile, found)?;
    // Without measured scaling, the storage `found` was estimated from the few reads during which
    // fewer other reads were in flight than usual. Drop this estimate if the model fits badly.
    if found.is_some() && scaling.is_none() && (fitted.quality - 1.0).abs() > DOUBTFUL {
        return fit_with(profile, None);
    }
    Ok(fitted)
}

fn fit_with(profile: &Profile, storage: Option<Storage>) -> Result<Fit> {
    let cores = match profile.processors.allowed {
        // A CPU quota does not change the number of cores. `contention` models the quota.
        0 => profile.setup.cores,
        allowed => allowed,
    };
    let mut model = Model {
        batch: profile.setup.batch.max(1),
        slots: profile.ring.slots.max(2),
        workers: slowness(profile),
        starts: Vec::new(),
        cores: cores.max(1),
        contention: contention(profile, cores.max(1)),
        resources: Vec::new(),
        stages: Vec::new(),
        pages: profile.setup.pages,
        per_batch: profile.ring.delivery,
        consumer: consumer(profile),
    };
    let samples = samples(profile);
    let full = is_full(profile);
    // The measured means include stragglers. The model needs the means of a thread that is not a
    // straggler.
    let slow = mean_slowness(profile, &model.workers);
    for stage in &profile.stages {
        let on_device = stage.device.as_ref().filter(|_| model.pages.is_some());
        if let Some(time) = on_device.filter(|time| time.items > 0) {
            let resource = model.resources.len();
            model.resources.push(Resource { name: stage.stage.name().into(), servers: 1 });
            let service = Service::constant(time.all_seconds() / samples);
            add(&mut model, stage.stage.name(), On::Resource(resource), service, true);
        }
        let mean = stage.busy / samples / slow;
        if mean <= 0.0 || !mean.is_finite() {
            continue;
        }
        match stage.stage {
            Measured::List => {}
            Measured::Read => read(&mut model, stage, mean, storage),
            // The kernel stage runs on the launcher's thread and takes no time of a worker.
            Measured::Kernel => {}
            _ => {
                let share = match stage.waited_for_processor {
                    Some(_) => stage.without_waiting() / stage.busy,
                    None if full => stage.cpu_share,
                    None => 1.0,
                };
                let service = shaped(stage, mean * share);
                add(&mut model, stage.stage.name(), On::Cpu, service, false);
            }
        }
    }
    if model.workers.iter().any(|slow| *slow > 1.0) {
        // The measured distributions include stragglers, which `model.workers` already slows down.
        // Use constant times, so that their slowness is not counted twice.
        model.stages.iter_mut().for_each(|it| it.service = Service::constant(it.service.mean));
    }
    // A valid model has its detached stages at the end.
    model.stages.sort_by_key(|stage| stage.detached);
    let overhead = overhead(profile, samples) / slow;
    if overhead > 1e-7 {
        let at = model.stages.iter().position(|stage| stage.detached).unwrap_or(model.stages.len());
        let service = Service::constant(overhead);
        let stage = Stage { name: OVERHEAD.into(), on: On::Cpu, service, detached: false };
        model.stages.insert(at, stage);
    }
    model.check()?;
    let forecast = forecast(&model)?;
    let measured = profile.images_per_second();
    let quality = if measured > 0.0 { forecast.samples_per_second / measured } else { 0.0 };
    Ok(Fit { model, forecast, quality })
}

/// Simulates a model in its steady state.
///
/// # Errors
///
/// Fails with [`crate::Error`] for an invalid model.
pub fn forecast(model: &Model) -> Result<Forecast> {
    const SAMPLES: u32 = 24_000;
    let batches = (SAMPLES / model.batch.max(1)).clamp(60, 1200);
    model.run(&Options::batches(batches, 10 + 4 * model.slots))
}

fn add(model: &mut Model, name: &str, on: On, service: Service, detached: bool) {
    model.stages.push(Stage { name: name.into(), on, service, detached });
}

/// Returns the measured distribution of a stage, scaled to another mean. Returns a constant time if
/// much of the measured time was waiting for a processor.
fn shaped(stage: &StageProfile, mean: f64) -> Service {
    if stage.without_waiting() < STEADY * stage.busy {
        return Service::constant(mean);
    }
    Service { mean, quantiles: stage.quantiles.clone() }
}

fn read(model: &mut Model, stage: &StageProfile, mean: f64, storage: Option<Storage>) {
    let work = mean * stage.cpu_share;
    let wait = (mean * stage.without_waiting() / stage.busy - work).max(0.0);
    if wait < COPY {
        return add(model, stage.stage.name(), On::Cpu, shaped(stage, work), false);
    }
    // Simulate the copy of the data first, because only the copy occupies a core.
    if work > 1e-6 {
        add(model, "read", On::Cpu, Service::constant(work), false);
    }
    match storage {
        Some(Storage { servers, others, seconds }) => {
            // While `1 + others` reads were in flight, the storage served `servers` of them at a
            // time. So the measured wait was `(1 + others) / servers` times as long as that of a
            // single read.
            let alone = seconds.unwrap_or(wait / ((1.0 + others) / f64::from(servers)).max(1.0));
            let resource = model.resources.len();
            model.resources.push(Resource { name: STORAGE.into(), servers });
            add(model, "read", On::Resource(resource), shaped(stage, alone), false);
        }
        None => add(model, "read", On::Wait, shaped(stage, wait), false),
    }
}

/// Storage in which reads slow each other down.
#[derive(Clone, Copy)]
struct Storage {
    /// Number of reads that the storage serves at a time.
    servers: u32,
    /// Mean number of other reads in flight during a read.
    others: f64,
    /// Seconds per read, if this was measured with threads that only read.
    seconds: Option<f64>,
}

impl Storage {
    /// Estimates the storage. Returns `None` if reads do not slow each other down, or if their
    /// slowdown is unknown.
    fn of(profile: &Profile, scaling: Option<&ReadScaling>) -> Option<Self> {
        let slowdown = match scaling {
            Some(scaling) => scaling.slowdown(),
            None => profile.data.read_slowdown?,
        };
        let servers = (1.0 / slowdown.max(1e-3)).round().max(1.0) as u32;
        let most = scaling.map(|it| it.rates.iter().map(|it| it.1).fold(0.0, f64::max));
        let seconds = most.filter(|most| *most > 0.0).map(|most| f64::from(servers) / most);
        (slowdown > 0.1).then_some(Self { servers, others: profile.data.read_others, seconds })
    }
}

fn consumer(profile: &Profile) -> Consumer {
    let it = &profile.consumer;
    // A step time of 0 would make the consumer's capacity infinite.
    let mean = it.step.mean.max(1e-7);
    let step = Service { mean, quantiles: it.step_quantiles.clone() };
    Consumer { step, holds: true, host_share: it.cpu_share.clamp(0.0, 1.0) }
}

/// Number of samples that the workers processed.
pub(super) fn samples(profile: &Profile) -> f64 {
    let counted = [Measured::Header, Measured::HandOver, Measured::Read];
    let counted = counted.into_iter().filter_map(|stage| profile.stage(stage));
    counted.map(|stage| stage.count).find(|&count| count > 0).unwrap_or(1) as f64
}

/// Whether this process fills the machine's processors. This estimate is used only if the waits for
/// a processor were not measured.
fn is_full(profile: &Profile) -> bool {
    let seconds = profile.seconds.max(1e-9);
    let used: f64 = profile.stages.iter().map(|it| it.busy * it.cpu_share).sum();
    let used = used + profile.consumer.stepped * profile.consumer.cpu_share;
    used > 0.75 * f64::from(profile.setup.cores) * seconds
        || profile.setup.workers > profile.setup.cores
}

/// Factor by which each worker is slower than usual: 1, except for stragglers.
fn slowness(profile: &Profile) -> Vec<f64> {
    // Subtract waits for a processor. A thread that waits for one is not a straggler.
    let busy = |it: &ThreadProfile| match (it.ran, it.waited_for_processor) {
        (Some(ran), Some(waited)) => {
            let own =
                it.present(profile.seconds) - waited - it.waited_for_input - it.waited_for_room;
            own.clamp(ran, it.busy.max(ran))
        }
        _ => it.busy,
    };
    let means: Vec<Option<f64>> = profile
        .workers()
        .map(|it| (it.count >= MIN_SAMPLES_PER_THREAD).then(|| busy(it) / it.count as f64))
        .collect();
    let mut known: Vec<f64> = means.iter().copied().flatten().filter(|it| *it > 0.0).collect();
    known.sort_by(f64::total_cmp);
    let all = vec![1.0; profile.setup.workers.max(1) as usize];
    // Take the lower median. Of two threads, the faster one is then the usual one.
    let usual = known.get(known.len().saturating_sub(1) / 2).copied();
    // If samples take very little time, the times depend mostly on the operating system, so no
    // thread counts as a straggler.
    let Some(usual) = usual.filter(|usual| *usual >= LONG) else { return all };
    let mut slow: Vec<f64> = all;
    let variation = variation(profile);
    for ((slow, mean), thread) in slow.iter_mut().zip(means).zip(profile.workers()) {
        let ratio = mean.map_or(1.0, |mean| mean / usual);
        let chance = 1.0 + MIN_STANDARD_ERRORS * variation / (thread.count.max(1) as f64).sqrt();
        *slow = if ratio >= STRAGGLER.max(chance) { ratio } else { 1.0 };
    }
    slow
}

/// Coefficient of variation of the time per sample, if the times of the stages are independent.
fn variation(profile: &Profile) -> f64 {
    let stages = profile.stages.iter().filter(|it| is_of_workers(it));
    let (variance, mean) = stages.fold((0.0, 0.0), |(variance, mean), it| {
        (variance + (it.latency.cv * it.latency.mean).powi(2), mean + it.latency.mean)
    });
    if mean > 0.0 { variance.sqrt() / mean } else { 0.0 }
}

fn mean_slowness(profile: &Profile, slowness: &[f64]) -> f64 {
    let counts = profile.workers().map(|it| it.count as f64);
    let (sum, all) = counts
        .zip(slowness)
        .fold((0.0, 0.0), |(sum, all), (count, slow)| (sum + count * slow, all + count));
    if all > 0.0 { sum / all } else { 1.0 }
}

/// Seconds per sample that workers spend neither in a stage nor waiting.
fn overhead(profile: &Profile, samples: f64) -> f64 {
    let (mut unknown, mut known, mut ran) = (0.0, 0.0, 0.0);
    for thread in profile.workers() {
        let accounted = thread.busy + thread.waited_for_input + thread.waited_for_room;
        unknown += (thread.present(profile.seconds) - accounted).max(0.0);
        known += thread.busy;
        ran += thread.ran.unwrap_or(0.0);
    }
    let (in_stages, all) = waiting(profile);
    unknown = (unknown - (all - in_stages)).max(0.0);
    // Processor time of the workers outside their stages.
    let worked: f64 = profile.stages.iter().filter(|it| is_of_workers(it)).map(worked).sum();
    let between = (ran - worked).max(0.0);
    // If the unknown time is large, most of it is not work. Some waits may not have ended yet, or
    // some threads were not allowed to work all the time. Then count only the processor time.
    let overhead = if unknown < 0.3 * known { unknown.max(between) } else { between };
    overhead / samples
}

/// Seconds that workers waited for a processor: during their stages, and in total.
fn waiting(profile: &Profile) -> (f64, f64) {
    let in_stages = profile.stages.iter().filter_map(|it| it.waited_for_processor).sum();
    (in_stages, profile.processors.waits.map_or(0.0, |it| it.seconds))
}

fn is_of_workers(stage: &StageProfile) -> bool {
    ![Measured::List, Measured::Kernel].contains(&stage.stage)
}

/// Seconds that threads spent on a processor in a stage.
fn worked(stage: &StageProfile) -> f64 {
    stage.without_waiting().min(stage.busy * stage.cpu_share)
}
