//! Measurements of a run as plain data: the input of reports, and the content of profile files.

use serde::{Deserialize, Serialize};

pub use device::{DeviceProfile, DeviceReading, DeviceTime};
pub use processor::{ProcessorProfile, Waits};
pub use stage::{STAGES, Stage};

mod device;
mod processor;
mod stage;

/// Measurements of a loader over a period of time, with the loader's settings. Times are in
/// seconds.
///
/// Counts, shares and means cover the measured period. Maxima (memory, [`Latency::max`]) and the
/// example images cover the whole time since the loader was built.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Profile {
    /// Length of the measured period in seconds.
    pub seconds: f64,
    /// Number of samples delivered to the consumer, including padding.
    pub images: u64,
    /// Number of batches delivered to the consumer.
    pub batches: u64,
    /// Settings of the loader that affect its speed, and properties of the machine.
    pub setup: Setup,
    /// Properties of the data set, computed from the samples that were read so far.
    pub data: Data,
    /// Measurements of the stages that ran, summed over all threads.
    pub stages: Vec<StageProfile>,
    /// Measurements of the fields that columns read, summed over all threads. Empty without
    /// columns.
    pub fields: Vec<FieldProfile>,
    /// Measurements of the decode routes of a device. Empty if batches stay in host memory.
    pub routes: Vec<RouteProfile>,
    /// Memory use since the loader was built.
    pub memory: MemoryProfile,
    /// Utilization of the device. `None` if it was not recorded.
    pub device: Option<DeviceProfile>,
    /// Use of the processors, and how long the workers waited for a processor.
    pub processors: ProcessorProfile,
    /// Threads.
    pub threads: Vec<ThreadProfile>,
    /// Measurements of the ring of batches.
    pub ring: RingProfile,
    /// Consumer.
    pub consumer: ConsumerProfile,
    /// Counters over time, for each recorded batch.
    pub timeline: Vec<Moment>,
}

/// Settings of a loader that affect its speed, and properties of the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Setup {
    /// Where batches are made, on the CPU or a device, with the reason for this choice.
    pub device: String,
    /// `loader.rank`.
    pub rank: u64,
    /// Number of ranks: the setting `loader.world_size`.
    pub world: u64,
    /// Number of samples in a batch.
    pub batch: u32,
    /// Number of worker threads.
    pub workers: u32,
    /// Number of batches that are prefetched before the consumer asks for them.
    pub prefetch: u32,
    /// Number of processors that the process may use.
    pub cores: u32,
    /// Largest number of samples in flight on the device. `None` if batches stay on the host.
    pub pages: Option<u32>,
    /// Whether images are decoded on the device.
    pub decodes_on_device: bool,
    /// Number of operators that run on the host.
    pub operators_on_host: u32,
    /// Number of operators that run on the device.
    pub operators_on_device: u32,
    /// Whether samples are read over a network.
    pub remote: bool,
    /// Number of samples that are prefetched from remote storage. 0 for local files.
    pub read_ahead: u32,
    /// Largest number of concurrent requests to remote storage.
    pub connections: u32,
    /// `decode.prescale`.
    pub prescale: bool,
    /// Whether `decode.pixels` is another format than `u8x3`. False in reports of earlier versions.
    #[serde(default)]
    pub decodes_floats: bool,
    /// `cache.encoded`.
    pub cache_encoded: Option<u64>,
    /// `cache.decoded`.
    pub cache_decoded: Option<u64>,
    /// `cache.device`, if it is in effect.
    #[serde(default)]
    pub cache_device: Option<u64>,
    /// Whether feedwater's own decoder decodes on the device, from which `cache.device` can feed
    /// it.
    #[serde(default)]
    pub decodes_with_kernels: bool,
    /// Memory limit for row indexes in bytes: `cache.row_index` or its default. `None` if there is
    /// no cache of row indexes.
    pub cache_row_index: Option<u64>,
    /// Predicted factor by which row indexes would speed up decoding, and the memory that they
    /// would need in bytes. `None` if the images cannot have row indexes.
    pub row_index: Option<(f64, u64)>,
    /// `cache.presize`.
    pub presize: Option<u32>,
    /// Width of a sample in the batch, in pixels.
    pub width: u32,
    /// Height of a sample in the batch, in pixels.
    pub height: u32,
    /// Available host memory in bytes, as reported by the system.
    pub memory_available: u64,
    /// Planned host memory in bytes, including page-locked memory.
    pub host_bytes: u64,
    /// Planned device memory in bytes.
    pub device_bytes: u64,
    /// Memory of one batch in bytes.
    pub batch_bytes: u64,
}

/// Properties of the data set, computed from the samples that were read so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Data {
    /// Description of the source of the samples.
    pub source: String,
    /// Number of samples in the source.
    pub samples: u64,
    /// Number of samples in one epoch of this shard.
    pub epoch_samples: u64,
    /// Mean size of an encoded sample in bytes.
    pub mean_bytes: f64,
    /// Share of the samples whose files were not read, from 0 to 1: their images were cached, or
    /// their files were in device memory.
    pub unread_share: f64,
    /// Mean number of pixels of an image.
    pub mean_pixels: f64,
    /// Mean number of pixels of the windows that are decoded.
    pub mean_window_pixels: f64,
    /// Time that each concurrent read adds to a read, as a fraction of the time that a read takes
    /// alone. `None` if unknown.
    pub read_slowdown: Option<f64>,
    /// Mean number of other reads in flight when a read begins.
    pub read_others: f64,
    /// Sizes of some images that were read since the loader was built, as examples.
    #[serde(alias = "pictures")]
    pub images: Vec<Seen>,
}

/// Measurements of a stage, summed over all threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageProfile {
    /// The stage.
    pub stage: Stage,
    /// Number of items that the stage processed. An item is a sample, a batch, or a group of
    /// samples.
    pub count: u64,
    /// Input bytes.
    pub bytes: u64,
    /// Seconds that threads spent in the stage.
    pub busy: f64,
    /// Share of the seconds in the stage during which the thread ran on a processor. The share is
    /// less than 1 if the stage waits for a disk, a device or a processor.
    pub cpu_share: f64,
    /// Estimated seconds that threads waited for a processor in this stage. The system reports only
    /// the total of each thread, from which the estimate is computed. `None` if unknown.
    #[serde(default)]
    pub waited_for_processor: Option<f64>,
    /// Seconds that threads waited for the input of this stage.
    pub waited_for_input: f64,
    /// Seconds that threads waited for memory for the output of this stage, such as a free slot.
    pub waited_for_room: f64,
    /// Time that one item takes in the stage.
    pub latency: Latency,
    /// Equally likely times of one item, as multiples of the mean.
    pub quantiles: Vec<f64>,
    /// Device time of the stage, by the device clock. `None` for stages on the host. For `upload`,
    /// it is the time of the copies, for `device_decode` of the decoding, and for `kernel` of the
    /// kernel alone.
    pub device: Option<DeviceTime>,
}

/// Measurements of a field that a column or a view reads. They include prefetched samples. Seconds
/// are sums over all threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FieldProfile {
    /// Name of the column or view.
    pub column: String,
    /// Name of the field, with a path into its value.
    pub field: String,
    /// Number of samples whose fields were read.
    pub samples: u64,
    /// Number of these samples that have the field.
    pub count: u64,
    /// Share of the samples that have the field, from 0 to 1.
    pub share: f64,
    /// Bytes of the values, as the source stores them.
    pub bytes: u64,
    /// Seconds in which the source read the values. If one read of the source returns several
    /// fields, its time counts for the first of them.
    pub read: f64,
    /// Seconds in which values were converted to elements of their column.
    pub convert: f64,
    /// Seconds in which masks were decoded, and masks, points and boxes were moved like their
    /// image.
    pub follow: f64,
}

/// Measurements of one decode route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RouteProfile {
    /// `nvjpeg-hardware`, `nvjpeg-gpu`, `nvjpeg-hybrid` or `cpu`.
    pub route: String,
    /// Number of images that the route finished, including those of prefetched batches.
    #[serde(alias = "pictures")]
    pub images: u64,
    /// Share of all finished images that this route finished. 0 if no image was finished.
    pub share: f64,
    /// Mean number of images in the route, as a share of the number that it can hold at a time.
    pub busy: f64,
    /// Device time of the route. `None` for the route `cpu`.
    pub device: Option<DeviceTime>,
}

/// Peak memory use in bytes. All values cover the whole time since the loader was built, even if
/// the rest of the profile covers a shorter period. The predicted memory is in [`Setup`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryProfile {
    /// Most bytes of page-locked memory that the loader used at once.
    pub pinned_peak: u64,
    /// Most bytes of device memory that the loader used at once.
    pub device_peak: u64,
    /// Device memory in bytes that the driver, the CUDA context and the libraries use.
    pub device_of_driver: u64,
}

/// Measurements of one thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadProfile {
    /// Thread name.
    pub name: String,
    /// Number of items of the stage that this thread ran most often.
    pub count: u64,
    /// Seconds that the thread spent in its stages.
    pub busy: f64,
    /// Seconds that the thread waited for input.
    pub waited_for_input: f64,
    /// Seconds that the thread waited for memory for its output, such as a free slot.
    pub waited_for_room: f64,
    /// Seconds before the thread started, while the loader was being built.
    #[serde(default)]
    pub starting: f64,
    /// Seconds from the end of the thread's work to the end of the measurement.
    #[serde(default)]
    pub finished: f64,
    /// Seconds that the thread ran on a processor. `None` if the system does not report it.
    #[serde(default)]
    pub ran: Option<f64>,
    /// Seconds that the thread was ready to run but waited for a processor, in and between its
    /// stages. `None` if the system does not report it.
    #[serde(default)]
    pub waited_for_processor: Option<f64>,
}

/// Measurements of the ring of batches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RingProfile {
    /// Number of slots.
    pub slots: u32,
    /// Shares of the time in which 0, 1, 2, ... batches were ready.
    pub occupancy: Vec<f64>,
    /// Time from the start of a batch's first sample until the batch is ready.
    pub making: Latency,
    /// Mean seconds from the moment a batch is ready until a waiting consumer receives it.
    pub delivery: f64,
}

/// Measurements of the consumer of the batches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConsumerProfile {
    /// Seconds that the consumer waited for batches.
    pub waited: f64,
    /// Share of the time in which the consumer waited, from its first to its last batch.
    pub waiting_share: f64,
    /// Time that the consumer's stream on the device waited until its batches were filled, by the
    /// device clock. The wait begins after the host has received the batch. Each batch is one span.
    /// `None` if batches are made on the host.
    pub waited_on_device: Option<DeviceTime>,
    /// Share of the batches that were ready when the consumer asked for them.
    pub readiness: f64,
    /// Time that the consumer waited for one batch.
    pub wait: Latency,
    /// Step time.
    pub step: Latency,
    /// Equally likely step times, as multiples of the mean.
    pub step_quantiles: Vec<f64>,
    /// Seconds that the consumer spent in its steps.
    pub stepped: f64,
    /// Share of the step time during which the consumer's thread ran on a processor.
    pub cpu_share: f64,
    /// Seconds that the consumer's thread was ready to run but waited for a processor, in and
    /// between steps. `None` if several threads take batches, or if the system does not report it.
    pub waited_for_processor: Option<f64>,
    /// Seconds between epochs, from the end of the last step of an epoch to the next request.
    pub between_epochs: f64,
    /// Parts of the steps to which the consumer has given names.
    pub spans: Vec<SpanProfile>,
}

/// Part of the consumer's steps to which the consumer has given a name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpanProfile {
    /// Name.
    pub name: String,
    /// Number of times that this part ran.
    pub count: u64,
    /// Seconds that this part took in total.
    pub seconds: f64,
    /// Share of this part in the time of all steps.
    pub share: f64,
}

/// Summary of measured times, in seconds. All values are 0 if nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// Mean.
    pub mean: f64,
    /// Median, within 1/32.
    pub p50: f64,
    /// 99th percentile, with an error of at most 1/32.
    pub p99: f64,
    /// Exact maximum since the loader was built.
    pub max: f64,
    /// Coefficient of variation: standard deviation divided by the mean.
    pub cv: f64,
}

/// Counters at the moment the consumer received a batch. Seconds are totals since the loader was
/// built.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moment {
    /// Seconds since the loader was built.
    pub seconds: f64,
    /// Batches received.
    pub batches: u64,
    /// Batches ready.
    pub ready: usize,
    /// Seconds that the consumer has waited for batches.
    pub waited: f64,
    /// Seconds that all threads have spent in each stage.
    pub busy: [f64; STAGES],
}

/// Size of one image of the data set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    /// Stored width in pixels.
    pub width: u32,
    /// Stored height in pixels.
    pub height: u32,
    /// File size in bytes.
    pub bytes: u64,
}

impl Profile {
    /// Returns the profiles of the worker threads. The names of worker threads end with a number
    /// that is less than the configured number of workers.
    pub fn workers(&self) -> impl Iterator<Item = &ThreadProfile> {
        self.threads.iter().filter(|it| {
            let number = it.name.strip_prefix("feedwater-").and_then(|it| it.parse::<u32>().ok());
            number.is_some_and(|number| number < self.setup.workers)
        })
    }

    /// Returns the profile of a stage, or `None` if the stage did not run.
    pub fn stage(&self, stage: Stage) -> Option<&StageProfile> {
        self.stages.iter().find(|it| it.stage == stage)
    }

    /// Throughput in samples per second, without the time between epochs. A step ends with the next
    /// request for a batch. If no request follows, as after an epoch that the consumer left early,
    /// the step was not measured and counts with the mean step time.
    pub fn images_per_second(&self) -> f64 {
        let ConsumerProfile { waited, stepped, step, .. } = &self.consumer;
        let seconds = waited + stepped.max(self.batches as f64 * step.mean);
        if seconds > 0.0 { self.images as f64 / seconds } else { 0.0 }
    }
}

impl ThreadProfile {
    /// Seconds in which the thread ran its loop, of a period of `seconds`.
    pub fn present(&self, seconds: f64) -> f64 {
        (seconds - self.starting - self.finished).max(0.0)
    }
}

impl StageProfile {
    /// Seconds that threads spent in the stage, without waits for a processor if these are known.
    pub fn without_waiting(&self) -> f64 {
        (self.busy - self.waited_for_processor.unwrap_or(0.0)).max(0.0)
    }
}
