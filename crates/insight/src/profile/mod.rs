//! Measurements of a run as plain data: the input of reports, and the content of profile files.

use serde::{Deserialize, Serialize};

pub use device::{DeviceProfile, DeviceReading, DeviceTime};
pub use processor::{ProcessorProfile, Waits};
pub use stage::{STAGES, Stage};

mod device;
mod processor;
mod stage;

/// Measurements of a loader over a period of time, with its settings. Times are in seconds.
///
/// Counts, shares and means cover this period. Maxima (memory, [`Latency::max`]) and the example images cover the time since the
/// loader was built.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Profile {
    /// Length of the period.
    pub seconds: f64,
    /// Samples delivered to the consumer, including padding.
    pub images: u64,
    /// Batches delivered to the consumer.
    pub batches: u64,
    /// Settings that affect the speed, and the machine.
    pub setup: Setup,
    /// Properties of the data set, from the samples seen so far.
    pub data: Data,
    /// Stages that ran, summed over all threads.
    pub stages: Vec<StageProfile>,
    /// Decode routes of images for a device. Empty if batches stay in host memory.
    pub routes: Vec<RouteProfile>,
    /// Memory use since the loader was built.
    pub memory: MemoryProfile,
    /// Device utilization, where it was recorded.
    pub device: Option<DeviceProfile>,
    /// Use of the processors, and how long workers waited for one.
    pub processors: ProcessorProfile,
    /// Threads.
    pub threads: Vec<ThreadProfile>,
    /// Ring of batches.
    pub ring: RingProfile,
    /// Consumer.
    pub consumer: ConsumerProfile,
    /// Counters over time.
    pub timeline: Vec<Moment>,
}

/// Settings that affect the speed, and the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Setup {
    /// Device on which batches are made, with the reason for this choice.
    pub device: String,
    /// `loader.rank`.
    pub rank: u64,
    /// `loader.world_size`.
    pub world: u64,
    /// Samples in a batch.
    pub batch: u32,
    /// Number of worker threads.
    pub workers: u32,
    /// Batches prefetched for the consumer.
    pub prefetch: u32,
    /// Processors that the process may use.
    pub cores: u32,
    /// Samples in flight on the device; `None` without a device.
    pub pages: Option<u32>,
    /// Whether images are decoded on the device.
    pub decodes_on_device: bool,
    /// Number of operators that run on the host.
    pub operators_on_host: u32,
    /// Number of operators that run on the device.
    pub operators_on_device: u32,
    /// Whether samples are read over a network.
    pub remote: bool,
    /// Samples prefetched from remote storage; 0 for local files.
    pub read_ahead: u32,
    /// Largest number of concurrent requests.
    pub connections: u32,
    /// `decode.prescale`.
    pub prescale: bool,
    /// `cache.encoded`.
    pub cache_encoded: Option<u64>,
    /// `cache.decoded`.
    pub cache_decoded: Option<u64>,
    /// Memory for row indexes: `cache.row_index` or its default; `None` if there are none.
    pub cache_row_index: Option<u64>,
    /// Predicted factor by which row indexes speed up decoding, and their memory in bytes; `None` if the images have none.
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
    /// Bytes per batch.
    pub batch_bytes: u64,
}

/// Properties of the data set, from the samples seen so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Data {
    /// Description of the source.
    pub source: String,
    /// Samples in the source.
    pub samples: u64,
    /// Samples in one epoch of this shard.
    pub epoch_samples: u64,
    /// Mean file size in bytes.
    pub mean_bytes: f64,
    /// Mean pixels per image.
    pub mean_pixels: f64,
    /// Mean pixels of the window that is decoded.
    pub mean_window_pixels: f64,
    /// Additional time of a read per concurrent read, as a fraction of the time that a read takes
    /// alone; `None` if unknown.
    pub read_slowdown: Option<f64>,
    /// Mean number of other reads in flight when one begins.
    pub read_others: f64,
    /// Examples of images seen since the loader was built.
    #[serde(alias = "pictures")]
    pub images: Vec<Seen>,
}

/// Measurements of a stage, summed over all threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageProfile {
    /// The stage.
    pub stage: Stage,
    /// Number of items.
    pub count: u64,
    /// Input bytes.
    pub bytes: u64,
    /// Seconds in the stage.
    pub busy: f64,
    /// Share of these seconds on a processor: less than 1 where the stage waits for a disk, a device or a processor.
    pub cpu_share: f64,
    /// Estimated seconds that threads waited for a processor in this stage, computed from the total
    /// waiting of the threads. `None` if unknown.
    #[serde(default)]
    pub waited_for_processor: Option<f64>,
    /// Seconds that threads waited for input.
    pub waited_for_input: f64,
    /// Seconds that threads waited for room for their output.
    pub waited_for_room: f64,
    /// Time per item.
    pub latency: Latency,
    /// Equally likely times of an item, as multiples of the mean.
    pub quantiles: Vec<f64>,
    /// Device time of the stage, by the device clock; `None` for stages on the host. It covers the
    /// copies of `upload`, the decoding of `device_decode`, and only the kernel of `kernel`.
    pub device: Option<DeviceTime>,
}

/// Measurements of one decode route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RouteProfile {
    /// `nvjpeg-hardware`, `nvjpeg-gpu`, `nvjpeg-hybrid` or `cpu`.
    pub route: String,
    /// Images that were finished, including prefetched batches.
    #[serde(alias = "pictures")]
    pub images: u64,
    /// Share of the images that all routes finished; 0 without images.
    pub share: f64,
    /// Share of the time in which the route's slots were occupied.
    pub busy: f64,
    /// Device time of the route; `None` for `cpu`.
    pub device: Option<DeviceTime>,
}

/// Peak memory use in bytes since the loader was built, even where the rest of the profile covers a shorter period. Predictions
/// are in [`Setup`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryProfile {
    /// Peak of the pool of page-locked memory.
    pub pinned_peak: u64,
    /// Peak of the pool of device memory.
    pub device_peak: u64,
    /// Device memory of the driver, the context and the libraries.
    pub device_of_driver: u64,
}

/// Measurements of one thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadProfile {
    /// Thread name.
    pub name: String,
    /// Items of the thread's most frequent stage.
    pub count: u64,
    /// Seconds in its stages.
    pub busy: f64,
    /// Seconds that it waited for input.
    pub waited_for_input: f64,
    /// Seconds that it waited for room for its output.
    pub waited_for_room: f64,
    /// Seconds before the thread started, while the loader was being built.
    #[serde(default)]
    pub starting: f64,
    /// Seconds after the thread had finished all its work.
    #[serde(default)]
    pub finished: f64,
    /// Seconds on a processor; `None` where the system does not report it.
    #[serde(default)]
    pub ran: Option<f64>,
    /// Seconds that the thread was runnable without a processor, in and between its stages; `None` where the system does not
    /// report it.
    #[serde(default)]
    pub waited_for_processor: Option<f64>,
}

/// Measurements of the ring of batches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RingProfile {
    /// Number of slots.
    pub slots: u32,
    /// Share of the time with 0, 1, 2, ... batches ready.
    pub occupancy: Vec<f64>,
    /// Time from the start of a batch's first sample to the batch being ready.
    pub making: Latency,
    /// Mean seconds from a batch being ready to its delivery to a waiting consumer.
    pub delivery: f64,
}

/// Measurements of the consumer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConsumerProfile {
    /// Seconds that it waited for batches.
    pub waited: f64,
    /// Share of the time from the first to the last batch in which the consumer waited.
    pub waiting_share: f64,
    /// Time that the consumer's stream waited for batches to be filled, by the device clock, after the host had received them. A
    /// span is a batch. `None` where batches are made on the host.
    pub waited_on_device: Option<DeviceTime>,
    /// Share of batches that were ready when requested.
    pub readiness: f64,
    /// Waiting time per batch.
    pub wait: Latency,
    /// Step time.
    pub step: Latency,
    /// Equally likely step times, as multiples of the mean.
    pub step_quantiles: Vec<f64>,
    /// Seconds in steps.
    pub stepped: f64,
    /// Share of these seconds in which its thread ran on a processor.
    pub cpu_share: f64,
    /// Seconds that its thread was runnable without a processor, in and between steps; `None` where several threads take batches
    /// or the system does not report it.
    pub waited_for_processor: Option<f64>,
    /// Seconds between epochs, from the end of the last step.
    pub between_epochs: f64,
    /// Parts of the steps that the consumer has named.
    pub spans: Vec<SpanProfile>,
}

/// Named part of the consumer's steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpanProfile {
    /// Name.
    pub name: String,
    /// Number of times it ran.
    pub count: u64,
    /// Seconds in this part.
    pub seconds: f64,
    /// Share of the seconds in steps.
    pub share: f64,
}

/// Summary of a histogram, in seconds; all 0 without values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// Mean.
    pub mean: f64,
    /// Median, within 1/32.
    pub p50: f64,
    /// 99th percentile, within 1/32.
    pub p99: f64,
    /// Exact maximum since the measurement began.
    pub max: f64,
    /// Coefficient of variation: standard deviation divided by the mean.
    pub cv: f64,
}

/// Counters at the time the consumer received a batch. Seconds are totals since the loader was built.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moment {
    /// Seconds since the loader was built.
    pub seconds: f64,
    /// Batches received.
    pub batches: u64,
    /// Batches ready.
    pub ready: usize,
    /// Seconds that the consumer waited.
    pub waited: f64,
    /// Busy seconds of all threads, by stage.
    pub busy: [f64; STAGES],
}

/// Size of an image of the data set.
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
    /// Returns the worker threads: the numbered threads whose number is below the configured count.
    pub fn workers(&self) -> impl Iterator<Item = &ThreadProfile> {
        self.threads.iter().filter(|it| {
            let number = it.name.strip_prefix("feedwater-").and_then(|it| it.parse::<u32>().ok());
            number.is_some_and(|number| number < self.setup.workers)
        })
    }

    /// Returns a stage, if it ran.
    pub fn stage(&self, stage: Stage) -> Option<&StageProfile> {
        self.stages.iter().find(|it| it.stage == stage)
    }

    /// Throughput in samples per second, without the time between epochs. A step is not measured if
    /// no request follows it, as after an epoch that was left early. Unmeasured steps count with
    /// the mean step time.
    pub fn images_per_second(&self) -> f64 {
        let ConsumerProfile { waited, stepped, step, .. } = &self.consumer;
        let seconds = waited + stepped.max(self.batches as f64 * step.mean);
        if seconds > 0.0 { self.images as f64 / seconds } else { 0.0 }
    }
}

impl ThreadProfile {
    /// Seconds of the period in which the thread was running its loop.
    pub fn present(&self, seconds: f64) -> f64 {
        (seconds - self.starting - self.finished).max(0.0)
    }
}

impl StageProfile {
    /// Seconds in the stage, without waiting for a processor where that is known.
    pub fn without_waiting(&self) -> f64 {
        (self.busy - self.waited_for_processor.unwrap_or(0.0)).max(0.0)
    }
}
