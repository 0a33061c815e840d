//! What a loader's threads and rings do, measured all the time.
//!
//! * Each thread has a [`Lane`] of its own: for every [`Stage`] how many items it did, their bytes, how long it was busy, how
//!   long it waited for input and for room for its output. Threads never wait for one another to count.
//! * Processor time is asked of the system for one sample in [`CLOCKED`] where samples are short, else for each: the
//!   difference between the time that a stage takes and the processor's tells waiting for a disk, or for a processor.
//! * What happens once a batch (the ring, the consumer, the time line) is behind a lock.
//! * Memory is constant: histograms have fixed buckets, and the time line halves its resolution when it is full.
//! * A [`Snapshot`] is everything at one moment; what was done between two of them is their difference.
//!
//! `benches/measure.rs` shows what it costs.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

pub use consumer::{Consumer, Steps};
pub use histogram::{Counts, Histogram, Latency};
pub use profile::{
    ConsumerProfile, Data, Profile, RingProfile, Setup, SpanProfile, StageProfile, ThreadProfile,
};
pub use ring::{Ring, RingCounts};
pub use spread::{Moment, Seen, Spread};

mod consumer;
mod histogram;
mod profile;
mod ring;
mod spread;

/// Of short samples one in so many has its processor time taken.
pub const CLOCKED: u64 = 16;
/// A sample that takes no longer is short: asking for processor time twice takes about a microsecond.
const SHORT: Duration = Duration::from_micros(200);

/// Most moments of the time line.
const MOMENTS: usize = 512;
/// Most pictures that a thread remembers.
const PICTURES: usize = 64;

/// What is done to a sample, or to a batch, on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Opening the source: its listing and its tables. Once.
    List,
    /// Reading the encoded bytes.
    Read,
    /// Parsing the header and planning the sample.
    Header,
    /// Decoding on the host.
    Decode,
    /// Copying to the device, as far as the host takes part.
    Upload,
    /// Decoding on the device; on the host's clock only what handing it over takes.
    DeviceDecode,
    /// The operators and the output conversion, on the host.
    Transform,
    /// The operators and the output conversion, on the device; on the host's clock only what launching them takes.
    Kernel,
    /// Putting a finished sample into its batch, and the batch into the ring.
    HandOver,
}

impl Stage {
    /// All, in the order of a sample's way.
    pub const ALL: [Stage; 9] = [
        Stage::List,
        Stage::Read,
        Stage::Header,
        Stage::Decode,
        Stage::Upload,
        Stage::DeviceDecode,
        Stage::Transform,
        Stage::Kernel,
        Stage::HandOver,
    ];

    /// The name in reports, metrics and traces.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::List => "list",
            Stage::Read => "read",
            Stage::Header => "header",
            Stage::Decode => "decode",
            Stage::Upload => "upload",
            Stage::DeviceDecode => "device_decode",
            Stage::Transform => "transform",
            Stage::Kernel => "kernel",
            Stage::HandOver => "hand_over",
        }
    }
}

/// How many stages there are.
pub const STAGES: usize = Stage::ALL.len();

/// Everything that is measured of one loader.
#[derive(Debug)]
pub struct Meters {
    begin: Instant,
    lanes: Mutex<Vec<Arc<Lane>>>,
    batches: Mutex<Batches>,
}

/// What happens once a batch.
#[derive(Debug)]
struct Batches {
    ring: Ring,
    consumer: Consumer,
    timeline: Spread<Moment, MOMENTS>,
}

/// Everything at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Seconds since the loader was built.
    pub seconds: f64,
    /// By thread: its name, and each stage.
    pub lanes: Vec<(String, [StageCounts; STAGES])>,
    /// The ring of batches.
    pub ring: RingCounts,
    /// The consumer.
    pub steps: Steps,
    /// How all of this came to be.
    pub timeline: Vec<Moment>,
    /// Some of the pictures that were met since the loader was built.
    pub pictures: Vec<Seen>,
    /// Pixels of all pictures.
    pub pixels: u64,
    /// Pixels of their windows, which were decoded.
    pub window_pixels: u64,
}

/// What a thread did in one stage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StageCounts {
    /// Samples, or for a thread that works on groups, groups.
    pub count: u64,
    /// Bytes that came in.
    pub bytes: u64,
    /// Nanoseconds in the stage.
    pub busy: u64,
    /// Nanoseconds of a processor, of those that were clocked.
    pub cpu: u64,
    /// Nanoseconds in the stage, of those that were clocked.
    pub clocked: u64,
    /// Nanoseconds that the thread waited for something to do.
    pub input: u64,
    /// Nanoseconds that the thread waited for room for what it did.
    pub output: u64,
    /// How long each took.
    pub latency: Counts,
}

/// What one thread measures of itself.
#[derive(Debug)]
pub struct Lane {
    name: String,
    meters: [Meter; STAGES],
    /// Samples that were begun.
    begun: AtomicU64,
    /// How long the sample before took, in nanoseconds.
    last: AtomicU64,
    pixels: AtomicU64,
    window_pixels: AtomicU64,
    pictures: Mutex<Spread<Seen, PICTURES>>,
}

#[derive(Debug, Default)]
struct Meter {
    count: AtomicU64,
    bytes: AtomicU64,
    busy: AtomicU64,
    cpu: AtomicU64,
    clocked: AtomicU64,
    input: AtomicU64,
    output: AtomicU64,
    latency: OnceLock<Histogram>,
}

/// The processor's clock of one thread, read at the beginning of a sample and at each of its stages.
#[derive(Clone, Copy, Debug)]
pub struct CpuClock(u64);

impl Meters {
    /// Nothing yet, for a ring of so many slots.
    pub fn new(slots: usize) -> Self {
        let batches = Batches {
            ring: Ring::new(slots),
            consumer: Consumer::default(),
            timeline: Spread::default(),
        };
        Self { begin: Instant::now(), lanes: Mutex::default(), batches: Mutex::new(batches) }
    }

    /// The lane of a new thread.
    pub fn lane(&self, name: impl Into<String>) -> Arc<Lane> {
        let lane = Arc::new(Lane::new(name.into()));
        self.lanes().push(lane.clone());
        lane
    }

    /// Seconds since the loader was built.
    pub fn seconds(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    /// The first place of a batch is handed out.
    pub fn batch_begun(&self, sequence: u64) {
        let now = Instant::now();
        self.batches().ring.begun(sequence, now);
    }

    /// A batch is ready for the consumer, or was given up.
    pub fn batch_done(&self, sequence: u64, published: bool) {
        let now = Instant::now();
        self.batches().ring.done(sequence, published, now);
    }

    /// The consumer asks for a batch.
    pub fn consumer_asks(&self, epoch: u32, now: Instant) {
        self.batches().consumer.asks(epoch, now);
    }

    /// The consumer has a batch of so many samples, which it asked for at `asked`; `ready` says that it was there then.
    pub fn consumer_has(&self, asked: Instant, ready: bool, samples: u64) {
        let now = Instant::now();
        let busy = self.busy();
        let mut batches = self.batches();
        let Batches { ring, consumer, timeline } = &mut *batches;
        ring.taken(now);
        consumer.has(asked, now, ready, samples);
        timeline.add(|| Moment {
            seconds: (now - self.begin).as_secs_f64(),
            batches: consumer.steps().batches,
            ready: ring.ready(),
            waited: consumer.steps().waited as f64 * 1e-9,
            busy,
        });
    }

    /// A part of the consumer's step that is not the model's own (logging, metrics, a checkpoint) took this long.
    pub fn consumer_span(&self, name: &str, took: Duration) {
        self.batches().consumer.span(name, took);
    }

    /// The consumer's step begins, or ends: what is outside is neither step nor waiting.
    pub fn consumer_step(&self, begins: bool) {
        let now = Instant::now();
        self.batches().consumer.step(begins, now);
    }

    /// Everything as of now.
    pub fn snapshot(&self) -> Snapshot {
        let lanes = self.lanes().clone();
        let seconds = self.seconds();
        let batches = self.batches();
        Snapshot {
            seconds,
            lanes: lanes.iter().map(|lane| (lane.name.clone(), lane.counts())).collect(),
            ring: batches.ring.counts(Instant::now()),
            steps: batches.consumer.all(),
            timeline: batches.timeline.kept().to_vec(),
            pictures: lanes.iter().flat_map(|lane| lane.pictures().kept().to_vec()).collect(),
            pixels: lanes.iter().map(|lane| lane.pixels.load(Relaxed)).sum(),
            window_pixels: lanes.iter().map(|lane| lane.window_pixels.load(Relaxed)).sum(),
        }
    }

    /// Busy seconds of all threads in each stage.
    pub fn busy(&self) -> [f64; STAGES] {
        let lanes = self.lanes();
        std::array::from_fn(|stage| {
            let busy = lanes.iter().map(|lane| lane.meters[stage].busy.load(Relaxed));
            busy.sum::<u64>() as f64 * 1e-9
        })
    }

    /// Seconds that all threads waited for input and for room, in all stages.
    pub fn waits(&self) -> (f64, f64) {
        let lanes = self.lanes();
        let sum = |of: fn(&Meter) -> &AtomicU64| {
            let all = lanes.iter().flat_map(|lane| &lane.meters).map(|it| of(it).load(Relaxed));
            all.sum::<u64>() as f64 * 1e-9
        };
        (sum(|it| &it.input), sum(|it| &it.output))
    }

    fn lanes(&self) -> MutexGuard<'_, Vec<Arc<Lane>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn batches(&self) -> MutexGuard<'_, Batches> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lane {
    fn new(name: String) -> Self {
        Self {
            name,
            meters: Default::default(),
            begun: AtomicU64::new(0),
            last: AtomicU64::new(0),
            pixels: AtomicU64::new(0),
            window_pixels: AtomicU64::new(0),
            pictures: Mutex::default(),
        }
    }

    /// A stage of one item is over that began then; gives what it took.
    pub fn add(&self, stage: Stage, begin: Instant, bytes: u64) -> Duration {
        let took = begin.elapsed();
        self.add_time(stage, took, bytes);
        took
    }

    /// A stage of one item took this long.
    pub fn add_time(&self, stage: Stage, took: Duration, bytes: u64) {
        let (meter, took) = (&self.meters[stage as usize], nanoseconds(took));
        meter.count.fetch_add(1, Relaxed);
        meter.bytes.fetch_add(bytes, Relaxed);
        meter.busy.fetch_add(took, Relaxed);
        meter.latency.get_or_init(Histogram::default).add(took);
    }

    /// The thread waited this long for something to do in this stage.
    pub fn waited_for_input(&self, stage: Stage, waited: Duration) {
        self.meters[stage as usize].input.fetch_add(nanoseconds(waited), Relaxed);
    }

    /// The thread waited this long for room for what this stage gives.
    pub fn waited_for_room(&self, stage: Stage, waited: Duration) {
        self.meters[stage as usize].output.fetch_add(nanoseconds(waited), Relaxed);
    }

    /// A sample begins; gives its processor clock where that is taken.
    pub fn clock(&self) -> Option<CpuClock> {
        let number = self.begun.fetch_add(1, Relaxed);
        let short = self.last.load(Relaxed) < nanoseconds(SHORT);
        (!short || number % CLOCKED == 0).then(|| CpuClock(thread_time()))
    }

    /// Stages took this long, and the processor's time since the clock was read last is theirs, in proportion.
    pub fn clocked(&self, stages: &[(Stage, Duration)], clock: &mut CpuClock) {
        let now = thread_time();
        let cpu = now.saturating_sub(std::mem::replace(&mut clock.0, now)) as f64;
        let all: Duration = stages.iter().map(|(_, took)| *took).sum();
        for &(stage, took) in stages {
            let meter = &self.meters[stage as usize];
            let part = took.as_secs_f64() / all.as_secs_f64().max(1e-9);
            meter.cpu.fetch_add((cpu * part) as u64, Relaxed);
            meter.clocked.fetch_add(nanoseconds(took), Relaxed);
        }
    }

    /// A picture of which so many pixels will be decoded.
    pub fn saw(&self, picture: Seen, window_pixels: u64) {
        self.pixels.fetch_add(u64::from(picture.width) * u64::from(picture.height), Relaxed);
        self.window_pixels.fetch_add(window_pixels, Relaxed);
        self.pictures().add(|| picture);
    }

    /// The whole sample took this long.
    pub fn sample_took(&self, took: Duration) {
        self.last.store(nanoseconds(took), Relaxed);
    }

    fn pictures(&self) -> MutexGuard<'_, Spread<Seen, PICTURES>> {
        self.pictures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counts(&self) -> [StageCounts; STAGES] {
        std::array::from_fn(|stage| {
            let it = &self.meters[stage];
            let of = |it: &AtomicU64| it.load(Relaxed);
            StageCounts {
                count: of(&it.count),
                bytes: of(&it.bytes),
                busy: of(&it.busy),
                cpu: of(&it.cpu),
                clocked: of(&it.clocked),
                input: of(&it.input),
                output: of(&it.output),
                latency: it.latency.get().map(Histogram::counts).unwrap_or_default(),
            }
        })
    }
}

impl Snapshot {
    /// What happened after `earlier`, which is of the same loader.
    pub fn since(&self, earlier: &Snapshot) -> Snapshot {
        let lanes = self.lanes.iter().enumerate().map(|(number, (name, now))| {
            let then = earlier.lanes.get(number);
            let part = |stage: usize| match then {
                Some((_, then)) => now[stage].since(&then[stage]),
                None => now[stage].clone(),
            };
            (name.clone(), std::array::from_fn(part))
        });
        Snapshot {
            seconds: self.seconds - earlier.seconds,
            lanes: lanes.collect(),
            ring: self.ring.since(&earlier.ring),
            steps: self.steps.since(&earlier.steps),
            timeline: self
                .timeline
                .iter()
                .filter(|it| it.seconds > earlier.seconds)
                .cloned()
                .collect(),
            pictures: self.pictures.clone(),
            pixels: self.pixels - earlier.pixels,
            window_pixels: self.window_pixels - earlier.window_pixels,
        }
    }

    /// What all threads did in a stage.
    pub fn stage(&self, stage: Stage) -> StageCounts {
        let mut sum = StageCounts::default();
        for (_, stages) in &self.lanes {
            sum.add(&stages[stage as usize]);
        }
        sum
    }
}

impl StageCounts {
    fn since(&self, then: &Self) -> Self {
        Self {
            count: self.count - then.count,
            bytes: self.bytes - then.bytes,
            busy: self.busy - then.busy,
            cpu: self.cpu - then.cpu,
            clocked: self.clocked - then.clocked,
            input: self.input - then.input,
            output: self.output - then.output,
            latency: self.latency.since(&then.latency),
        }
    }

    /// These and another thread's together.
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.busy += other.busy;
        self.cpu += other.cpu;
        self.clocked += other.clocked;
        self.input += other.input;
        self.output += other.output;
        self.latency.add(&other.latency);
    }

    /// The processor's share of the time in the stage; 1 where none was clocked.
    pub fn cpu_share(&self) -> f64 {
        match self.clocked {
            0 => 1.0,
            clocked => (self.cpu as f64 / clocked as f64).min(1.0),
        }
    }
}

/// Nanoseconds that a processor has worked for this thread.
fn thread_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_named_once_and_in_order() {
        for (number, stage) in Stage::ALL.into_iter().enumerate() {
            assert_eq!(stage as usize, number);
            let json = serde_json::to_string(&stage).unwrap();
            assert_eq!(json, format!("\"{}\"", stage.name()));
        }
    }

    #[test]
    fn a_lane_adds_up_and_a_difference_is_what_came_after() {
        let meters = Meters::new(3);
        let lane = meters.lane("a");
        lane.add_time(Stage::Read, Duration::from_millis(2), 100);
        lane.waited_for_input(Stage::Read, Duration::from_millis(5));
        let before = meters.snapshot();
        lane.add_time(Stage::Read, Duration::from_millis(3), 50);
        lane.waited_for_room(Stage::Read, Duration::from_millis(7));
        let other = meters.lane("b");
        other.add_time(Stage::Read, Duration::from_millis(10), 1);
        let all = meters.snapshot();
        let read = all.stage(Stage::Read);
        assert_eq!((read.count, read.bytes, read.busy), (3, 151, 15_000_000));
        let after = all.since(&before);
        let read = after.stage(Stage::Read);
        assert_eq!((read.count, read.bytes, read.busy), (2, 51, 13_000_000));
        assert_eq!((read.input, read.output, read.latency.count()), (0, 7_000_000, 2));
        assert_eq!(after.lanes[1].0, "b");
        assert!((meters.busy()[Stage::Read as usize] - 0.015).abs() < 1e-9);
        assert_eq!(meters.waits(), (0.005, 0.007));
    }

    #[test]
    fn processor_time_is_taken_of_every_long_sample_and_of_few_short_ones() {
        let lane = Lane::new("a".into());
        lane.sample_took(Duration::from_millis(1));
        assert!((0..32).all(|_| lane.clock().is_some()));
        lane.sample_took(Duration::from_micros(20));
        assert_eq!((0..160).filter(|_| lane.clock().is_some()).count(), 10);
    }

    /// A thread that sleeps has time and no processor's time; one that works has both.
    #[test]
    fn processor_time_is_that_of_work() {
        let lane = Lane::new("a".into());
        lane.sample_took(Duration::from_secs(1));
        let mut clock = lane.clock().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        lane.clocked(&[(Stage::Read, Duration::from_millis(20))], &mut clock);
        let begin = thread_time();
        while thread_time() - begin < 20_000_000 {}
        lane.clocked(&[(Stage::Decode, Duration::from_millis(20))], &mut clock);
        let counts = lane.counts();
        assert!(counts[Stage::Read as usize].cpu < 5_000_000);
        assert!(counts[Stage::Decode as usize].cpu >= 20_000_000);
        assert_eq!(counts[Stage::Decode as usize].cpu_share(), 1.0);
    }
}
