//! Simulates changes of a measured run for the table in the page of its report.

use super::Report;
use super::fit::forecast;
use crate::model::{Forecast, Model};

/// A simulated change of a measured run, with its predictions.
pub(super) struct WhatIf {
    /// The change, such as `loader.num_workers = 4` or `a step twice as long`.
    pub change: String,
    /// Predicted samples per second: the measured throughput times the simulated speed-up.
    pub images_per_second: f64,
    /// Relative change in throughput: 0.61 means 61 % more samples per second.
    pub gain: f64,
    /// Share of the time in which the consumer waits.
    pub consumer_waits: f64,
    /// Name of the part of the pipeline with the smallest throughput bound.
    pub limit: String,
}

/// Simulates the measured run and changes of it: the recommended settings, no contention, and half
/// and twice the workers, the prefetch, the batch size and the step time. Omits changes that cannot
/// be simulated. With another batch size, the step time is assumed to change in proportion.
pub(super) fn what_ifs(report: &Report) -> Vec<WhatIf> {
    let measured = &report.model;
    let mut changes = vec![("as measured".to_string(), measured.clone())];
    let knobs = report.knobs.iter().map(|knob| (knob.setting.clone(), knob.model.clone()));
    changes.extend(knobs);
    if measured.contention.is_some() {
        let alone = Model { contention: None, ..measured.clone() };
        changes.push(("no other programs".into(), alone));
    }
    let halved_and_doubled = |now: u32| [now / 2, now.saturating_mul(2)].map(|it| it.max(1));
    for workers in halved_and_doubled(measured.workers.len() as u32) {
        let mut model = measured.clone();
        model.workers.resize(workers as usize, 1.0);
        model.starts.clear();
        changes.push((format!("loader.num_workers = {workers}"), model));
    }
    for prefetch in halved_and_doubled(measured.slots - 1) {
        let model = Model { slots: prefetch + 1, ..measured.clone() };
        changes.push((format!("loader.prefetch = {prefetch}"), model));
    }
    for batch in halved_and_doubled(measured.batch) {
        let mut model = Model { batch, ..measured.clone() };
        model.consumer.step.mean *= f64::from(batch) / f64::from(measured.batch);
        changes.push((format!("loader.batch_size = {batch}"), model));
    }
    for (name, times) in [("a step half as long", 0.5), ("a step twice as long", 2.0)] {
        let mut model = measured.clone();
        model.consumer.step.mean *= times;
        changes.push((name.into(), model));
    }
    let mut seen: Vec<String> = Vec::new();
    changes.retain(|(name, model)| {
        let is_new = name == "as measured" || (model != measured && !seen.contains(name));
        seen.push(name.clone());
        is_new
    });
    let predicted = changes.into_iter().filter_map(|(change, model)| {
        let forecast = forecast(&model).ok()?;
        Some(what_if(report, change, &model, &forecast))
    });
    predicted.collect()
}

fn what_if(report: &Report, change: String, model: &Model, forecast: &Forecast) -> WhatIf {
    let simulated = report.forecast.samples_per_second.max(1e-9);
    let scale = report.images_per_second / simulated;
    // Share of the time in which the consumer waits, computed from its step time and the predicted
    // throughput.
    let waits = |forecast: &Forecast, model: &Model| {
        let per_sample = model.consumer.step.mean / f64::from(model.batch.max(1));
        1.0 - scale * forecast.samples_per_second * per_sample
    };
    let waits = waits(forecast, model) - waits(&report.forecast, &report.model);
    let limit = model.limit().map_or("nothing", |(limit, _)| limit.name(model));
    WhatIf {
        change,
        images_per_second: scale * forecast.samples_per_second,
        gain: forecast.samples_per_second / simulated - 1.0,
        consumer_waits: (report.consumer_waits + waits).clamp(0.0, 1.0),
        limit: limit.into(),
    }
}
