//! What was measured, as plain data: what reports are made from, and what a file of one holds.

use serde::{Deserialize, Serialize};

use super::{
    Absence, DeviceCounts, DeviceProfile, DeviceTime, Latency, Moment, ProcessorProfile, Seen,
    Snapshot, Stage,
};

/// Equally probable values that stand for a distribution.
const QUANTILES: usize = 64;

/// What a loader did in some time, and under which settings. Times are in seconds.
///
/// All counts, shares and means are of that time alone. Of the whole time since the loader was built are the most of
/// something (memory, the longest of a [`Latency`]), and the pictures that were kept as examples.
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
    /// Each decode route, where pictures are decoded for a device.
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
    /// Whether pictures are decoded on the device.
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
    /// Mean pixels of a picture.
    pub mean_pixels: f64,
    /// Mean pixels of the window that is decoded.
    pub mean_window_pixels: f64,
    /// How much longer a read takes for each other one in flight, as a part of what it takes alone; `None` where that
    /// could not be told.
    pub read_slowdown: Option<f64>,
    /// Mean number of other reads in flight when one begins.
    pub read_others: f64,
    /// Some of the pictures that were met since the loader was built.
    pub pictures: Vec<Seen>,
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
    /// `hardware`, `cuda`, `host` or `cpu`.
    pub route: String,
    /// Pictures that were finished, those of batches ahead of the consumer included.
    pub pictures: u64,
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

impl Profile {
    /// What a snapshot, or the difference of two, says.
    pub fn new(measured: &Snapshot, setup: Setup, data: Data) -> Self {
        let steps = &measured.steps;
        let stages = Stage::ALL.into_iter().filter_map(|stage| StageProfile::new(measured, stage));
        let stages: Vec<_> = stages.collect();
        let seen = |stage| stages.iter().find(|it: &&StageProfile| it.stage == stage);
        let mean = |sum: u64, count: u64| if count > 0 { sum as f64 / count as f64 } else { 0.0 };
        let headers = seen(Stage::Header).map_or(0, |it| it.count);
        let data = Data {
            mean_bytes: seen(Stage::Read).map_or(0.0, |it| mean(it.bytes, it.count)),
            mean_pixels: mean(measured.pixels, headers),
            mean_window_pixels: mean(measured.window_pixels, headers),
            pictures: measured.pictures.clone(),
            read_slowdown: measured.reads.slowdown(),
            read_others: mean(measured.reads.others, measured.reads.reads),
            ..data
        };
        let ring = RingProfile {
            slots: setup.prefetch + 1,
            occupancy: measured.ring.occupancy(),
            making: measured.ring.making.latency(measured.ring.made as f64 * 1e-9),
            delivery: mean(measured.ring.delivery, measured.ring.delivered) * 1e-9,
        };
        let mut profile = Self {
            seconds: measured.seconds,
            images: steps.samples,
            batches: steps.batches,
            consumer: ConsumerProfile::new(measured),
            routes: RouteProfile::all(measured),
            memory: MemoryProfile::default(),
            device: measured.readings.profile(),
            processors: measured.machine.profile(),
            threads: threads(measured),
            timeline: measured.timeline.clone(),
            setup,
            data,
            stages,
            ring,
        };
        profile.blame(measured);
        profile
    }

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

    fn new(measured: &Snapshot, stage: Stage) -> Option<Self> {
        let counts = measured.stage(stage);
        let waited = counts.input + counts.output;
        let device = measured.device(stage).time();
        (counts.count > 0 || waited > 0 || device.is_some()).then(|| Self {
            stage,
            count: counts.count,
            bytes: counts.bytes,
            busy: counts.busy as f64 * 1e-9,
            cpu_share: counts.cpu_share(),
            waited_for_processor: None,
            waited_for_input: counts.input as f64 * 1e-9,
            waited_for_room: counts.output as f64 * 1e-9,
            latency: counts.latency.latency(counts.busy as f64 * 1e-9),
            quantiles: counts.latency.quantiles(QUANTILES),
            device,
        })
    }
}

impl RouteProfile {
    fn all(measured: &Snapshot) -> Vec<Self> {
        let share = |part: f64, all: f64| if all > 0.0 { part / all } else { 0.0 };
        let all: u64 = measured.routes.iter().map(|it| it.pictures).sum();
        let routes = measured.routes.iter().map(|it| Self {
            route: it.route.to_string(),
            pictures: it.pictures,
            share: share(it.pictures as f64, all as f64),
            busy: share(it.busy, it.places).min(1.0),
            device: measured.device_of(Stage::DeviceDecode, it.route).and_then(DeviceCounts::time),
        });
        routes.collect()
    }
}

impl ConsumerProfile {
    fn new(measured: &Snapshot) -> Self {
        let steps = &measured.steps;
        let seconds = |nanoseconds: u64| nanoseconds as f64 * 1e-9;
        let (waited, stepped) = (seconds(steps.waited), seconds(steps.stepped));
        let share = |part: f64, all: f64| if all > 0.0 { part / all } else { 0.0 };
        let spans = steps.spans.iter().map(|(name, &(count, took))| SpanProfile {
            name: name.clone(),
            count,
            seconds: seconds(took),
            share: share(seconds(took), stepped),
        });
        Self {
            waited,
            waiting_share: share(waited, waited + stepped),
            waited_on_device: steps.waited_on_device.time(),
            readiness: share(steps.ready as f64, steps.batches as f64),
            wait: steps.wait.latency(waited),
            step: steps.step.latency(stepped),
            step_quantiles: steps.step.quantiles(QUANTILES),
            stepped,
            cpu_share: share(steps.cpu as f64, steps.clocked as f64).min(1.0),
            waited_for_processor: steps.thread.map(|it| seconds(it.waited)),
            between_epochs: seconds(steps.between_epochs),
            spans: spans.collect(),
        }
    }
}

fn threads(measured: &Snapshot) -> Vec<ThreadProfile> {
    let times = measured.threads.iter().copied().chain(std::iter::repeat(None));
    let absences = measured.absences.iter().copied().chain(std::iter::repeat(Absence::default()));
    let threads = measured.lanes.iter().zip(times.zip(absences));
    let threads = threads.map(|((name, stages), (time, absence))| {
        let sum =
            |of: fn(&super::StageCounts) -> u64| stages.iter().map(of).sum::<u64>() as f64 * 1e-9;
        ThreadProfile {
            name: name.clone(),
            count: stages.iter().map(|it| it.count).max().unwrap_or(0),
            busy: sum(|it| it.busy),
            waited_for_input: sum(|it| it.input),
            waited_for_room: sum(|it| it.output),
            starting: absence.starting as f64 * 1e-9,
            finished: absence.finished as f64 * 1e-9,
            ran: time.map(|it| it.ran as f64 * 1e-9),
            waited_for_processor: time.map(|it| it.waited as f64 * 1e-9),
        }
    });
    threads.collect()
}
