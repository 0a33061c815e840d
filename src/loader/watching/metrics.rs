//! A loader's metrics in Prometheus format.

use std::fs;
use std::sync::Arc;

use crate::loader::controls::Controls;
use crate::loader::engine::Engine;
use crate::loader::sample::cache::{CacheStats, Caches};
use crate::loader::stats::{Counters, Stats};
use crate::measure::Meters;
use crate::measure::prometheus::Exposition;
use crate::plan::Plan;
use crate::storage::{Storage, StorageStats};

/// Data from which metrics are computed.
pub(in crate::loader) struct Observed {
    pub plan: Arc<Plan>,
    pub meters: Arc<Meters>,
    pub counters: Arc<Counters>,
    pub caches: Arc<Caches>,
    pub engine: Arc<Engine>,
    pub controls: Arc<Controls>,
    pub storages: Arc<[Storage]>,
}

impl Observed {
    /// Statistics since the loader was built.
    pub fn stats(&self) -> Stats {
        self.engine.harvest();
        let memory = self.engine.memory(&self.plan.footprint);
        let (routes, caches) = (self.engine.routes(), self.caches.stats());
        let storage = self.storages.iter().map(Storage::stats).sum();
        Stats { memory, routes, caches, storage, ..self.counters.stats() }
    }

    pub fn metrics(&self) -> String {
        let stats = self.stats();
        let mut out = Exposition::new();
        out.add_snapshot(&self.meters.snapshot(), self.plan.slots() as u64);
        let help = "Active workers.";
        out.gauge("feedwater_workers", help, self.controls.gate.open() as f64);
        add_totals(&stats, &mut out);
        add_memory(&stats, &mut out);
        add_caches(&stats.caches, &mut out);
        let routes: Vec<_> =
            stats.routes.iter().map(|it| (it.route.name(), it.images as f64)).collect();
        let help = "Images decoded by each route, including prefetched batches.";
        out.counters("feedwater_route_images_total", help, "route", &routes);
        add_storage(&stats.storage, &mut out);
        out.text().to_string()
    }
}

fn add_totals(stats: &Stats, out: &mut Exposition) {
    let counts = |of: &std::collections::BTreeMap<&'static str, u64>| -> Vec<(&'static str, f64)> {
        of.iter().map(|(name, &count)| (*name, count as f64)).collect()
    };
    let help = "Delivered samples, without padding.";
    out.counter("feedwater_images_total", help, stats.images as f64);
    let help = "Repeated samples that fill a batch as padding.";
    out.counter("feedwater_padding_total", help, stats.padding as f64);
    let help = "Samples in no batch, because they did not fill the last batch of an epoch.";
    out.counter("feedwater_left_over_total", help, stats.left_over as f64);
    let help = "Samples by outcome: the route that decoded them, substituted, dropped, skipped.";
    out.counters("feedwater_outcomes_total", help, "outcome", &counts(&stats.outcomes));
    let help = "Samples that failed, by reason.";
    out.counters("feedwater_errors_total", help, "reason", &counts(&stats.errors));
    let help = "Corrupt samples that decode.strict = false accepted, by kind of damage.";
    out.counters("feedwater_tolerated_total", help, "damage", &counts(&stats.tolerated));
    let help = "Samples whose gray values of 16 bits were clipped to 255.";
    out.counter("feedwater_clipped_total", help, stats.clipped as f64);
    let help = "JPEGs decoded on the CPU, by decoder and reason for libjpeg-turbo.";
    out.counters("feedwater_jpegs_total", help, "decoder", &counts(&stats.jpeg));
    let help = "Samples that fell back to the CPU although the plan has operators on the device, by reason.";
    let on_cpu = counts(&stats.cpu_fallback);
    out.counters("feedwater_cpu_fallback_total", help, "reason", &on_cpu);
}

fn add_memory(stats: &Stats, out: &mut Exposition) {
    let memory = stats.memory;
    let predicted = [
        ("host", memory.host_bytes_predicted),
        ("pinned", memory.pinned_bytes_predicted),
        ("device", memory.device_bytes_predicted),
    ];
    let predicted = predicted.map(|(name, bytes)| (name, bytes as f64));
    let help = "Bytes that the plan predicts.";
    out.gauges("feedwater_memory_predicted_bytes", help, "memory", &predicted);
    let peak = [
        ("host", peak_resident_bytes()),
        ("pinned", Some(memory.pinned_bytes_peak)),
        ("device", Some(memory.device_bytes_peak)),
    ];
    let peak: Vec<_> =
        peak.into_iter().filter_map(|(name, bytes)| Some((name, bytes? as f64))).collect();
    let help = "Peak bytes in use; for the host, the peak resident size of the whole process.";
    out.gauges("feedwater_memory_peak_bytes", help, "memory", &peak);
}

fn add_caches(caches: &[CacheStats], out: &mut Exposition) {
    let of = |value: fn(&CacheStats) -> u64| -> Vec<(&str, f64)> {
        caches.iter().map(|it| (it.cache, value(it) as f64)).collect()
    };
    let help = "Lookups that found the sample in the cache.";
    out.counters("feedwater_cache_hits_total", help, "cache", &of(|it| it.hits));
    let help = "Lookups that did not find the sample in the cache.";
    out.counters("feedwater_cache_misses_total", help, "cache", &of(|it| it.misses));
    let help = "Bytes that the cache has allocated.";
    out.gauges("feedwater_cache_bytes", help, "cache", &of(|it| it.taken_bytes));
}

fn add_storage(storage: &StorageStats, out: &mut Exposition) {
    if *storage == StorageStats::default() {
        return;
    }
    let help = "Requests sent to servers.";
    out.counter("feedwater_storage_requests_total", help, storage.requests as f64);
    let help = "Requests that were retried.";
    out.counter("feedwater_storage_retries_total", help, storage.retries as f64);
    let help = "Bytes received from servers.";
    out.counter("feedwater_storage_bytes_total", help, storage.bytes as f64);
}

/// Peak resident size of the process in bytes, if the system reports it.
fn peak_resident_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}
