//! Finds the bottleneck by simulating changes of the pipeline, and not by thresholds on single
//! metrics.

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::model::{Limit, Model, On, Service};
use crate::profile::{Profile, Waits};

use super::fit::{OVERHEAD, STORAGE, forecast};

/// Bottleneck of a pipeline: the part that limits the throughput.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The consumer is slower than the loader, so the loader is fast enough.
    Consumer,
    /// Workers wait for their reads, while the storage could serve more. More workers would hide
    /// this latency.
    Reading,
    /// The storage is saturated.
    Storage,
    /// Parsing headers and planning take too long on the host.
    Header,
    /// Decoding takes too long on the host.
    Decoding,
    /// Decoding takes too long on the host, because the images are far larger than the output.
    #[serde(alias = "huge_pictures")]
    HugeImages,
    /// The operators take too long on the host.
    Transforming,
    /// Copying pixels to the device takes too long.
    Upload,
    /// Decoding takes too long on the device.
    DeviceDecoding,
    /// The operators take too long on the device.
    Kernel,
    /// The ring has too few slots.
    Ring,
    /// Times of samples or steps vary too much for the batches in the ring to compensate.
    Variance,
    /// One worker thread is slower than the others.
    Straggler,
    /// The batches are too small: the costs of a batch that do not depend on its size take too
    /// long. These costs are the delivery of the batch, and the parts of the consumer's step that
    /// the consumer has named, such as logging.
    TinyBatches,
    /// Other programs on this machine use processors for which the workers wait.
    OtherPrograms,
    /// The CPU quota of the container is exhausted.
    Quota,
    /// The hypervisor gives processors of this virtual machine to other virtual machines.
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

    /// Phrase that names what the pipeline needs if no setting of the loader helps.
    pub const fn takes(self) -> &'static str {
        match self {
            Cause::OtherPrograms => "it needs processors without other programs",
            Cause::Quota => "it needs a larger CPU quota",
            Cause::Hypervisor => "it needs processors that the hypervisor does not share",
            _ => "it needs a faster machine",
        }
    }
}

/// If the consumer waits for less than this share of the time, the consumer is the cause.
pub(super) const NEGLIGIBLE: f64 = 0.02;
/// Contention is the cause only if the simulation without contention is faster by more than this
/// factor.
const CONTENDED: f64 = 1.25;
/// Each part of the pipeline has an upper bound on the throughput. If the throughput reaches this
/// share of the smallest bound, the part with this bound is the cause.
const NEAR: f64 = 0.95;
/// If fixed costs per batch take more than this share of the time, batches are too small.
const ONCE_A_BATCH: f64 = 0.25;
/// If images have more than this many times the pixels of the output, they are huge.
const HUGE: f64 = 24.0;

/// Finds the bottleneck of a model. The first rule that applies determines the cause:
///
/// 1. The cause is the consumer, if the consumer waits for less than 2 % of the time. But if the
///    named parts of the consumer's steps (such as logging) take more than a quarter of the time,
///    the cause is batches that are too small.
/// 2. The cause is contention (other programs, a quota or the hypervisor), if the simulation
///    without contention is more than 25 % faster, and no other simulated change gains more.
/// 3. The cause is a straggler, if the simulation becomes faster when all workers are equally fast,
///    and neither a longer ring nor constant times gain more.
/// 4. The cause is batches that are too small, if delivering batches and the named parts of the
///    consumer's steps take more than a quarter of the time.
/// 5. The cause is the part with the smallest upper bound on the throughput, if the throughput is
///    close to that bound. If that part is the workers or the processors, the cause is the stage
///    that takes most of their time.
/// 6. The cause is the ring, if a longer ring would help even if all times were constant. Otherwise
///    the cause is variance.
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
    // Skip the capacity bounds of the ring and of the pages. Rule 6 of this function's
    // documentation tests whether a longer ring would help.
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
    // Gain of a longer ring if all times are constant.
    let structural = long_and_smooth / smooth;
    Ok(if structural - 1.0 >= 0.5 * (long - 1.0) && structural > 1.02 {
        Cause::Ring
    } else {
        Cause::Variance
    })
}

/// Seconds of one step that its named parts take, such as logging or metrics. This time does not
/// grow with the batch size.
pub fn named(model: &Model, profile: &Profile) -> f64 {
    let all: f64 = profile.consumer.spans.iter().map(|it| it.seconds).sum();
    (all / profile.batches.max(1) as f64).min(model.consumer.step.mean)
}

/// Returns the cause for a part with a capacity bound. For workers and cores, it is the stage that
/// takes most of their time.
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

/// Replaces all random times by their means.
fn smooth(model: &mut Model) {
    for stage in &mut model.stages {
        stage.service = Service::constant(stage.service.mean);
    }
    model.consumer.step = Service::constant(model.consumer.step.mean);
}

/// Returns what takes most of the processor time for which the workers wait: other programs, the
/// quota or the hypervisor. Returns `None` if none of them takes any, or if the waiting was not
/// measured.
pub(super) fn contender(profile: &Profile) -> Option<Cause> {
    let Waits { others, quota, stolen, .. } = profile.processors.waits?;
    let all = [(Cause::OtherPrograms, others), (Cause::Quota, quota), (Cause::Hypervisor, stolen)];
    let most = all.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    (most.1 > 0.0).then_some(most.0)
}
