//! What a loader has done so far.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde::Serialize;

use crate::error::Reason;
use crate::measure::{DeviceCounts, Meters, Stage, StageCounts, Waits};
use crate::source::LeftOut;
use crate::storage::StorageStats;

use super::balance::RouteReport;
use super::record::Outcome;
use super::slot::BatchInfo;

/// What a loader has done since it was built. Samples are counted when their batch is handed out, so that the
/// counts are those of the batches that were seen, whatever is being prepared ahead.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// Samples handed out, padding not counted.
    pub images: u64,
    /// Batches handed out.
    pub batches: u64,
    /// Samples that only filled up a batch.
    pub padding: u64,
    /// Seconds since the loader was built.
    pub seconds: f64,
    /// Busy seconds of all threads together, stage by stage.
    pub stages: StageSeconds,
    /// Samples by what became of them: the route that decoded them (`hardware`, `cuda`, `host`, `cpu`),
    /// `substituted`, and `skipped` (those whose place another sample took).
    pub outcomes: BTreeMap<&'static str, u64>,
    /// Samples whose operators all ran on the CPU although the plan has some on the device, by reason.
    pub cpu_fallback: BTreeMap<&'static str, u64>,
    /// Samples that could not be used, by reason.
    pub faults: BTreeMap<&'static str, u64>,
    /// Samples that were used although they are damaged, which needs `decode.strict = false`, by the sort of damage. Each is
    /// an image among `outcomes` as well.
    pub tolerated: BTreeMap<&'static str, u64>,
    /// The same counts for each of the latest epochs of which a batch was handed out, at most [`Stats::EPOCHS`] of them.
    /// Earlier epochs are in the counts above only.
    pub epochs: Vec<EpochStats>,
    /// What each route has done so far, images that are being prepared ahead included; empty where nothing is
    /// decoded for a device.
    pub routes: Vec<RouteReport>,
    /// What each cache has done so far, samples that are being prepared ahead included; empty without caches.
    pub caches: Vec<CacheStats>,
    /// Bytes, predicted and measured.
    pub memory: MemoryStats,
    /// What the source met and left out of its samples, with the reason, such as the keys of an archive without an image.
    pub left_out: Vec<LeftOut>,
    /// What was asked of servers, and found on the disk that stands for them, through the handles with which the source was
    /// opened: what opening it took is included, and so are other loaders that share a handle.
    pub storage: StorageStats,
}

/// What a cache holds, and how often it had what was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CacheStats {
    /// `encoded` or `decoded`.
    pub cache: &'static str,
    /// The most that it may take: its row of the footprint.
    pub limit_bytes: u64,
    /// What it has taken, the table and room that is not filled yet included.
    pub taken_bytes: u64,
    /// Bytes of the samples in it.
    pub kept_bytes: u64,
    /// Samples in it.
    pub samples: u64,
    /// Samples that were asked for and were there.
    pub hits: u64,
    /// Samples that were asked for and were not there.
    pub misses: u64,
    /// The same for each of the latest epochs, at most [`Stats::EPOCHS`] of them. Those of the last may still grow. Earlier
    /// epochs are in `hits` and `misses` only.
    pub epochs: Vec<CacheEpoch>,
}

/// The counts of [`CacheStats`] for one epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CacheEpoch {
    /// The epoch, from 0.
    pub epoch: u32,
    /// Samples that were asked for and were there.
    pub hits: u64,
    /// Samples that were asked for and were not there.
    pub misses: u64,
}

/// The counts of [`Stats`] for one epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct EpochStats {
    /// The epoch, from 0.
    pub epoch: u32,
    /// Samples handed out, padding not counted.
    pub images: u64,
    /// Samples by what became of them.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// Samples that the CPU made, by reason.
    pub cpu_fallback: BTreeMap<&'static str, u64>,
    /// Samples that could not be used, by reason.
    pub faults: BTreeMap<&'static str, u64>,
    /// Damaged samples that were used all the same, by the sort of damage.
    pub tolerated: BTreeMap<&'static str, u64>,
}

/// Memory that was predicted by the plan, and what was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Host memory, predicted. What the process has is the system's to say.
    pub host_bytes_predicted: u64,
    /// Page-locked memory, predicted.
    pub pinned_bytes_predicted: u64,
    /// Page-locked memory, the most in use at one time.
    pub pinned_bytes_peak: u64,
    /// Device memory, predicted.
    pub device_bytes_predicted: u64,
    /// Device memory, the most in use at one time.
    pub device_bytes_peak: u64,
    /// Device memory of the driver, the context and the libraries, which nobody can predict: what the device
    /// had less of after start than the plan takes.
    pub device_bytes_of_driver: u64,
}

/// Where the time went: seconds of all threads together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StageSeconds {
    /// Reading encoded bytes.
    pub read: f64,
    /// Parsing headers, planning and decoding.
    pub decode: f64,
    /// The operators and the output conversion.
    pub transform: f64,
    /// Workers waited for a free slot: the consumer is the bottleneck.
    pub waiting_for_consumer: f64,
    /// Threads waited for a processor, and for whom: in the stages above, and between them. `None` where the system does not tell.
    pub waiting_for_processor: Option<Waits>,
    /// The consumer waited for a batch: the loader is the bottleneck.
    pub consumer_waiting: f64,
    /// The device decoded: of its streams, by its own clock, and estimated from the spans that were measured. 0 where nothing
    /// is decoded there.
    pub device_decode: f64,
    /// The same of the kernel.
    pub device_kernel: f64,
    /// The same of the consumer's stream waiting for batches that the host had already.
    pub device_waiting: f64,
}

impl Stats {
    /// Most epochs of which a loader, and each of its caches, keeps the counts.
    pub const EPOCHS: usize = 100;
}

/// Most decisions that are kept: of tuning, and of reading ahead.
pub(super) const DECISIONS: usize = 100;

/// Adds an item to a list that keeps the latest `most`.
pub(super) fn push_latest<T>(kept: &mut Vec<T>, most: usize, item: T) {
    if kept.len() >= most {
        kept.drain(..=kept.len() - most);
    }
    kept.push(item);
}

const SKIPPED: &str = "skipped";

/// The counters behind [`Stats`].
#[derive(Debug)]
pub(super) struct Counters {
    meters: Arc<Meters>,
    handed_out: Mutex<Stats>,
}

impl Counters {
    pub fn new(meters: Arc<Meters>) -> Self {
        let outcomes = Outcome::all().map(|outcome| (outcome.name(), 0));
        let stats = Stats {
            outcomes: outcomes.chain([(SKIPPED, 0)]).collect(),
            faults: Reason::ALL.iter().map(|reason| (reason.name(), 0)).collect(),
            ..Stats::default()
        };
        Self { meters, handed_out: Mutex::new(stats) }
    }

    /// Counts a batch that is handed out.
    pub fn hand_out(&self, info: &BatchInfo) {
        let mut stats = self.handed_out.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let stats = &mut *stats;
        if stats.epochs.last().is_none_or(|last| last.epoch != info.epoch) {
            let epoch = EpochStats { epoch: info.epoch, ..EpochStats::default() };
            push_latest(&mut stats.epochs, Stats::EPOCHS, epoch);
        }
        let Some(epoch) = stats.epochs.last_mut() else { return };
        let of = |total: &mut BTreeMap<_, _>, here: &mut BTreeMap<_, _>, name, count| {
            for counts in [total, here] {
                *counts.entry(name).or_default() += count;
            }
        };
        stats.batches += 1;
        let mut substituted = 0;
        for record in &info.records {
            substituted += u64::from(record.outcome == Outcome::Substituted);
            if record.padding {
                stats.padding += 1;
                continue;
            }
            stats.images += 1;
            epoch.images += 1;
            of(&mut stats.outcomes, &mut epoch.outcomes, record.outcome.name(), 1);
            if let Some(why) = record.cpu_fallback {
                of(&mut stats.cpu_fallback, &mut epoch.cpu_fallback, why, 1);
            }
            if let Some(damage) = record.tolerated {
                of(&mut stats.tolerated, &mut epoch.tolerated, damage.name(), 1);
            }
        }
        for fault in &info.faults {
            of(&mut stats.faults, &mut epoch.faults, fault.reason.name(), 1);
        }
        let skipped = info.faults.len() as u64 - substituted;
        of(&mut stats.outcomes, &mut epoch.outcomes, SKIPPED, skipped);
    }

    pub fn stats(&self) -> Stats {
        let stats = self.handed_out.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        let measured = self.meters.snapshot();
        let seconds = |of: fn(&StageCounts) -> u64, stages: &[Stage]| {
            let sum: u64 = stages.iter().map(|&stage| of(&measured.stage(stage))).sum();
            sum as f64 * 1e-9
        };
        let of_device = |counts: &DeviceCounts| counts.time().map_or(0.0, |it| it.all_seconds());
        let busy = |stages: &[Stage]| seconds(|it| it.busy, stages);
        let stages = StageSeconds {
            read: busy(&[Stage::Read]),
            decode: busy(&[Stage::Header, Stage::Decode, Stage::DeviceDecode, Stage::Upload]),
            transform: busy(&[Stage::Transform, Stage::Kernel]),
            waiting_for_consumer: seconds(|it| it.output, &[Stage::HandOver, Stage::Upload]),
            waiting_for_processor: measured.waits_for_processor(),
            consumer_waiting: measured.steps.waited as f64 * 1e-9,
            device_decode: of_device(&measured.device(Stage::DeviceDecode)),
            device_kernel: of_device(&measured.device(Stage::Kernel)),
            device_waiting: of_device(&measured.steps.waited_on_device),
        };
        Stats { seconds: measured.seconds, stages, ..stats }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::record::SampleRecord;
    use crate::measure::Watching;
    use crate::plan::Route;

    #[test]
    fn the_latest_epochs_are_kept_and_all_are_counted() {
        let meters = Arc::new(Meters::watched(1, Watching::default()));
        let counters = Counters::new(meters);
        let epochs = 5000;
        for epoch in 0..epochs {
            let record =
                SampleRecord { outcome: Outcome::Decoded(Route::Cpu), ..SampleRecord::SUBSTITUTED };
            let info = BatchInfo { epoch, records: vec![record], ..BatchInfo::default() };
            counters.hand_out(&info);
            counters.hand_out(&info);
        }
        let stats = counters.stats();
        let kept: Vec<u32> = stats.epochs.iter().map(|it| it.epoch).collect();
        assert_eq!(kept, (epochs - Stats::EPOCHS as u32..epochs).collect::<Vec<_>>());
        assert!(stats.epochs.iter().all(|it| it.images == 2 && it.outcomes["cpu"] == 2));
        assert_eq!((stats.batches, stats.images), (2 * u64::from(epochs), 2 * u64::from(epochs)));
        assert_eq!(stats.outcomes["cpu"], 2 * u64::from(epochs));
    }

    #[test]
    fn a_list_keeps_its_latest_items() {
        let mut kept = Vec::new();
        for item in 0..10 {
            push_latest(&mut kept, 3, item);
            assert_eq!(kept, ((item - 2).max(0)..=item).collect::<Vec<i32>>());
        }
    }
}
