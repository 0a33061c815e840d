//! Statistics of a loader.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use serde::Serialize;

use crate::error::{Reason, SampleError};
use crate::loader::balance::RouteReport;
use crate::loader::order::Extent;
use crate::loader::sample::cache::CacheStats;
use crate::loader::sample::record::Outcome;
use crate::loader::slot::BatchInfo;
use crate::measure::{DeviceCounts, FieldCounts, Meters, Stage, StageCounts, Waits, push_latest};
use crate::plan::{ColumnSettings, OnError};
use crate::source::Exclusion;
use crate::storage::StorageStats;

/// Counts since the loader was built. Samples are counted when their batch is delivered. Prefetched
/// batches are not included unless noted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// Delivered samples, without padding.
    pub images: u64,
    /// Delivered batches.
    pub batches: u64,
    /// Repeated samples that fill a batch as padding.
    pub padding: u64,
    /// Number of samples of this shard that are in no batch, because they did not fill the last
    /// batch of an epoch (`loader.last_batch = "drop"`). Counted when the epoch's last batch is
    /// delivered.
    pub left_over: u64,
    /// Number of batches for which memory beyond the plan was allocated, because the consumer held
    /// all other batches
    /// ([`LoaderBuilder::add_batches`](crate::loader::LoaderBuilder::add_batches)).
    pub batches_added: u64,
    /// Seconds since the loader was built.
    pub seconds: f64,
    /// Working time of all threads together, by stage, in seconds.
    pub stages: StageSeconds,
    /// Samples by outcome: the decode route, `substituted` (replaced by zeros), `dropped` (in no
    /// batch), or `skipped` (replaced by another sample).
    pub outcomes: BTreeMap<&'static str, u64>,
    /// Samples that were processed on the CPU although the plan has operators on the device, by
    /// reason.
    pub cpu_fallback: BTreeMap<&'static str, u64>,
    /// Samples that failed, by reason.
    pub errors: BTreeMap<&'static str, u64>,
    /// Corrupt samples that were accepted because of `decode.strict = false`, by kind of damage.
    /// Each is also counted in `outcomes`.
    pub tolerated: BTreeMap<&'static str, u64>,
    /// Samples whose gray values of 16 bits were clipped to 255, because they were decoded to a
    /// pixel format of 8 bits.
    pub clipped: u64,
    /// JPEGs decoded on the CPU, by decoder, and for libjpeg-turbo also by the reason for this
    /// decoder ([`JpegBy::name`]).
    ///
    /// [`JpegBy::name`]: crate::decode::JpegBy::name
    pub jpeg: BTreeMap<&'static str, u64>,
    /// Samples whose value was cut to `max_len`, by column.
    pub truncated: BTreeMap<String, u64>,
    /// Samples without the field of a column, which have its default, by column.
    pub defaulted: BTreeMap<String, u64>,
    /// Counts of each field that a column or a view reads, including prefetched samples. Empty
    /// without columns.
    pub fields: Vec<FieldStats>,
    /// Counts of each of the latest [`Stats::EPOCHS`] epochs with delivered batches. Earlier epochs
    /// are only in the totals above.
    pub epochs: Vec<EpochStats>,
    /// Statistics of each decode route, including prefetched images. Empty if nothing is decoded
    /// for a device.
    pub routes: Vec<RouteReport>,
    /// Statistics of each cache, including prefetched samples. Empty without caches.
    pub caches: Vec<CacheStats>,
    /// Memory in bytes, predicted and measured.
    pub memory: MemoryStats,
    /// Entries that the source skipped, with the reason, such as the keys of an archive without an
    /// image.
    pub excluded: Vec<Exclusion>,
    /// Requests to servers, and hits in the disk cache, of the storage handles of the source.
    /// Includes requests made while the source was opened, and requests of other loaders that share
    /// a handle.
    pub storage: StorageStats,
}

/// Counts of [`Stats`] for one field. Times are sums over all threads, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FieldStats {
    /// Name of the column or view.
    pub column: String,
    /// Name of the field, with a path into its value.
    pub field: String,
    /// Samples whose fields were read.
    pub samples: u64,
    /// Samples that have the field.
    pub count: u64,
    /// Bytes of the values, as the source stores them.
    pub bytes: u64,
    /// Time in which the source read the values. If one read returns several fields, its time
    /// counts for the first of them.
    pub read: f64,
    /// Time for converting values to elements of their column.
    pub convert: f64,
    /// Time for decoding masks, and for moving masks, points and boxes like their image.
    pub follow: f64,
}

/// Counts of [`Stats`] for one epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct EpochStats {
    /// The epoch, from 0.
    pub epoch: u32,
    /// Delivered samples, without padding.
    pub images: u64,
    /// Samples by outcome.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// Samples that fell back to the CPU, by reason.
    pub cpu_fallback: BTreeMap<&'static str, u64>,
    /// Samples that failed, by reason.
    pub errors: BTreeMap<&'static str, u64>,
    /// Corrupt samples that were accepted, by kind of damage.
    pub tolerated: BTreeMap<&'static str, u64>,
    /// JPEGs that were decoded on the CPU, by decoder.
    pub jpeg: BTreeMap<&'static str, u64>,
}

/// Memory in bytes: predicted by the plan, and measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Predicted host memory. The operating system reports the actual use of the process.
    pub host_bytes_predicted: u64,
    /// Predicted page-locked memory.
    pub pinned_bytes_predicted: u64,
    /// Peak of the page-locked memory.
    pub pinned_bytes_peak: u64,
    /// Predicted device memory.
    pub device_bytes_predicted: u64,
    /// Peak of the device memory.
    pub device_bytes_peak: u64,
    /// Device memory of the driver, the context and the libraries. It cannot be predicted. It is
    /// measured at the start: the decrease of free device memory, minus the memory that the plan
    /// allocates.
    pub device_bytes_of_driver: u64,
    /// Page-locked and device memory that nvJPEG freed but that cannot be used again, because the
    /// end of the work on it could not be observed. 0 unless the driver fails.
    pub bytes_withheld: u64,
    /// Number of freed buffers that nvJPEG's allocations had to wait for, because the memory
    /// planned for nvJPEG was in use. 0 while images fit the buffers that were allocated at the
    /// start.
    pub nvjpeg_waits: u64,
}

/// Seconds by stage, summed over all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StageSeconds {
    /// Time for reading encoded bytes.
    pub read: f64,
    /// Time for parsing headers, planning and decoding.
    pub decode: f64,
    /// Time in the operators and the output conversion.
    pub transform: f64,
    /// Time that workers waited for a free slot. If this is large, the consumer is the bottleneck.
    pub waiting_for_consumer: f64,
    /// Time that threads waited for a processor, in the stages above and between them, by the cause
    /// of the wait. `None` if the system does not report it.
    pub waiting_for_processor: Option<Waits>,
    /// Time that the consumer waited for a batch. If this is large, the loader is the bottleneck.
    pub consumer_waiting: f64,
    /// Time for decoding on the device: the sum over its streams, by the device's clock. It is
    /// extrapolated, because only some spans of the work are timed. 0 if nothing is decoded on the
    /// device.
    pub device_decode: f64,
    /// Time that kernels ran on the device, measured like `device_decode`.
    pub device_kernel: f64,
    /// Time that the consumer's stream waited for batches that were already ready on the host,
    /// measured like `device_decode`.
    pub device_waiting: f64,
}

impl Stats {
    /// Maximum number of epochs with separate counts, for a loader and for each of its caches.
    pub const EPOCHS: usize = crate::measure::EPOCHS;
}

const SKIPPED: &str = "skipped";

/// Counters from which [`Stats`] is computed.
#[derive(Debug)]
pub(super) struct Counters {
    meters: Arc<Meters>,
    /// Names of the columns that are made from fields.
    columns: Vec<String>,
    handed_out: Mutex<Stats>,
    first_failed: OnceLock<SampleError>,
}

impl Counters {
    pub fn new(meters: Arc<Meters>, columns: &[ColumnSettings]) -> Self {
        let columns: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
        let outcomes = Outcome::all().map(|outcome| (outcome.name(), 0));
        let stats = Stats {
            outcomes: outcomes.chain([(SKIPPED, 0)]).collect(),
            errors: Reason::ALL.iter().map(|reason| (reason.name(), 0)).collect(),
            ..Stats::default()
        };
        Self { meters, columns, handed_out: Mutex::new(stats), first_failed: OnceLock::new() }
    }

    /// Counts a delivered batch. `extent` is the size of its epoch.
    pub fn hand_out(&self, info: &BatchInfo, extent: Extent) {
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
        if info.number + 1 == extent.batches() {
            stats.left_over += extent.left_over();
        }
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
            stats.clipped += u64::from(record.clipped);
            if let Some(by) = record.jpeg {
                of(&mut stats.jpeg, &mut epoch.jpeg, by.name(), 1);
            }
            for (number, name) in self.columns.iter().enumerate() {
                let sets = [record.truncated, record.defaulted];
                let counts = [&mut stats.truncated, &mut stats.defaulted];
                for (_, counts) in
                    sets.iter().zip(counts).filter(|(set, _)| **set >> number & 1 == 1)
                {
                    *counts.entry(name.clone()).or_default() += 1;
                }
            }
        }
        for error in &info.errors {
            of(&mut stats.errors, &mut epoch.errors, error.reason.name(), 1);
        }
        let dropped = info.dropped;
        of(&mut stats.outcomes, &mut epoch.outcomes, Outcome::Dropped.name(), dropped);
        let skipped = info.errors.len() as u64 - substituted - dropped;
        of(&mut stats.outcomes, &mut epoch.outcomes, SKIPPED, skipped);
        if let Some(error) = info.errors.first() {
            self.first_failed.get_or_init(|| error.clone());
        }
    }

    /// Warning about clipped values. `None` if no sample has any.
    pub fn clipping(&self) -> Option<String> {
        let stats = self.handed_out.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        (stats.clipped > 0).then(|| {
            "gray images of 16 bits are decoded to 8 bits, and their values above 255 become 255; \
             set pixels to u16 (decode.pixels, or pixels of the view), or convert the images; \
             Stats::clipped counts them"
                .into()
        })
    }

    /// Message about failed samples. `None` if no sample failed.
    pub fn failures(&self, policy: OnError) -> Option<String> {
        let first = self.first_failed.get()?;
        let stats = self.handed_out.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let failed: u64 = stats.errors.values().sum();
        let skipped = stats.outcomes.get(SKIPPED).copied().unwrap_or(0);
        drop(stats);
        const BY_OTHERS: &str =
            "replaced by other samples, which are then in the epoch more than once";
        let replaced = match policy {
            // Only samples that are too long are skipped, which is not an error.
            OnError::Stop if skipped == 0 => return None,
            _ if skipped == failed && policy != OnError::Skip => {
                format!("{BY_OTHERS} (too_long of a column)")
            }
            OnError::Skip if failed > 1 => format!(
                "{BY_OTHERS} (loader.on_error; a sample that is drawn again as a replacement \
                 counts again)"
            ),
            OnError::Skip => format!("{BY_OTHERS} (loader.on_error)"),
            OnError::Substitute | OnError::Drop | OnError::Stop => {
                let how = match policy {
                    OnError::Drop => "left out of their batches",
                    _ => "replaced by zeros with the label loader.ignore_label",
                };
                match skipped {
                    0 => format!("{how} (loader.on_error)"),
                    _ => format!(
                        "{how} (loader.on_error), except {skipped}, which were {BY_OTHERS} \
                         (too_long of a column)"
                    ),
                }
            }
        };
        let (samples, were) = if failed == 1 { ("sample", "was") } else { ("samples", "were") };
        Some(format!(
            "{failed} {samples} could not be used and {were} {replaced}; stats.errors counts them \
             by reason; the first of them is sample {first}"
        ))
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
        let field = |it: &FieldCounts| FieldStats {
            column: it.column.clone(),
            field: it.field.clone(),
            samples: it.samples,
            count: it.count,
            bytes: it.bytes,
            read: it.read as f64 * 1e-9,
            convert: it.convert as f64 * 1e-9,
            follow: it.follow as f64 * 1e-9,
        };
        let fields = measured.fields.iter().map(field).collect();
        Stats { seconds: measured.seconds, stages, fields, ..stats }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::order::Order;
    use crate::loader::sample::record::SampleRecord;
    use crate::measure::Watching;
    use crate::plan::{LoaderSettings, Route, Shard};

    #[test]
    fn totals_count_all_epochs_and_the_latest_are_listed() {
        let meters = Arc::new(Meters::watched(1, Watching::default()));
        let counters = Counters::new(meters, &[]);
        let epochs = 5000;
        let settings = LoaderSettings { batch_size: 3, ..Default::default() };
        let shard = Shard { rank: 0, world: 1, from: "settings" };
        let extent = Order::new(8, &settings, &shard, &[]).unwrap().whole();
        for epoch in 0..epochs {
            let record =
                SampleRecord { outcome: Outcome::Decoded(Route::Cpu), ..SampleRecord::SUBSTITUTED };
            let records = vec![record];
            for number in 0..2 {
                let info =
                    BatchInfo { epoch, number, records: records.clone(), ..BatchInfo::default() };
                counters.hand_out(&info, extent);
            }
        }
        let stats = counters.stats();
        let kept: Vec<u32> = stats.epochs.iter().map(|it| it.epoch).collect();
        assert_eq!(kept, (epochs - Stats::EPOCHS as u32..epochs).collect::<Vec<_>>());
        assert!(stats.epochs.iter().all(|it| it.images == 2 && it.outcomes["cpu"] == 2));
        assert_eq!((stats.batches, stats.images), (2 * u64::from(epochs), 2 * u64::from(epochs)));
        assert_eq!(stats.outcomes["cpu"], 2 * u64::from(epochs));
        assert_eq!(stats.left_over, 2 * u64::from(epochs));
    }
}
