//! Predicts the gain of each setting by simulation.

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::model::{Model, On, Service, slots};
use crate::profile::Profile;
use crate::text::{bytes, counted};

use super::cause::{Cause, cause, named};
use super::fit::{OVERHEAD, forecast};

/// Setting to change, with its predicted gain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Knob {
    /// Setting with its new value, such as `loader.num_workers = 4`, or a command to run.
    pub setting: String,
    /// Relative gain in throughput: 0.61 means 61 % more samples per second.
    pub gain: f64,
    /// Predicted throughput in samples per second: the measured throughput plus the gain.
    pub images_per_second: f64,
    /// Cost of the change, such as more memory, as text.
    pub cost: String,
    /// Bottleneck after the change.
    pub then: Cause,
    /// Model of the pipeline after the change.
    pub model: Model,
}

/// Smallest relative gain that is reported.
pub(super) const WORTH: f64 = 0.03;
/// The smallest value of a setting that reaches this share of the best throughput is recommended.
const NEARLY_AS_MUCH: f64 = 0.98;
/// Share of the best throughput that the recommended batch size must reach. This share is lower
/// than for other settings, because larger batches also affect training.
const NEARLY_AS_LARGE: f64 = 0.9;
/// Steps shorter than this, in seconds, belong to a consumer that does nothing with its batches.
const STEP: f64 = 50e-6;
const HAND_OVER: &str = "hand_over";
/// Bytes per second that a thread copies in memory. The value is low on purpose, so that predicted
/// gains are not too large.
const COPIES: f64 = 4e9;

/// Returns at most `most` settings with the largest predicted gains, best first. Of two settings
/// with nearly equal gains, the cheaper one comes first. Omits gains that are not larger than
/// `error`, the relative error of the model.
pub fn knobs(model: &Model, profile: &Profile, most: usize, error: f64) -> Result<Vec<Knob>> {
    let rate = forecast(model)?.samples_per_second;
    let tried = [
        workers(model, profile)?,
        prefetch(model, profile)?,
        batch(model, profile)?,
        cache(model, profile),
        decoded(model, profile),
        device_cache(model, profile),
        row_index(model, profile),
        presize(model, profile),
    ];
    let mut found = Vec::new();
    for Tried { setting, cost, model } in tried.into_iter().flatten() {
        let gain = forecast(&model)?.samples_per_second / rate - 1.0;
        let images_per_second = (1.0 + gain) * profile.images_per_second();
        if gain >= WORTH.max(error) {
            let then = cause(&model, profile)?;
            found.push(Knob { setting, gain, images_per_second, cost, then, model });
        }
    }
    found.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    found.truncate(most);
    Ok(found)
}

struct Tried {
    setting: String,
    cost: String,
    model: Model,
}

/// Returns the smallest value whose throughput is at least the share `enough` of the best one.
fn least(rates: &[(u32, f64)], enough: f64) -> Option<u32> {
    let best = rates.iter().map(|it| it.1).fold(0.0, f64::max);
    rates.iter().find(|it| it.1 >= enough * best).map(|it| it.0)
}

fn workers(model: &Model, profile: &Profile) -> Result<Option<Tried>> {
    let now = model.workers.len() as u32;
    // Many more threads than processors help only if the threads mostly wait, for example for a
    // disk.
    let waits: f64 = sum(model, |on| on != On::Cpu) / sum(model, |_| true).max(1e-12);
    let cores = profile.setup.cores;
    let limit = if waits > 0.3 { 64.max(8 * cores) } else { 2 * cores }.max(now);
    let steps =
        [now + 1, now + 2, now + now / 2, 2 * now, 3 * now, 4 * now, 6 * now, 8 * now, 16 * now];
    let mut steps: Vec<u32> = steps.into_iter().filter(|it| *it <= limit).collect();
    steps.sort_unstable();
    steps.dedup();
    let with = |many: u32| {
        let mut model = model.clone();
        model.workers.resize(many as usize, 1.0);
        model
    };
    let mut rates = vec![(now, forecast(model)?.samples_per_second)];
    for many in steps {
        rates.push((many, forecast(&with(many))?.samples_per_second));
    }
    Ok(least(&rates, NEARLY_AS_MUCH).filter(|many| *many != now).map(|many| Tried {
        setting: format!("loader.num_workers = {many}"),
        cost: format!("{} more", counted(many - now, "thread")),
        model: with(many),
    }))
}

fn prefetch(model: &Model, profile: &Profile) -> Result<Option<Tried>> {
    let now = model.slots - 1;
    let with = |prefetch: u32| Model { slots: slots(prefetch), ..model.clone() };
    let mut rates = vec![(now, forecast(model)?.samples_per_second)];
    for prefetch in [2, 3, 4, 6, 8, 12, 16, 24, 32].into_iter().filter(|it| *it > now) {
        rates.push((prefetch, forecast(&with(prefetch))?.samples_per_second));
    }
    Ok(least(&rates, NEARLY_AS_MUCH).filter(|it| *it != now).map(|prefetch| Tried {
        setting: format!("loader.prefetch = {prefetch}"),
        cost: format!(
            "{} more memory",
            bytes(u64::from(prefetch - now) * profile.setup.batch_bytes)
        ),
        model: with(prefetch),
    }))
}

/// Tries larger batches, if the fixed cost per batch matters. The step time is assumed to grow in
/// proportion to the batch size, except for the named parts of the step and for steps that do
/// nothing. Delivering a batch, and the workers' time between their stages, are assumed to have a
/// fixed cost per batch.
fn batch(model: &Model, profile: &Profile) -> Result<Option<Tried>> {
    let named = named(model, profile);
    let share = (model.per_batch + named) * forecast(model)?.batches_per_second;
    if share < 0.05 {
        return Ok(None);
    }
    let with = |many: u32| {
        let mut model = model.clone();
        let grows = f64::from(many) / f64::from(model.batch);
        model.batch = many;
        let step = &mut model.consumer.step.mean;
        if *step > STEP {
            *step = named + (*step - named) * grows;
        }
        for stage in model.stages.iter_mut().filter(|it| [HAND_OVER, OVERHEAD].contains(&&*it.name))
        {
            stage.service.mean /= grows;
        }
        model
    };
    let mut rates = Vec::new();
    // A batch cannot have more samples than an epoch.
    let most = u64::from(model.batch).max(profile.data.epoch_samples);
    let steps = [1, 2, 4, 8, 16, 32, 64].map(|times| times * model.batch);
    for many in steps.into_iter().filter(|it| u64::from(*it) <= most) {
        rates.push((many, forecast(&with(many))?.samples_per_second));
    }
    Ok(least(&rates, NEARLY_AS_LARGE).filter(|it| *it != model.batch).map(|many| Tried {
        setting: format!("loader.batch_size = {many}"),
        cost: "another batch size for training".into(),
        model: with(many),
    }))
}

/// Tries a cache of encoded files in memory. From the second epoch on, reading a file is a copy
/// from memory.
fn cache(model: &Model, profile: &Profile) -> Option<Tried> {
    let all = profile.data.samples as f64 * profile.data.mean_bytes;
    let fits = all > 0.0 && all < 0.7 * profile.setup.memory_available as f64;
    let cached = profile.setup.cache_encoded.is_some() || profile.setup.cache_decoded.is_some();
    (fits && !cached).then(|| {
        let limit = mebibytes(1.1 * all);
        Tried {
            setting: format!("cache.encoded = \"{limit} MiB\""),
            cost: format!(
                "{} of memory; the gain begins with the second epoch",
                bytes(limit << 20)
            ),
            model: with_reads(model, 1e-6 + profile.data.mean_bytes / COPIES),
        }
    })
}

/// Tries a cache of decoded images in memory. From the second epoch on, images are neither read nor
/// decoded.
fn decoded(model: &Model, profile: &Profile) -> Option<Tried> {
    let all = profile.data.samples as f64 * 3.0 * profile.data.mean_pixels;
    let setup = &profile.setup;
    let fits = all > 0.0 && all < 0.5 * setup.memory_available as f64;
    let stores = !setup.prescale && !setup.decodes_floats;
    let can = setup.cache_decoded.is_none() && stores && !setup.decodes_on_device;
    (fits && can).then(|| {
        let mut model = with_reads(model, 1e-6);
        // With this cache, the decode stage only reads the window's rows, without decoding or
        // copying them. This takes time, because the rows come from main memory and not from the
        // processor's cache as right after decoding.
        let rows = 3.0 * profile.data.mean_window_pixels / COPIES;
        for stage in model.stages.iter_mut().filter(|it| it.name == "decode") {
            stage.service = Service::constant(1e-6 + rows);
        }
        let limit = mebibytes(1.1 * all);
        Tried {
            setting: format!("cache.decoded = \"{limit} MiB\""),
            cost: format!(
                "{} of memory; the gain begins with the second epoch",
                bytes(limit << 20)
            ),
            model,
        }
    })
}

/// Tries a cache of files in device memory. From the second epoch on, files are neither read nor
/// copied to the device.
fn device_cache(model: &Model, profile: &Profile) -> Option<Tried> {
    let all = profile.data.samples as f64 * profile.data.mean_bytes;
    let setup = &profile.setup;
    let free = profile.device.as_ref().and_then(|device| {
        Some(device.memory_total?.saturating_sub(device.memory_used.unwrap_or(0)))
    });
    let fits = all > 0.0 && free.is_none_or(|free| 1.1 * all < free as f64);
    let cached = setup.cache_device.is_some() || setup.cache_decoded.is_some();
    (fits && setup.decodes_with_kernels && !cached).then(|| {
        let limit = mebibytes(1.1 * all);
        Tried {
            setting: format!("cache.device = \"{limit} MiB\""),
            cost: format!(
                "{} of device memory; the gain begins with the second epoch",
                bytes(limit << 20)
            ),
            model: with_reads(model, 1e-6),
        }
    })
}

/// Tries a cache of JPEG row indexes. From the second epoch on, the decoder skips more of the rows
/// that a crop does not need.
fn row_index(model: &Model, profile: &Profile) -> Option<Tried> {
    let setup = &profile.setup;
    let can = setup.cache_row_index.is_none() && setup.cache_decoded.is_none();
    let (speedup, needed) = setup.row_index.filter(|_| can && !setup.decodes_on_device)?;
    let mut model = model.clone();
    for stage in model.stages.iter_mut().filter(|it| it.name == "decode") {
        stage.service.mean /= speedup;
    }
    let limit = mebibytes(1.1 * needed as f64);
    Some(Tried {
        setting: format!("cache.row_index = \"{limit} MiB\""),
        cost: format!("{} of memory; the gain begins with the second epoch", bytes(limit << 20)),
        model,
    })
}

/// Tries packing the set again with smaller images, which are faster to read and to decode.
fn presize(model: &Model, profile: &Profile) -> Option<Tried> {
    let setup = &profile.setup;
    let shorter = (f64::from(setup.width.max(setup.height)) * 8.0 / 7.0 / 8.0).round() * 8.0;
    let images = &profile.data.images;
    let (mut before, mut after) = (0.0, 0.0);
    for image in images {
        let side = f64::from(image.width.min(image.height)).max(1.0);
        before += image.bytes as f64;
        after += image.bytes as f64 * (shorter / side).min(1.0).powi(2);
    }
    let share = after / before;
    (setup.presize.is_none() && before > 0.0 && share < 0.8).then(|| {
        let mut model = model.clone();
        for stage in &mut model.stages {
            if ["decode", "read", "device_decode"].contains(&stage.name.as_str())
                && stage.on != On::Wait
            {
                stage.service.mean *= share;
            }
        }
        Tried {
            setting: format!("feedwater pack SRC DST --shorter {shorter}"),
            cost: format!(
                "a new copy of the set with {:.0} % of its bytes; pixels differ",
                100.0 * share
            ),
            model,
        }
    })
}

/// Returns a model in which every read is a copy that takes `seconds`.
fn with_reads(model: &Model, seconds: f64) -> Model {
    let mut model = model.clone();
    let mut first = true;
    model.stages.retain(|stage| stage.name != "read" || std::mem::take(&mut first));
    for stage in model.stages.iter_mut().filter(|it| it.name == "read") {
        (stage.on, stage.service) = (On::Cpu, Service::constant(seconds));
    }
    model
}

fn sum(model: &Model, takes: impl Fn(On) -> bool) -> f64 {
    let stages = model.stages.iter().filter(|stage| !stage.detached && takes(stage.on));
    stages.map(|stage| stage.service.mean).sum()
}

fn mebibytes(bytes: f64) -> u64 {
    (bytes / 1048576.0).ceil() as u64
}
