//! What was measured, as plain data: what reports are made from, and what a file of one holds.

use serde::{Deserialize, Serialize};

pub use device::{DeviceProfile, DeviceReading, DeviceTime};
pub use processor::{ProcessorProfile, Waits};
pub use stage::{STAGES, Stage};

mod device;
mod processor;
mod stage;

/// What a loader did in some time, and under which settings. Times are in seconds.
///
/// All counts, shares and means are of that time alone. Of the whole time since the loader was built are the most of
/// something (memory, the longest of a [`Latency`]), and the images that were kept as examples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Profile {
    /// How long it was measured.
    pub seconds: f64,
    /// Samples that the consumer got, padding included.
    pub images: u64,
    /// Batches that it got.
    pub batches: u64,
    /// The settings, and the machine.
    pub setup: Setup,
    /// The data set, as far as it was met.
    pub data: Data,
    /// Each stage that was met, all threads together.
    pub stages: Vec<StageProfile>,
    /// Each decode route, where images are decoded for a device.
    pub routes: Vec<RouteProfile>,
    /// What was measured of memory, since the loader was built.
    pub memory: MemoryProfile,
    /// How much of the device was in use, where it was watched.
    pub device: Option<DeviceProfile>,
    /// Who had the processors, and how long the workers waited for one.
    pub processors: ProcessorProfile,
    /// Each thread.
    pub threads: Vec<ThreadProfile>,
    /// The ring of batches.
    pub ring: RingProfile,
    /// The consumer.
    pub consumer: ConsumerProfile,
    /// How it came to be.
    pub timeline: Vec<Moment>,
}

/// The settings that matter for speed, and the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Setup {
    /// Where batches are made, and why there.
    pub device: String,
    /// `loader.rank`.
    pub rank: u64,
    /// `loader.world`.
    pub world: u64,
    /// Samples in a batch.
    pub batch: u32,
    /// Threads that make samples.
    pub workers: u32,
    /// Batches ahead of the consumer.
    pub prefetch: u32,
    /// Processors of the machine, as far as the process may use them.
    pub cores: u32,
    /// Samples that may be on the device at a time, on their way into a batch; `None` without a device.
    pub pages: Option<u32>,
    /// Whether images are decoded on the device.
    pub decodes_on_device: bool,
    /// The operators that run on the host.
    pub operators_on_host: u32,
    /// The operators that run on the device.
    pub operators_on_device: u32,
    /// Whether samples come over a network.
    pub remote: bool,
    /// Samples that are asked for before they are read; 0 for local files.
    pub read_ahead: u32,
    /// Requests that may be in flight at a time.
    pub connections: u32,
    /// `decode.prescale`.
    pub prescale: bool,
    /// `cache.encoded`.
    pub cache_encoded: Option<u64>,
    /// `cache.decoded`.
    pub cache_decoded: Option<u64>,
    /// `cache.presize`.
    pub presize: Option<u32>,
    /// Width of a sample in the batch.
    pub width: u32,
    /// Height of a sample in the batch.
    pub height: u32,
    /// Host memory that nobody needs, as the system says.
    pub memory_available: u64,
    /// Host memory that the plan takes, page-locked memory included.
    pub host_bytes: u64,
    /// Device memory that the plan takes.
    pub device_bytes: u64,
    /// Bytes of a batch.
    pub batch_bytes: u64,
}

/// The data set, as far as it was met.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Data {
    /// What the source says of itself.
    pub source: String,
    /// Samples of the source.
    pub samples: u64,
    /// Samples of one epoch of this shard.
    pub epoch_samples: u64,
    /// Mean bytes of a file.
    pub mean_bytes: f64,
    /// Mean pixels of an image.
    pub mean_pixels: f64,
    /// Mean pixels of the window that is decoded.
    pub mean_window_pixels: f64,
    /// How much longer a read takes for each other one in flight, as a part of what it takes alone; `None` where that
    /// could not be told.
    pub read_slowdown: Option<f64>,
    /// Mean number of other reads in flight when one begins.
    pub read_others: f64,
    /// Some of the images that were met since the loader was built.
    #[serde(alias = "pictures")]
    pub images: Vec<Seen>,
}

/// What all threads did in a stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageProfile {
    /// The stage.
    pub stage: Stage,
    /// Items.
    pub count: u64,
    /// Bytes that came in.
    pub bytes: u64,
    /// Seconds in the stage.
    pub busy: f64,
    /// The processor's share of them: less than 1 where the stage waits for a disk, a device or a processor.
    pub cpu_share: f64,
    /// Of the seconds in the stage, those in which its threads waited for a processor: an estimate, from what they waited in all.
    /// `None` where that is not known.
    #[serde(default)]
    pub waited_for_processor: Option<f64>,
    /// Seconds that threads waited for something to do in it.
    pub waited_for_input: f64,
    /// Seconds that threads waited for room for what it gave.
    pub waited_for_room: f64,
    /// How long an item took.
    pub latency: Latency,
    /// Equally probable times of an item, as multiples of the mean.
    pub quantiles: Vec<f64>,
    /// What the device did in it, by its own clock; `None` where it takes no part. Of the stage `upload` this is what copying
    /// took, of `device_decode` decoding, of `kernel` the kernel alone.
    pub device: Option<DeviceTime>,
}

/// What one decode route did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RouteProfile {
    /// `nvjpeg-hardware`, `nvjpeg-gpu`, `nvjpeg-hybrid` or `cpu`.
    pub route: String,
    /// Images that were finished, those of batches ahead of the consumer included.
    #[serde(alias = "pictures")]
    pub images: u64,
    /// Of those that all routes finished; 0 where none was.
    pub share: f64,
    /// The share of the time in which its places were taken.
    pub busy: f64,
    /// What the device did for it; `None` for `cpu`.
    pub device: Option<DeviceTime>,
}

/// What was measured of memory, in bytes: the most in use at one time since the loader was built, also where the rest of
/// the profile is of a shorter time. What was predicted is in [`Setup`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryProfile {
    /// Of the pool of page-locked memory.
    pub pinned_peak: u64,
    /// Of the pool of device memory.
    pub device_peak: u64,
    /// Device memory of the driver, the context and the libraries.
    pub device_of_driver: u64,
}

/// What one thread did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadProfile {
    /// Its name.
    pub name: String,
    /// Items of the stage that it did most often.
    pub count: u64,
    /// Seconds in its stages.
    pub busy: f64,
    /// Seconds that it waited for something to do.
    pub waited_for_input: f64,
    /// Seconds that it waited for room.
    pub waited_for_room: f64,
    /// Seconds before it began: the loader was still being built.
    #[serde(default)]
    pub starting: f64,
    /// Seconds after it was over: there was nothing left to do.
    #[serde(default)]
    pub finished: f64,
    /// Seconds that a processor worked for it; `None` where the system does not tell.
    #[serde(default)]
    pub ran: Option<f64>,
    /// Seconds that it could have run and had no processor, in its stages and elsewhere; `None` where the system does not tell.
    #[serde(default)]
    pub waited_for_processor: Option<f64>,
}

/// The ring of batches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RingProfile {
    /// Slots.
    pub slots: u32,
    /// The share of the time with so many batches ready, from 0 on.
    pub occupancy: Vec<f64>,
    /// How long a batch took from its first place to being ready.
    pub making: Latency,
    /// Mean seconds from a batch's being ready to being with a consumer that waits for it.
    pub delivery: f64,
}

/// The consumer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConsumerProfile {
    /// Seconds that it waited for batches.
    pub waited: f64,
    /// That, by all of its time between the first batch and the last.
    pub waiting_share: f64,
    /// How long its stream waited for batches to be filled, by the device's clock: what a batch is late when its host has
    /// it already. A span is a batch. `None` where batches are made on the host.
    pub waited_on_device: Option<DeviceTime>,
    /// The share of batches that were there when it asked.
    pub readiness: f64,
    /// How long it waited for each batch.
    pub wait: Latency,
    /// How long its steps took.
    pub step: Latency,
    /// Equally probable times of a step, as multiples of the mean.
    pub step_quantiles: Vec<f64>,
    /// Seconds in its steps.
    pub stepped: f64,
    /// The part of them in which its thread's processor worked.
    pub cpu_share: f64,
    /// Seconds that its thread could have run and had no processor, in its steps and elsewhere; `None` where several threads take
    /// batches and where the system does not tell.
    pub waited_for_processor: Option<f64>,
    /// Seconds between epochs.
    pub between_epochs: f64,
    /// Parts of its steps that it has named.
    pub spans: Vec<SpanProfile>,
}

/// A part of the consumer's steps that it has named.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpanProfile {
    /// Its name.
    pub name: String,
    /// How often.
    pub count: u64,
    /// Seconds.
    pub seconds: f64,
    /// By the seconds of its steps.
    pub share: f64,
}

/// What a histogram says, in seconds; all 0 where nothing was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// The mean.
    pub mean: f64,
    /// Half took no longer; within 1/32.
    pub p50: f64,
    /// 99 of 100 took no longer; within 1/32.
    pub p99: f64,
    /// The longest since the measuring began, exactly.
    pub max: f64,
    /// Standard deviation by mean.
    pub cv: f64,
}

/// The counts when the consumer got a batch. Seconds are sums since the loader was built.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moment {
    /// When, since the loader was built.
    pub seconds: f64,
    /// Batches that the consumer got.
    pub batches: u64,
    /// Batches that are ready.
    pub ready: usize,
    /// Seconds that the consumer waited.
    pub waited: f64,
    /// Busy seconds of all threads by stage.
    pub busy: [f64; STAGES],
}

/// An image of the set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    /// Pixels in a row, as it is stored.
    pub width: u32,
    /// Rows, as it is stored.
    pub height: u32,
    /// Bytes of the file.
    pub bytes: u64,
}

impl Profile {
    /// The threads that make samples: those that have numbers, and of them those that may work.
    pub fn workers(&self) -> impl Iterator<Item = &ThreadProfile> {
        self.threads.iter().filter(|it| {
            let number = it.name.strip_prefix("feedwater-").and_then(|it| it.parse::<u32>().ok());
            number.is_some_and(|number| number < self.setup.workers)
        })
    }

    /// A stage that was met.
    pub fn stage(&self, stage: Stage) -> Option<&StageProfile> {
        self.stages.iter().find(|it| it.stage == stage)
    }

    /// Samples in a second, while the consumer was asking for them. The last step of an epoch ends with no question, so it was
    /// not measured: it is taken to be as long as the others.
    pub fn images_per_second(&self) -> f64 {
        let ConsumerProfile { waited, stepped, step, .. } = &self.consumer;
        let seconds = waited + stepped.max(self.batches as f64 * step.mean);
        if seconds > 0.0 { self.images as f64 / seconds } else { 0.0 }
    }
}

impl ThreadProfile {
    /// Seconds in which the thread was there, of all that were measured.
    pub fn present(&self, seconds: f64) -> f64 {
        (seconds - self.starting - self.finished).max(0.0)
    }
}

impl StageProfile {
    /// Seconds in the stage, without its waiting for a processor where that is known.
    pub fn without_waiting(&self) -> f64 {
        (self.busy - self.waited_for_processor.unwrap_or(0.0)).max(0.0)
    }
}
