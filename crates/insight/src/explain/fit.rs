//! The model of a pipeline, from what was measured of it.

use crate::Result;
use crate::model::{Consumer, Forecast, Model, On, Options, Resource, Service, Stage};
use crate::profile::{Profile, Stage as Measured, StageProfile, ThreadProfile};

use super::ReadScaling;
use super::contention::contention;

/// A model that stands for what was measured.
#[derive(Clone, Debug)]
pub struct Fit {
    /// The model.
    pub model: Model,
    /// What it does as it is.
    pub forecast: Forecast,
    /// Its images per second by the measured ones; 1 where it explains all.
    pub quality: f64,
}

/// The storage, where reads hold each other up.
pub const STORAGE: &str = "storage";
/// What a worker does besides its stages.
pub const OVERHEAD: &str = "overhead";
/// Reads and their copies below this are taken for work of a processor.
const COPY: f64 = 30e-6;
/// A thread whose samples take so much longer than the others' is a straggler.
const STRAGGLER: f64 = 1.4;
/// And by so many standard errors of a thread's mean: what varies much is unlike from thread to thread by chance.
const MIN_STANDARD_ERRORS: f64 = 4.0;
/// A model that is so far from what was measured has something wrong in it.
const DOUBTFUL: f64 = 0.12;
/// A stage of which less is work than this has the shape of its waiting.
const STEADY: f64 = 0.8;
/// Samples that take less say nothing of their thread.
const LONG: f64 = 100e-6;
/// Samples of a thread before it is judged.
const MIN_SAMPLES_PER_THREAD: u64 = 16;

/// Makes the model of what was measured.
///
/// * A stage on the host takes a core for the time that passed without its waiting for a processor. Where that waiting was not
///   measured: for the time that the processor's clock says, or, where the machine is not full of this process, for the time that
///   passed, since others took the rest.
/// * What other programs, a quota and the hypervisor took of the processors they take in the model too.
/// * Of a read, what the processor did not work for is waiting: for a storage that serves so many reads at a time as were
///   seen to hold each other up, else for nothing that is scarce.
/// * What was done on the device is on a resource of its own, in seconds of the device where these were measured.
/// * What workers did between their stages is a stage too.
///
/// # Errors
///
/// [`crate::Error`] where nothing was measured.
pub fn fit(profile: &Profile, scaling: Option<&ReadScaling>) -> Result<Fit> {
    let found = Storage::of(profile, scaling);
    let fitted = fit_with(profile, found)?;
    // How reads hold each other up is a guess from a few that met fewer others; it must not spoil the model.
    if found.is_some() && scaling.is_none() && (fitted.quality - 1.0).abs() > DOUBTFUL {
        return fit_with(profile, None);
    }
    Ok(fitted)
}

fn fit_with(profile: &Profile, storage: Option<Storage>) -> Result<Fit> {
    let cores = match profile.processors.allowed {
        // A quota is no number of processors: it is in what is left of them.
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
    // Means are of all threads together; the model's are of one that is no straggler.
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
            // Of the launcher's thread, and no worker's.
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
        // The shapes are of all threads together: a straggler's own would be counted twice.
        model.stages.iter_mut().for_each(|it| it.service = Service::constant(it.service.mean));
    }
    // The model wants what the worker does not wait for at the end.
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

/// What a model does in the long run.
///
/// # Errors
///
/// [`crate::Error`] where the model cannot be.
pub fn forecast(model: &Model) -> Result<Forecast> {
    const SAMPLES: u32 = 24_000;
    let batches = (SAMPLES / model.batch.max(1)).clamp(60, 1200);
    model.run(&Options::batches(batches, 10 + 4 * model.slots))
}

fn add(model: &mut Model, name: &str, on: On, service: Service, detached: bool) {
    model.stages.push(Stage { name: name.into(), on, service, detached });
}

/// The stage's own shape around a mean; but where much of what was measured was waiting for a processor, whose shape that was.
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
    // The copy comes first in time too: a sample that is short of nothing else still takes a core for it.
    if work > 1e-6 {
        add(model, "read", On::Cpu, Service::constant(work), false);
    }
    match storage {
        Some(Storage { servers, others, seconds }) => {
            // Of the others those that are not served at the same time come before it.
            let alone = seconds.unwrap_or(wait / ((1.0 + others) / f64::from(servers)).max(1.0));
            let resource = model.resources.len();
            model.resources.push(Resource { name: STORAGE.into(), servers });
            add(model, "read", On::Resource(resource), shaped(stage, alone), false);
        }
        None => add(model, "read", On::Wait, shaped(stage, wait), false),
    }
}

/// A storage in which reads hold each other up.
#[derive(Clone, Copy)]
struct Storage {
    /// Reads that it serves at a time.
    servers: u32,
    /// Other reads that were in flight, on average.
    others: f64,
    /// How long it serves one, where that was measured with threads that do nothing else.
    seconds: Option<f64>,
}

impl Storage {
    /// `None` where reads do not hold each other up, or that cannot be told.
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
    // A loop that does nothing still takes some time to come back.
    let mean = it.step.mean.max(1e-7);
    let step = Service { mean, quantiles: it.step_quantiles.clone() };
    Consumer { step, holds: true, host_share: it.cpu_share.clamp(0.0, 1.0) }
}

/// Samples that went through the workers.
pub(super) fn samples(profile: &Profile) -> f64 {
    let counted = [Measured::Header, Measured::HandOver, Measured::Read];
    let counted = counted.into_iter().filter_map(|stage| profile.stage(stage));
    counted.map(|stage| stage.count).find(|&count| count > 0).unwrap_or(1) as f64
}

/// Whether this process has work for more than the machine's processors, where threads' waiting for them was not measured.
fn is_full(profile: &Profile) -> bool {
    let seconds = profile.seconds.max(1e-9);
    let used: f64 = profile.stages.iter().map(|it| it.busy * it.cpu_share).sum();
    let used = used + profile.consumer.stepped * profile.consumer.cpu_share;
    used > 0.75 * f64::from(profile.setup.cores) * seconds
        || profile.setup.workers > profile.setup.cores
}

/// How much longer each worker takes than the usual one: 1, but for stragglers.
fn slowness(profile: &Profile) -> Vec<f64> {
    // Who was without a processor for longer is no straggler.
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
    // The lower middle: with two threads the faster one is the usual one.
    let usual = known.get(known.len().saturating_sub(1) / 2).copied();
    // Samples that take next to no time take as long as the system lets them.
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

/// Standard deviation by mean of the time that a sample takes, with stages that vary independently.
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

/// Seconds of a worker for each sample that are in none of its stages and in no wait.
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
    // A processor worked for the thread, and in no stage.
    let worked: f64 = profile.stages.iter().filter(|it| is_of_workers(it)).map(worked).sum();
    let between = (ran - worked).max(0.0);
    // More than that is no overhead: waits have not ended yet, or threads were not allowed to work all the time.
    let overhead = if unknown < 0.3 * known { unknown.max(between) } else { between };
    overhead / samples
}

/// Seconds that workers waited for a processor: in their stages, and in all.
fn waiting(profile: &Profile) -> (f64, f64) {
    let in_stages = profile.stages.iter().filter_map(|it| it.waited_for_processor).sum();
    (in_stages, profile.processors.waits.map_or(0.0, |it| it.seconds))
}

fn is_of_workers(stage: &StageProfile) -> bool {
    ![Measured::List, Measured::Kernel].contains(&stage.stage)
}

/// Seconds that a processor worked in a stage.
fn worked(stage: &StageProfile) -> f64 {
    stage.without_waiting().min(stage.busy * stage.cpu_share)
}
