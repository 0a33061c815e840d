//! Finds the bottleneck by simulation instead of thresholds on single metrics.

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::model::{Limit, Model, On, Service};
use crate::profile::{Profile, Waits};

use super::fit::{OVERHEAD, STORAGE, forecast};

/// Bottleneck of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The consumer: the loader is fast enough.
    Consumer,
    /// Reading: each worker waits for its reads. More workers would hide this latency.
    Reading,
    /// The storage is saturated.
    Storage,
    /// Parsing headers and planning.
    Header,
    /// Decoding on the host.
    Decoding,
    /// Decoding on the host of images that are far larger than the output.
    #[serde(alias = "huge_pictures")]
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
    /// Times of samples or steps vary too much for the ring to compensate.
    Variance,
    /// One thread is slower than the others.
    Straggler,
    /// Fixed costs per batch: delivering the batch, and the named parts of the consumer's step.
    TinyBatches,
    /// Other programs on this machine use the processors that the workers wait for.
    OtherPrograms,
    /// CPU quota of the container.
    Quota,
    /// The hypervisor gives the machine's processors to other machines.
    Hypervisor,
    /// Unknown: the model does not reproduce the measurements.
    Unexplained,
}

impl Cause {
    /// Phrase that names the bottleneck in reports, such as "reading limits".
    pub const fn words(self) -> &'static str {
        match self {
            Cause::Consumer => "the consumer limits",
            Cause::Reading => "reading limits",
            Cause::Storage => "the storage limits: it serves no more concurrent reads",
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
            Cause::TinyBatches => "the fixed cost per batch limits: batches are too small",
            Cause::OtherPrograms => "other programs on this machine limit",
            Cause::Quota => "the container's CPU quota limits",
            Cause::Hypervisor => "the hypervisor limits",
            Cause::Unexplained => "the bottleneck is unknown",
        }
    }

    /// Whether the cause is that other programs, a quota or the hypervisor take processor time.
    pub const fn is_contention(self) -> bool {
        matches!(self, Cause::OtherPrograms | Cause::Quota | Cause::Hypervisor)
    }

    /// Phrase about what the pipeline needs if no setting of the loader helps.
    pub const fn takes(self) -> &'static str {
        match self {
            Cause::OtherPrograms => "it needs processors without other programs",
            Cause::Quota => "it needs a larger CPU quota",
            Cause::Hypervisor => "it needs processors that the hypervisor does not share",
            _ => "it needs a faster machine",
        }
    }
}

/// Share of the time that the consumer waits, below which the consumer is the cause.
pub(super) const NEGLIGIBLE: f64 = 0.02;
/// Smallest speed-up without contention for which contention is the cause.
const CONTENDED: f64 = 1.25;
/// Smallest ratio of the throughput to the smallest capacity bound for which the bounded part is
/// the cause.
const NEAR: f64 = 0.95;
/// Share of the time spent on fixed costs per batch, above which batches are too small.
const ONCE_A_BATCH: f64 = 0.25;
/// Ratio of image pixels to output pixels, above which images are huge.
const HUGE: f64 = 24.0;

/// Finds the bottleneck of a model, in this order:
///
/// 1. The consumer, if it hardly ever waits. If the named parts of its steps take a large share of the time, the batches are too
///    small.
/// 2. Contention, if removing it speeds up the pipeline more than any other change that is tried.
/// 3. A straggler, if making it as fast as the others speeds up the pipeline as much as any other
///    change that is tried.
/// 4. Too small batches, if handing them over and the named parts of the consumer's steps take a large share of the time.
/// 5. The part with the smallest capacity bound, if the throughput is close to that bound. If those are the
///    workers or the processors, the cause is the stage that takes most of their time.
/// 6. Otherwise the ring or variance: the ring, if a longer one would help even without variance.
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
    // Ignore the bound of the ring, because step 6 tests whether a longer ring would help.
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
    // Gain of a longer ring if no times varied.
    let structural = long_and_smooth / smooth;
    Ok(if structural - 1.0 >= 0.5 * (long - 1.0) && structural > 1.02 {
        Cause::Ring
    } else {
        Cause::Variance
    })
}

/// Seconds of the named parts of a step, such as logging or metrics. They do not grow with the batch.
pub fn named(model: &Model, profile: &Profile) -> f64 {
    let all: f64 = profile.consumer.spans.iter().map(|it| it.seconds).sum();
    (all / profile.batches.max(1) as f64).min(model.consumer.step.mean)
}

/// Returns the cause for a capacity bound: the stage that takes most time of the bounded part.
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

/// Removes all variance.
fn smooth(model: &mut Model) {
    for stage in &mut model.stages {
        stage.service = Service::constant(stage.service.mean);
    }
    model.consumer.step = Service::constant(model.consumer.step.mean);
}

/// Returns the cause that takes most of the processor time for which the workers wait. `None` if
/// nobody takes any, or if it was not measured.
pub(super) fn contender(profile: &Profile) -> Option<Cause> {
    let Waits { others, quota, stolen, .. } = profile.processors.waits?;
    let all = [(Cause::OtherPrograms, others), (Cause::Quota, quota), (Cause::Hypervisor, stolen)];
    let most = all.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    (most.1 > 0.0).then_some(most.0)
}
