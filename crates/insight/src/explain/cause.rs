//! What limits a pipeline: by the model, and not by thresholds on single figures.

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::model::{Limit, Model, On, Service};
use crate::profile::{Profile, Waits};

use super::fit::{OVERHEAD, STORAGE, forecast};

/// What limits a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The consumer: the loader is fast enough.
    Consumer,
    /// Reading: what each worker waits for, which more workers would hide.
    Reading,
    /// The storage, which serves no more.
    Storage,
    /// Parsing headers and planning.
    Header,
    /// Decoding on the host.
    Decoding,
    /// Decoding on the host of images that are far larger than what is made of them.
    HugeImages,
    /// The operators on the host.
    Transforming,
    /// Copying to the device.
    Upload,
    /// Decoding on the device.
    DeviceDecoding,
    /// The operators on the device.
    Kernel,
    /// The ring has too few slots.
    Ring,
    /// Samples or steps take very different times, and the ring is too short to even that out.
    Variance,
    /// A thread that is slower than the others.
    Straggler,
    /// What is done once for each batch, however many samples it has: handing it over, and what the consumer names of its step.
    TinyBatches,
    /// Other programs on this machine, which have the processors that the workers wait for.
    OtherPrograms,
    /// The quota of processor time of the container that the process is in.
    Quota,
    /// The hypervisor, which gives the machine's processors to other machines.
    Hypervisor,
    /// The model does not do what was measured, so it cannot tell.
    Unexplained,
}

impl Cause {
    /// In a sentence: "... limits".
    pub const fn words(self) -> &'static str {
        match self {
            Cause::Consumer => "the consumer limits",
            Cause::Reading => "reading limits",
            Cause::Storage => "the storage limits: it serves no more reads at a time",
            Cause::Header => "parsing headers and planning limits",
            Cause::Decoding => "host decoding limits",
            Cause::HugeImages => "host decoding of far too large images limits",
            Cause::Transforming => "the operators on the host limit",
            Cause::Upload => "copying to the device limits",
            Cause::DeviceDecoding => "decoding on the device limits",
            Cause::Kernel => "the kernel on the device limits",
            Cause::Ring => "the ring limits: it has too few slots",
            Cause::Variance => {
                "uneven times limit: some samples or steps take much longer than others, and the ring is too short"
            }
            Cause::Straggler => "one slow thread limits",
            Cause::TinyBatches => {
                "batches are so small that what is done once for each of them limits"
            }
            Cause::OtherPrograms => "other programs on this machine limit",
            Cause::Quota => "the container's CPU quota limits",
            Cause::Hypervisor => "the hypervisor limits",
            Cause::Unexplained => "what limits cannot be told",
        }
    }

    /// Whether others have the processors.
    pub const fn is_contention(self) -> bool {
        matches!(self, Cause::OtherPrograms | Cause::Quota | Cause::Hypervisor)
    }

    /// What it takes where no setting of the loader helps.
    pub const fn takes(self) -> &'static str {
        match self {
            Cause::OtherPrograms => "it takes processors that other programs leave alone",
            Cause::Quota => "it takes a larger CPU quota",
            Cause::Hypervisor => "it takes processors that the hypervisor leaves alone",
            _ => "it takes a faster machine",
        }
    }
}

/// The consumer may wait for so much of its time before anything else is blamed.
pub(super) const NEGLIGIBLE: f64 = 0.02;
/// What others take of the processors limits where a pipeline gains so much by having it.
const CONTENDED: f64 = 1.25;
/// A pipeline that does so much of what its scarcest part allows is limited by that part.
const NEAR: f64 = 0.95;
/// Batches that cost so much of the time besides their samples are tiny.
const ONCE_A_BATCH: f64 = 0.25;
/// Images with so many times the pixels that are made of them are huge.
const HUGE: f64 = 24.0;

/// What limits this model.
///
/// 1. A consumer that hardly ever waits is the limit; where what it names of its steps takes a good part of the time, its
///    batches are too small.
/// 2. Others that have the processors are, where the pipeline gains by having these alone more than by anything else here.
/// 3. A thread that is much slower is, where the pipeline gains by its being like the others as much as by anything else here.
/// 4. Batches whose handing over takes a good part of the time, with what the consumer names of its steps, are too small.
/// 5. A pipeline that does what its scarcest part allows is limited by that part; where that is the workers or the
///    processors, by the stage that takes most of them.
/// 6. Else its parts do not mesh. A longer ring that would help even without any variance says that the ring is too
///    short; else variance is what the ring does not even out.
pub fn cause(model: &Model, profile: &Profile) -> Result<Cause> {
    let now = forecast(model)?;
    let named = named(model, profile) * now.batches_per_second;
    if now.consumer_waits < NEGLIGIBLE {
        return Ok(if named > ONCE_A_BATCH { Cause::TinyBatches } else { Cause::Consumer });
    }
    let rate = now.samples_per_second;
    let with = |change: &dyn Fn(&mut Model)| -> Result<f64> {
        let mut other = model.clone();
        change(&mut other);
        Ok(forecast(&other)?.samples_per_second / rate)
    };
    let alone = with(&|it| it.contention = None)?;
    let even = with(&|it| it.workers.iter_mut().for_each(|slow| *slow = 1.0))?;
    let long = with(&|it| it.slots = (8 * it.slots).min(256))?;
    let smooth = with(&smooth)?;
    if alone > CONTENDED
        && alone >= even.max(long).max(smooth)
        && let Some(who) = contender(profile)
    {
        return Ok(who);
    }
    if even > 1.04 && even >= long && even >= smooth {
        return Ok(Cause::Straggler);
    }
    if model.per_batch * now.batches_per_second + named > ONCE_A_BATCH {
        return Ok(Cause::TinyBatches);
    }
    let bounds = model.capacity();
    // Without the ring's own bound: that the ring is too short is said by what a longer one would do.
    let scarce = bounds.iter().find(|(limit, _)| !matches!(limit, Limit::Slots | Limit::Pages));
    if let Some(&(limit, most)) = scarce
        && (rate >= NEAR * most || (long < 1.03 && smooth < 1.03))
    {
        return Ok(part(model, limit, profile));
    }
    let long_and_smooth = with(&|it| {
        self::smooth(it);
        it.slots = (8 * it.slots).min(256);
    })?;
    // What the longer ring gains where nothing varies is the ring's own.
    let structural = long_and_smooth / smooth;
    Ok(if structural - 1.0 >= 0.5 * (long - 1.0) && structural > 1.02 {
        Cause::Ring
    } else {
        Cause::Variance
    })
}

/// Seconds of a step that the consumer has named: logging, metrics. They are of the batch and not of its samples.
pub fn named(model: &Model, profile: &Profile) -> f64 {
    let all: f64 = profile.consumer.spans.iter().map(|it| it.seconds).sum();
    (all / profile.batches.max(1) as f64).min(model.consumer.step.mean)
}

/// The stage that takes most of what is scarce.
fn part(model: &Model, limit: Limit, profile: &Profile) -> Cause {
    let most = |takes: &dyn Fn(&crate::model::Stage) -> bool| {
        let mut sums: Vec<(&str, f64)> = Vec::new();
        for stage in model.stages.iter().filter(|it| it.name != OVERHEAD && takes(it)) {
            match sums.iter_mut().find(|(name, _)| *name == stage.name) {
                Some((_, sum)) => *sum += stage.service.mean,
                None => sums.push((&stage.name, stage.service.mean)),
            }
        }
        sums.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(name, _)| name.to_string())
    };
    let name = match limit {
        Limit::Consumer => return Cause::Consumer,
        Limit::Resource(index) => match model.resources.get(index) {
            Some(resource) if resource.name == STORAGE => return Cause::Storage,
            Some(resource) => Some(resource.name.clone()),
            None => None,
        },
        Limit::Cores => most(&|stage| stage.on == On::Cpu),
        _ => most(&|stage| !stage.detached),
    };
    let wanted = f64::from(profile.setup.width) * f64::from(profile.setup.height);
    match name.as_deref() {
        Some("read") => Cause::Reading,
        Some("header") => Cause::Header,
        Some("decode") if profile.data.mean_pixels > HUGE * wanted => Cause::HugeImages,
        Some("decode") => Cause::Decoding,
        Some("upload") => Cause::Upload,
        Some("device_decode") => Cause::DeviceDecoding,
        Some("kernel") => Cause::Kernel,
        Some("hand_over") => Cause::TinyBatches,
        _ => Cause::Transforming,
    }
}

/// Nothing varies.
fn smooth(model: &mut Model) {
    for stage in &mut model.stages {
        stage.service = Service::constant(stage.service.mean);
    }
    model.consumer.step = Service::constant(model.consumer.step.mean);
}

/// Who takes most of the processor time that the workers wait for.
pub(super) fn contender(profile: &Profile) -> Option<Cause> {
    let Waits { others, quota, stolen, .. } = profile.processors.waits?;
    let all = [(Cause::OtherPrograms, others), (Cause::Quota, quota), (Cause::Hypervisor, stolen)];
    let most = all.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    (most.1 > 0.0).then_some(most.0)
}
