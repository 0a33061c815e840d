//! Computes upper bounds on the throughput, one for each part of a pipeline.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Model, On};

/// Part of the pipeline that may limit the throughput.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// Worker threads, each of which processes one sample at a time.
    Workers,
    /// Processors.
    Cores,
    /// Resource with this index in the model.
    Resource(usize),
    /// Pages of the device: buffers for samples in flight.
    Pages,
    /// Slots of the ring: memory for batches.
    Slots,
    /// The consumer of the batches. If it limits, the loader is fast enough.
    Consumer,
}

impl Limit {
    /// Name of the part in reports. For a resource, this is its name in the model.
    pub fn name(self, model: &Model) -> &str {
        match self {
            Limit::Workers => "workers",
            Limit::Cores => "cores",
            Limit::Resource(at) => model.resources.get(at).map_or("resource", |it| &it.name),
            Limit::Pages => "pages",
            Limit::Slots => "slots",
            Limit::Consumer => "consumer",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Workers => f.write_str("workers"),
            Limit::Cores => f.write_str("cores"),
            Limit::Resource(at) => write!(f, "resource {at}"),
            Limit::Pages => f.write_str("pages"),
            Limit::Slots => f.write_str("slots"),
            Limit::Consumer => f.write_str("consumer"),
        }
    }
}

impl Model {
    /// Upper bounds on the throughput in samples per second, one for each part of the pipeline,
    /// smallest first. Parts that limit nothing are omitted. Each bound is a number of samples that
    /// the part processes at the same time, divided by a mean time. If the ring has many slots and
    /// all times are constant, the throughput approaches the smallest bound. If times vary, it
    /// stays below. The model must pass [`check`](Self::check).
    ///
    /// * bound of the workers: the sum over all workers of 1 / (time for which a sample occupies
    ///   the worker)
    /// * bound of the cores: (cores minus the cores that other programs take) / (core time per
    ///   sample, including the consumer's core time)
    /// * bound of a resource: its servers / (time for which a sample occupies a server)
    /// * bound of the pages: number of pages / (time from the start of a sample's first stage to
    ///   the end of its last stage)
    /// * bound of the slots: samples in all slots / (time for which a batch occupies its slot).
    ///   This time is the sum of three: assigning the samples of the batch to workers at the rate
    ///   of the smallest of the bounds above, the latency of one sample, and the step.
    /// * bound of the consumer: samples per batch / step time
    pub fn capacity(&self) -> Vec<(Limit, f64)> {
        let sum = |takes: &dyn Fn(On, bool) -> bool| -> f64 {
            let stages = self.stages.iter().filter(|stage| takes(stage.on, stage.detached));
            // `fold` starts from 0. `sum` of an empty iterator is -0, which would make the bound
            // negative.
            stages.fold(0.0, |sum, stage| sum + stage.service.mean)
        };
        let slower = self.contention.map_or(1.0, |it| 1.0 / it.speed);
        let waits = sum(&|on, detached| !detached && on == On::Wait);
        let held = sum(&|on, detached| !detached && on == On::Cpu);
        let own = waits + held * slower;
        let tail = sum(&|on, detached| detached && on != On::Cpu)
            + sum(&|on, detached| detached && on == On::Cpu) * slower;
        let batch = f64::from(self.batch);
        let in_worker = !self.stages.iter().any(|stage| stage.detached);
        let per_sample = if in_worker { self.per_batch / batch } else { 0.0 };
        let other = sum(&|on, detached| !detached && matches!(on, On::Resource(_))) + per_sample;
        let (mut workers, mut slow) = (0.0, 0.0);
        for slowness in &self.workers {
            let rate = 1.0 / (own * slowness + other);
            workers += rate;
            slow += rate * slowness;
        }
        // Mean slowness of the workers, weighted by their numbers of samples. A straggler processes
        // fewer samples, so it has less weight.
        let slow = if workers.is_finite() { slow / workers } else { 1.0 };
        let way = own * slow + other + tail;
        let consumer = &self.consumer;
        let on_core = held * slow
            + sum(&|on, detached| detached && on == On::Cpu)
            + consumer.host_share * consumer.step.mean / batch;

        let cores = f64::from(self.cores);
        let cores = self.contention.map_or(cores, |it| (cores * it.speed).min(it.available));
        let mut found = vec![(Limit::Workers, workers), (Limit::Cores, cores / on_core)];
        for (at, resource) in self.resources.iter().enumerate() {
            let time = sum(&|on, _| on == On::Resource(at));
            found.push((Limit::Resource(at), f64::from(resource.servers) / time));
        }
        if let Some(pages) = self.pages {
            found.push((Limit::Pages, f64::from(pages) / way));
        }
        let pace = found.iter().fold(f64::INFINITY, |least, (_, rate)| least.min(*rate));
        let late = (batch - self.workers.len() as f64).max(0.0) / pace;
        let held = if consumer.holds { consumer.step.mean } else { 0.0 };
        let holds_slot = late + way - per_sample + self.per_batch + held;
        found.push((Limit::Slots, f64::from(self.slots) * batch / holds_slot));
        found.push((Limit::Consumer, batch / consumer.step.mean));
        found.retain(|(_, rate)| rate.is_finite());
        found.sort_by(|a, b| a.1.total_cmp(&b.1));
        found
    }

    /// Smallest bound of [`capacity`](Self::capacity).
    pub fn limit(&self) -> Option<(Limit, f64)> {
        self.capacity().into_iter().next()
    }
}
