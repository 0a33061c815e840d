//! Upper bounds on the throughput of each part of a pipeline.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Model, On};

/// Part of the pipeline that may limit the throughput.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// Workers, each of which holds one sample at a time.
    Workers,
    /// Processors.
    Cores,
    /// Resource with this index.
    Resource(usize),
    /// Pages of the device.
    Pages,
    /// Slots of the ring.
    Slots,
    /// The consumer: the loader is fast enough.
    Consumer,
}

impl Limit {
    /// Name in reports. A resource has the name from the model.
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
    /// Throughput bound of each part in samples per second, smallest first. Parts without a bound
    /// are omitted. The bounds are counts divided by mean times. With a deep ring, the throughput
    /// approaches the smallest bound; with varying times it stays below. The model must pass
    /// [`check`](Self::check).
    ///
    /// * workers: the sum over workers of 1 / (time that a sample holds the worker)
    /// * cores: (cores minus the cores that others take) / (time on a core per sample, including
    ///   the consumer's)
    /// * a resource: servers / (time on it per sample)
    /// * pages: pages / (time from the first stage to the end of the last)
    /// * slots: samples in all slots / (time that a batch holds its slot). This time is the assignment of its samples at the rate
    ///   of the smallest bound above, plus the latency of one sample, plus the step.
    /// * consumer: samples per batch / step
    pub fn capacity(&self) -> Vec<(Limit, f64)> {
        let sum = |takes: &dyn Fn(On, bool) -> bool| -> f64 {
            let stages = self.stages.iter().filter(|stage| takes(stage.on, stage.detached));
            // Starts from 0: the sum of an empty iterator is -0, and a quotient by it would be negative.
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
        // Mean slowness per sample. A straggler processes fewer samples, so it counts less.
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
